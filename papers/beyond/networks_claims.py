"""What the protocol says of competing selections and of the vision transformer, judged.

Words and bounds are those of notebooks/networks_protocol.md, parts 2 and 3.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from lib.companion.claims import Claim, at_least, at_most, judged, remarked
from lib.seeds import stream
from papers import verdicts
from papers.beyond.atlas_claims import word as plain
from papers.beyond.factor_norms import NORMS, SIGN
from papers.beyond.network_margins import MarginReading
from papers.beyond.thresholds import RESAMPLES
from papers.verdicts import Interval

SOURCE = "ours, beyond paper A's Theorem 1"
FEWEST = 3  # seeds, below which a ranking is undecided
MOST, HALF = 0.9, 0.5
STRICT = 1e-9  # by which "more" exceeds "as much"
ADAM = "Adam, 0.999"
FIRST = {"spectral": "Muon", "l_inf": "Signum", SIGN: "Signum", "nuclear": "NGD"}  # predicted

Disputes = Mapping[tuple[str, str], np.ndarray]


def won(disputes: Disputes, rules: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """By seed: disputes in which a rule's own selection has the larger margin in its own norm, and
    all of them, (seeds,) each."""
    values = np.array([v for (a, b), v in disputes.items() if a in rules and b in rules])
    return (values > 0).sum(0), np.isfinite(values).sum(0)


def share(count: np.ndarray, asked: np.ndarray) -> tuple[float, float, float]:
    """Share of all `asked`, and the ends of a 95 % bootstrap over seeds; NaN where none is.

    A seed's disputes depend on each other, so that seeds are drawn and not disputes.
    """
    if not asked.any():
        return np.nan, np.nan, np.nan
    drawn = stream(0, "resamples").integers(0, len(asked), (RESAMPLES, len(asked)))
    with np.errstate(invalid="ignore"):
        shares = count[drawn].sum(1) / asked[drawn].sum(1)
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(count.sum() / asked.sum()), float(low), float(high)


def apart(disputes: Disputes, rules: Sequence[str]) -> tuple[int, int]:
    """Of the pairs of rules whose norms prefer different selections: (each its own, all of them).

    In the others each norm prefers the other rule's selection. Where both norms prefer the same
    selection one dispute of two is won, whatever the norms are.
    """
    pairs = [np.array([disputes[a, b], disputes[b, a]]) for a, b in combinations(rules, 2)]
    own = sum(int((pair > 0).all(0).sum()) for pair in pairs)
    return own, own + sum(int((pair < 0).all(0).sum()) for pair in pairs)


def selection_claims(
    optimal: Mapping[str, Mapping[str, np.ndarray]], disputes: Mapping[str, Disputes]
) -> list[Claim]:
    """Part 2; both by the names of `competing_selections.settings`, then as its functions give."""
    steepest = [name for name in optimal["from zero"] if name != ADAM]
    zero, ties = (
        {name: shares.mean() for name, shares in optimal[way].items()}
        for way in ("from zero", "near ties")
    )
    lowest, adam = (
        min(steepest, key=lambda name: zero[name]),
        ties[ADAM] - min(ties[n] for n in steepest),
    )
    change = max(ties[n] - zero[n] for n in zero)
    text = "from zero: least share of samples, over steepest descents, that select the opt token"
    most = at_least("select.most", text, SOURCE, zero[lowest], MOST)
    claims = [remarked(most, f"The prediction is refuted by {lowest}")]
    text = "near ties less from zero: largest change of that share, over all rules"
    claims.append(at_most("select.fewer", text, SOURCE, change, -STRICT))
    for way, values in disputes.items():
        count, asked = won(values, steepest)
        _, low, high = estimate = share(count, asked)
        text = (
            f"{way}: share of {asked.sum()} disputes won, own selection of larger own-norm margin"
        )
        word = verdicts.NOT_REPRODUCED if high < HALF else verdicts.UNDECIDED
        word = verdicts.REPRODUCED if low > HALF else word
        name = f"select.own.{plain(way)}"
        claims.append(judged(name, text, SOURCE, estimate, "> 0.5", word, len(asked)))
    text = "near ties: Adam's share of opt tokens less the least of a steepest descent"
    return [*claims, at_most("select.adam", text, SOURCE, adam, -STRICT)]


def level(readings: Sequence[MarginReading]) -> np.ndarray:
    """A rule's numbers: median over layers and heads of log ratio, (seeds, norms)."""
    return np.array([np.median(np.log(reading.ratio), (0, 1)) for reading in readings])


def leads(
    readings: Mapping[str, Sequence[MarginReading]], rule: str, norm: str
) -> dict[str, np.ndarray]:
    """By how much `rule` is ahead of every other in a norm: paired differences (seeds,)."""
    k = NORMS.index(norm)
    levels = {name: level(seeds)[:, k] for name, seeds in readings.items()}
    return {name: levels[rule] - other for name, other in levels.items() if name != rule}


def _first(readings, rule, norm) -> tuple[str, str, Interval]:
    """(verdict, rival, its paired interval) on "`rule` has the largest ratio in `norm`".

    The rival is the one whose interval ends lowest: it decides between reproduced and undecided.
    """
    if len(readings[rule]) < 2:
        raise ValueError("a ranking needs two seeds or more")
    ahead = leads(readings, rule, norm)
    intervals = {name: verdicts.mean_interval(values) for name, values in ahead.items()}
    rival = min(intervals, key=lambda name: intervals[name].low)
    word = verdicts.UNDECIDED
    if len(readings[rule]) >= FEWEST and intervals[rival].low > 0:
        word = verdicts.REPRODUCED
    elif len(readings[rule]) >= FEWEST and any(of.high < 0 for of in intervals.values()):
        word = verdicts.NOT_REPRODUCED
    return word, rival, intervals[rival]


def ranking_claims(readings: Mapping[str, Sequence[MarginReading]]) -> list[Claim]:
    """Part 3: who has the largest ratio in four norms."""
    claims = []
    for norm, rule in FIRST.items():
        word, rival, interval = _first(readings, rule, norm)
        text = f"ViT, {norm}: log ratio of {rule} less that of {rival}, the rival that decides"
        values = interval.values.mean(), interval.low, interval.high
        name = f"vit.{norm.replace(' ', '_')}"
        claims.append(judged(name, text, SOURCE, values, "> 0", word, len(interval.values)))
    return claims


def counted(readings: Mapping[str, Sequence[MarginReading]]) -> np.ndarray:
    """Share of layers, heads and seeds in which a rule has the largest ratio, (rules, norms)."""
    ratios = np.array([[reading.ratio for reading in seeds] for seeds in readings.values()])
    largest = ratios.argmax(0)  # (seeds, layers, heads, norms)
    return np.array([(largest == k).mean((0, 1, 2)) for k in range(len(readings))])
