"""Statements of paper C (2410.14581) on the loss, its gradient and what one step of lp-AttGD does,
as checked claims.

Lemmas 4, 16-18, 22-25 and 30 of the appendix. Constants that the text at hand lost are derived here
and marked "our constant"; where several runs or iterations enter, a claim speaks of the worst of
them.
"""

import numpy as np
import torch

from lib import attention
from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close
from lib.mirror.descent import MirrorHistory
from lib.mirror.geometry import dual_exponent, norm
from lib.papers.c import inequalities
from lib.papers.fits import fitted_slope

ROUNDING = 1e-12


def score_range(tokens: TokenSet) -> np.ndarray:
    """max_t gamma_{i,t} - min_t gamma_{i,t}, (runs, n)."""
    return np.ptp(attention.scores(tokens, tokens.u), axis=-1)


def spread(tokens: TokenSet, q: float) -> np.ndarray:
    """max over t, s of ||(x_{i,t} - x_{i,s}) z_i^T||_{q,q}, (runs, n)."""
    apart = norm(tokens.X[:, :, :, None] - tokens.X[:, :, None], q).max((2, 3))
    return apart * norm(tokens.z, q)


def smoothness(tokens: TokenSet) -> np.ndarray:
    """A bound on ||hess L||, Frobenius, logistic loss: mean over i of G_i r_i^2 / 4 (1 + G_i / 16),
    (runs,) (ours).

    G_i is the range of the scores, r_i that of the logits per unit of ||W||_F: with |l'| <= 1,
    |l''| <= 1/4 and, for logits moving by b, |df| <= G_i range(b) / 4 and |d^2 f| <= G_i range(b)^2
    / 4.
    """
    G, r = score_range(tokens), spread(tokens, 2)
    return (G * r**2 / 4 * (1 + G / 16)).mean(-1)


def gradient_bound(tokens: TokenSet, q: float) -> np.ndarray:
    """||grad L||_{q,q} <= mean over i of G_i spread_i / 2, (runs,) (our constant): sum_t p_t |gamma_t - f| <= G/2."""
    return (score_range(tokens) * spread(tokens, q)).mean(-1) / 2


def random_matrices(tokens: TokenSet, draws: int, seed: int = 0) -> np.ndarray:
    """W (draws, runs, d, d_z) of sizes from 0.01 to 1000, evenly in the logarithm."""
    draw = np.random.default_rng(seed)
    shape = draws, len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    return np.geomspace(0.01, 1000, draws)[:, None, None, None] * draw.standard_normal(shape)


def lemma16(tokens: TokenSet, matrices: np.ndarray) -> list[Claim]:
    """L_min <= L(W) <= L_max: the loss of each sample's best and worst score (our constants)."""
    scores = attention.scores(tokens, tokens.u)
    least, most = (
        np.exp(attention.log_loss(end, "logistic")).mean(-1)
        for end in (scores.max(-1), scores.min(-1))
    )
    losses = np.array([attention.gradients(tokens, W, tokens.u, "logistic")[0] for W in matrices])
    source = "paper C, Lemma 16 (our constant)"
    return [
        at_least(
            "lemma16.lower", "smallest L(W) / L_min", source, (losses / least).min(), 1.0 - ROUNDING
        ),
        at_most(
            "lemma16.upper", "largest L(W) / L_max", source, (losses / most).max(), 1.0 + ROUNDING
        ),
    ]


def lemma17(tokens: TokenSet, W: np.ndarray) -> Claim:
    """grad L(W) = (1/n) sum_i l'_i X_i^T softmax'(a_i) gamma_i z_i^T, against automatic differentiation."""
    X, y, z, u, variable = (
        torch.from_numpy(a) for a in (tokens.X, tokens.y, tokens.z, tokens.u, W)
    )
    variable = variable.clone().requires_grad_()
    weights = torch.softmax(torch.einsum("rntd,rde,rne->rnt", X, variable, z), -1)
    f = y * torch.einsum("rnt,rntd,rd->rn", weights, X, u)
    torch.nn.functional.softplus(-f).mean(-1).sum().backward()
    expected = variable.grad.numpy()
    error = (
        np.abs(attention.gradients(tokens, W, tokens.u, "logistic")[1] - expected).max()
        / np.abs(expected).max()
    )
    return at_most("lemma17", "largest difference from automatic differentiation, relative", "paper C, Lemma 17",
                   error, ROUNDING)  # fmt: skip


