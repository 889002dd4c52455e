"""Break paper A's assumptions one step at a time, and count which runs still reach W_mm."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib import attention, dynamics, svm
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, token_set
from lib.attention.tokens import class_mean_tokens
from lib.companion.claims import Claim, at_least, at_most
from lib.dynamics.rules import GradientRule
from lib.seeds import stream
from papers.a.fixed_head import reached


def two_samples(overlap: float = -1.0) -> TokenSet:
    """The smallest problem in which Assumption 1 is needed: samples {q, q + d_1} and {q, q + d_2}.

    T = 2, so that Assumption 2 holds of itself, and one query q. d_1 = (3, 0, 0.001) and d_2 =
    (overlap, 0.5, 0.1), both orthogonal to q; the head makes q + d_i the opt tokens, by score gaps
    of 0.01 and 1. <d_1, d_2> = 3 overlap, up to 1e-4: the second sample drives the first one's W
    away where it is negative and larger than ||d_2||^2.
    """
    q, d = np.eye(4)[3], np.array([[3, 0, 0.001, 0], [overlap, 0.5, 0.1, 0]])
    return token_set(np.stack([[q, q + row] for row in d]), np.ones(2), u=10 * np.eye(4)[2])


def assumption1_needed(
    tokens: TokenSet, rules: Mapping[str, GradientRule], steps: int
) -> list[Claim]:
    """Of `two_samples`: every rule ends at another selection's max-margin direction (ours).

    From W_0 = 0: alignment with the direction for sample 1's other token less that with W_mm.
    """
    problem = coordinates.minimal(tokens)
    of = {"W_mm": tokens.opt, "other": tokens.opt - [[1, 0]]}
    goals = {name: svm.token_svm(problem.tokens, selected).W for name, selected in of.items()}
    histories = dynamics.train(problem, rules, steps, [steps], targets=goals)
    text = "{}: final alignment with another selection's direction less that with W_mm".format
    source, found = "ours, beside paper A, Assumption 1", []
    for name, history in histories.items():
        apart = float((history.alignment["other"] - history.alignment["W_mm"])[0, -1])
        found.append(at_least(f"assumption1.needed.{name}", text(name), source, apart, 0.0))
    return found


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
