"""Claims on joint runs held against both SVMs' duals, and the wrong worlds that they catch."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lib.attention import coordinates
from lib.companion.claims import Claim, at_most, close, every_close, furthest
from papers.beyond.joint_law import JointRuns, off_span, opt_tokens, score_gaps
from papers.beyond.margin_law import from_duals
from papers.fits import fitted_slope

# Of notebooks/bends_protocol.md
LIMIT, LEVEL = 0.02, 0.005  # relative errors of ||W|| x error, in the limit and at the head's level
EXPONENT = 0.02
RESIDUAL, FIRST, REST = 1e-3, 1e-9, 1e-6
CURVATURE = 0.01
OURS = "ours, beyond paper A's Theorem 3"


def limit_errors(runs: JointRuns) -> np.ndarray:
    """||W_t|| x error over C, less 1, at the last record, (runs,)."""
    return runs.norm[:, -1] * runs.error[:, -1] / runs.of.law.constant - 1


def level_errors(runs: JointRuns) -> np.ndarray:
    """The same over the C of the head's level, which the sum of the steps gives, (runs,)."""
    law = runs.of.at_level(runs.level)
    return runs.norm[:, -1] * runs.error[:, -1] / law.constant - 1


def exponents(runs: JointRuns) -> np.ndarray:
    """Exponent of W's direction error in t over the records, (runs,)."""
    return fitted_slope(np.log(runs.iterations), np.log(runs.error), -np.inf)


def joint_claims(found: Mapping[str, JointRuns]) -> list[Claim]:
    """Every claim on the runs of every rule."""
    claims = []
    for name, runs in found.items():
        limit, level, own = limit_errors(runs), level_errors(runs), exponents(runs)
        expected = runs.rule.decay - 1
        text = f"{name}: ‖W‖ x error over {{}}, less 1, worst run".format
        at_head = text("C at the head's level")
        statement = f"{name}: exponent of W's direction error in t, worst run"
        claims += [
            close(f"joint.limit.{name}", text("C"), OURS, furthest(limit), 0.0, LIMIT),
            close(f"joint.level.{name}", at_head, OURS, furthest(level), 0.0, LEVEL),
            every_close(f"joint.exponent.{name}", statement, OURS, own, expected, EXPONENT),
            *_head(name, runs),
            *_curvature(name, runs),
        ]
    return claims


def _head(name, runs):
    with np.errstate(divide="ignore"):  # a world of equal duals has C_u = 0
        ratio = runs.residual / runs.of.head_law.constant - 1
    rows = opt_tokens(runs.of.problem.tokens)
    predicted = runs.rule.step_size * runs.of.frozen
    first = np.linalg.norm(off_span(rows, runs.first) - predicted, axis=1)
    first = first / np.linalg.norm(predicted, axis=1)
    moved = np.abs(runs.outside[:, 1] / runs.outside[:, 0] - 1)
    residual = f"{name}: u's residual in the opt tokens' span over C_u, less 1, worst run"
    part = f"{name}: part of u_1 off that span, relative error of its prediction, worst run"
    rest = f"{name}: change of that part over the last decade, worst run"
    return [
        close(f"joint.head.{name}", residual, OURS, furthest(ratio), 0.0, RESIDUAL),
        at_most(f"joint.frozen.{name}", part, OURS, first.max(), FIRST),
        at_most(f"joint.rest.{name}", rest, OURS, moved.max(), REST),
    ]


def _curvature(name, runs):
    ratio = runs.curvature[:, -1] / runs.of.curvature - 1
    own = fitted_slope(np.log(runs.iterations), np.log(runs.curvature), -np.inf)
    value = f"{name}: ‖Hessian‖/L over its limit, less 1, worst run"
    power = f"{name}: exponent of ‖Hessian‖/L in t, where Lemma 3 (iii) allows 2/3, worst run"
    ours = "ours, beside paper A, Lemma 3"
    return [
        close(f"joint.curvature.{name}", value, ours, furthest(ratio), 0.0, CURVATURE),
        close(f"joint.curvature_power.{name}", power, ours, furthest(own), 0.0, EXPONENT),
    ]


def head_dual_off(runs: JointRuns) -> JointRuns:
    """The first sample's head dual is larger by a fifth."""
    duals = runs.of.head.duals.copy()
    duals[:, 0] *= 1.2
    return _with_duals(runs, duals)


def _with_duals(runs, duals):
    of = runs.of
    tokens, head = of.problem.tokens, replace(of.head, duals=duals)
    slopes = np.log(duals)[..., None] + np.log(score_gaps(tokens, of.head.W))
    K = coordinates.gram(coordinates.differences(tokens, tokens.opt), tokens.z)
    law = from_duals(K, of.W.duals, of.W.margins, slopes)
    rows = opt_tokens(tokens)
    G = rows @ np.swapaxes(rows, 1, 2)
    head_law = from_duals(G, duals, head.margins, np.zeros_like(duals))
    return replace(runs, of=replace(of, law=law, head=head, head_law=head_law))


def other_exponent(runs: JointRuns) -> JointRuns:
    """The error falls like t^-(1 - p)/2 and is what it is at the last record."""
    share = runs.iterations / runs.iterations[-1]
    return replace(runs, error=runs.error * share ** ((1 - runs.rule.decay) / 2))


def log_rate(runs: JointRuns) -> JointRuns:
    """The error falls like 1/log t, as Theorem 3 bounds it."""
    logs = np.log(runs.iterations)
    return replace(runs, error=runs.error[:, -1:] * logs[-1] / logs)


def bends_like_lemma(runs: JointRuns) -> JointRuns:
    """‖Hessian‖/L grows like t^2/3, as Lemma 3 (iii) allows."""
    share = runs.iterations / runs.iterations[0]
    return replace(runs, curvature=runs.curvature[:, :1] * share ** (2 / 3))


def nothing_frozen(runs: JointRuns) -> JointRuns:
    """The first step leaves nothing off the opt tokens' span, and what is there moves on."""
    of = replace(runs.of, frozen=0.9 * runs.of.frozen)
    grown = runs.outside * np.array([1.0, 1.01])
    return replace(runs, of=of, outside=grown)


WORLDS: Mapping[str, Callable[[JointRuns], JointRuns]] = {
    # kappa without the head's duals: every |l'_i| alike
    "every sample pulls alike": lambda runs: _with_duals(runs, np.ones_like(runs.of.head.duals)),
    "one head dual 20 % high": head_dual_off,
    "error ~ t^-(1-p)/2": other_exponent,
    "error ~ 1/log t": log_rate,
    "curvature ~ t^2/3": bends_like_lemma,
    "another frozen part": nothing_frozen,
}
