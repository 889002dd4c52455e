"""The lemmas of paper C (2410.14581) on the steps of lp-AttGD, and on cones.

Lemmas 4, 12-16, 18, 22, 24, 25 and 30 are about steps. Eqs. 4-8 and Lemmas 19-21 and
27-29 are about cones around locally optimal selections.

An inequality is returned as its two sides, (smaller, larger), for matrices whose last
axis holds the entries. If several runs or iterations enter, the worst of them is
judged.

A selection alpha picks a token of every sample, and W_mm is the solution of its l_p
SVM. Its support tokens T_i are those of margin 1. W+ is the iterate after W, L+ its
loss, and q = p/(p-1). Unless said otherwise, D is D_psi(W_mm/||W_mm||, W/||W||), the
cone S is {D <= mu}, and C is the part of S with ||W||_{p,p} >= R.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from companion.claims import Claim, interval
from lib import attention, dynamics, svm
from lib.attention import TokenSet, coordinates, token_set
from lib.dynamics import History, MirrorDescent
from lib.mirror import gaussian_start, selected_tokens
from lib.mirror.geometry import (
    bregman,
    directional_bregman,
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
RESOLVED = 1e-14  # rounding makes an error of about 1e-16 in D
MOVED = 1e-3  # least relative change of D in a run that counts as moving
PI = 1e-3  # Lemma 27's pi, a tenth of the smallest change of a wrong world
THIN = (
    "for p > 2 our mu_0 is so small that the margins in its cone hardly differ: "
    "the row notices "
    "a step off, and no rotated target"
)
claim = PAPER.claim


def spread(tokens: TokenSet, q: float) -> np.ndarray:
    """Return the largest ||(x_{i,t} - x_{i,s}) z_i^T||_{q,q} over t and s, (runs,
    n).
    """
    apart = norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], q).max((2, 3))
    return apart * norm(tokens.z, q)


def random_matrices(tokens: TokenSet, draws: int) -> np.ndarray:
    """Draw W (draws, runs, d, d_z) with sizes from 0.01 to 1000, evenly in the
    logarithm.
    """
    shape = draws, len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    sizes = np.geomspace(0.01, 1000, draws)[:, None, None, None]
    return sizes * stream(0, "draws").standard_normal(shape)


def lemma16(tokens: TokenSet, matrices: np.ndarray) -> list[Claim]:
    """Check L_min <= L(W) <= L_max.

    The bounds are the losses of each sample's best and worst score (our constants).
    They are tested at `matrices` (m, runs, d, d_z) and far along two SVM directions, at
    which they are attained.
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
    """Yield ||grad L||_{q,q} / G of Lemma 18 at each of the matrices, (runs,)."""
    score_ranges = np.ptp(attention.scores(tokens, tokens.u), axis=-1)
    G = (score_ranges * spread(tokens, q)).mean(-1) / 4
    for W in matrices:
        gradient = attention.gradients(tokens, W, tokens.u, "logistic")[1]
        size = norm(gradient.reshape(len(gradient), -1), q)
        yield size / G


def lemma18(tokens: TokenSet, matrices: np.ndarray, p: float) -> Claim:
    """Check ||grad L||_{q,q} <= G, with our constant G.

    G is the mean over i of G_i spread_i / 4, where G_i is the range of sample i's
    scores. For sum_t p_t (gamma_t - f) x_t is a covariance under the softmax weights,
    which is at most a quarter of the product of the ranges (Gruess), and |l'| <= 1. The
    bound is tested at `matrices` (m, runs, d, d_z), and at W = 0 for two misclassified
    tokens, where it is attained.
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
    """Return L(W) minus its limit for the opt selection, (runs,), exact down to
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

    The arrays W, W+ and the gradient are (runs, pairs, D), with D entries of W; the
    step sizes eta are divided by ||grad L||_{q,q} if steps are normalised. Gradients
    and losses are computed again from W, so that the claims test the training loop and
    not only algebra.
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


def _growth(step: Any):  # what one step adds to the norm of the mirror image
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

    Here x >= y >= 0. Each inequality is a pair.
    """
    middle = (p - 1) / p * (x**p - y**p)
    rise = x ** (p - 1) - y ** (p - 1)
    return [(y * rise, middle), (middle, x * rise)]


def lemma15(
    x: np.ndarray, y: np.ndarray, p: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the sides of y^{p-2} s <= x^{p-1} - y^{p-1} <= x^{p-2} s, with s =
    (p-1)(x-y).

    For p < 2 the inequalities are reversed.
    """
    rise = x ** (p - 1) - y ** (p - 1)
    at_y, at_x = ((p - 1) * end ** (p - 2) * (x - y) for end in (y, x))
    if p >= 2:
        return [(at_y, rise), (rise, at_x)]
    return [(at_x, rise), (rise, at_y)]


