"""The command `python -m lib.site`."""

import argparse
import sys
from pathlib import Path

from lib import files


def main(argv: list[str] | None = None) -> int:
    """Write the pages, or the Markdown tables; the exit status.

    Troubles are printed, and stop nothing except where a table cannot be read, a formula would be
    shown raw, or a disk takes no file.
    """
    about = "Write the site of figures and notebooks, or the tables of README and REPRODUCING."
    parser = argparse.ArgumentParser(prog="python -m lib.site", description=about)
    parser.add_argument("what", nargs="?", choices=("pages", "tables"), default="pages")
    text = "where the pages go, in place of a site that is there; default: runs/site"
    parser.add_argument("--out", type=Path, default=files.folder("runs") / "site", help=text)
    asked = parser.parse_args(argv)
    folder = asked.out
    if asked.what == "pages" and folder.exists() and not (folder / "index.html").exists():
        parser.error(f"{folder} holds something else than a site; choose another folder")
    try:
        # After a mistake in the command line has been said: what draws takes seconds to import.
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
