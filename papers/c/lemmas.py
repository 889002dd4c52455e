"""The lemmas of paper C (2410.14581) on norms and powers, on steps, and on cones.

Lemmas 12-15 are inequalities for norms and numbers, and Lemmas 16 and 18 are bounds at
every W. Lemmas 4, 22, 24, 25 and 30 are about the steps of lp-AttGD. Eqs. 4-8 and
Lemmas 19-21 and 27-29 are about cones around locally optimal selections.

A function for an inequality returns the two sides as a pair (smaller, larger), for
matrices whose last axis holds the entries. A claim about several runs or iterations is
about the worst of them.

A selection alpha picks a token of every sample, and W_mm is the solution of its l_p
SVM. The support tokens T_i of sample i are its tokens of margin 1. W+ is the iterate
after W, L+ is the loss of W+, and q = p/(p-1). Unless said otherwise, D is
D_psi(W_mm/||W_mm||, W/||W||), the cone S is {D <= mu}, and C is the part of S with
||W||_{p,p} >= R.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import binom

from companion.claims import Claim, interval
from lib import attention, dynamics, svm
from lib.attention import TokenSet, coordinates, token_set
from lib.dynamics import History, MirrorDescent
from lib.mirror import gaussian_start, selected_tokens
from lib.mirror.geometry import (
    bregman,
    dual_exponent,
    norm,
    to_mirror,
)
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.c.statements import PAPER
from papers.fits import fitted_slope

ROUNDING = 1e-12
SUPPORT = 1e-6  # a token with a margin of at most 1 + SUPPORT is a support token
RESOLVED = 1e-14  # rounding causes an error of about 1e-16 in the D of a History
MOVED = 1e-3  # a run counts as moved if its D has changed by at least this share
PI = 1e-3  # pi of Lemma 27: one tenth of the smallest change that an altered copy makes
# How far W is from the direction of W_mm in Lemma 21: the largest change of a margin,
# times ||W||/||W_mm||; and the distance as a share of that of the cone's edge.
SHIFTS = np.geomspace(0.1, 3, 5)
SHARES = np.geomspace(1, 1e-5, 6)
THIN = (
    "for p > 2 our mu_0 is so small that the margins in its cone hardly differ: "
    "the row notices "
    "a step off, and no rotated target"
)
claim = PAPER.claim


def spread(tokens: TokenSet, q: float) -> np.ndarray:
    """Return the largest ||(x_{i,t} - x_{i,s}) z_i^T||_{q,q} over t and s.

    The result has the shape (runs, n).
    """
    apart = norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], q).max((2, 3))
    return apart * norm(tokens.z, q)


def random_matrices(tokens: TokenSet, draws: int) -> np.ndarray:
    """Draw W (draws, runs, d, d_z) with entries of sizes from 0.01 to 1000, evenly
    spaced in the logarithm.
    """
    shape = draws, len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    sizes = np.geomspace(0.01, 1000, draws)[:, None, None, None]
    return sizes * stream(0, "draws").standard_normal(shape)


def lemma16(tokens: TokenSet, matrices: np.ndarray) -> list[Claim]:
    """Check Lemma 16: L_min <= L(W) <= L_max.

    Our constants L_min and L_max are the losses if every sample attends only to its
    token with the highest score, or only to the one with the lowest. We test the bounds
    at `matrices` (m, runs, d, d_z), and far along the directions of the SVM solutions
    for these two selections, where they are attained. The measured values are the
    smallest L / L_min and the largest L / L_max. The loss is logistic. The function
    raises svm.Infeasible if one of the two SVMs has no solution.
    """
    scores = attention.scores(tokens, tokens.u)
    ends = scores.max(-1), scores.min(-1)
    smallest, largest = (
        np.exp(attention.log_loss(end, "logistic")).mean(-1) for end in ends
    )
    selections = scores.argmax(-1), scores.argmin(-1)
    extremes = [1000.0 * svm.token_svm(tokens, selected).W for selected in selections]
    tried = np.concatenate([matrices, extremes])
    losses = np.array(
        [attention.gradients(tokens, W, tokens.u, "logistic")[0] for W in tried]
    )
    low = (losses / smallest).min()
    high = (losses / largest).max()
    return [claim("lemma16.lower", low), claim("lemma16.upper", high)]


def _two_misclassified_tokens() -> TokenSet:
    """Build one sample of two long tokens, -30 e_1 and -31 e_1, with head and query
    e_1.

    At W = 0 its softmax weights are 1/2 and |l'| is 1, so that the bound of Lemma 18 is
    attained.
    """
    e_1 = np.eye(4)[0]
    X = -np.array([30.0, 31.0])[:, None] * e_1[None]
    return token_set(X=X[None], y=np.ones(1), z=e_1[None], u=e_1)


def _gradient_over_bound(tokens: TokenSet, matrices: np.ndarray, q: float):
    """Yield ||grad L||_{q,q} / G of Lemma 18, an array (runs,), at each of the
    `matrices` (m, runs, d, d_z).
    """
    score_ranges = np.ptp(attention.scores(tokens, tokens.u), axis=-1)
    G = (score_ranges * spread(tokens, q)).mean(-1) / 4
    for W in matrices:
        gradient = attention.gradients(tokens, W, tokens.u, "logistic")[1]
        size = norm(gradient.reshape(len(gradient), -1), q)
        yield size / G


def lemma18(tokens: TokenSet, matrices: np.ndarray, p: float) -> Claim:
    """Check Lemma 18: ||grad L||_{q,q} <= G, with our constant G.

    G is the mean over i of G_i spread_i / 4, where G_i is the range of sample i's
    scores. The bound holds for two reasons. First, sum_t p_t (gamma_t - f) x_t is a
    covariance under the softmax weights, which is at most a quarter of the product of
    the ranges (Gruess). Second, |l'| <= 1. The bound is tested at `matrices` (m, runs,
    d, d_z), and at W = 0 for two misclassified tokens, where it is attained.
    """
    q = dual_exponent(p)
    pair = _two_misclassified_tokens()
    zero = np.zeros((1, 1, 4, 4))
    ratios = [
        *_gradient_over_bound(tokens, matrices, q),
        *_gradient_over_bound(pair, zero, q),
    ]
    largest = 0.0
    for ratio in ratios:
        largest = max(largest, ratio.max())
    return claim("lemma18", largest, p)


def _excess_loss(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Return L(W) minus the loss of attending only to the opt tokens.

    The result has the shape (runs,). The loss is logistic, and W has the shape (runs,
    d, d_z). The result is accurate relative to its size even if it is as small as
    e^-300.
    """
    logits = attention.logits(tokens, W)
    scores = attention.scores(tokens, tokens.u)
    limit = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    selected = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    weights = attention.weights(tokens, W)
    above = (selected[..., 0] - limit) + (weights * (scores - selected)).sum(-1)
    return np.log1p(np.expm1(-above) / (1 + np.exp(limit))).mean(-1)


