"""The law of the margins where the head is trained with W: predicted from both SVMs' duals.

Head and W start at zero. The head obeys the law of its own SVM v = sum_i nu_i y_i x_{i,opt}, so
|l'_i| becomes proportional to nu_i, and W the law with kappa_m = nu_i y_i v^T(x_{i,opt} - x_{i,t}).
What the predictions know of a run is its steps; `train` measures it beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.dynamics import gradient_descent
from lib.dynamics.rules import GradientRule, ngd
from lib.svm.max_margin import MaxMargin, head_svm, token_svm
from papers.beyond.margin_law import INDEPENDENT, MarginLaw, from_duals, margin_law
from papers.beyond.margin_slopes import PremiseFails, joint_slopes
from papers.joint_loss import curvature

SETTLED = 1e-4  # largest e^{-rate a_t}, of W and of the head, that counts as settled


@dataclass(frozen=True, kw_only=True)
class JointLaw:
    """What both SVMs say of a joint run that ends in (u_mm, W_mm); tokens in minimal coordinates.

    problem, W, head: tokens and the two solutions. law: that of W in the limit; head_law: that of
    the head, one pair per sample, offsets log(1/nu_i) less their mean. residual (runs, r): rho_u,
    the head's residual in the span of the opt tokens. frozen (runs, r): off that span, the part of
    the first gradient's direction. curvature (runs,): limit of ||Hessian of L||/L.
    """

    problem: coordinates.Minimal
    W: MaxMargin
    head: MaxMargin
    law: MarginLaw
    head_law: MarginLaw
    residual: np.ndarray
    frozen: np.ndarray
    curvature: np.ndarray

    def at_level(self, level: np.ndarray) -> MarginLaw:
        """The law of W while the head is a_u v + rho_u, a_u = `level` (runs,): kappa moves with it.

        It tends to `law` like 1/a_u. Raises PremiseFails "score gaps" where such a head scores
        another token as high as the opt one.
        """
        tokens = self.problem.tokens
        u = level[:, None] * self.head.W + self.residual
        gaps = score_gaps(tokens, u)
        if not gaps.min() > 0:
            run = int(gaps.min((1, 2)).argmin())
            said = f"at head level {level[run]:.3g} the smallest gap is {gaps[run].min():.2g}"
            raise PremiseFails("score gaps", run, gaps[run].min(), said)
        slopes = np.log(self.head.duals)[..., None] + np.log(gaps)
        K = coordinates.gram(coordinates.differences(tokens, tokens.opt), tokens.z)
        return from_duals(K, self.W.duals, self.W.margins, slopes)


def score_gaps(tokens: TokenSet, u: np.ndarray) -> np.ndarray:
    """y_i u^T (x_{i,opt} - x_{i,t}), (runs, n, T-1), for heads u (runs, r)."""
    delta = coordinates.differences(tokens, tokens.opt)
    return tokens.y[..., None] * (delta @ u[:, None, :, None])[..., 0]


def opt_tokens(tokens: TokenSet) -> np.ndarray:
    """y_i x_{i,opt}, (runs, n, r): the features of the head SVM."""
    return coordinates.signed_opt_first(tokens)[:, :, 0]


def off_span(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The part of u (runs, r) off the span of `rows` (runs, n, r)."""
    basis = np.linalg.qr(np.swapaxes(rows, 1, 2))[0]  # (runs, r, n)
    return u - (basis @ (np.swapaxes(basis, 1, 2) @ u[..., None]))[..., 0]


def predict(tokens: TokenSet) -> JointLaw:
    """The law of joint training from zero, for data whose runs end in (u_mm, W_mm).

    Raises PremiseFails as `margin_law` and `joint_slopes` do: "independent head" where opt tokens
    are dependent, "whole head" where one carries nothing (a dual at zero), "score gaps" where u_mm
    scores another token at least as high; Infeasible where an SVM has no solution.
    """
    problem = coordinates.minimal(tokens)
    data = problem.tokens
    W, head = token_svm(data), head_svm(data)
    law = margin_law(data, W, log_slopes=joint_slopes(data, head))
    rows = opt_tokens(data)
    K = rows @ np.swapaxes(rows, 1, 2)  # (runs, n, n)
    _check_independent(K)
    head_law = from_duals(K, head.duals, head.margins, np.zeros_like(head.duals))
    even = (data.y[..., None, None] * data.X).mean((1, 2))  # -grad_u at zero, up to a factor
    unit = even / np.linalg.norm(even, axis=1, keepdims=True)
    bent = np.swapaxes(rows, 1, 2) @ (head.duals[..., None] * rows)  # sum nu_i x_i x_i^T
    return JointLaw(
        problem=problem,
        W=W,
        head=head,
        law=law,
        head_law=head_law,
        residual=np.einsum("rn,rnd->rd", head_law.coefficients, rows),
        frozen=off_span(rows, unit),
        curvature=np.linalg.eigvalsh(bent)[:, -1] / head_law.norm**2,
    )


