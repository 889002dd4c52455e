"""Run notebooks without a browser: `python -m companion.batch`, or `make figures`.

Open `run` first, which is the command. `job` plans which pages to run, `work` runs
them, and `reference` compares figures with the committed ones and copies them.
"""

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : list of str, optional
        The words of the command line. By default they are those of this process.

    Returns
    -------
    int
        The exit status of `companion.batch.run.main`.

    Raises
    ------
    SystemExit
        With status 2, if bad usage is found before anything runs. With status 1, if a
        package that pages need is missing; the message says how to install it.
    """
    # The core of the project can be installed without the packages that pages need.
    try:
        from companion.batch.run import main as run
    except ModuleNotFoundError as error:
        sys.exit(
            f"The package {error.name} is missing, and pages need it. Install it with "
            "pip install 'attention-dynamics[notebooks]'."
        )
    return run(argv)
