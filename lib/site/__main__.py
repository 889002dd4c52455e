"""The command `python -m lib.site`."""

import argparse
from pathlib import Path

from lib import files


def main(argv: list[str] | None = None) -> int:
    """Write the pages, the Markdown tables or the moving picture of figures/.

    Troubles are printed and stop nothing.
    """
    about = "Write the site of figures and notebooks, the tables of README and REPRODUCING, or the"
    about += " moving picture of figures/."
    parser = argparse.ArgumentParser(prog="python -m lib.site", description=about)
    parser.add_argument(
        "what", nargs="?", choices=("pages", "tables", "animation"), default="pages"
    )
    text = "where the pages go; default: runs/site, which is replaced"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    asked = parser.parse_args(argv)
    # What draws and converts takes seconds to import: only what was asked for, and after a mistake
    # in the command line has been said.
    if asked.what == "tables":
        from lib.site import tables

        tables.renew()
        return 0
    if asked.what == "animation":
        from lib.papers.a import turning

        turning.animate(files.ROOT / "figures/turning.gif", files.ROOT / "figures/turning.png")
        return 0
    folder = asked.out or files.folder("runs") / "site"
    ours = not folder.exists() or (folder / "index.html").exists()
    if not ours and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} holds something else than a site; choose another folder")
    from lib.site.build import build

    for trouble in build(folder):
        print(trouble)
    found = [path for path in folder.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in found) / 1e6
    print(f"{len(found)} files, {megabytes:.1f} MB; open {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
