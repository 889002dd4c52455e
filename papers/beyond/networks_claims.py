"""Competing selections and the vision transformer: runs, and what the protocol says, judged.

Words and bounds are those of notebooks/networks_protocol.md, parts 2 and 3. A sample may end in any
token whose rivals of small margin score lower; the norm of a rule decides in which. Two rules'
selections are compared by their largest margins in each rule's own norm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import numpy as np

from lib import attention, svm
from lib.attention.token_sets import TokenSet
from lib.attention.tokens import unit_tokens
from lib.companion.claims import Claim, at_least, at_most, judged
from lib.seeds import stream
from papers import verdicts
from papers.beyond import atlas
from papers.beyond.atlas_claims import word as plain
from papers.beyond.atlas_rules import Row
from papers.beyond.engine import training
from papers.beyond.factor_norms import NORMS, SIGN
from papers.beyond.global_map import RESAMPLES
from papers.beyond.network_margins import MarginReading

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
    """Share of all `asked`, and the ends of a 95 % bootstrap over seeds, as a seed's disputes
    depend.
    """
    if not asked.any():
        return np.nan, np.nan, np.nan
    drawn = stream(0, "resamples").integers(0, len(asked), (RESAMPLES, len(asked)))
    with np.errstate(invalid="ignore"):
        shares = count[drawn].sum(1) / asked[drawn].sum(1)
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(count.sum() / asked.sum()), float(low), float(high)


def apart(disputes: Disputes, rules: Sequence[str]) -> tuple[int, int]:
    """Pairs of rules whose norms prefer different selections: (each its own, all of them).

    In the others each norm prefers the other rule's selection. Where both norms prefer the same one
    of two disputes is won, whatever the norms are.
    """
    pairs = [np.array([disputes[a, b], disputes[b, a]]) for a, b in combinations(rules, 2)]
    own = sum(int((pair > 0).all(0).sum()) for pair in pairs)
    return own, own + sum(int((pair < 0).all(0).sum()) for pair in pairs)


def selection_claims(
    optimal: Mapping[str, Mapping[str, np.ndarray]], disputes: Mapping[str, Disputes]
) -> list[Claim]:
    """Part 2; both by the names of `settings`, then as its functions give."""
    steepest = [name for name in optimal["from zero"] if name != ADAM]
    ways = optimal["from zero"], optimal["near ties"]
    zero, ties = ({name: shares.mean() for name, shares in way.items()} for way in ways)
    lowest = min(steepest, key=lambda name: zero[name])
    change = max(ties[n] - zero[n] for n in zero)
    text = "from zero: least share of samples, over steepest descents, that select the opt token"
    why = f"The prediction is refuted by {lowest}"
    claims = [at_least("select.most", text, SOURCE, zero[lowest], MOST, why=why)]
    text = "near ties less from zero: largest change of that share, over all rules"
    claims.append(at_most("select.fewer", text, SOURCE, change, -STRICT))
    for way, values in disputes.items():
        count, asked = won(values, steepest)
        _, low, high = estimate = share(count, asked)
        text = f"{way}: share of {asked.sum()} disputes won, "
        text += "own selection of larger own-norm margin"
        word = verdicts.NOT_REPRODUCED if high < HALF else verdicts.UNDECIDED
        word = verdicts.REPRODUCED if low > HALF else word
        name = f"select.own.{plain(way)}"
        claims.append(judged(name, text, SOURCE, estimate, "> 0.5", word, len(asked)))
    adam = ties[ADAM] - min(ties[name] for name in steepest)
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


def _first(readings, rule, norm):
    """(verdict, rival, its paired interval) on "`rule` has the largest ratio in `norm`".

    The rival is the one whose interval ends lowest.
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


LEAD = 0.01  # score by which the best token leads where tokens nearly tie
HOLD = 5.0  # margin of the wrong tokens at a wrong start
SHAPE = dict(n=6, T=8, d=10)


