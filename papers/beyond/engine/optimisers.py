"""Optimisers that see more than the gradient's direction: their formulas.

G = -grad L, the way down, and eta_t = eta (t+1)^-a. All divisions 0/0 below are 0: an entry, or a
singular direction, in which nothing pulls does not move.
"""

import math
from dataclasses import replace
from numbers import Real

from papers.beyond.engine import update
from papers.beyond.engine.update import Optimiser


def steepest(
    norm: str | float, step_size: float, decay: float = 0.0, normalised: bool = True
) -> Optimiser:
    """Steepest descent in a norm N: D = argmax_{N(D) <= 1} <G, D>, times N*(G) unless `normalised`.

    norm: "frobenius"; an exponent 1 <= p <= inf of the entries, D = sgn(G) |G|^{q-1} /
    ||G||_q^{q-1}, so sgn(G) for inf and the largest entry's sign for 1 (of several the first,
    row by row); "spectral", D = U V^T of the singular value decomposition G = U S V^T;
    "nuclear", D = u_1 v_1^T, of equal largest singular values one pair. ValueError for another.
    """
    if norm in ("spectral", "nuclear"):
        shape = update.POLAR if norm == "spectral" else update.LEADING
        return Optimiser(update.SPECTRAL, step_size, decay, normalised=normalised, shape=shape)
    p = 2.0 if norm == "frobenius" else norm
    if not isinstance(p, Real) or not p >= 1:
        raise ValueError(f"norm = {norm!r}; it must be frobenius, spectral, nuclear, or p >= 1")
    return Optimiser(update.ENTRYWISE, step_size, decay, p=float(p), normalised=normalised)


def muon(
    step_size: float,
    momentum: float = 0.95,
    nesterov: bool = False,
    newton_schulz: int = 0,
    decay: float = 0.0,
) -> Optimiser:
    """Muon: M_t = mu M_{t-1} + (1 - mu) G_t, D = U V^T of M_t (Nesterov: of mu M_t + (1 - mu) G_t).

    newton_schulz > 0: so many steps of the quintic iteration X <- aX + b(XX^T)X + c(XX^T)^2 X from
    X = M/||M|| in place of the polar factor, (a, b, c) = (3.4445, -4.7750, 2.0315) (Jordan, 2024).
    """
    shape = update.NEWTON_SCHULZ if newton_schulz else update.POLAR
    return Optimiser(
        update.SPECTRAL,
        step_size,
        decay,
        shape=shape,
        iterations=newton_schulz,
        momentum=momentum,
        nesterov=nesterov,
    )


def adam(
    step_size: float,
    momentum: float = 0.9,
    memory: float = 0.999,
    epsilon: float = 0.0,
    decay: float = 0.0,
) -> Optimiser:
    """Adam (Kingma and Ba, 2015): D = m^ / (sqrt(v^) + epsilon), entry by entry.

    m = beta_1 m + (1 - beta_1) G, v = beta_2 v + (1 - beta_2) G^2; m^ = m / (1 - beta_1^t), v^
    alike. epsilon 0 is welcome; with beta_2 = 0 an entry whose gradient is zero has v = 0, and
    stays.
    """
    return Optimiser(
        update.ADAPTIVE,
        step_size,
        decay,
        momentum=momentum,
        memory=memory,
        epsilon=epsilon,
        corrected=True,
    )


def rmsprop(
    step_size: float, memory: float = 0.99, epsilon: float = 0.0, decay: float = 0.0
) -> Optimiser:
    """RMSprop: Adam without momentum and without the corrections of m and v."""
    return Optimiser(update.ADAPTIVE, step_size, decay, memory=memory, epsilon=epsilon)


def adagrad(step_size: float, epsilon: float = 0.0, decay: float = 0.0) -> Optimiser:
    """AdaGrad: D = G / (sqrt(v) + epsilon), v the sum of all G^2."""
    return Optimiser(update.ADAPTIVE, step_size, decay, epsilon=epsilon, summed=True)


def mirror(p: float, step_size: float, decay: float = 0.0, normalised: bool = True) -> Optimiser:
    """l_p mirror descent (paper C, lp-AttGD): U_{t+1} = U_t + eta_t D_t with U = sgn(W) |W|^{p-1}.

    D = G, divided by ||G||_q where `normalised`, 1/p + 1/q = 1, and W = sgn(U) |U|^{1/(p-1)} after
    each step; 1 < p < inf, else ValueError; p = 2 is gradient descent. An entry in which nothing
    pulls stays. An entry of W_0 whose |W|^{p-1} is no float64 counts as 0.
    """
    if not 1 < p < math.inf:
        raise ValueError(
            f"p = {p}; it must be above 1 and finite: else the mirror map is not 1 to 1"
        )
    return Optimiser(update.MIRROR, step_size, decay, p=float(p), normalised=normalised)