def lemma18(tokens: TokenSet, matrices: np.ndarray, p: float) -> Claim:
    """||grad L||_{q,q} <= G for every W, a constant of the data (`gradient_bound`)."""
    q = dual_exponent(p)
    sizes = [
        norm(attention.gradients(tokens, W, tokens.u, "logistic")[1].reshape(len(W), -1), q)
        for W in matrices
    ]
    ratio = (np.array(sizes) / gradient_bound(tokens, q)).max()
    return at_most(f"lemma18.{p:g}", f"p = {p:g}: largest ||grad L||_qq over its bound",
                   "paper C, Lemma 18 (our constant)", ratio, 1.0)  # fmt: skip


def excess_loss(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """L(W) minus its limit where every sample selects its opt token, (runs,), logistic loss; exact
    when it is e^-300.

    l(f) - l(g) = log1p(sigmoid(-g) expm1(g - f)), and f - g is summed relative to the selected
    token's score.
    """
    logits, scores = attention.logits(tokens, W), attention.scores(tokens, tokens.u)
    limit = np.take_along_axis(scores, tokens.opt[..., None], -1)[..., 0]
    selected = np.take_along_axis(scores, logits.argmax(-1)[..., None], -1)
    weights = attention.weights(tokens, W)
    above = (selected[..., 0] - limit) + (weights * (scores - selected)).sum(-1)
    return np.log1p(np.expm1(-above) / (1 + np.exp(limit))).mean(-1)


class Steps:
    """Every recorded pair of iterations (t, t+1) of lp-AttGD: flat W and W+, gradient (runs, pairs,
    D), eta and losses.

    Gradients and losses are computed anew from W, so that the claims check training and not only
    algebra; losses are `excess_loss`. Normalised steps have eta / ||grad L||_qq as their step size.
    Gradients must not underflow.
    """

    def __init__(self, tokens: TokenSet, history: MirrorHistory):
        first = np.flatnonzero(np.diff(history.iterations) == 1)
        self.p, self.eta, self.iterations = (
            history.rule.p,
            history.rule.step_size,
            history.iterations[first],
        )
        both = np.unique([first, first + 1])
        gradients = {
            k: attention.gradients(tokens, history.W[:, k], tokens.u, "logistic")[1] for k in both
        }
        losses = {k: excess_loss(tokens, history.W[:, k]) for k in both}
        flat = (len(tokens.y), len(first), -1)
        self.W, self.later = (history.W[:, at].reshape(flat) for at in (first, first + 1))
        self.gradient = np.stack([gradients[k] for k in first], 1).reshape(flat)
        self.losses = tuple(np.stack([losses[k] for k in at], 1) for at in (first, first + 1))
        if history.rule.normalised:
            self.eta = self.eta / norm(self.gradient, dual_exponent(self.p))


def lemma4(steps: Steps, history: MirrorHistory, tokens: TokenSet) -> list[Claim]:
    """The increment bound of every step, and its sum ||W(k)||^{p-1} <= ||W(0)||^{p-1} + eta G k."""
    p, source = steps.p, "paper C, Lemma 4"
    smaller, larger = inequalities.lemma4(steps.W, steps.later, steps.gradient, steps.eta, p)
    grown = history.norm ** (p - 1)
    bound = (
        gradient_bound(tokens, dual_exponent(p))[:, None]
        * history.rule.step_size
        * history.iterations
    )
    return [
        at_most(f"lemma4.step.{p:g}", f"p = {p:g}: largest ||W+||^(p-1) over its bound", source,
                (smaller / larger).max(), 1.0 + ROUNDING),
        at_most(f"lemma4.sum.{p:g}", f"p = {p:g}: largest ||W(k)||^(p-1) / (||W(0)||^(p-1) + eta G k)",
                source + " (our constant)", (grown / (grown[:, :1] + bound)).max(), 1.0 + ROUNDING),
    ]  # fmt: skip


def lemma22(steps: Steps) -> Claim:
    """||W+||^{p-1} >= ||W||^{p-1} + eta <-grad L, W> / ||W|| at every step."""
    smaller, larger = inequalities.lemma22(steps.W, steps.later, steps.gradient, steps.eta, steps.p)
    statement = f"p = {steps.p:g}: smallest ||W+||^(p-1) over its bound"
    return at_least(
        f"lemma22.{steps.p:g}",
        statement,
        "paper C, Lemma 22",
        (larger / smaller).min(),
        1.0 - ROUNDING,
    )


def lemma23(steps: Steps, V: np.ndarray) -> Claim:
    """Eq. 23 and the identity of mirror descent at every step, for a target V (runs, D)."""
    left, right = inequalities.lemma23(
        V[:, None], steps.W, steps.later, steps.gradient, steps.losses, steps.eta, steps.p
    )
    error = (
        np.abs(left - right) / np.maximum(np.abs(left), norm(steps.W, steps.p) ** steps.p)
    ).max()
    statement = f"p = {steps.p:g}: largest relative difference of the two sides"
    return at_most(f"lemma23.{steps.p:g}", statement, "paper C, Lemma 23, Eq. 23", error, 1e-11)


def lemma24(steps: Steps) -> Claim:
    """(p-1)/p (||W+||^p - ||W||^p) + eta (L+ - L) <= -eta <grad L, W>: its slack, over the growth of the norm."""
    smaller, larger = inequalities.lemma24(
        steps.W, steps.later, steps.gradient, steps.losses, steps.eta, steps.p
    )
    size = (
        np.abs(steps.eta * (steps.gradient * steps.W).sum(-1))
        + ROUNDING * norm(steps.W, steps.p) ** steps.p
    )
    statement = f"p = {steps.p:g}: smallest slack of Eq. 24 over eta |<grad L, W>|"
    return at_least(f"lemma24.{steps.p:g}", statement, "paper C, Lemma 24, Eq. 24", ((larger - smaller) / size).min(),
                    -1e-9)  # fmt: skip


def lemma25(history: MirrorHistory) -> Claim:
    """L(W(k+1)) <= L(W(k)) at every iteration, recorded or not."""
    p, steady = history.rule.p, (history.loss_rise == -1).mean()
    statement = f"p = {p:g}: fraction of runs whose loss never rises"
    return at_least(f"lemma25.{p:g}", statement, "paper C, Lemma 25", steady, 1.0)


def lemma30(history: MirrorHistory, size: np.ndarray, since: float) -> list[Claim]:
    """||W(k)||_{p,p} = Omega(log k): after iteration `since` its slope is at least half ||W_mm||
    (our constant).

    size (runs,): ||W_mm||_{p,p}. Sharp (ours): the gradient falls like e^{-r/||W_mm||}, so that
    (r^{p-1})' does too and dr/dlog k = ||W_mm|| / (1 + (p-2) ||W_mm||/r).
    """
    p, late = history.rule.p, history.iterations >= since
    slope = fitted_slope(np.log(history.iterations[late]), history.norm[:, late], -np.inf) / size
    predicted = 1 / (1 + (p - 2) * size / history.norm[:, late].mean(1))
    statement = f"p = {p:g}: slope of ||W|| in log k over ||W_mm||"
    return [
        at_least(f"lemma30.{p:g}", f"{statement}, smallest", "paper C, Lemma 30 (our constant)", slope.min(), 0.5),
        close(f"lemma30.sharp.{p:g}", f"{statement} / (1 + (p-2) ||W_mm||/||W||), median",
              "derived from paper C, Lemma 30 (ours)", np.median(slope / predicted), 1.0, 0.15),
    ]  # fmt: skip
