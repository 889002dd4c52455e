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


def won(found: Disputes, rules: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """By seed: disputes in which a rule's own selection has the larger margin in its own norm, and
    all of them, (seeds,) each."""
    values = np.array([v for (a, b), v in found.items() if a in rules and b in rules])
    return (values > 0).sum(0), np.isfinite(values).sum(0)


def share(count: np.ndarray, of: np.ndarray) -> tuple[float, float, float]:
    """Share of all counted, and the ends of a 95 % bootstrap over seeds; NaN where none is.

    A seed's disputes depend on each other, so that seeds are drawn and not disputes.
    """
    if not of.any():
        return np.nan, np.nan, np.nan
    drawn = stream(0, "resamples").integers(0, len(of), (RESAMPLES, len(of)))
    with np.errstate(invalid="ignore"):
        shares = count[drawn].sum(1) / of[drawn].sum(1)
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(count.sum() / of.sum()), float(low), float(high)


def apart(found: Disputes, rules: Sequence[str]) -> tuple[int, int]:
    """Of the pairs of rules whose norms prefer different selections: (each its own, all of them).

    In the others each norm prefers the other rule's selection.

    Where both norms prefer the same selection one dispute of two is won, whatever the norms are.
    """
    both = [(found[a, b] > 0, found[b, a] > 0) for a, b in combinations(rules, 2)]
    lost = [(found[a, b] < 0) & (found[b, a] < 0) for a, b in combinations(rules, 2)]
    own = int(sum((a & b).sum() for a, b in both))
    return own, own + int(np.sum(lost))


def selection_claims(
    optimal: Mapping[str, Mapping[str, np.ndarray]], found: Mapping[str, Disputes]
) -> list[Claim]:
    """Part 2; both by the names of `competing_selections.settings`, then as its functions give."""
    steepest = [name for name in optimal["from zero"] if name != ADAM]
    of_way = {way: {n: of.mean() for n, of in rules.items()} for way, rules in optimal.items()}
    zero, ties = of_way["from zero"], of_way["near ties"]
    least = min(steepest, key=zero.get)
    text = "from zero: least share of samples, over steepest descents, that select the opt token"
    most = at_least("select.most", text, SOURCE, zero[least], MOST)
    text = "near ties less from zero: largest change of that share, over all rules"
    claims = [
        remarked(most, f"The prediction is refuted by {least}"),
        at_most("select.fewer", text, SOURCE, max(ties[n] - zero[n] for n in zero), -STRICT),
    ]
    for way, values in found.items():
        count, of = won(values, steepest)
        _, low, high = found_share = share(count, of)
        text = f"{way}: share of {of.sum()} disputes won, own selection of larger own-norm margin"
        word = verdicts.NOT_REPRODUCED if high < HALF else verdicts.UNDECIDED
        word = verdicts.REPRODUCED if low > HALF else word
        name = f"select.own.{plain(way)}"
        claims.append(judged(name, text, SOURCE, found_share, "> 0.5", word, len(of)))
    text = "near ties: Adam's share of opt tokens less the least of a steepest descent"
    gap = ties[ADAM] - min(ties[n] for n in steepest)
    return [*claims, at_most("select.adam", text, SOURCE, gap, -STRICT)]


def level(readings: Sequence[MarginReading]) -> np.ndarray:
    """A rule's numbers: median over layers and heads of log ratio, (seeds, norms)."""
    return np.array([np.median(np.log(one.ratio), (0, 1)) for one in readings])


def leads(
    found: Mapping[str, Sequence[MarginReading]], rule: str, norm: str
) -> dict[str, np.ndarray]:
    """By how much `rule` is ahead of every other in a norm: paired differences (seeds,)."""
    k = NORMS.index(norm)
    own = level(found[rule])[:, k]
    return {name: own - level(runs)[:, k] for name, runs in found.items() if name != rule}


def first(
    found: Mapping[str, Sequence[MarginReading]], rule: str, norm: str
) -> tuple[str, str, Interval]:
    """(verdict, rival, its paired interval) on "`rule` has the largest ratio in `norm`".

    The rival is the one whose interval ends lowest: it decides between reproduced and undecided.
    """
    ahead = leads(found, rule, norm)
    if len(found[rule]) < 2:
        raise ValueError("a ranking needs two seeds or more")
    intervals = {name: verdicts.mean_interval(values) for name, values in ahead.items()}
    rival = min(intervals, key=lambda name: intervals[name].low)
    word = verdicts.UNDECIDED
    if len(found[rule]) >= FEWEST:
        if all(one.low > 0 for one in intervals.values()):
            word = verdicts.REPRODUCED
        elif any(one.high < 0 for one in intervals.values()):
            word = verdicts.NOT_REPRODUCED
    return word, rival, intervals[rival]


def ranking_claims(found: Mapping[str, Sequence[MarginReading]]) -> list[Claim]:
    """Part 3: who has the largest ratio in four norms."""
    claims = []
    for norm, rule in FIRST.items():
        word, rival, interval = first(found, rule, norm)
        text = f"ViT, {norm}: log ratio of {rule} less that of {rival}, the rival that decides"
        values = interval.values.mean(), interval.low, interval.high
        name = f"vit.{norm.replace(' ', '_')}"
        claims.append(judged(name, text, SOURCE, values, "> 0", word, len(interval.values)))
    return claims


def counted(found: Mapping[str, Sequence[MarginReading]]) -> np.ndarray:
    """The share of layers, heads and seeds in which each rule's ratio is the largest, (rules,
    norms)."""
    ratios = np.array([[one.ratio for one in runs] for runs in found.values()])
    largest = ratios.argmax(0)  # (seeds, layers, heads, norms)
    return np.array([(largest == k).mean((0, 1, 2)) for k in range(len(found))])


def turned(of: Mapping) -> dict:
    """The wrong world in which every rule is judged by the next rule's run."""
    names = list(of)
    return {n: of[m] for n, m in zip(names, names[1:] + names[:1], strict=True)}


def caught(here: Sequence[Claim], there: Sequence[Claim]) -> list[str]:
    """The ids of the claims that hold here and fail there."""
    failing = {claim.id for claim in there if not claim.holds}
    return [claim.id for claim in here if claim.holds and claim.id in failing]