def natural(
    step_size: float,
    damping: float = 0.0,
    relative: bool = False,
    empirical: bool = False,
    normalised: bool = False,
    decay: float = 0.0,
) -> Optimiser:
    """Natural gradient (Amari, 1998): D = (F + lambda I)^{-1} G, over ||D|| where `normalised`.

    F: the Gauss-Newton matrix (1/n) sum_i l''(f_i) grad f_i grad f_i^T, under the logistic loss the
    Fisher matrix of the labels; where `empirical` (1/n) sum_i g_i g_i^T of the samples' own
    gradients g_i. lambda = damping, times the trace of F where `relative`. With lambda = 0 the
    pseudo-inverse, <grad f_i, D> = |l'|/l'' for every i: D is then as large as the inverse of the
    smallest gradient, and without `normalised` training soon diverges. Of samples whose gradients
    depend on each other to rounding those of larger ones count.
    """
    return Optimiser(
        update.NATURAL,
        step_size,
        decay,
        normalised=normalised,
        damping=damping,
        relative=relative,
        empirical=empirical,
    )


def full_adagrad(step_size: float, decay: float = 0.0) -> Optimiser:
    """Full-matrix AdaGrad (Duchi et al., 2011): D = S^{-1/2} vec(G), S = sum vec(G) vec(G)^T.

    The power is of the pseudo-inverse: eigenvalues below 1e-13 of the largest count as zero. A step
    takes an eigendecomposition of size n(T-1): about 1,000 times a step of AdaGrad at n = 6, T = 8.
    """
    return Optimiser(update.FULL_ADAGRAD, step_size, decay)


def signum(step_size: float, momentum: float = 0.9, decay: float = 0.0) -> Optimiser:
    """Signum: D = sgn(m), m = beta m + (1 - beta) G."""
    return Optimiser(update.SIGN, step_size, decay, momentum=momentum, first_mix=momentum)


def lion(
    step_size: float, first_mix: float = 0.9, momentum: float = 0.99, decay: float = 0.0
) -> Optimiser:
    """Lion (Chen et al., 2023): D = sgn(beta_1 m + (1 - beta_1) G), then m = beta_2 m + (1 -
    beta_2) G; first_mix is beta_1, momentum beta_2."""
    return Optimiser(update.SIGN, step_size, decay, momentum=momentum, first_mix=first_mix)


def shampoo(
    step_size: float, memory: float = 0.0, summed: bool = False, decay: float = 0.0
) -> Optimiser:
    """Shampoo (Gupta et al., 2018): D = L^{-1/4} G R^{-1/4}.

    L = beta_2 L + (1 - beta_2) G G^T and R = beta_2 R + (1 - beta_2) G^T G, or plain sums where
    `summed`. The powers are of the pseudo-inverse: eigenvalues below 1e-13 of the largest count
    as zero. With beta_2 = 0 it is the polar factor.
    """
    return Optimiser(update.SHAMPOO, step_size, decay, memory=memory, summed=summed)


def soap(
    step_size: float, momentum: float = 0.9, memory: float = 0.999, decay: float = 0.0
) -> Optimiser:
    """SOAP (Vyas et al., 2024): Adam in the eigenbases Q_L, Q_R of Shampoo's L and R.

    D = Q_L (m' / sqrt(v)) Q_R^T with m' = Q_L^T m Q_R, v a mean of squares of Q_L^T G Q_R, both
    corrected as in Adam. A step uses the bases and then updates L, R and them, by one power
    iteration and QR: the paper's Algorithms 3 and 4 with frequency 1. The bases start as
    eigenvectors of the first gradient's L and R, and the first step is taken in them (the published
    code skips it). Entries of Q_L^T G Q_R and of m' below 1e-13 of their largest are rounding and
    count as zero, so the first D is the polar factor of G.
    """
    return Optimiser(
        update.SOAP, step_size, decay, momentum=momentum, memory=memory, corrected=True
    )


def on_batches(optimiser: Optimiser, size: int, shuffled: bool = False) -> Optimiser:
    """The same rule on the mean gradient of `size` samples a step, in turn or anew each epoch.

    Samples that are left over at the end of an epoch are left out of it. ValueError for size < 1.
    """
    if size < 1:
        raise ValueError(f"size = {size}; a batch has at least one sample")
    return replace(optimiser, batch=size, shuffled=shuffled)


def in_blocks(optimiser: Optimiser, count: int, by_columns: bool = False) -> Optimiser:
    """Steepest descent or Muon block by block: W's rows (or columns) in `count` equal parts.

    With N the rule's norm it is steepest descent in max_b N(W_b), whose dual is sum_b N*(G_b): each
    block moves by its own direction, one without a gradient rests. Head-wise Muon is
    `in_blocks(muon(eta), heads)`. ValueError for a rule of another kind.
    """
    if optimiser.kind not in (update.ENTRYWISE, update.SPECTRAL):
        raise ValueError("only steepest descent and Muon move in blocks of their own")
    return replace(optimiser, blocks=count, by_columns=by_columns)


def rescaled(optimiser: Optimiser, radius: float, growth: float, every: int) -> Optimiser:
    """Progressive rescaling (Wang, Min and Wu, 2024, PRGD for normalised gradient descent).

    The ball of radius R_k = radius growth^k holds in phase k, `every` steps long. A step that would
    leave it ends on its sphere, W R_k / ||W||, Frobenius; the first of a phase k > 0 always does.
    W = 0 stays. A radius beyond e^600 ends a run as diverged. ValueError for mirror descent.
    """
    if optimiser.kind == update.MIRROR:
        raise ValueError("mirror descent moves the image of W, which is not rescaled")
    return replace(optimiser, radius=radius, growth=growth, every=every)