def _check_independent(K):
    length = np.sqrt(np.einsum("rii->ri", K))
    least = np.linalg.eigvalsh(K / length[:, :, None] / length[:, None])[:, 0]
    if least.min() < INDEPENDENT:
        run = int(least.argmin())
        said = (
            f"opt tokens are linearly dependent: smallest eigenvalue of their cosines "
            f"{least[run]:.1e}, it needs {INDEPENDENT:.0e}"
        )
        raise PremiseFails("independent head", run, least[run], said)


def path_length(rule: GradientRule, steps: int) -> float:
    """Sum of the lengths eta (t+1)^-p of the first `steps` steps of NGD."""
    return float(rule.step_size * (np.arange(1.0, steps + 1) ** -rule.decay).sum())


@dataclass(frozen=True, kw_only=True)
class JointRuns:
    """Joint runs of one rule beside their law; k records, the last decade of iterations.

    iterations (k,); error, norm, head_norm, curvature (runs, k): direction error of W, ||W||,
    ||u||, ||Hessian||/L. residual (runs,): of u in the span of the opt tokens across v, at the end.
    first (runs, r): u_1. outside (runs, 2): norm of u off that span, at the first and the last of
    the records. level (runs,): sum of step lengths over ||v||, where the head should be.
    """

    of: JointLaw
    rule: GradientRule
    iterations: np.ndarray
    error: np.ndarray
    norm: np.ndarray
    head_norm: np.ndarray
    curvature: np.ndarray
    residual: np.ndarray
    first: np.ndarray
    outside: np.ndarray
    level: np.ndarray


def train(of: JointLaw, rules: Mapping[str, GradientRule], steps: int) -> dict[str, JointRuns]:
    """Train head and W together from zero, each normalised by itself (paper A, Eq. 13).

    rules: named NGD rules. Raises PremiseFails "selection made" where a run has not chosen the opt
    tokens, "long enough" where wrong offsets have not died: how far, and how many more steps.
    """
    late = np.unique(np.geomspace(steps / 10, steps, 8).round().astype(int))
    found = gradient_descent.train(
        of.problem, rules, steps, [0, 1, *late], targets={"W": of.W.W}, head="joint"
    )
    return {name: _measure(of, rules[name], history) for name, history in found.items()}


def _measure(of, rule, history):
    tokens, rows = of.problem.tokens, opt_tokens(of.problem.tokens)
    _check_selected(history)
    _check_settled(of, rule, history)
    u = history.head(-1)
    along = np.einsum("rd,rd->r", u, of.head.W)[:, None] / of.head_law.norm[:, None] ** 2
    outside = [off_span(rows, history.head(k)) for k in (2, -1)]
    part = slice(2, None)
    return JointRuns(
        of=of,
        rule=rule,
        iterations=history.iterations[part],
        error=history.direction_error["W"][:, part],
        norm=history.norm[:, part],
        head_norm=history.head_norm[:, part],
        curvature=curvature(history, tokens)[:, part],
        residual=np.linalg.norm(u - outside[1] - along * of.head.W, axis=1),
        first=history.head(1),
        outside=np.linalg.norm(outside, axis=-1).T,
        level=path_length(rule, int(history.iterations[-1])) / of.head_law.norm,
    )


def _check_selected(history):
    """Raise PremiseFails unless every run attends to its opt tokens and scores them higher."""
    for name, values, least in (("margin", history.margins, 5.0), ("gap", history.score_gaps, 0.0)):
        lowest = values[:, -1].min((1, 2))
        if not lowest.min() > least:
            run = int(lowest.argmin())
            said = (
                f"the smallest {name} is {lowest[run]:.2g}, it needs {least:g}: this run does not "
                f"end in (u_mm, W_mm), or not yet"
            )
            raise PremiseFails("selection made", run, lowest[run], said)


def _check_settled(of, rule, history):
    """Raise PremiseFails where W or head needs a longer run, with the steps that it needs."""
    sizes = (of.law, history.norm[:, -1], "W"), (of.head_law, history.head_norm[:, -1], "head")
    for law, size, name in sizes:
        level = size / law.norm
        left = law.remaining(level)
        run = int(left.argmax())
        if left[run] <= SETTLED:
            continue
        wanted = np.log(SETTLED) / np.log(left[run]) if left[run] < 1 else np.inf
        more = history.iterations[-1] * (wanted ** (1 / (1 - rule.decay)) - 1)
        said = (
            f"wrong offsets of the {name} have decayed to {left[run]:.1e} at level "
            f"{level[run]:.3g}, they need {SETTLED:.0e}: about {more:.2g} steps more"
        )
        raise PremiseFails("long enough", run, left[run], said)


def paper_rules(step_size: float = 0.3) -> dict[str, GradientRule]:
    """Eq. 13 with the paper's factor (t+1)^-2/3, with (t+1)^-1/2, and without one; named by p."""
    decays = {"p = 2/3": 2 / 3, "p = 1/2": 0.5, "p = 0": 0.0}
    return {name: ngd(step_size, decay=decay) for name, decay in decays.items()}
