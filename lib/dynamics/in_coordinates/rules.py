"""Optimisers that see more than the gradient's direction: their formulas.

W_{t+1} = (1 - eta_t lambda) W_t + eta_t D_t with eta_t = eta (t+1)^-a, lambda the
weight decay, 0 unless said, and D_t made of G = -grad L, the way down. All divisions
0/0 below are 0: an entry, or a singular direction, in which nothing pulls does not
move.
"""

import math
from dataclasses import dataclass, replace
from numbers import Real

from lib.dynamics.in_coordinates.codes import (
    ADAPTIVE,
    ENTRYWISE,
    FULL_ADAGRAD,
    LEADING,
    MIRROR,
    NATURAL,
    NEWTON_SCHULZ,
    POLAR,
    SHAMPOO,
    SIGN,
    SOAP,
    SPECTRAL,
    Numbers,
)


@dataclass(frozen=True)
class Optimiser:
    """One update rule W_{t+1} = W_t + eta_t D_t; build it with a constructor below."""

    kind: int
    step_size: float  # eta
    decay: float = 0.0  # a
    p: float = 2.0
    normalised: bool = True
    shape: int = POLAR
    iterations: int = 0
    momentum: float = 0.0  # beta_1
    memory: float = 0.0  # beta_2
    epsilon: float = 0.0
    nesterov: bool = False
    corrected: bool = False
    summed: bool = False
    first_mix: float = 0.0
    batch: int = 0  # samples per step, in turn, 0 for all
    blocks: int = 1  # parts of W's rows that move by themselves
    damping: float = 0.0
    relative: bool = False
    radius: float = math.inf  # the norms that W is brought to
    growth: float = 1.0
    every: int = 1
    weight_decay: float = 0.0  # lambda
    reduced: bool = False  # variance reduction on batches
    signed: bool = False  # sgn(D) in place of D

    def __post_init__(self):
        def need(condition, needed, *names):
            for name in names:
                if not condition(getattr(self, name)):
                    raise ValueError(
                        f"{name} = {getattr(self, name)}; it must be {needed}"
                    )

        need(lambda x: 0 < x < math.inf, "positive and finite", "step_size")
        need(math.isfinite, "finite", "decay")
        need(lambda x: 0 <= x < 1, "in [0, 1)", "momentum", "memory", "first_mix")
        sizes = "epsilon", "damping", "weight_decay"
        need(lambda x: 0 <= x < math.inf, "finite, 0 or positive", *sizes)
        need(lambda x: x == int(x) >= 0, "a whole number, 0 for all samples", "batch")
        need(lambda x: x == int(x) >= 1, "a whole number >= 1", "blocks", "every")
        need(lambda x: x > 0, "positive", "radius")
        need(lambda x: 1 <= x < math.inf, "finite, 1 or more", "growth")

    def numbers(self) -> Numbers:
        """The rule as the compiled loop takes it: floats, logs where LOGS says."""
        written = {"radius": "log_radius", "growth": "log_growth"}
        written["step_size"] = "log_step_size"
        return Numbers(
            **{
                written.get(name, name): math.log(x) if name in written else float(x)
                for name, x in vars(self).items()
            }
        )


def steepest(
    norm: str | float, step_size: float, decay: float = 0.0, normalised: bool = True
) -> Optimiser:
    """Steepest descent in a norm N: D = argmax_{N(D) <= 1} <G, D>, times N*(G) if not
    normalised.

    norm: "frobenius"; an exponent 1 <= p <= inf of the entries, D = sgn(G) |G|^{q-1} /
    ||G||_q^{q-1}, so sgn(G) for inf and the largest entry's sign for 1 (of several the
    first); "spectral", D = U V^T of G = U S V^T; "nuclear", D = u_1 v_1^T, of equal largest
    singular values one pair. ValueError for another.
    """
    if norm in ("spectral", "nuclear"):
        shape = POLAR if norm == "spectral" else LEADING
        return Optimiser(
            kind=SPECTRAL,
            step_size=step_size,
            decay=decay,
            normalised=normalised,
            shape=shape,
        )
    p = 2.0 if norm == "frobenius" else norm
    if not isinstance(p, Real) or not p >= 1:
        raise ValueError(
            f"norm = {norm!r}; it must be frobenius, spectral, nuclear, or p >= 1"
        )
    return Optimiser(
        kind=ENTRYWISE,
        step_size=step_size,
        decay=decay,
        p=float(p),
        normalised=normalised,
    )


