"""The law of the margins if the head and W are trained together from zero.

The head obeys the law of its own SVM, with the solution v = sum_i nu_i y_i x_{i,opt}.
So |l'_i| becomes proportional to the dual nu_i, and W obeys the law with kappa_m = nu_i
y_i v^T(x_{i,opt} - x_{i,t}). So both laws follow from the duals of the two SVMs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from companion.claims import Claim
from lib import dynamics
from lib.attention import TokenSet, coordinates
from lib.dynamics import NGD, History, Rule
from lib.svm import MaxMargin, head_svm, token_svm
from papers import saturation
from papers.fits import log_slope
from papers.joint_loss import curvature
from papers.law import margin_law, margins, tolerances
from papers.law.margin_law import MarginLaw, require
from papers.ours import claim
from papers.saturation import score_gaps


@dataclass(frozen=True, kw_only=True)
class _JointLaw:
    """The laws of runs that end at (u_mm, W_mm), in minimal coordinates."""

    problem: coordinates.Minimal
    W: MaxMargin
    head: MaxMargin
    W_law: MarginLaw  # the law of W in the limit
    # One pair per sample. The offsets are log(1/nu_i) minus their mean.
    head_law: MarginLaw
    # (runs, r): rho_u, the head's residual in the span of the opt tokens
    residual: np.ndarray
    # (runs, r): the part of the first step's direction outside the span of the opt
    # tokens. No later step changes this part.
    frozen: np.ndarray
    curvature: np.ndarray  # (runs,) limit of ||Hessian of L||/L

    def at_level(self, level: np.ndarray) -> MarginLaw:
        """Return the law of W while the head is a_u v + rho_u, at a_u = `level`
        (runs,).

        The function raises PremiseFails with "score gaps" if this head scores another
        token at least as high as the opt token.
        """
        gaps = score_gaps(
            self.problem.tokens, level[:, None] * self.head.W + self.residual
        )
        run, smallest = _lowest(gaps.min((1, 2)))
        reason = f"at head level {level[run]:.3g} the smallest gap is {smallest:.2g}"
        require(smallest > 0, "score gaps", smallest, reason, run)
        slopes = np.log(self.head.duals)[..., None] + np.log(gaps)  # kappa = nu_i gap
        K = margin_law.gram(self.problem.tokens, masked_as_zero=True)
        return margin_law.from_duals(K, self.W.duals, self.W.margins, slopes)


def _lowest(values: np.ndarray):
    run = int(values.argmin())
    return run, values[run]


def _opt_tokens(tokens: TokenSet) -> np.ndarray:
    """Return y_i x_{i,opt}, the features of the head SVM, as (runs, n, r)."""
    return coordinates.signed_opt_first(tokens)[:, :, 0]


def _off_span(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the part of u (runs, r) orthogonal to the span of `rows` (runs, n, r),
    which are linearly independent.
    """
    basis = np.linalg.qr(np.swapaxes(rows, 1, 2))[0]
    return u - (basis @ (np.swapaxes(basis, 1, 2) @ u[..., None]))[..., 0]


def predict(tokens: TokenSet) -> _JointLaw:
    """Compute the law of joint training from zero, for runs that end at (u_mm, W_mm).

    The function raises PremiseFails in the cases in which `margin_law` and
    `joint_slopes` do, and with "independent head" if the opt tokens are linearly
    dependent. It raises Infeasible if one of the SVMs has no solution.
    """
    problem = coordinates.minimal(tokens)
    data = problem.tokens
    W = token_svm(data)
    head = head_svm(data)
    law = margin_law.margin_law(data, W, log_slopes=margin_law.joint_slopes(data, head))
    rows = _opt_tokens(data)
    K = rows @ np.swapaxes(rows, 1, 2)
    even_slopes = np.zeros_like(head.duals)
    _check_independent(K)
    head_law = margin_law.from_duals(K, head.duals, head.margins, even_slopes)
    even = _even_gradient(data)
    unit = even / np.linalg.norm(even, axis=1, keepdims=True)
    bent = np.swapaxes(rows, 1, 2) @ (head.duals[..., None] * rows)
    return _JointLaw(
        problem=problem,
        W=W,
        head=head,
        W_law=law,
        head_law=head_law,
        residual=np.einsum("rn,rnd->rd", head_law.coefficients, rows),
        frozen=_off_span(rows, unit),
        curvature=np.linalg.eigvalsh(bent)[:, -1] / head_law.norm**2,
    )


