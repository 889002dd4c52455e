"""`python -m companion.batch` as the command attention-dynamics."""

import os
import sys


def main() -> int:
    """Run the command.

    The import is inside the function, because worker processes also execute this
    script.

    Returns
    -------
    int
        The exit status of `companion.batch.main`.

    Raises
    ------
    SystemExit
        If a package that pages need is missing; the message says how to install it.
    """
    # If this variable is set, each of a hundred processes compiles all packages again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    from companion.batch import main as batch

    return batch()
