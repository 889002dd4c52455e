"""The command `python -m companion.tables`."""

import argparse
import sys

from companion.tables import beside, figures
from lib import files


def main(argv: list[str] | None = None) -> int:
    """Renew, in place, the tables that are made from records.

    Parameters
    ----------
    argv : list of str, optional
        The words of the command, by default those of this process.

    Returns
    -------
    int
        The exit status: 1 if a file cannot be read or written, otherwise 0. With status
        1, no file is changed.

    Raises
    ------
    SystemExit
        With status 2 for any argument other than --help.
    """
    about = "Renew the tables of README, REPRODUCING and other notes from the records."
    parser = argparse.ArgumentParser(
        prog="python -m companion.tables", description=about
    )
    parser.parse_args(argv)
    try:
        # All texts are made before the first file is written.
        texts = {}
        for path in (files.ROOT / name for name in figures.FILES):
            texts[path] = figures.renewed(path.read_text(encoding="utf-8"))
        base = files.ROOT / "figures"
        texts[base / "beside.md"] = beside.page(base)
        files.write_all({path: text.encode() for path, text in texts.items()})
    except (OSError, ValueError) as error:
        print(f"companion.tables: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
