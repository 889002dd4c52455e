"""One batch at a time for each notebook and scale.

The lock ends with the process that has it.
"""

import contextlib
import getpass
import os
import platform
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from lib import files
from lib.batch.job import Job


class Held(Exception):
    """Another batch has the notebook; the text says which, and since when."""


def acquire(job: Job) -> FileLock:
    """The lock of a job, held from now on until it is released or this process ends.

    Raises `Held` where another process has it, OSError where no file can be written.
    """
    job.lock.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(job.lock), job.lock.with_suffix(".holder")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise Held(f"another batch runs it: {_words(holder)}") from None
    about = {"process": os.getpid(), "machine": platform.node(), "user": _user()}
    about["since"] = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    files.write(holder, files.dumps(about).encode())
    return lock


def _words(holder: Path) -> str:
    try:
        about = files.read_object(holder)
        return "process {process} of {user} on {machine}, since {since}".format(**about)
    except (OSError, ValueError, KeyError):
        return "a process that has not written its name yet"


def _user() -> str:
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "an unnamed user"