def _even_gradient(tokens: TokenSet) -> np.ndarray:
    """Return the mean over samples of y_i times the sample's mean token.

    The result has the shape (runs, r). At W = 0 all tokens have the same softmax
    weight, so that this is the direction of the first step of the head.
    """
    signed = tokens.y[..., None, None] * tokens.X
    if tokens.mask is None:
        return signed.mean((1, 2))
    count = tokens.mask.sum(-1)[..., None]
    return ((signed * tokens.mask[..., None]).sum(2) / count).mean(1)


def _check_independent(K: np.ndarray):
    """Raise PremiseFails if the opt tokens of a run, whose Gram matrix is K (runs, n,
    n), are linearly dependent.
    """
    length = np.sqrt(np.einsum("rii->ri", K))
    smallest = np.linalg.eigvalsh(K / length[:, :, None] / length[:, None])[:, 0]
    run, value = _lowest(smallest)
    reason = (
        f"opt tokens are linearly dependent: smallest eigenvalue of their cosines "
        f"{value:.1e}, it needs {tolerances.INDEPENDENT:.0e}"
    )
    require(value >= tolerances.INDEPENDENT, "independent head", value, reason, run)


def path_length(rule: Rule, steps: int) -> float:
    """Return the sum of the lengths eta (t+1)^-decay of the first `steps` steps of
    NGD.
    """
    return float(rule.step_size * (np.arange(1.0, steps + 1) ** -rule.decay).sum())


@dataclass(frozen=True, kw_only=True)
class JointRuns:
    """The joint runs of one rule with their law, at the k records in the last decade of
    iterations.
    """

    law: _JointLaw
    rule: Rule
    iterations: np.ndarray  # (k,)
    error: np.ndarray  # (runs, k) direction error of W
    norm: np.ndarray  # (runs, k) ||W||
    head_norm: np.ndarray  # (runs, k) ||u||
    curvature: np.ndarray  # (runs, k) ||Hessian||/L
    # (runs,): the norm of the part of u that is in the span of the opt tokens and
    # orthogonal to v, at the end
    residual: np.ndarray
    first: np.ndarray  # (runs, r) u_1
    # (runs, 2): the norm of the part of u outside that span, at the first and the last
    # record
    outside: np.ndarray
    # (runs,): the expected level a_u of the head, which is the sum of step lengths
    # divided by ||v||
    level: np.ndarray


def train(
    law: _JointLaw, rules: Mapping[str, Rule], steps: int
) -> dict[str, JointRuns]:
    """Train the head and W from zero by several NGD rules (Eq. 13), given by name.

    The function raises PremiseFails if a run does not select the opt tokens, or if its
    offsets have not converged. It raises ValueError if the head of the tokens, at which
    training starts, is not zero.
    """
    size = np.abs(law.problem.tokens.u).max()
    if size > 0:
        raise ValueError(
            f"tokens.u has entries up to {size:.2g}; this law is about heads that are "
            "trained from zero: give tokens with u = 0, or use from_start"
        )
    late = np.unique(np.geomspace(steps / 10, steps, 8).round().astype(int))
    histories = dynamics.train(
        law.problem, rules, steps, [0, 1, *late], targets={"W": law.W.W}, head="joint"
    )
    return {
        name: _measure(law, rules[name], history) for name, history in histories.items()
    }


