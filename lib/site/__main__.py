"""The command `python -m lib.site`."""

import argparse
import sys
from pathlib import Path

from lib import files


def main(argv: list[str] | None = None) -> int:
    """Write the pages, or the Markdown tables of README and REPRODUCING; the exit status.

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
        # What draws and converts takes seconds to import: after a mistake in the command line has
        # been said, and only what was asked for.
        if asked.what == "tables":
            from lib.site import tables

            tables.renew()
        else:
            from lib.site import build

            print("\n".join(build.build(folder)) or "no troubles")
            print(f"open {folder / 'index.html'}")
    except (OSError, ValueError) as error:
        print(f"lib.site: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
