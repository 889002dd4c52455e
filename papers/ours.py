"""The claims that are our own and not a paper's, by id, with their texts from
`ours.toml`.

The law of the margins and the atlas of optimisers state their measurements as these
claims.
"""

from dataclasses import replace
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


RESAMPLES = 2000  # number of bootstrap samples of the seeds for an interval


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
    """Check `values` against the bound in a row of ours.toml.

    The claim is about the worst value.

    Parameters
    ----------
    id : str
        The claim's id. If the table has a row `id.setting`, that row is used.
    values : array_like
        The measured values, one number per run.
    setting : str
        The text that replaces {0} in the row's text.
    *words_for_places : object
        The texts that replace {1}, {2}, ... in the row's text.
    bound, source : str
        If given, they are used instead of those in the row.
    each : bool
        Whether there is one value per seed. If so, the claim also states the interval
        of the mean of the values.
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
    required = bound or asked
    checked = bounded(whole, words, source or known, required, values, **more)
    # `bounded` writes four digits, which would turn "≤ 0.989999" into "≤ 0.99".
    if "expected" not in more and _ends(checked.bound) != _ends(required):
        checked = replace(checked, bound=required)
    return checked


def _ends(bound: str) -> list[float]:
    """Return the numbers in a bound such as "≤ 1" or "1 ± 0.05"."""
    return [float(word) for word in bound.split() if word not in ("≤", "≥", "±")]