def _measure(law: Any, rule: Any, history: History):
    """Return the JointRuns of one rule, or raise PremiseFails.

    `history` has the records at iterations 0 and 1, and those in the last decade.
    """
    tokens = law.problem.tokens
    rows = _opt_tokens(law.problem.tokens)
    _check_selected(history)
    _check_settled(law, rule, history)
    u = history.head(-1)
    along = (
        np.einsum("rd,rd->r", u, law.head.W)[:, None] / law.head_law.norm[:, None] ** 2
    )
    outside = [_off_span(rows, history.head(k)) for k in (2, -1)]
    late = slice(2, None)
    return JointRuns(
        law=law,
        rule=rule,
        iterations=history.iterations[late],
        error=history.direction_error["W"][:, late],
        norm=history.norm[:, late],
        head_norm=history.head_norm[:, late],
        curvature=curvature(history, tokens)[:, late],
        residual=np.linalg.norm(u - outside[1] - along * law.head.W, axis=1),
        first=history.head(1),
        outside=np.linalg.norm(outside, axis=-1).T,
        level=path_length(rule, int(history.iterations[-1])) / law.head_law.norm,
    )


def _check_selected(history: History):
    """Raise PremiseFails unless every run attends to the opt tokens and scores them
    higher than other tokens.
    """
    needed = (
        ("margin", history.margins, tolerances.SATURATED),
        ("gap", history.score_gaps, 0.0),
    )
    for name, values, bound in needed:
        run, lowest = _lowest(margins.known(values[:, -1]).min((1, 2)))
        reason = f"the smallest {name} is {lowest:.2g}, it needs {bound:g}"
        reason = f"{reason}: this run does not end in (u_mm, W_mm), or not yet"
        require(lowest > bound, "selection made", lowest, reason, run)


def _check_settled(law: Any, rule: Any, history: History):
    """Raise PremiseFails if W or the head needs more steps, and say how many."""
    bound = tolerances.SETTLED_JOINT
    sizes = (
        (law.W_law, history.norm[:, -1], "W"),
        (law.head_law, history.head_norm[:, -1], "head"),
    )
    for part, size, name in sizes:
        level = size / part.norm
        left = part.remaining(level)
        run = int(left.argmax())
        if 0 < left[run] < 1:
            wanted = np.log(bound) / np.log(left[run])
        else:
            wanted = np.inf
        more = history.iterations[-1] * (wanted ** (1 / (1 - rule.decay)) - 1)
        reason = (
            f"wrong offsets of the {name} have decayed to {left[run]:.1e} at level "
            f"{level[run]:.3g}, they need {bound:.0e}: about {more:.2g} steps more"
        )
        require(left[run] <= bound, "long enough", left[run], reason, run)


def paper_rules(step_size: float = 0.3) -> dict[str, Rule]:
    """Return three rules by name: Eq. 13 with the paper's step sizes eta (t+1)^-2/3,
    with eta (t+1)^-1/2, and with eta.
    """
    decays = {"p = 2/3": 2 / 3, "p = 1/2": 0.5, "p = 0": 0.0}
    return {name: NGD(step_size, decay=decay) for name, decay in decays.items()}


def limit_errors(runs: JointRuns) -> np.ndarray:
    """Return ||W_t|| times the direction error, divided by C, minus 1, at the last
    record.

    The result has the shape (runs,).
    """
    return runs.norm[:, -1] * runs.error[:, -1] / runs.law.W_law.constant - 1


def level_errors(runs: JointRuns) -> np.ndarray:
    """Return the errors of `limit_errors`, but with the C that belongs to the finite
    level of the head.

    This level follows from the lengths of the head's steps. The result has the shape
    (runs,). The function raises PremiseFails in the cases in which `at_level` of the
    law does.
    """
    constant = runs.law.at_level(runs.level).constant
    return runs.norm[:, -1] * runs.error[:, -1] / constant - 1


def path_errors(runs: JointRuns) -> np.ndarray:
    """Return the direction error, divided by its prediction from the duals and the step
    lengths alone, minus 1, at every record.

    The prediction is C divided by the sum of the lengths of all steps so far. This sum
    takes the place of ||W_t||, which is a little smaller. The result has the shape
    (runs, k).
    """
    lengths = np.array([path_length(runs.rule, int(t)) for t in runs.iterations])
    return runs.error * lengths / runs.law.W_law.constant[:, None] - 1


def exponents(runs: JointRuns) -> np.ndarray:
    """Fit the exponent in t of W's direction error over the records.

    The result has the shape (runs,).
    """
    return log_slope(runs.iterations, runs.error)