def lemma4(steps: Steps) -> Claim:
    """Check ||W+||^{p-1} - ||W||^{p-1} <= eta ||grad L||_{q,q}.

    Measured is the largest ratio of the two sides.
    """
    bound = steps.eta * norm(steps.gradient, dual_exponent(steps.p))
    return claim("lemma4", (_growth(steps) / bound).max(), steps.p)


def step_claims(steps: Steps) -> list[Claim]:
    """Check Lemmas 22, 24 and 25 on every step.

    Lemmas 22 and 24 say that (23 is 24 for V = 0)

        eta <-grad L, W> / ||W|| <= ||W+||^{p-1} - ||W||^{p-1},
        (p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= eta <-grad L, W>.

    Measured is the slack, divided by the term with the gradient. For Lemma 25 it is eta
    (L - L+) divided by <nabla psi(W) - nabla psi(W+), W - W+>, which is 1 for small
    eta, and -inf if L rises.
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
    """Check ||W(k)||_{p,p} = Omega(log k) on iterations k >= `since`.

    Let r be the norm. We require 0.9 times the sharp slope dr/dlog k = ||W_mm||/(1 +
    (p-2) ||W_mm||/r), which is ours: the gradient and the growth of r^{p-1} fall like
    e^{-r/||W_mm||}. `size` (runs,) is ||W_mm||, and `stay` marks the runs that keep its
    tokens.
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
    """A selection, stored as the opt tokens of `tokens`, and its max-margin
    solution.
    """

    tokens: TokenSet
    solution: MaxMargin
    p: float

    @property
    def direction(self) -> np.ndarray:
        """vec(W_mm) / ||W_mm||_{p,p}, (runs, D).

        It has norm 1 even if a rotation has changed the norm of W_mm.
        """
        flat = self.solution.W.reshape(len(self.solution.W), -1)
        return flat / norm(flat, self.p)[:, None]


def select(tokens: TokenSet, opt: np.ndarray, p: float) -> Selection:
    """Build the Selection of the tokens `opt` (runs, n).

    Raises svm.Infeasible if no W selects them.
    """
    chosen = replace(tokens, opt=opt)
    return Selection(tokens=chosen, solution=svm.token_svm(chosen, norm=p), p=p)


def locally_optimal(selection: Selection) -> np.ndarray:
    """Check Definition 3: selected tokens score higher than their support tokens,
    (runs,).
    """
    tokens = selection.tokens
    scores = attention.scores(tokens, tokens.u)
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    rest = np.take_along_axis(
        scores, coordinates.others(tokens.opt, scores.shape[-1]), -1
    )
    return ((rest < best) | (selection.solution.margins > 1 + SUPPORT)).all((1, 2))


def _delta(selection: Selection):
    """Return delta of Eq. 4: (m - 1)/2, with m the least margin of a token off the
    support.
    """
    margins = selection.solution.margins
    return np.where(margins > 1 + SUPPORT, margins - 1, np.inf).min((1, 2)) / 2


def _nearness(selection: Selection):
    """Return min(delta, 1/2).

    At norms of ||W_mm|| divided by this, softmax separates support tokens from others.
    """
    return np.minimum(_delta(selection), 0.5)


