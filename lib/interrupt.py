"""Let Ctrl-C and SIGTERM end a command with one sentence and exit status 130."""

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from types import FrameType

SENTENCE = "Interrupted; what is finished stays, the rest runs next time."
CONSOLE_COMMAND = "attention-dynamics"  # the script that pip and uv install
STATUS = 130  # the exit status that a shell reports for a command that Ctrl-C has ended
# Functions without arguments that remove temporary folders of this process. They are
# needed because an interrupt ends the process without Python's own clean-up.
CLEAN_UP: list[Callable[[], object]] = []


def end_in_a_sentence() -> None:
    """Let Ctrl-C or SIGTERM end this process and its children, with a single sentence.

    The sentence is written to stderr, and the exit status is `STATUS`.

    Raises
    ------
    ValueError
        If it is not called in the main thread, the only thread in which Python handles
        signals.

    Notes
    -----
    A traceback would not help a user. And since not all child processes receive the
    Ctrl-C of the terminal, this function also ends the children. `import lib` calls it
    if the process runs one of the project's own commands, so that it takes effect from
    the first import on.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # in a fork, leave the sentence to the command itself
            os._exit(STATUS)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Other threads still run. They may warn that a child has ended.
        warnings.simplefilter("ignore")
        _kill_children()
        for clean in CLEAN_UP:
            with contextlib.suppress(Exception):
                clean()
        with contextlib.suppress(Exception):  # the signal may have come during a print
            sys.stdout.flush()
        os.write(2, f"{SENTENCE}\n".encode())
        os._exit(STATUS)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


def is_own_command(words: list[str]) -> bool:
    """Return whether a command line runs one of this project's own commands.

    These are its modules, run with `python -m`, and the installed script
    `CONSOLE_COMMAND`.

    Parameters
    ----------
    words : list of str
        The command line, in the form of `sys.orig_argv`.

    Returns
    -------
    bool
        Whether the module is in `lib`, `companion` or `papers`, or is one of them, or
        whether the script has the name of the installed one.

    Examples
    --------
    >>> from lib import interrupt
    >>> interrupt.is_own_command(["python", "-m", "lib.training", "digits"])
    True
    >>> interrupt.is_own_command(["python", ".venv/bin/attention-dynamics", "00"])
    True
    >>> interrupt.is_own_command(["python", "script.py", "-m", "lib.training"])
    False
    """
    before = ""
    for place, word in enumerate(words[1:], start=1):
        if word == "-m":
            module = "".join(words[place + 1 :][:1])
            return module.partition(".")[0] in ("lib", "companion", "papers")
        if not word.startswith("-") and before not in ("-X", "-W"):
            # A script, whose own arguments follow. On Windows its name ends in ".exe".
            name = os.path.splitext(os.path.basename(word))[0]
            return name == CONSOLE_COMMAND
        before = word
    return False


def _kill_children() -> None:
    """Kill all child processes of this process, and their children.

    Without psutil, the function does nothing.
    """
    try:
        import psutil

        children = psutil.Process().children(recursive=True)
    except Exception:  # not installed, or the signal came while it was being imported
        return
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
