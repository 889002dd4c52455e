"""Break paper A's assumptions one step at a time, and count which runs still reach W_mm."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib import attention, dynamics, svm
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.attention.tokens import class_mean_tokens
from lib.companion.claims import Claim, at_least, at_most
from lib.dynamics.rules import GradientRule
from lib.papers.a.fixed_head import reached
from lib.seeds import stream


def skewed(tokens: TokenSet, spread: float, seeds: Sequence[int]) -> TokenSet:
    """Break Assumption 2: add to u a random vector orthogonal to all opt tokens, one seed per run.

    It gives the other tokens scores in [-spread, spread] times the smallest opt score, reached by
    at least one of them; the opt tokens keep their scores. Raises ValueError unless 0 <= spread < 1
    (the opt tokens would change).
    """
    if not 0 <= spread < 1:
        raise ValueError(
            f"spread = {spread}; it must be in [0, 1), so that the opt tokens stay the best"
        )
    d, opt = tokens.shape[-1], tokens.opt[..., None]
    added = np.stack([stream(seed, "draws").standard_normal(d) for seed in seeds])
    for run, opt_tokens in enumerate(np.take_along_axis(tokens.X, opt[..., None], 2)[:, :, 0]):
        added[run] -= np.linalg.pinv(opt_tokens, rcond=1e-9) @ (opt_tokens @ added[run])
    scores = np.abs(attention.scores(tokens, added))
    np.put_along_axis(scores, opt, 0.0, -1)
    best = np.take_along_axis(attention.scores(tokens, tokens.u), opt, -1).min((1, 2))
    return replace(tokens, u=tokens.u + added * (spread * best / scores.max((1, 2)))[:, None])


def bounded_tokens(
    seeds: Sequence[int], n: int, T: int, d: int, ratio: float, size: float = 2.0
) -> TokenSet:
    """`class_mean_tokens` whose noise tokens are `ratio` times as long as its opt tokens.

    The longer ones have length `size`. Nearly orthogonal in high dimension d; in low d the noise
    tokens overlap and Assumption 1 fails.
    """
    signal, noise = size * min(1.0, 1.0 / ratio), size * min(1.0, ratio)
    return class_mean_tokens(seeds, n, T, d, signal, noise / np.sqrt(d))


def fraction_reached(
    tokens: TokenSet, rules: Mapping[str, GradientRule], steps: int
) -> dict[str, float]:
    """From W_0 = 0, per rule: the fraction of all runs with a W_mm that reach it.

    Reached as `fixed_head.reached` says. Besides: "feasible", the fraction of runs with a W_mm; the
    others are NaN where that is zero.
    """
    reach = which_reach(tokens, rules, steps)
    if not reach:
        return {"feasible": 0.0} | dict.fromkeys(rules, np.nan)
    found = {name: float(runs.mean()) for name, runs in reach.items()}
    return {"feasible": len(reach[next(iter(rules))]) / len(tokens.y)} | found


def which_reach(
    tokens: TokenSet, rules: Mapping[str, GradientRule], steps: int
) -> dict[str, np.ndarray]:
    """Which of the runs with a W_mm reach it from W_0 = 0, per rule (runs,); {} where none has."""
    kept = svm.feasible(coordinates.minimal(tokens).tokens)
    if kept is None:
        return {}
    goal = {"W_mm": svm.token_svm(kept)}
    with np.errstate(invalid="ignore"):  # a run that stalled or diverged has not reached it
        histories = dynamics.train(kept, rules, steps, [steps], targets=goal)
        return {name: reached(history, "W_mm") for name, history in histories.items()}


def phase_diagram(
    seeds, n, T, cells, spreads, rules: Mapping[str, GradientRule], steps: int
) -> dict[str, np.ndarray]:
    """`fraction_reached` over a grid: per rule, and for "feasible", an array (spreads, cells).

    cells: pairs (d, ratio) for `bounded_tokens`; spreads: as in `skewed`.
    """
    fractions = {name: np.empty((len(spreads), len(cells))) for name in ("feasible", *rules)}
    for column, (d, ratio) in enumerate(cells):
        tokens = bounded_tokens(seeds, n, T, d, ratio)
        for row, spread in enumerate(spreads):
            found = fraction_reached(skewed(tokens, spread, seeds), rules, steps)
            for name, value in found.items():
                fractions[name][row, column] = value
    return fractions


def broken(diagrams: Sequence[Mapping[str, np.ndarray]], rules: Sequence[str]) -> list[Claim]:
    """In the first cell of each diagram, where the assumptions nearly hold, all runs reach W_mm.

    Elsewhere not all (ours). A diagram has each rule's fraction of runs, (rows, columns), NaN where
    no run has a token SVM. Source: paper A, Theorem 1.
    """
    intact = min(diagram[rule][0, 0] for diagram in diagrams for rule in rules)
    least = {rule: min(np.nanmin(diagram[rule]) for diagram in diagrams) for rule in rules}
    nearly = "assumptions nearly hold: smallest fraction that reaches W_mm"
    claims = [at_least("phase.intact", nearly, "paper A, Theorem 1", intact, 1.0)]
    for rule, value in least.items():
        text = f"{rule}: smallest fraction once they are broken"
        claims.append(at_most(f"phase.{rule}", text, "ours", value, 0.9))
    return claims
