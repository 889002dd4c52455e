"""Bars that show the progress of training once it has taken ten seconds.

A bar appears on the standard error of a command, and as a widget in Jupyter. When
training ends, the bar disappears. `python -m companion.batch` sets ``TQDM_DISABLE=1``,
so that stored pages have no bars. Set this variable yourself to switch the bars off.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tqdm import tqdm

DELAY = 10.0  # seconds before a bar appears


def bar(total: float, delay: float | None = None) -> "tqdm":
    """Make a bar for a number of steps.

    Parameters
    ----------
    total : float
        The number of steps.
    delay : float, optional
        The seconds until the bar appears. Default: DELAY.

    Returns
    -------
    tqdm
        The bar. Its `n` is the number of steps that are done. Close the bar at the end.

    Examples
    --------
    >>> from lib import progress
    >>> with progress.bar(3) as bar:
    ...     done = bar.update(3)
    """
    from tqdm.auto import tqdm  # imported here because it takes 30 ms

    delay = DELAY if delay is None else delay
    return tqdm(total=total, delay=delay, desc="training", unit=" steps", leave=False)


def steps(count: int) -> Iterator[int]:
    """Count the steps of a loop, and show a bar if the loop takes long.

    Parameters
    ----------
    count : int
        The number of steps.

    Yields
    ------
    int
        0, 1, ..., count - 1.

    Examples
    --------
    >>> from lib import progress
    >>> list(progress.steps(3))
    [0, 1, 2]
    """
    with bar(count) as shown:
        for step in range(count):
            yield step
            shown.update()
