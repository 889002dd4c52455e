"""The command `python -m lib.site`."""

import argparse
import sys
from pathlib import Path

from lib import files


def main(argv: list[str] | None = None) -> int:
    """Write the pages or the Markdown tables; the exit status.

    Troubles are printed and stop nothing, except a table that cannot be read, a formula that would
    be shown raw, and a disk that takes no file.
    """
    about = "Write the site of figures and notebooks, or the tables of README and REPRODUCING."
    parser = argparse.ArgumentParser(prog="python -m lib.site", description=about)
    parser.add_argument("what", nargs="?", choices=("pages", "tables"), default="pages")
    text = "where the pages go; default: runs/site, which is replaced"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    asked = parser.parse_args(argv)
    folder = asked.out or files.folder("runs") / "site"
    ours = not folder.exists() or (folder / "index.html").exists()
    if asked.what == "pages" and not ours and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} holds something else than a site; choose another folder")
    try:
        _write(asked.what, folder)
    except (OSError, ValueError) as error:
        print(f"lib.site: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


def _write(what: str, folder: Path) -> None:
    # What draws and converts takes seconds to import: only what was asked for, and after a mistake
    # in the command line has been said.
    if what == "tables":
        from lib.site import tables

        tables.renew()
        return
    from lib.site.build import build

    for trouble in build(folder):
        print(trouble)
    found = [path for path in folder.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in found) / 1e6
    print(f"{len(found)} files, {megabytes:.1f} MB; open {folder / 'index.html'}")


if __name__ == "__main__":
    raise SystemExit(main())