def muon(
    step_size: float,
    momentum: float = 0.95,
    nesterov: bool = False,
    newton_schulz: int = 0,
) -> Optimiser:
    """Muon: D = U V^T of M_t = mu M_{t-1} + (1 - mu) G_t, or with nesterov of
    mu M_t + (1 - mu) G_t; newton_schulz > 0: in its place so many steps of the quintic
    X <- aX + b(XX^T)X + c(XX^T)^2 X from M/||M|| (Jordan, 2024).
    """
    shape = NEWTON_SCHULZ if newton_schulz else POLAR
    polar = Optimiser(SPECTRAL, step_size, shape=shape, iterations=newton_schulz)
    return replace(polar, momentum=momentum, nesterov=nesterov)


def adam(
    step_size: float,
    momentum: float = 0.9,
    memory: float = 0.999,
    epsilon: float = 0.0,
    decay: float = 0.0,
) -> Optimiser:
    """Adam (Kingma and Ba, 2015): D = m^ / (sqrt(v^) + epsilon), entry by entry, with
    m = beta_1 m + (1 - beta_1) G, v = beta_2 v + (1 - beta_2) G^2, by `momentum` and
    `memory`; m^ = m / (1 - beta_1^{t+1}), v^ alike. With beta_2 = epsilon = 0 an entry
    without gradient stays.
    """
    rule = rmsprop(step_size, memory, epsilon)
    return replace(rule, decay=decay, momentum=momentum, corrected=True)


def rmsprop(step_size: float, memory: float = 0.99, epsilon: float = 0.0) -> Optimiser:
    """RMSprop: Adam without momentum and without the corrections of m and v."""
    return Optimiser(ADAPTIVE, step_size, memory=memory, epsilon=epsilon)


def adagrad(step_size: float, epsilon: float = 0.0) -> Optimiser:
    """AdaGrad: D = G / (sqrt(v) + epsilon), v the sum of all G^2."""
    return Optimiser(ADAPTIVE, step_size, epsilon=epsilon, summed=True)


def mirror(p: float, step_size: float, normalised: bool = True) -> Optimiser:
    """l_p mirror descent (paper C, lp-AttGD): U_{t+1} = U_t + eta_t D_t with U = sgn(W)
    |W|^{p-1}, D = G, over ||G||_q where `normalised`, 1/p + 1/q = 1; ValueError unless
    1 < p < inf. An entry of W_0 whose |W|^{p-1} is below all floats counts as 0.
    """
    if not 1 < p < math.inf:
        raise ValueError(
            f"p = {p}; the mirror map is 1 to 1 for finite p above 1 alone"
        )
    return Optimiser(MIRROR, step_size, p=float(p), normalised=normalised)


def natural(
    step_size: float,
    damping: float = 0.0,
    relative: bool = False,
    normalised: bool = False,
) -> Optimiser:
    """Natural gradient (Amari, 1998): D = (F + lambda I)^{-1} G, over ||D|| where
    `normalised`.

    F is that of `preconditioners.natural`; lambda = damping, times the trace of F where
    `relative`. With lambda = 0 the pseudo-inverse: D is then as large as the inverse of
    the smallest gradient, and without `normalised` training soon diverges.
    """
    rule = Optimiser(NATURAL, step_size, normalised=normalised)
    return replace(rule, damping=damping, relative=relative)


def full_adagrad(step_size: float) -> Optimiser:
    """Full-matrix AdaGrad (Duchi et al., 2011): D = S^{-1/2} vec(G), S = sum vec(G)
    vec(G)^T, by an eigendecomposition of size n(T-1) a step.
    """
    return Optimiser(FULL_ADAGRAD, step_size)


def signum(step_size: float, momentum: float = 0.9) -> Optimiser:
    """Signum: D = sgn(m), m = beta m + (1 - beta) G, beta = `momentum`."""
    return lion(step_size, momentum, momentum)


