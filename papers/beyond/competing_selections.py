"""Tokens that an optimiser's run ends in, where several selections are locally optimal.

Each sample may end in any token whose rivals of small margin score lower. The norm of a rule
decides which of these selections its run comes to; here they are counted, and the largest margins
of the selections of two rules are compared in each rule's own norm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from lib import attention, svm
from lib.attention.token_sets import TokenSet
from lib.attention.tokens import unit_tokens
from lib.seeds import stream
from papers.beyond import atlas
from papers.beyond.atlas_rules import Row
from papers.beyond.engine import training

LEAD = 0.01  # score by which the best token leads where tokens nearly tie
HOLD = 5.0  # margin of the wrong tokens at a wrong start
SHAPE = dict(n=6, T=8, d=10)


def _near_ties(tokens: TokenSet, lead: float = LEAD) -> TokenSet:
    """The set with each second-best token moved along the head, to a score `lead` below the best.

    x_2 <- x_2 + y (s_1 - lead - s_2) u / ||u||^2. Raises ValueError unless lead > 0.
    """
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


def _wrong_start(tokens: TokenSet, seeds: Sequence[int], hold: float = HOLD) -> np.ndarray:
    """W_0 (runs, d, d_z) that favours a random token other than opt in every sample.

    hold times the Frobenius token SVM of that selection: its tokens lead by a margin of `hold`.
    Selections that no W makes are drawn again.
    """
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
    """For rules a, b: log of the margin, in a's norm, of a's selection over that of b's selection.

    (runs,) each: NaN unless both have kept a selection and the two differ; positive where a's is
    the larger in its own norm.
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