class Steps:
    """All recorded pairs of consecutive iterates W, W+ of lp-AttGD, as flat vectors.

    The arrays W, W+ (`later`) and the gradient have the shape (runs, pairs, D), where D
    is the number of entries of W. `eta` (runs, pairs) is the rule's step size; if steps
    are normalised, it is divided by ||grad L||_{q,q}. `losses` are the `_excess_loss`
    before and after each step, two arrays (runs, pairs), and `loss_rise` (runs,) is
    that of the history. Gradients and losses are computed again from the recorded W,
    with the logistic loss. So the claims test the training loop too, and not only the
    algebra.
    """

    def __init__(self, tokens: TokenSet, history: History, rule: MirrorDescent) -> None:
        first = np.flatnonzero(np.diff(history.iterations) == 1)
        flat = (len(tokens.y), len(first), -1)
        self.p = rule.p
        self.eta = rule.step_size
        self.loss_rise = history.loss_rise
        self.W, self.later = (
            history.W[:, at].reshape(flat) for at in (first, first + 1)
        )

        def gradient(k: int):
            return attention.gradients(tokens, history.W[:, k], tokens.u, "logistic")[1]

        self.gradient = np.stack(list(map(gradient, first)), 1).reshape(flat)
        losses = {
            k: _excess_loss(tokens, history.W[:, k]) for k in {*first, *(first + 1)}
        }
        self.losses = tuple(
            np.stack([losses[k] for k in at], 1) for at in (first, first + 1)
        )
        if rule.normalised:
            self.eta = self.eta / norm(self.gradient, dual_exponent(self.p))


def _growth(step: Any):
    """Return by how much one step increases the norm of the mirror image.

    The result has the shape (runs, pairs).
    """
    return norm(step.later, step.p) ** (step.p - 1) - norm(step.W, step.p) ** (
        step.p - 1
    )