def _near_ties(tokens, lead=LEAD):
    """Second-best tokens moved along the head to `lead` > 0 below the best, else ValueError."""
    if not lead > 0:
        raise ValueError(f"lead = {lead}; it must be positive")
    scores = attention.scores(tokens, tokens.u)  # y_i u^T x_{i,t}, (runs, n, T)
    order = np.argsort(-scores, -1)
    first, second = (np.take_along_axis(scores, order[..., k, None], -1) for k in (0, 1))
    lift = tokens.y[..., None] * (first - lead - second)  # (runs, n, 1)
    toward = tokens.u / (tokens.u**2).sum(-1, keepdims=True)  # (runs, d)
    X = tokens.X.copy()
    moved = np.take_along_axis(X, order[..., 1, None, None], 2)  # (runs, n, 1, d)
    moved = moved + lift[..., None] * toward[:, None, None]
    np.put_along_axis(X, order[..., 1, None, None], moved, 2)
    return replace(tokens, X=X)


def _wrong_start(tokens, seeds, hold=HOLD):
    """W_0 (runs, d, d_z): `hold` times the token SVM of random tokens other than opt."""
    _, n, T, _ = tokens.shape
    starts = []
    for opt, seed in zip(tokens.opt, seeds, strict=True):
        draws, run = stream(seed, "selection"), len(starts)
        while len(starts) == run:
            wrong = (opt + draws.integers(1, T, n)) % T
            try:
                starts.append(hold * svm.token_svm(tokens.run(run), wrong[None]).W[0])
            except svm.Infeasible:
                continue
    return np.array(starts)


@dataclass(frozen=True)
class _Ended:
    """Where a rule's runs ended."""

    selection: np.ndarray  # (runs, n)
    kept: np.ndarray  # (runs,) the same since half time, and ahead of all other tokens


def settings(seeds: Sequence[int]) -> dict[str, tuple[TokenSet, np.ndarray | None]]:
    """The three ways in which selections compete: (tokens, W_0) by name, None for zero."""
    data = unit_tokens(seeds, **SHAPE)
    return {
        "from zero": (data, None),
        "near ties": (_near_ties(data), None),
        "wrong start": (data, _wrong_start(data, seeds)),
    }


def ended(
    tokens: TokenSet, rows: Mapping[str, Row], steps: int, start: np.ndarray | None
) -> dict[str, _Ended]:
    """Every rule's runs, trained for `steps` steps."""
    rules = {name: row.rule for name, row in rows.items()}
    paths = training.train(tokens, rules, steps, start=start, record=[steps // 2, steps])
    ends = {}
    for name, path in paths.items():
        first, last = (atlas.selected(tokens, path.W[:, k]) for k in (0, 1))
        ahead = atlas.least_margins(tokens, last, path.W)[:, -1] > 0
        ends[name] = _Ended(last, (first == last).all(1) & ahead & (path.status == "completed"))
    return ends


def optimal(tokens: TokenSet, runs: Mapping[str, _Ended]) -> dict[str, np.ndarray]:
    """The share of samples in which each rule's runs selected the opt token, (runs,)."""
    return {name: (end.selection == tokens.opt).mean(1) for name, end in runs.items()}


class OwnMargins:
    """gamma_N of selections in single norms, each solved once; NaN where no W makes one."""

    def __init__(self, tokens: TokenSet):
        self.tokens, self.known = tokens, {}

    def gamma(self, run: int, selection: np.ndarray, norm: str) -> float:
        """gamma_N of one run's selection (n,), N by its name in `atlas.NORMS`."""
        key = run, norm, *map(int, selection)
        if key not in self.known:
            try:
                solved = svm.token_svm(self.tokens.run(run), selection[None], atlas.NORMS[norm])
                self.known[key] = 1 / solved.norm[0]
            except svm.Infeasible:
                self.known[key] = np.nan
        return self.known[key]


def disputes(
    rows: Mapping[str, Row], runs: Mapping[str, _Ended], margins: OwnMargins
) -> dict[tuple[str, str], np.ndarray]:
    """Log of the margin, in rule a's norm, of a's selection over that of b's, by (a, b).

    (runs,) each: NaN unless both have kept a selection and the two differ.
    """
    logs = {}
    for a, b in permutations(rows, 2):
        apart = (runs[a].selection != runs[b].selection).any(1) & runs[a].kept & runs[b].kept
        logs[a, b] = np.full(len(apart), np.nan)
        for run in np.flatnonzero(apart):
            ends = (runs[name].selection[run] for name in (a, b))
            gammas = [margins.gamma(run, selected, rows[a].highest) for selected in ends]
            logs[a, b][run] = np.log(gammas[0] / gammas[1])
    return logs