def radius(selection: Selection) -> np.ndarray:
    """Return mu_0 of Eq. 4, (runs,), with our constant.

    Lemma 19 follows with it from Lemmas 12 and 13. It is rho^p / (p 2^p) for p >= 2,
    and (p-1)/2 (rho D^{1/2-1/p})^2 for p < 2, with D the number of entries of W. Here
    rho = min(delta, 1/2) / (A ||W_mm||), and A is the largest `spread`.
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
    """Draw unit directions at D = mu (runs,) from the selection's, (draws, runs,
    entries).
    """
    directions = stream(seed, "draws").standard_normal(
        (draws, *selection.direction.shape)
    )
    return _edge_along(selection, mu, directions)


def _edge_along(selection: Selection, mu: np.ndarray, E: np.ndarray):
    """Return the first direction W_mm/||W_mm|| + s E, s > 0, at which D = mu, with norm
    1.

    E is (draws, runs, entries).
    """
    direction = selection.direction
    p = selection.p

    def moved(log_s: np.ndarray):
        return direction + np.exp(log_s)[..., None] * E

    def D(log_s: np.ndarray):
        return directional_bregman(moved(log_s), direction, p)

    low = high = np.full(E.shape[:2], -25.0)
    while (inside := D(high) < mu).any() and high.max() < 10:
        low = np.where(inside, high, low)
        high = high + np.where(inside, 0.5, 0.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = D(middle) <= mu
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    W = moved(low)
    return W / norm(W, p)[..., None]


def _worst_edges(selection: Selection):
    """Return +-sgn(A) |A|^{q-1} for every constraint A.

    The margin of A changes most along this direction.
    """
    tokens = selection.tokens
    rows = coordinates.constraint_rows(
        coordinates.differences(tokens, tokens.opt), tokens.z
    )
    E = to_mirror(np.swapaxes(rows, 0, 1), selection.p / (selection.p - 1))
    return np.concatenate([E, -E])


def _slack(selection: Selection, mu: np.ndarray):
    """Return the least slack of Eqs. 12a-c on the edge of the cone of mu (runs,).

    The equations hold if it is 1 or more. Let m be the margins under W of norm
    ||W_mm||, m_t that of a support token and m_tau that of another token. The slacks
    are (m_tau - m_t)/delta for (12a), (m_tau - 1)/delta for (12b), and 2 m_t and 3/2
    divided by m_t for (12c). The least is over all tokens, runs and directions of
    `_worst_edges`.
    """
    tokens = selection.tokens
    solution = selection.solution
    d = _delta(selection)[:, None, None]
    support = solution.margins <= 1 + SUPPORT
    apart = coordinates.differences(tokens, tokens.opt)
    slacks = []
    for V in _edge_along(selection, mu, _worst_edges(selection)):
        W = (V * solution.norm[:, None]).reshape(solution.W.shape)
        m = np.einsum("rntd,rde,rne->rnt", apart, W, tokens.z)
        rest = np.where(support, np.inf, m)
        high = np.where(support, m, -np.inf).max(-1)
        low = np.where(support, m, np.inf).min()
        slacks += [((rest.min(-1) - high) / d[..., 0]).min(), ((rest - 1) / d).min()]
        slacks += [2 * low, 1.5 / high.max()]
    return np.min(slacks)


def lemma19(selection: Selection) -> Claim:
    """Check Eqs. 12a-c in the cone of mu_0, and find the widest 10^k mu_0 in which they
    hold.
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
    """Return <-grad L(W), V> without underflow, as a factor and the log of a scale,
    (runs,).

    The product is factor times e^{log scale}. W and V = `toward` are flat.
    """
    tokens = selection.tokens
    shape = selection.solution.W.shape
    logits = attention.logits(tokens, W.reshape(shape))
    slopes = attention.slopes(logits, attention.scores(tokens, tokens.u), "logistic")
    logits = attention.logits(tokens, toward.reshape(shape))
    below = logits - logits.max(-1, keepdims=True)
    return (slopes.pull * below).sum((1, 2)), slopes.log_scale


def _radii(selection: Selection, multiples: np.ndarray):
    return np.asarray(multiples, float)[:, None] / _nearness(selection)


