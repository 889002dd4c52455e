"""Ctrl-C and SIGTERM, answered in one sentence and with exit status 130."""

import contextlib
import os
import signal
import sys
from types import FrameType

SENTENCE = "Interrupted; what is finished stays, the rest runs next time."
STATUS = 130  # the status that a shell reports for a command that Ctrl-C has ended


def end_in_a_sentence() -> None:
    """Let Ctrl-C or SIGTERM end this process, and all that it started, in one sentence.

    Notes
    -----
    A traceback would tell a user nothing, and the processes below do not all see the
    terminal's Ctrl-C. `import lib` calls this where it begins one of the project's own
    commands, so it holds from the first import on.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a fork of the command: the command speaks
            os._exit(STATUS)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_children()
        with contextlib.suppress(Exception):  # the signal may have come within a print
            sys.stdout.flush()
        os.write(2, f"{SENTENCE}\n".encode())
        os._exit(STATUS)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


def is_own_command(words: list[str]) -> bool:
    """Say whether a command line is `python -m` of this project.

    Parameters
    ----------
    words : list of str
        The command line, as `sys.orig_argv` has it.

    Returns
    -------
    bool
        Whether it is.

    Examples
    --------
    >>> from lib import interrupt
    >>> interrupt.is_own_command(["python", "-m", "lib.training", "digits"])
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
            return False  # a script: what follows is its own
        before = word
    return False


def _kill_children() -> None:
    """Kill every process below this one."""
    try:
        import psutil

        children = psutil.Process().children(recursive=True)
    except Exception:  # not installed, or the signal came while it was being imported
        return
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