def lemma12(W: np.ndarray, p: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sides of D^{1/p-1/2} ||W||_F <= ||W||_{p,p} <= ||W||_F, for D entries.

    For p < 2 the inequalities are reversed.
    """
    size = norm(W, p)
    ends = sorted((1.0, W.shape[-1] ** (1 / p - 0.5)))
    frobenius = norm(W, 2)
    return [(ends[0] * frobenius, size), (size, ends[1] * frobenius)]


def lemma13(
    first: np.ndarray, second: np.ndarray, p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sides of ||W_1 - W_2||_{p,p}^p / (p 2^p) <= D_psi(W_1, W_2), for p >=
    2.

    W_1 and W_2 have norm 1. For p < 2 the smaller side is (p-1)/2 ||W_1 - W_2||_F^2
    (our constant).
    """
    apart = first - second
    if p >= 2:
        bound = norm(apart, p) ** p / (p * 2**p)
    else:
        bound = (p - 1) / 2 * norm(apart, 2) ** 2
    return bound, bregman(first, second, p)


def lemma14(
    x: np.ndarray, y: np.ndarray, p: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sides of y s <= (p-1)/p (x^p - y^p) <= x s, with s = x^{p-1} -
    y^{p-1}.

    Here x >= y >= 0, elementwise. Each of the two inequalities is returned as a pair.
    """
    middle = (p - 1) / p * (x**p - y**p)
    rise = x ** (p - 1) - y ** (p - 1)
    return [(y * rise, middle), (middle, x * rise)]


def lemma15(
    x: np.ndarray, y: np.ndarray, p: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sides of y^{p-2} s <= x^{p-1} - y^{p-1} <= x^{p-2} s, with s =
    (p-1)(x-y).

    Here x >= y >= 0, elementwise. For p < 2 the inequalities are reversed, and y must
    be positive. Each of the two inequalities is returned as a pair.
    """
    rise = x ** (p - 1) - y ** (p - 1)
    at_y, at_x = ((p - 1) * end ** (p - 2) * (x - y) for end in (y, x))
    if p >= 2:
        return [(at_y, rise), (rise, at_x)]
    return [(at_x, rise), (rise, at_y)]


def lemma4(steps: Steps) -> Claim:
    """Check Lemma 4: ||W+||^{p-1} - ||W||^{p-1} <= eta ||grad L||_{q,q}.

    The measured value is the largest ratio of the left side to the right side over all
    runs and steps.
    """
    bound = steps.eta * norm(steps.gradient, dual_exponent(steps.p))
    return claim("lemma4", (_growth(steps) / bound).max(), steps.p)


def step_claims(steps: Steps) -> list[Claim]:
    """Check Lemmas 22, 24 and 25 on every step.

    Lemmas 22 and 24 say that

        eta <-grad L, W> / ||W|| <= ||W+||^{p-1} - ||W||^{p-1},
        (p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= eta <-grad L, W>.

    (Lemma 23 is Lemma 24 for V = 0.) For each of these two lemmas we measure the right
    side minus the left side, divided by the absolute value of the term with the
    gradient. A tiny multiple of a power of ||W|| is added to the divisor, to allow for
    rounding. For Lemma 25 we measure eta (L - L+) divided by <nabla psi(W) - nabla
    psi(W+), W - W+>. This ratio is 1 for small eta; we set it to -inf if L rises in any
    step of the training. Each measured value is the smallest one over runs and steps.
    """
    W = steps.W
    later = steps.later
    p = steps.p
    size = norm(W, p)
    (before, after) = steps.losses
    down = -steps.eta * (steps.gradient * W).sum(-1)
    work = down / size
    growth = _growth(steps)
    slack_22 = ((growth - work) / (np.abs(work) + 1e-13 * size ** (p - 1))).min()
    grown = (p - 1) / p * (norm(later, p) ** p - size**p) + steps.eta * (after - before)
    slack_24 = ((down - grown) / (np.abs(down) + ROUNDING * size**p)).min()
    turned = ((to_mirror(W, p) - to_mirror(later, p)) * (W - later)).sum(-1)
    never = (steps.loss_rise == -1).all()
    if never:
        fall = (steps.eta * (before - after) / turned).min()
    else:
        fall = -np.inf
    return PAPER.claims({"lemma22": slack_22, "lemma24": slack_24, "lemma25": fall}, p)


def lemma30(
    history: History, p: float, size: np.ndarray, since: float, stay: np.ndarray
) -> list[Claim]:
    """Check Lemma 30: ||W(k)||_{p,p} = Omega(log k), on iterations k >= `since`.

    Let r be this norm. The gradient and the growth of r^{p-1} per step fall like
    e^{-r/||W_mm||}, from which we derive the slope dr/dlog k = ||W_mm||/(1 + (p-2)
    ||W_mm||/r). We require that every run has at least 0.9 times this slope. A second
    claim, our own, is that the median run has exactly this slope. `size` (runs,) is
    ||W_mm||. `stay` (runs,) is True for the runs that still select the tokens of W_mm
    at the end; only these runs are used. If there are none, the measured values are
    NaN, and the claims fail.
    """
    late = history.iterations >= since
    slope = (
        fitted_slope(np.log(history.iterations[late]), history.own_norm[:, late]) / size
    )
    predicted = 1 / (1 + (p - 2) * size / history.own_norm[:, late].mean(1))
    if stay.any():
        ratio = (slope / predicted)[stay]
    else:
        ratio = np.array([np.nan])
    runs = stay.sum(), len(stay)
    sharp = claim(
        "lemma30.sharp", np.median(ratio), p, say=runs, interval=interval(ratio)
    )
    return [claim("lemma30", ratio.min(), p, say=runs), sharp]


@dataclass(frozen=True)
class Selection:
    """A selection of tokens per run, and the solution of its l_p SVM.

    The selection is stored as the opt tokens of `tokens`.
    """

    tokens: TokenSet
    solution: MaxMargin
    p: float

    @property
    def direction(self) -> np.ndarray:
        """vec(W_mm) / ||W_mm||_{p,p}, an array (runs, D).

        It has norm 1 even if a rotation has changed the norm of W_mm.
        """
        flat = self.solution.W.reshape(len(self.solution.W), -1)
        return flat / norm(flat, self.p)[:, None]


def select(tokens: TokenSet, opt: np.ndarray, p: float) -> Selection:
    """Build the Selection of the tokens `opt` (runs, n).

    The function raises svm.Infeasible if no W selects these tokens.
    """
    chosen = replace(tokens, opt=opt)
    return Selection(tokens=chosen, solution=svm.token_svm(chosen, norm=p), p=p)


def locally_optimal(selection: Selection) -> np.ndarray:
    """Return whether each run's selection is locally optimal (Definition 3).

    The result has the shape (runs,). Definition 3 says that every selected token scores
    higher than the support tokens of its sample. A support token has the margin 1, here
    up to SUPPORT.
    """
    tokens = selection.tokens
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    rest = np.take_along_axis(
        scores, coordinates.others(tokens.opt, scores.shape[-1]), -1
    )
    return ((rest < best) | (selection.solution.margins > 1 + SUPPORT)).all((1, 2))


def _delta(selection: Selection):
    """Return delta of Eq. 4, an array (runs,). delta is (m - 1)/2, with m the smallest
    margin of a token that is not a support token.

    It is infinite if there is no such token.
    """
    margins = selection.solution.margins
    return np.where(margins > 1 + SUPPORT, margins - 1, np.inf).min((1, 2)) / 2


def _nearness(selection: Selection):
    """Return min(delta, 1/2).

    The result has the shape (runs,). If ||W|| is ||W_mm|| divided by this value, the
    softmax begins to tell support tokens from other tokens.
    """
    return np.minimum(_delta(selection), 0.5)


def radius(selection: Selection) -> np.ndarray:
    """Return mu_0 of Eq. 4, (runs,), with our constant.

    With this mu_0, Lemma 19 follows from Lemmas 12 and 13. mu_0 is rho^p / (p 2^p) for
    p >= 2, and (p-1)/2 (rho D^{1/2-1/p})^2 for p < 2, with D the number of entries of
    W. Here rho = min(delta, 1/2) / (A ||W_mm||), and A is the largest `spread`.
    """
    p = selection.p
    entries = selection.direction.shape[-1]
    A = spread(selection.tokens, p / (p - 1)).max(-1)
    rho = _nearness(selection) / (A * selection.solution.norm)
    if p >= 2:
        return rho**p / (p * 2**p)
    return (p - 1) / 2 * (rho * entries ** (0.5 - 1 / p)) ** 2


def on_the_edge(
    selection: Selection, mu: np.ndarray, draws: int, seed: int = 0
) -> np.ndarray:
    """Draw random directions of norm 1 at divergence D = mu (runs,) from W_mm, an array
    (draws, runs, entries).
    """
    directions = stream(seed, "draws").standard_normal(
        (draws, *selection.direction.shape)
    )
    return _edge_along(selection, mu, directions)


def near_divergence(W: np.ndarray, V: np.ndarray, p: float) -> np.ndarray:
    """Compute D_psi(V/||V||_{p,p}, W/||W||_{p,p}), accurately even if it is tiny.

    Parameters
    ----------
    W : ndarray (..., D)
        The matrices, as flat vectors. None of them may be zero.
    V : ndarray (..., D)
        The direction of W_mm, which broadcasts against W. Its length does not matter.
    p : float
        The exponent of the potential.

    Returns
    -------
    ndarray (...)
        The divergence.

    Notes
    -----
    `lib.mirror.geometry.directional_bregman` has an absolute error of about 1e-16,
    whereas mu_0 can be smaller than this for p = 3. Here every entry contributes

        psi(v) - psi(w) - psi'(w) (v - w) = |w|^p sum_{k >= 2} binom(p, k) e^k / p

    with e = (v - w)/w, which is never negative. The sum over k is used for |e| <= 0.01,
    where terms beyond k = 9 are below the rounding error. So a distance of 1e-8 between
    the two directions has a relative error of about 1e-8.
    """
    W = W / norm(W, p)[..., None]
    V = V / norm(V, p)[..., None]
    W, V = np.broadcast_arrays(W, V)
    far = np.abs(V) ** p / p + (p - 1) / p * np.abs(W) ** p - to_mirror(W, p) * V
    with np.errstate(divide="ignore", invalid="ignore"):
        e = (V - W) / W
    near = np.abs(e) <= 0.01
    e = np.where(near, e, 0.0)
    series = np.zeros_like(e)
    for k in range(9, 1, -1):
        series = (series + binom(p, k) / p) * e
    return np.where(near, np.abs(W) ** p * series * e, far).sum(-1)


def _edge_distance(selection: Selection, mu: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return the smallest s > 0 at which D of W_mm/||W_mm|| + s E is mu.

    `mu` has the shape (runs,), E has (draws, runs, entries), and the result has (draws,
    runs). log s goes from -25 to 10. If D stays below mu on this range, the result is
    the largest s.
    """
    direction = selection.direction

    def D(log_s: np.ndarray):
        moved = direction + np.exp(log_s)[..., None] * E
        return near_divergence(moved, direction, selection.p)

    low = high = np.full(E.shape[:2], -25.0)
    while (inside := D(high) < mu).any() and high.max() < 10:
        low = np.where(inside, high, low)
        high = high + np.where(inside, 0.5, 0.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = D(middle) <= mu
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return np.exp(low)


def _moved(selection: Selection, s: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return W_mm/||W_mm|| + s E, scaled to norm 1.

    s has the shape (draws, runs), and E and the result have (draws, runs, entries).
    """
    W = selection.direction + s[..., None] * E
    return W / norm(W, selection.p)[..., None]


def _edge_along(selection: Selection, mu: np.ndarray, E: np.ndarray):
    """Go from W_mm/||W_mm|| along E until D = mu, and return the direction of the point
    reached.

    E has the shape (draws, runs, entries), and so has the result. How far it goes is
    said by `_edge_distance`.
    """
    return _moved(selection, _edge_distance(selection, mu, E), E)


def _constraint_rows(selection: Selection) -> np.ndarray:
    """Return A of every constraint <A, W> >= 1, with shape (runs, rows, entries)."""
    tokens = selection.tokens
    apart = coordinates.differences(tokens, tokens.opt)
    return coordinates.constraint_rows(apart, tokens.z)


def _margin_edges(selection: Selection):
    """Return E = +-sgn(A) |A|^{q-1} for every constraint <A, W> >= 1.

    The result has the shape (directions, runs, entries). By Hölder's inequality, among
    all directions of a given l_p norm, E changes the margin <A, W> most. On the edge of
    a cone, however, the divergence is fixed and not this norm. There E is the worst
    direction for p = 2 only; for other p some directions change the margin more.
    """
    rows = _constraint_rows(selection)
    E = to_mirror(np.swapaxes(rows, 0, 1), selection.p / (selection.p - 1))
    return np.concatenate([E, -E])


def _slack(selection: Selection, mu: np.ndarray):
    """Measure how well Eqs. 12a-c hold on the edge of the cone {D <= mu}.

    `mu` has the shape (runs,). The result is a float, and the equations hold if it is
    at least 1. For a W of norm ||W_mm||, let m_t be the margin of a support token, and
    m_tau the margin of a token that is not a support token. The result is the smallest
    of these quotients, over all tokens, runs and directions of `_margin_edges`, with
    delta from `_delta`:

    * (m_tau - m_t)/delta for (12a),
    * (m_tau - 1)/delta for (12b),
    * 2 m_t and (3/2)/m_t for (12c).

    If all tokens of a run are support tokens, (12a) and (12b) say nothing about it.
    """
    tokens = selection.tokens
    solution = selection.solution
    d = _delta(selection)[:, None, None]
    support = solution.margins <= 1 + SUPPORT
    apart = coordinates.differences(tokens, tokens.opt)
    slacks = []
    for V in _edge_along(selection, mu, _margin_edges(selection)):
        W = (V * solution.norm[:, None]).reshape(solution.W.shape)
        m = np.einsum("rntd,rde,rne->rnt", apart, W, tokens.z)
        rest = np.where(support, np.inf, m)
        high = np.where(support, m, -np.inf).max(-1)
        low = np.where(support, m, np.inf).min()
        # If all tokens of a run are support tokens, its delta is infinite.
        lead = np.where(np.isinf(d[..., 0]), np.inf, rest.min(-1) - high)
        excess = np.where(np.isinf(d), np.inf, rest - 1)
        scale = np.where(np.isinf(d), 1.0, d)
        slacks += [(lead / scale[..., 0]).min(), (excess / scale).min()]
        slacks += [2 * low, 1.5 / high.max()]
    return np.min(slacks)


def lemma19(selection: Selection) -> Claim:
    """Check Lemma 19: Eqs. 12a-c hold in the cone {D <= mu_0}.

    The measured value is `_slack` at mu_0. The claim also says up to which 10^k mu_0,
    for k up to 4, the equations hold.
    """

    def slack(k: Any):
        return _slack(selection, radius(selection) * 10.0**k)

    room = next((k for k in range(5) if not slack(k) >= 1), 5)
    if room:
        far = f", which hold up to {10 ** (room - 1):,} mu_0"
    else:
        far = ""
    return claim("lemma19", slack(0), selection.p, say=(far,))


def _descent(selection: Selection, W: np.ndarray, toward: np.ndarray):
    """Return <-grad L(W), V> as a factor and the logarithm of a scale, two arrays
    (runs,).

    The inner product is the factor times e^{log scale}; in this form it does not
    underflow. W and V = `toward` are flat, (runs, entries). The loss is logistic.
    """
    slopes = _slopes(selection, W)
    return _along(selection, slopes, toward), slopes.log_scale


def _slopes(selection: Selection, W: np.ndarray) -> Any:
    """Return the slopes of the logistic loss in the logits at W (runs, entries)."""
    tokens = selection.tokens
    logits = attention.logits(tokens, W.reshape(selection.solution.W.shape))
    return attention.slopes(logits, attention.scores(tokens, tokens.u), "logistic")


def _along(selection: Selection, slopes: Any, toward: np.ndarray) -> np.ndarray:
    """Return <-grad L, V> without its scale, for V = `toward` (runs, entries)."""
    shape = selection.solution.W.shape
    logits = attention.logits(selection.tokens, toward.reshape(shape))
    below = logits - logits.max(-1, keepdims=True)
    return (slopes.pull * below).sum((1, 2))


def _radii(selection: Selection, multiples: np.ndarray):
    """Return the values of ||W||/||W_mm|| at which lemmas are tested: `multiples` (m,)
    divided by `_nearness`.

    The result has the shape (m, runs).
    """
    return np.asarray(multiples, float)[:, None] / _nearness(selection)


def lemma20(
    selection: Selection, multiples: np.ndarray, draws: int = 20
) -> list[Claim]:
    """Check Lemma 20: -grad L(W) has a positive inner product with every V in the cone
    of mu_0.

    Lemma 20 says <-grad L(W), V/||V||> >= c e^{-(1 + delta/2) ||W||/||W_mm||} > 0. We
    test it at `draws` random pairs of directions W and V on the edge of the cone, with
    ||W|| = multiple ||W_mm||/delta, where delta is `_nearness`. For each of the
    ascending `multiples` (m,), c is the smallest constant over these pairs. It must not
    be smaller at any multiple than at the first. There are two measured values: the
    smallest inner product, up to a positive factor, and the smallest log c minus the
    log c at the first multiple.
    """
    W, V = (on_the_edge(selection, radius(selection), draws, seed) for seed in (1, 2))
    positive = np.inf
    constants = []
    for r in _radii(selection, multiples):
        sizes = (r * selection.solution.norm)[:, None]
        values = [_descent(selection, w * sizes, v) for w, v in zip(W, V, strict=True)]
        positive = min(positive, min(value.min() for value, _ in values))
        fall = r * (1 + _nearness(selection) / 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            constants.append(
                np.min([np.log(value) + s + fall for value, s in values], 0)
            )
    grown = (np.array(constants[1:]) - constants[0]).min()
    return PAPER.claims(
        {"lemma20.positive": positive, "lemma20.rate": grown}, selection.p
    )


def _excess(selection: Selection, W: np.ndarray):
    """Return the pi of Lemma 21 at W.

    The result has the shape (runs,). pi solves <-grad L, W/||W||> = (1+pi) <-grad L,
    W_mm/||W_mm||>. It is computed from the difference of the two directions, because
    far out pi is much smaller than the rounding error of 1 + pi.
    """
    away = W / norm(W, selection.p)[:, None] - selection.direction
    slopes = _slopes(selection, W)
    best = _along(selection, slopes, selection.direction)
    return _along(selection, slopes, away) / best


def _largest_pi(selection: Selection, radii: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return the largest pi of Lemma 21 that is found at each of the `radii`
    ||W||/||W_mm||, an array (m, runs).

    `radii` has the shape (m, runs) and E has (draws, runs, entries). W moves from W_mm
    along each E. It stops where the largest change of a margin, times the radius, is
    one of the SHIFTS, and at each of the SHARES of the distance to the edge of the cone
    of mu_0. All W lie in this cone.
    """
    rows = _constraint_rows(selection)
    size = selection.solution.norm
    change = np.abs(np.einsum("rmD,krD->krm", rows, E)).max(-1) * size
    edge = _edge_distance(selection, radius(selection), E)
    largest = np.full(radii.shape, -np.inf)
    for place, r in enumerate(radii):
        distances = [np.minimum(shift / (r * change), edge) for shift in SHIFTS]
        for s in [*distances, *(share * edge for share in SHARES)]:
            for W in _moved(selection, s, E) * (r * size)[:, None]:
                pi = _excess(selection, W)
                largest[place] = np.maximum(largest[place], pi)
    return largest


def lemma21(selection: Selection, multiples: np.ndarray, draws: int = 20) -> Claim:
    """Check Lemma 21: for every pi there is an R_pi ~ (C/pi) log(C/pi).

    This means that the largest pi that occurs at radius R falls at least like log R /
    R. So we compute pi R / log R at the radii of `lemma20`, with R = ||W||/||W_mm||.
    This quantity must not be largest at the last radius. The measured value is the
    quantity at the last radius, divided by its largest value at an earlier one, in the
    worst run. The value is NaN, and the claim fails, if no positive pi is found at the
    last radius or at all earlier ones.

    W moves from W_mm along `draws` random directions, along their opposites, and along
    the directions of `_margin_edges`. The largest pi occurs at a distance of about 1/R:
    for such a W the softmax weights change by a factor of about e. If the target is not
    W_mm, it occurs farther away, where W has larger margins than the target.
    """
    shape = draws, *selection.direction.shape
    random = stream(3, "draws").standard_normal(shape)
    E = np.concatenate([random, -random, _margin_edges(selection)])
    radii = _radii(selection, multiples)
    scaled = _largest_pi(selection, radii, E) * radii / np.log(radii)
    last = scaled[-1]
    before = scaled[:-1].max(0)
    found = (last > 0) & (before > 0)
    ratio = np.where(found, last / np.where(found, before, 1.0), np.nan)
    return claim("lemma21", ratio.max(), selection.p)


def lemma21_radius(selection: Selection, pi: float = PI) -> np.ndarray:
    r"""Return R_pi / ||W_mm||, where R_pi is the radius in Lemma 21.

    This ratio depends only on the data and pi.

    Parameters
    ----------
    selection : Selection
        The selection. Its tokens must be locally optimal.
    pi : float
        Lemma 21's pi, in (0, 1).

    Returns
    -------
    ndarray, (runs,)
        The least r = ||W|| / ||W_mm|| from which the argument below gives Lemma 21.

    Notes
    -----
    The formula of R_pi is missing from our copy of the paper (paper C, Lemma 21). The
    following are the steps of the paper's proof, with our own constants. Let h and m be
    the margins under W ||W_mm|| / ||W|| and under W_mm, g the score of the selected
    token minus that of a token, p the softmax weights, c_i = -l'(f_i), and v = (1 + pi)
    m - h. Lemma 21 says that

        sum_i c_i Cov_p(v, g) = sum_i c_i sum_t p_t v_t (g_t - sum_s p_s g_s) >= 0.

    In the cone of mu_0 a margin moves by at most nu = min(delta, 1/2) (Lemma 19), G is
    the largest range of a sample's scores, and g_min is the smallest gap g of a support
    token.

    1. Some margin h is at most 1, as W ||W_mm|| / ||W|| is no longer than W_mm. It is a
       support token's, so that v >= pi there.
    2. The weights off the selected token sum to at most (T-1) e^{-r/2}. If that is at
       most g_min / (2 G), every support token has g_t - sum_s p_s g_s >= g_min / 2, and
       the selected token has p >= 1/2. The token of step 1 then adds at least c_min
       e^{-r} pi g_min / 4, and no support token with v >= 0 subtracts anything.
    3. A support token with v < 0 has h > 1 + pi and |v| <= nu. All of them subtract at
       most c_max N nu G e^{-r (1 + pi)}, with N = n (T-1) pairs.
    4. The other tokens have h >= 1 + delta and |v| <= pi m_max + nu. They subtract at
       most c_max N (pi m_max + nu) G e^{-r (1 + delta)}.

    Let kappa = c_max G / (c_min g_min). The amount subtracted in step 3 and the amount
    subtracted in step 4 are each at most half of what step 2 adds, if r is at least

        r = max( log(8 kappa N nu / pi) / pi,
                 log(8 kappa N (pi m_max + nu) / pi) / delta,
                 2 log(2 (T-1) G / g_min) ),

    which is (C/pi) log(C/pi), as the paper says.
    """
    tokens = selection.tokens
    margins = selection.solution.margins
    scores = attention.scores(tokens, tokens.u)
    _, n, T, _ = tokens.shape

    # The gaps of the scores.
    selected = np.take_along_axis(scores, tokens.opt[..., None], -1)
    others = np.take_along_axis(scores, coordinates.others(tokens.opt, T), -1)
    gap = np.where(margins <= 1 + SUPPORT, selected - others, np.inf).min((1, 2))
    score_range = np.ptp(scores, axis=-1).max(-1)

    # The slopes -l'(f) = 1 / (1 + e^f) of the logistic loss; f lies between the
    # smallest and the largest score of a sample.
    steepest = (1 / (1 + np.exp(scores.min(-1)))).max(-1)
    flattest = (1 / (1 + np.exp(scores.max(-1)))).min(-1)
    kappa = steepest * score_range / (flattest * gap)

    # The three conditions on r.
    nu = _nearness(selection)
    pairs = n * (T - 1)
    moved = pi * margins.max((1, 2)) + nu
    support = np.log(8 * kappa * pairs * nu / pi) / pi
    rest = np.log(8 * kappa * pairs * moved / pi) / _delta(selection)
    weights = 2 * np.log(2 * (T - 1) * score_range / gap)
    return np.max([support, rest, weights], 0)


def small_step(selection: Selection, multiple: np.ndarray) -> float:
    """Return a step size for normalised lp-AttGD that is small enough for Lemma 24 at
    ||W|| = `multiple` ||W_mm||.

    Parameters
    ----------
    selection : Selection
        The selection around whose W_mm the runs start.
    multiple : ndarray, (runs,)
        ||W_0|| / ||W_mm||.

    Returns
    -------
    float
        Half of the largest step size that the argument below allows for every run.

    Notes
    -----
    Lemma 24 needs eta D_L(W+, W) <= D_psi(W+, W). Let A be the largest `spread`. A step
    of length ||W+ - W|| moves a logit by at most A ||W+ - W||, and the softmax weights
    of tokens that are not selected enter with at most <-grad L, W_mm> <= ||grad
    L||_{q,q} ||W_mm||. So eta D_L is at most step ||W_mm|| A^2 ||W+ - W||^2 / 2. For p
    <= 2, D_psi is at least (p-1) ||W||^{p-2} ||W+ - W||^2 / 2. For p > 2 we use the
    same expression with min(p-1, 1) in place of p-1, although it is not a proved bound
    there.
    """
    A = spread(selection.tokens, dual_exponent(selection.p)).max(-1)
    size = selection.solution.norm
    convexity = min(selection.p - 1, 1.0) * (multiple * size) ** (selection.p - 2)
    return 0.5 * (convexity / (size * A**2)).min()


def lemma27(
    selection: Selection,
    histories: Sequence[History],
    step_size: float,
    pi: float = PI,
) -> Claim:
    """Check Lemma 27: Eq. 25 holds at every recorded step in the cone of mu_0 and R_pi,
    for a pi fixed in advance.

    Parameters
    ----------
    selection : Selection
        The selection; its W_mm is the target in the lemma.
    histories : sequence of History
        Normalised runs on the selection's data that start in the cone.
    step_size : float
        The step size of the rule of these runs.
    pi : float
        Lemma 27's pi.

    Returns
    -------
    Claim
        A claim about the smallest value of the left side minus the right side of Eq.
        25, divided by the absolute value of the left side. The value is NaN, and the
        claim fails, if a run does not start in the cone.

    Notes
    -----
    Paper C, Eq. 25, as its proof gives it (our reading):

        <nabla psi(W+) - nabla psi(W), W_mm/||W_mm||>
            >= (||W+||^{p-1} - ||W||^{p-1}) / (1 + pi) + eta (L+ - L) / ||W||.

    The left side is eta <-grad L(W), W_mm/||W_mm||>, where eta is the rule's
    `step_size` divided by ||grad L||_{q,q}. At R_pi the gradient and the fall of the
    loss underflow, so we divide the gradient and the fall of the loss by one common
    factor.

    "In advance" means that neither pi nor R_pi depends on a run. Of all altered copies
    (wrong worlds), the one with the smallest change has a step size that is off by 1 %.
    `PI` is a tenth of this change, so that the change is larger than what pi allows.
    R_pi follows from pi and the data (`lemma21_radius`). One run starts at the
    direction of the target of this copy, the others near it. If the target in an
    altered copy is not W_mm, the path goes to larger margins inside the cone, and Lemma
    21 is false once the smallest margin has grown by more than pi.
    """
    slacks = []
    shares = []
    mu = radius(selection)
    least = lemma21_radius(selection, pi) * selection.solution.norm * (1 - ROUNDING)
    for history in histories:
        first = np.flatnonzero(np.diff(history.iterations) == 1)
        turns = [
            _turning(selection, history, k, step_size, pi, mu, least) for k in first
        ]
        inside = np.array([turn[0] for turn in turns])
        slack = np.array([turn[1] for turn in turns])
        if inside[0].all():
            slacks.append(slack[inside].min())
        else:
            slacks.append(np.nan)
        shares.append(inside.mean())
    multiples = lemma21_radius(selection, pi)
    ends = f"{multiples.min():,.0f}", f"{multiples.max():,.0f}"
    words = f"{100 * np.mean(shares):.0f}", f"{pi:g}", *ends
    # At p = 3 the claim holds even with a target that is rotated by 30 %.
    remark = THIN if selection.p > 2 else ""
    return claim("lemma27", np.min(slacks), selection.p, say=words, remark=remark)


def _turning(
    selection: Selection,
    history: History,
    k: int,
    step_size: float,
    pi: float,
    mu: np.ndarray,
    least: np.ndarray,
):
    """Return whether record k is in the cone, and the left side minus the right side of
    Eq. 25, divided by the absolute value of the left side.

    Both results have the shape (runs,). `mu` and `least` (runs,) are the largest D and
    the smallest ||W|| in the cone. Record k + 1 must be the next iteration.
    """
    tokens = selection.tokens
    p = selection.p
    scores = attention.scores(tokens, tokens.u)
    W = history.W[:, k]
    later = history.W[:, k + 1]
    flat = W.reshape(len(W), -1)
    flat_later = later.reshape(len(W), -1)
    size = norm(flat, p)
    size_later = norm(flat_later, p)
    D = near_divergence(flat, selection.direction, p)
    inside = (D <= mu) & (size >= least)

    # eta grad L, where eta is the rule's step size divided by ||grad L||. In the code
    # grad L is divided by e^s, with s the log scale, and eta is multiplied by e^s.
    at = attention.slopes(attention.logits(tokens, W), scores, "logistic")
    down = np.einsum("rnt,rntd,rne->rde", at.pull, tokens.X, tokens.z).reshape(
        len(W), -1
    )
    eta = step_size / norm(down, dual_exponent(p))
    left = eta * (down * selection.direction).sum(-1)

    # L+ - L divided by e^s, to first order in the softmax weights of the tokens that
    # are not selected. These weights are about e^-r.
    after = attention.slopes(attention.logits(tokens, later), scores, "logistic")
    selected = np.take_along_axis(scores, tokens.opt[..., None], -1)
    gap = selected - scores
    steepness = 1 / (1 + np.exp(selected))
    # Overflow and NaN occur only outside the cone.
    with np.errstate(over="ignore", invalid="ignore"):
        before, then = (
            np.exp(
                np.where(
                    gap == 0, -np.inf, one.log_weights - at.log_scale[:, None, None]
                )
            )
            for one in (at, after)
        )
        rise = (steepness * (then - before) * gap).sum(-1).mean(-1)

        grown = size_later ** (p - 1) - size ** (p - 1)
        right = grown / (1 + pi) + eta * rise / size
        return inside, (left - right) / np.abs(left)


def lemma28(selection: Selection, D: np.ndarray, mu: np.ndarray) -> Claim:
    """Check Lemma 28: runs that start in a narrower cone stay in the cone {D <= mu}.

    `D` (runs, k) is the divergence along the runs, and `mu` (runs,) is our constant.
    Runs with mu <= RESOLVED are left out, because rounding errors would decide there.
    The measured value is NaN, and the claim fails, if no run remains or if D hardly
    changes. The remark gives the last D divided by the first.
    """
    wide = mu > RESOLVED
    course = D[wide, -1] / D[wide, 0]
    largest = np.nan
    if wide.any() and np.median(np.abs(course - 1)) > MOVED:
        largest = (D[wide] / mu[wide, None]).max()
    runs = f"{wide.sum()} of {len(mu)} runs (mu_0 > {RESOLVED:g})"
    if wide.any():
        ends = f"{course.min():.2g} to {course.max():.3g}"
    else:
        ends = "unresolved"
    remark = f"last D over first, no part of the lemma: {ends}"
    return claim("lemma28", largest, selection.p, say=(runs,), remark=remark)


def found_selections(
    tokens: TokenSet, seeds: Sequence[int], p: float, steps: int
) -> Selection:
    """Train with lp-AttGD from random starts, and keep the runs that end at a locally
    optimal selection.

    Locally optimal (Definition 3) means that every selected token scores higher than
    the support tokens of its sample, which are the tokens of margin 1.

    Parameters
    ----------
    tokens : TokenSet
        Data sets, one per run.
    seeds : sequence of int
        The seed of each run's start.
    p : float
        The exponent of the mirror map.
    steps : int
        The number of iterations.

    Returns
    -------
    Selection
        The data sets of the runs that are kept. Their opt tokens are the tokens that
        the runs select at the last iteration. It usually has fewer runs than `tokens`.

    Raises
    ------
    svm.Infeasible
        If no W selects the tokens that a run ends with.
    ValueError
        If a run has ended early, and so selects no tokens.
    """
    start = gaussian_start(tokens, seeds)
    rule = relative_rule(start, p, 0.02)
    history = dynamics.train(tokens, rule, steps, [steps], start, loss="logistic")
    opt = selected_tokens(tokens, history.W[:, -1])
    kept = np.flatnonzero(locally_optimal(select(tokens, opt, p)))
    return select(tokens.take(kept), opt[kept], p)


def relative_rule(start: np.ndarray, p: float, relative_step: float) -> MirrorDescent:
    """Return normalised lp-AttGD with a step size that is proportional to the size of
    the start.

    The step size is `relative_step` times the median over runs of ||nabla psi(W_0)||,
    where W_0 = `start` (runs, d, d_z). With this choice ||W||^{p-1} grows at the same
    relative rate for all p.
    """
    size = np.median((np.abs(start) ** p).sum((1, 2)) ** ((p - 1) / p))
    return MirrorDescent(p, relative_step * size)


def from_cone(
    selection: Selection,
    mu: float,
    multiple: float,
    steps: int,
    share: float = 0.02,
    *,
    draws: int = 1,
    seed: int = 0,
    change: Callable[[MirrorDescent], MirrorDescent] = lambda rule: rule,
) -> tuple[History, TokenSet]:
    """Train from random starts at D = mu from W_mm and with ||W_0|| = multiple
    ||W_mm||.

    Each run of the selection has `draws` starts. The rule is change(rule), where `rule`
    is `relative_rule` with the relative step `share`. The function returns the history
    and the data. Both have draws times runs data sets, those of the first draw first.
    """
    solution = selection.solution
    runs = len(selection.direction)
    directions = on_the_edge(selection, np.full(runs, mu), draws, seed)
    W = directions * (multiple * solution.norm)[:, None]
    start = W.reshape(draws * runs, *solution.W.shape[1:])
    tokens = selection.tokens.take(np.tile(np.arange(runs), draws))
    rule = relative_rule(start, selection.p, share)
    history = dynamics.train(tokens, change(rule), steps, start=start, loss="logistic")
    return history, tokens


def theory(p: float) -> tuple[float, float, str]:
    """Return the bound of Lemma 29, D <= O(r^a (log r)^b) with r = ||W||_{p,p}.

    The result is a, b, and the bound as LaTeX text.
    """
    if p > 2:
        return -1.0, 1.0, r"$\log r / r$"
    if p == 2:
        return (-1.0, 2.0, r"$(\log r)^2 / r$")
    return (1 - p, 0.0, rf"$r^{{{1 - p:.3g}}}$")


def slopes(history: History, divergence: np.ndarray) -> np.ndarray:
    """Fit the exponent in r = ||W|| with which the divergence (runs, k) falls.

    The result has the shape (runs,). The fit is over the second half of the range of
    log r. A divergence below 1e-16, which is rounding, counts as 1e-16.
    """
    log_r = np.log(history.own_norm)
    log_D = np.log(np.maximum(divergence, 1e-16))

    def since(r: np.ndarray):
        return (r[0] + r[-1]) / 2

    each = zip(log_r, log_D, strict=True)
    return np.array([fitted_slope(r, D[None], since(r))[0] for r, D in each])


def lemma29(history: History, p: float, divergence: np.ndarray) -> list[Claim]:
    """Check that, over the second half of the range of log r, D falls at least as fast
    as Lemma 29's bound.

    Take the ratio of D to the bound. The measured value is this ratio at the last
    record, divided by the ratio in the middle of the range of log r, in the worst run.
    A second claim is our own: D falls like r^{-2 min(p - 1, 1)}. The reason is that D
    is quadratic in the error of the direction, and that this error has two sources. The
    part of the mirror image of W_0 that is orthogonal to all constraints stays
    constant, which causes an error of order 1/||W||^{p-1}. Moreover, the minimiser of
    the loss on a sphere of radius ||W|| differs from the direction of W_mm by an error
    of order 1/||W||. `divergence` (runs, records) is D.
    """
    a, b, _ = theory(p)
    log_r = np.log(history.own_norm)
    over = (
        np.log(np.maximum(divergence, 1e-16))
        - a * log_r
        - b * np.log(np.maximum(log_r, 1e-9))
    )
    middle = np.abs(log_r - (log_r[:, :1] + log_r[:, -1:]) / 2).argmin(1)[:, None]
    growth = np.exp(over[:, -1] - np.take_along_axis(over, middle, 1)[:, 0]).max()
    exponents = slopes(history, divergence)
    sharp = -2 * min(p - 1, 1.0)
    power = {"bound": f"{sharp} ± 0.1", "interval": interval(exponents)}
    fall = claim("lemma29.sharp", np.median(exponents), p, **power)
    return [claim("lemma29", growth, p), fall]


def captured(
    selection: Selection, mus: Sequence[float], multiple: float, steps: int, draws: int
) -> np.ndarray:
    """Return, for every mu, the share of the starts of `from_cone` whose runs end at
    the selection's tokens.

    The result has the shape (mus,).
    """
    fractions = []
    for k, mu in enumerate(mus):
        history, tokens = from_cone(selection, mu, multiple, steps, draws=draws, seed=k)
        kept = (selected_tokens(tokens, history.W[:, -1]) == tokens.opt).all(1)
        fractions.append(kept.mean())
    return np.array(fractions)


def local_claims(
    fractions: Mapping, mus: Sequence[float], multiple: float
) -> list[Claim]:
    """Check that runs from the narrowest cone still select its tokens in the end.

    From the widest cone, not all runs should do so. `fractions` has the results of
    `captured` by p, for the ascending `mus`.
    """
    return [
        claim(id, kept[k], p, multiple, say=(f"{mus[k]:.1g}",))
        for id, k in (("local.thin", 0), ("local.wide", -1))
        for p, kept in fractions.items()
    ]
