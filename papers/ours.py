"""The claims that no paper makes, by id, with their words from `ours.toml`.

The law of the margins and the atlas of optimisers state their measurements as these
claims.
"""

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from companion.claims import Claim, bounded, interval
from lib.files import read_table

# Claims by id: source, bound, words.
ROWS = {
    id: (source, *row)
    for source, table in read_table(Path(__file__).with_name("ours.toml")).items()
    for id, *row in table["rows"]
}
BOUNDS = {id: float(bound.split()[-1]) for id, (_, bound, _) in ROWS.items()}


RESAMPLES = 2000  # bootstrap samples of the seeds for an interval


def claim(
    id: str,
    values: ArrayLike,
    setting: str = "",
    *words_for_places: object,
    bound: str = "",
    source: str = "",
    each: bool = False,
    **more: Any,
) -> Claim:
    """Check `values` by the bound in a row of ours.toml; the claim is about the worst
    of them.

    Parameters
    ----------
    id : str
        The claim's id. If the table has a row `id.setting`, that row is used.
    values : array_like
        What was measured, one number per run.
    setting : str
        Replaces {0} in the row's words.
    *words_for_places : object
        Replace {1}, {2}, ... in the row's words.
    bound, source : str
        Used instead of the row's, if given.
    each : bool
        Whether there is one value per seed, so that the claim also states the interval
        of their mean.
    **more : Any
        As in `companion.claims.bounded`.

    Returns
    -------
    Claim

    Raises
    ------
    KeyError
        If the table has neither a row `id.setting` nor a row `id`.
    """
    whole = f"{id}.{setting}" if setting else id
    known, asked, words = ROWS.get(whole) or ROWS[id]
    if each:
        more["interval"] = interval(values)
    if setting or words_for_places:
        words = words.format(setting, *words_for_places)
    return bounded(whole, words, source or known, bound or asked, values, **more)