def joint_claims(trained: Mapping[str, JointRuns]) -> list[Claim]:
    """Check the runs of every rule; each claim is about the worst run."""
    return [claim for name, runs in trained.items() for claim in _claims(name, runs)]


def _claims(name: str, runs: Any):
    """Yield the claims about the JointRuns of one rule, which the claims call
    `name`.
    """
    law = runs.law
    yield claim("joint.limit", limit_errors(runs), name)
    yield claim("joint.level", level_errors(runs), name)
    expected = runs.rule.decay - 1
    yield claim("joint.exponent", exponents(runs), name, expected=expected, each=True)
    with np.errstate(divide="ignore"):  # An altered copy with equal duals has C_u = 0.
        yield claim("joint.head", runs.residual / law.head_law.constant - 1, name)
    predicted = runs.rule.step_size * law.frozen
    first = _off_span(_opt_tokens(law.problem.tokens), runs.first) - predicted
    off = np.linalg.norm(first, axis=1) / np.linalg.norm(predicted, axis=1)
    yield claim("joint.frozen", off, name)
    yield claim("joint.rest", np.abs(runs.outside[:, 1] / runs.outside[:, 0] - 1), name)
    yield claim("joint.curvature", runs.curvature[:, -1] / law.curvature - 1, name)
    yield claim(
        "joint.curvature_power", log_slope(runs.iterations, runs.curvature), name
    )


@dataclass(frozen=True)
class _StartedHead:
    """Runs whose heads start at u_0, and how well two laws predict the offsets of these
    runs.

    The errors (runs, records) are the largest errors of an offset on the support, at
    the `iterations` (records,).
    """

    iterations: np.ndarray
    errors: np.ndarray  # errors of the law with the kappa from the two SVMs
    fixed: np.ndarray  # errors of the law with the kappa of the head u_0
    law: MarginLaw  # the law from the two SVMs


def from_start(tokens: TokenSet, rule: Rule, records: Sequence[int]) -> _StartedHead:
    """Train the head and W from u_0 = `tokens.u`, and compare the offsets with two
    laws.

    One law has the kappa that follows from the two SVMs, the other law has the kappa of
    the fixed head u_0. Both laws are for the tokens that the run selects at the end.
    `records` are ascending iterations; training ends at the last of them. The function
    raises PremiseFails in the cases in which `joint_slopes` and `margin_law` do,
    Infeasible if an SVM has no solution, and ValueError if a run ends early.
    """
    problem = coordinates.minimal(tokens)
    data = problem.tokens
    history = dynamics.train(problem, rule, records[-1], records, head="joint")
    selected = margins.selection(history, data.opt)
    solution = token_svm(data, selected)
    head = head_svm(data, selected)
    both = margin_law.joint_slopes(data, head, selected)
    start = saturation.saturated_slopes(data, selected)
    laws = [
        margin_law.margin_law(data, solution, selected, log_slopes=s)
        for s in (both, start)
    ]
    relative = margins.relative_margins(history, data.opt, selected)
    along = [
        margins.along_and_off(history.weights(k), solution.W)[0]
        for k in range(len(records))
    ]
    level = np.stack(along, 1) / laws[0].norm[:, None]
    off = relative - level[..., None, None]
    errors, fixed = (
        np.nanmax(np.abs(off - law.offsets[:, None]), (2, 3)) for law in laws
    )
    return _StartedHead(
        iterations=np.asarray(records), errors=errors, fixed=fixed, law=laws[0]
    )


def start_claims(runs: _StartedHead) -> list[Claim]:
    """Check that the law with the kappa from the two SVMs predicts the offsets, with
    errors of the expected order in t.

    The law with the kappa of the initial head must not fit. The order is computed from
    the errors at the last two records.
    """
    halved = np.log(runs.errors[:, -1] / runs.errors[:, -2])
    order = halved / np.log(runs.iterations[-1] / runs.iterations[-2])
    return [
        claim("law.joint", runs.errors[:, -1]),
        claim("law.joint_order", order),
        claim("law.joint_head", runs.fixed[:, -1]),
    ]