def lion(step_size: float, first_mix: float = 0.9, momentum: float = 0.99) -> Optimiser:
    """Lion (Chen et al., 2023): D = sgn(a m + (1 - a) G), a = `first_mix`."""
    return Optimiser(SIGN, step_size, momentum=momentum, first_mix=first_mix)


def shampoo(step_size: float, memory: float = 0.0, summed: bool = False) -> Optimiser:
    """Shampoo (Gupta et al., 2018): D = L^{-1/4} G R^{-1/4}, powers of pseudo-inverses,
    L = beta_2 L + (1 - beta_2) G G^T, beta_2 the `memory`, R alike of G^T G, or plain
    sums where `summed`. With beta_2 = 0 it is the polar factor.
    """
    return Optimiser(SHAMPOO, step_size, memory=memory, summed=summed)


def soap(step_size: float, momentum: float = 0.9, memory: float = 0.999) -> Optimiser:
    """SOAP (Vyas et al., 2024): Adam in the eigenbases Q_L, Q_R of Shampoo's L and R.

    D = Q_L (m' / sqrt(v)) Q_R^T with m' = Q_L^T m Q_R, v a mean of squares of Q_L^T G
    Q_R. A step uses the bases and then updates L, R and them, by one power iteration
    and QR: the paper's Algorithms 3 and 4 with frequency 1. The first step, which the
    published code skips, is taken in the bases of the first gradient: it is its polar
    factor.
    """
    return Optimiser(SOAP, step_size, momentum=momentum, memory=memory, corrected=True)


def on_batches(optimiser: Optimiser, size: int) -> Optimiser:
    """The same rule on `size` samples a step, in turn; an epoch's rest is left out."""
    if size < 1:
        raise ValueError(f"size = {size}; a batch has at least one sample")
    return replace(optimiser, batch=size)


def in_blocks(optimiser: Optimiser, count: int) -> Optimiser:
    """Steepest descent or Muon, else ValueError, in `count` equal parts of W's rows:
    steepest descent in max_b N(W_b), of dual sum_b N*(G_b), N the rule's norm.
    """
    if optimiser.kind not in (ENTRYWISE, SPECTRAL):
        raise ValueError("only steepest descent and Muon move in blocks of their own")
    return replace(optimiser, blocks=count)


def rescaled(
    optimiser: Optimiser, radius: float, growth: float, every: int
) -> Optimiser:
    """Progressive rescaling (Wang, Min and Wu, 2024, PRGD for normalised gradient
    descent).

    The ball of radius R_k = radius growth^k holds in phase k, `every` steps long. A
    step that would leave it ends on its sphere, W R_k / ||W||, Frobenius; the first of
    a phase k > 0 always does. A radius beyond e^600 ends a run as diverged. ValueError
    for mirror descent.
    """
    if optimiser.kind == MIRROR:
        raise ValueError("mirror descent moves the image of W, which is not rescaled")
    return replace(optimiser, radius=radius, growth=growth, every=every)


def decayed(optimiser: Optimiser, weight_decay: float) -> Optimiser:
    """Decoupled weight decay lambda (Loshchilov and Hutter, 2019): N(D) <= 1 keeps N(W)
    <= 1/lambda from zero. ValueError for eta lambda >= 1, mirror descent.
    """
    if optimiser.kind == MIRROR:
        raise ValueError("mirror descent moves the image of W, which does not decay")
    if not optimiser.step_size * weight_decay < 1:
        raise ValueError(
            f"eta lambda = {optimiser.step_size * weight_decay}; it must be below 1"
        )
    return replace(optimiser, weight_decay=weight_decay)


def variance_reduced(optimiser: Optimiser) -> Optimiser:
    """G = (batch's mean at W) - (the same at the anchor) + (all samples' there), the
    anchor the W at an epoch's begin (SVRG, Johnson and Zhang, 2013).
    """
    if not optimiser.batch:
        raise ValueError("variance reduction is for batches: the rule sees all samples")
    return replace(optimiser, reduced=True)


def olion(step_size: float, momentum: float = 0.95) -> Optimiser:
    """OLion (arXiv 2602.01105): D = sgn(U V^T) of Nesterov's Muon."""
    return replace(muon(step_size, momentum, nesterov=True), signed=True)