def lemma20(
    selection: Selection, multiples: np.ndarray, draws: int = 20
) -> list[Claim]:
    """Check that -grad L(W) has a positive product with every V in the cone of mu_0.

    Lemma 20 says <-grad L(W), V/||V||> >= c e^{-(1 + delta/2) ||W||/||W_mm||} > 0. W
    and V are `draws` random directions on the edge of the cone, and ||W|| is multiple
    ||W_mm||/delta, with delta of `_nearness`. The smallest c at any of the ascending
    `multiples` (m,) must not be below that at the first.
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
    """Return the pi of Lemma 21 at W, (runs,).

    It solves <-grad L, W/||W||> = (1+pi) <-grad L, W_mm/||W_mm||>.
    """
    along, _ = _descent(selection, W, W / norm(W, selection.p)[:, None])
    best, _ = _descent(selection, W, selection.direction)
    return along / best - 1


def lemma21(selection: Selection, multiples: np.ndarray, draws: int = 20) -> Claim:
    """Check that for every pi there is an R_pi ~ (C/pi) log(C/pi).

    This means that the largest pi at radius R falls at least like log R / R. So pi R /
    log R is compared at the radii of `lemma20`; it must not be largest at the last. The
    directions are on edges from mu_0 to 10^-10 mu_0, because directions that favour W
    most lie near W_mm.
    """
    inside = radius(selection) * np.geomspace(1, 1e-10, 6)[:, None]
    radii = _radii(selection, multiples)
    size = selection.solution.norm
    W = np.concatenate([on_the_edge(selection, mu, draws, seed=3) for mu in inside])
    largest = [
        np.max([_excess(selection, w * (r * size)[:, None]) for w in W], 0)
        for r in radii
    ]
    scaled = np.array(largest) * radii / np.log(radii)
    growth = (scaled[-1] - scaled[:-1].max(0)).max()
    return claim("lemma21", growth, selection.p)


def lemma21_radius(selection: Selection, pi: float = PI) -> np.ndarray:
    r"""R_pi of Lemma 21 over ||W_mm||, from the data alone.

    Parameters
    ----------
    selection : Selection
        The selection; its tokens must be locally optimal.
    pi : float
        Lemma 21's pi, in (0, 1).

    Returns
    -------
    ndarray, (runs,)
        The least r = ||W|| / ||W_mm|| from which the argument below gives Lemma 21.

    Notes
    -----
    Our copy of the paper lost the formula of R_pi (paper C, Lemma 21). These are the
    steps of the paper's proof with constants of ours. Let h and m be the margins under
    W ||W_mm|| / ||W|| and under W_mm, g the gap of a token's score to the selected
    token's, p the softmax weights, c_i = -l'(f_i), and v = (1 + pi) m - h. Lemma 21
    says that

        sum_i c_i Cov_p(v, g) = sum_i c_i sum_t p_t v_t (g_t - sum_s p_s g_s) >= 0.

    In the cone of mu_0 a margin moves by at most nu = min(delta, 1/2) (Lemma 19), and G
    is the largest range of a sample's scores, g_min the smallest gap of a support
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

    With kappa = c_max G / (c_min g_min), steps 3 and 4 each take at most half of step 2
    from

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

    # The slopes -l'(f) = 1 / (1 + e^f) of the logistic loss, f between a sample's
    # scores.
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
    """The step of normalised lp-AttGD that is small enough for Lemma 24 at `multiple`
    ||W_mm||.

    Parameters
    ----------
    selection : Selection
        The selection around whose W_mm the runs start.
    multiple : ndarray, (runs,)
        ||W_0|| / ||W_mm||.

    Returns
    -------
    float
        Half the largest step that the argument below allows, of the run that allows
        least.

    Notes
    -----
    Lemma 24 needs eta D_L(W+, W) <= D_psi(W+, W). Let A be the largest `spread`. A step
    of length ||W+ - W|| moves a logit by at most A ||W+ - W||, and the weights off the
    selected tokens carry at most <-grad L, W_mm> <= ||grad L||_{q,q} ||W_mm||. So eta
    D_L is at most step ||W_mm|| A^2 ||W+ - W||^2 / 2. For p <= 2, D_psi is at least
    (p-1) ||W||^{p-2} ||W+ - W||^2 / 2. We use min(p-1, 1) for p > 2 as well, which is
    no bound.
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
    """Eq. 25 at every recorded step in the cone of mu_0 and R_pi, with pi fixed
    beforehand.

    Parameters
    ----------
    selection : Selection
        The selection with the target W_mm that the lemma names.
    histories : sequence of History
        Normalised runs on the selection's data that start in the cone.
    step_size : float
        The step size that their rule names.
    pi : float
        Lemma 27's pi.

    Returns
    -------
    Claim
        The smallest slack of Eq. 25 over its left side; NaN, which fails, if a run
        does not start in the cone.

    Notes
    -----
    Paper C, Eq. 25, as its proof gives it (our reading):

        <nabla psi(W+) - nabla psi(W), W_mm/||W_mm||>
            >= (||W+||^{p-1} - ||W||^{p-1}) / (1 + pi) + eta (L+ - L) / ||W||.

    The left side is eta <-grad L(W), W_mm/||W_mm||> with the step that the rule names.
    At R_pi the gradient and the fall of the loss underflow, so that both are divided by
    the same factor.

    Beforehand means that neither pi nor R_pi depends on a run. `PI` is a tenth of the
    smallest change of a wrong world, 1 %, so that a step 1 % off is larger than what pi
    allows. R_pi follows from pi and the data (`lemma21_radius`). The runs start around
    the target that the world names, one at its own direction. If that is not W_mm's,
    the path goes to larger margins inside the cone. Lemma 21 is false there once the
    smallest margin has grown by more than pi.
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
        slacks.append(slack[inside].min() if inside[0].all() else np.nan)
        shares.append(inside.mean())
    multiples = lemma21_radius(selection, pi)
    ends = f"{multiples.min():,.0f}", f"{multiples.max():,.0f}"
    words = f"{100 * np.mean(shares):.0f}", f"{pi:g}", *ends
    # At p = 3 the row even passes with a target that is rotated by 30 %.
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
    """Return whether record k is in the cone, and Eq. 25's slack divided by its left
    side.

    Both are (runs,).
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
    D = directional_bregman(flat, selection.direction, p)
    inside = (D <= mu) & (size >= least)

    # eta grad L and eta over e^s; the step names eta as a multiple of 1 / ||grad L||.
    at = attention.slopes(attention.logits(tokens, W), scores, "logistic")
    down = np.einsum("rnt,rntd,rne->rde", at.pull, tokens.X, tokens.z).reshape(
        len(W), -1
    )
    eta = step_size / norm(down, dual_exponent(p))
    left = eta * (down * selection.direction).sum(-1)

    # L+ - L over e^s, to first order in the weights off the selected tokens, which are
    # e^-r.
    after = attention.slopes(attention.logits(tokens, later), scores, "logistic")
    selected = np.take_along_axis(scores, tokens.opt[..., None], -1)
    gap = selected - scores
    steepness = 1 / (1 + np.exp(selected))
    with np.errstate(over="ignore", invalid="ignore"):  # only outside the cone
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
    """Check that runs from a thin cone, with D (runs, k), stay in that of mu (runs,).

    The constant is ours. mu must exceed RESOLVED; the result is NaN if no run does or
    if D hardly moves. The remark gives the last D divided by the first.
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
    """Find the locally optimal selections in which training with p from random starts
    ends.
    """
    start = gaussian_start(tokens, seeds)
    rule = relative_rule(start, p, 0.02)
    history = dynamics.train(tokens, rule, steps, [steps], start, loss="logistic")
    opt = selected_tokens(tokens, history.W[:, -1])
    kept = np.flatnonzero(locally_optimal(select(tokens, opt, p)))
    return select(tokens.take(kept), opt[kept], p)


