"""How much memory is available, and a check before a large part of it is used."""

import math
import os
import re
from pathlib import Path

MEMINFO = Path("/proc/meminfo")


def available() -> float:
    """Return how many bytes of memory this process can still use.

    Returns
    -------
    float
        On Linux, the system's estimate of how much memory can be used without swapping.
        On other systems, the total memory of the machine, or infinity if it is not
        known. A lower limit that a container or a job scheduler sets is not taken into
        account.

    Examples
    --------
    >>> from lib import memory
    >>> memory.available() > 0
    True
    """
    try:
        found = re.search(r"MemAvailable: *(\d+) kB", MEMINFO.read_text())
    except OSError:
        found = None
    if found:
        return 1024.0 * int(found[1])
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


def require(needed: float, what: str, instead: str) -> None:
    """Raise MemoryError if an amount of memory is not available.

    Parameters
    ----------
    needed : float
        The bytes.
    what : str
        What needs these bytes, as the beginning of a sentence.
    instead : str
        What to do instead, as the end of this sentence.

    Raises
    ------
    MemoryError
        If less than `needed` is available. The message states the needed and the
        available memory.

    Examples
    --------
    >>> from lib import memory
    >>> memory.require(1e3, "a list", "take a shorter one")
    >>> memory.require(1e18, "a list", "take a shorter one")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    MemoryError: a list needs 1,000,000,000.0 GB of memory, and ... GB are ...
    """
    there = available()
    if needed > there:
        raise MemoryError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory, and {there / 1e9:,.1f} GB "
            f"are available: {instead}"
        )