def relative_rule(start: np.ndarray, p: float, relative_step: float) -> MirrorDescent:
    """Return normalised lp-AttGD with a step relative to the size of the start.

    The first step is `relative_step` times ||nabla psi(W_0)||, W_0 = `start` (runs, d,
    d_z), in the median run. Then ||W||^{p-1} grows at the same relative rate for all p.
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
    """Train from `draws` random starts per run at D = mu and ||W_0|| = multiple
    ||W_mm||.

    The rule is `relative_rule` with `share`, as `change` modifies it. Returns the
    history and the data, both with draws times runs data sets.
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
    """Return Lemma 29 as (a, b, text): D <= O(r^a (log r)^b) with r = ||W||_{p,p}."""
    if p > 2:
        return -1.0, 1.0, r"$\log r / r$"
    if p == 2:
        return (-1.0, 2.0, r"$(\log r)^2 / r$")
    return (1 - p, 0.0, rf"$r^{{{1 - p:.3g}}}$")


def slopes(history: History, divergence: np.ndarray) -> np.ndarray:
    """Fit the exponent in r of the divergence (runs, k) over the last half of log r:
    (runs,).
    """
    log_r = np.log(history.own_norm)
    log_D = np.log(np.maximum(divergence, 1e-16))

    def since(r: np.ndarray):
        return (r[0] + r[-1]) / 2

    each = zip(log_r, log_D, strict=True)
    return np.array([fitted_slope(r, D[None], since(r))[0] for r, D in each])


def lemma29(history: History, p: float, divergence: np.ndarray) -> list[Claim]:
    """Check that D falls at least like Lemma 29's bound over the last half of log r.

    A second claim is ours: D falls like r^{-2 min(p - 1, 1)}, because D is quadratic in
    the error of the direction. The part of the mirror image of W_0 that no constraint
    sees stays constant and causes an error of order 1/||W||^{p-1}. The minimiser of the
    loss on a sphere is off by an error of order 1/||W||. `divergence` (runs, records)
    is D.
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
    """Return, for every mu, the share of the starts of `from_cone` that keep its
    tokens.
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
    """Check that starts in the thinnest cone keep their tokens; in the widest they may
    not.
    """
    return [
        claim(id, kept[k], p, multiple, say=(f"{mus[k]:.1g}",))
        for id, k in (("local.thin", 0), ("local.wide", -1))
        for p, kept in fractions.items()
    ]
