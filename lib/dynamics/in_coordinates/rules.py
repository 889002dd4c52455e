r"""Update rules that see W in the coordinates of the tokens, each a frozen value.

.. math:: W_{t+1} = (1 - \eta_t \lambda) W_t + \eta_t D_t, \quad
    \eta_t = \eta (t+1)^{-a}

D_t is computed from the negative gradient G = -grad L(W_t). In all divisions, 0/0 = 0:
an entry or a singular direction whose gradient is zero does not move. The head stays
fixed, except under `MirrorDescent`, which can train it too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar

from lib.dynamics.in_coordinates import codes
from lib.dynamics.rules import Rule


def _need_number(
    name: str, value: Any, holds: Callable[[float], bool], needed: str
) -> None:
    """Raise TypeError or ValueError unless `value` is a number with `holds(value)`."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} = {value!r}; it must be a number")
    if not holds(value):
        raise ValueError(f"{name} = {value}; it must be {needed}")


def _need_no_log_step(rule: Rule) -> None:
    """Raise TypeError if a subclass of a compiled rule defines `log_step`."""
    if rule.steps_along_gradient:
        name = type(rule).__name__
        raise TypeError(
            f"{name} defines log_step, but derives from a rule whose compiled loop "
            "does not call it: define direction instead, or derive it from lib.Rule"
        )


def _is_size(value: float) -> bool:
    """Return whether a number can be a step size: positive and finite."""
    return 0 < value < inf


def _need_whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless a setting is an integer of at least `least`."""
    if not isinstance(value, Integral):
        raise ValueError(f"{name} = {value!r}; it must be a whole number")
    if value < least:
        raise ValueError(f"{name} = {value}; it must be {least} or more")


@dataclass(frozen=True, repr=False)
class MirrorDescent(Rule):
    r"""Mirror descent with the potential ||W||_p^p / p.

    .. math:: |W_{t+1}|^{p-1} \mathrm{sgn}(W_{t+1}) = |W_t|^{p-1} \mathrm{sgn}(W_t)
        - \eta\, \nabla L / \|\nabla L\|_q, \quad 1/p + 1/q = 1

    Parameters
    ----------
    p : float
        The exponent of the potential, 1 < p < inf. For p = 2 the rule is gradient
        descent, with normalised steps by default.
    step_size : float, optional
        eta, positive and finite.
    normalised : bool, optional
        Whether the gradient is divided by its dual norm.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples. If batches are used, the head stays fixed.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    This is the rule of paper C, Section 2, which calls it lp-AttGD with a fixed head
    and lp-JointGD in joint training. In joint training, each gradient is divided by its
    own norm. If each step uses all samples, a history also contains the l_p norms
    (`own_norm`, ...) and `loss_rise`; with batches, these are NaN.

    Examples
    --------
    >>> from lib import dynamics
    >>> dynamics.MirrorDescent(p=3.0)
    MirrorDescent(p=3.0)
    >>> dynamics.MirrorDescent(p=3.0, step_size=0.5, normalised=False)
    MirrorDescent(p=3.0, step_size=0.5, normalised=False)
    """

    formula: ClassVar[str] = (
        r"|W_{t+1}|^{p-1}\mathrm{sgn}(W_{t+1})=|W_t|^{p-1}\mathrm{sgn}(W_t)"
        r"-\eta\,\nabla L/\|\nabla L\|_q"
    )
    p: float
    step_size: float = 0.1
    normalised: bool = field(default=True, kw_only=True)
    batch_size: int = field(default=0, kw_only=True)

    def _check_methods(self) -> None:
        """Raise TypeError if the rule defines `log_step`."""
        _need_no_log_step(self)

    def _check(self) -> None:
        """Raise TypeError or ValueError if a setting is not a number in its range."""
        _need_number("p", self.p, lambda p: 1 < p < inf, "above 1 and finite")
        _need_number("step_size", self.step_size, _is_size, "positive and finite")
        _need_whole("batch_size", self.batch_size, 0)

    def numbers(self) -> codes.Numbers:
        """Return the rule's settings as numbers for the compiled loop in coordinates.

        Returns
        -------
        Numbers
            The settings, with the kind MIRROR.
        """
        return codes.Numbers(
            kind=float(codes.MIRROR),
            log_step_size=math.log(self.step_size),
            p=float(self.p),
            normalised=float(self.normalised),
            batch=float(self.batch_size),
        )


@dataclass(frozen=True, repr=False)
class InCoordinates(Rule, ABC):
    """A rule of the compiled loop that depends on the entries of W; the head is fixed.

    Each subclass has a `step_size`. `_check` checks the ranges of the settings that it
    names, if a subclass has them. Only `train` knows the number of rows of W and the
    number of samples. It raises ValueError if the number of blocks does not divide the
    number of rows, or if a batch would have more samples than there are.
    """

    decay: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=0.0, kw_only=True)
    batch_size: int = field(default=0, kw_only=True)
    variance_reduced: bool = field(default=False, kw_only=True)

    def _check_methods(self) -> None:
        """Raise TypeError if the rule defines `log_step`."""
        _need_no_log_step(self)

    def _check(self) -> None:
        """Raise TypeError or ValueError if a setting is not a number in its range."""
        size = vars(self)["step_size"]
        _need_number("step_size", size, _is_size, "positive and finite")
        _need_number("decay", self.decay, math.isfinite, "finite")
        for name in ("momentum", "memory", "first_mix"):
            value = getattr(self, name, 0.0)
            _need_number(name, value, lambda x: 0 <= x < 1, "in [0, 1)")
        for name in ("epsilon", "damping", "weight_decay"):
            value = getattr(self, name, 0.0)
            _need_number(name, value, lambda x: 0 <= x < inf, "finite, zero or above")
        _need_whole("batch_size", self.batch_size, 0)
        _need_whole("blocks", getattr(self, "blocks", 1), 1)
        product = size * self.weight_decay
        if not product < 1:
            raise ValueError(
                f"step_size * weight_decay = {product}; it must be below 1"
            )
        if self.weight_decay and self.decay < 0:
            raise ValueError(
                f"weight_decay = {self.weight_decay} with decay = {self.decay}; "
                "growing steps must have no weight decay, which would flip the sign "
                "of W once eta_t lambda exceeds 1"
            )
        if self.variance_reduced and not self.batch_size:
            raise ValueError(
                "variance_reduced is for batches; set batch_size to 1 or more"
            )

    def numbers(self) -> codes.Numbers:
        """Return the rule's settings as numbers for the compiled loop.

        Returns
        -------
        Numbers
            The kind and the settings of the rule.
        """
        return codes.Numbers(
            log_step_size=math.log(vars(self)["step_size"]),
            decay=float(self.decay),
            weight_decay=float(self.weight_decay),
            batch=float(self.batch_size),
            reduced=float(self.variance_reduced),
            **{name: float(value) for name, value in self._own_numbers().items()},
        )

    @abstractmethod
    def _own_numbers(self) -> dict[str, float]:
        """Return the kind of the rule, and the settings that only some rules have.

        The keys of the result are fields of `codes.Numbers`. `numbers` sets all other
        fields itself.
        """


@dataclass(frozen=True, repr=False)
class SteepestDescent(InCoordinates):
    r"""Steepest descent in a norm N, with dual norm N*.

    .. math:: D=\mathrm{argmax}_{N(D)\le1}\langle G,D\rangle

    Parameters
    ----------
    norm : {"frobenius", "spectral", "nuclear"} or float
        The norm N. A number p with 1 <= p <= inf stands for the l_p norm of the
        entries.
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    normalised : bool, optional
        Whether D is scaled to N(D) = 1. Otherwise this D is multiplied by N*(G). If G =
        0, D is zero.
    blocks : int, optional
        The number of equal parts into which the rows of W are divided. Each part moves
        by itself. The norm is then max_b N(W_b) over the parts, and its dual is sum_b
        N*(G_b). `blocks` must divide the number of rows.
    radius, growth : float, optional
        Training is divided into phases. Phase k = 0, 1, ... consists of `every`
        iterations, t = k every, ..., (k + 1) every - 1. In phase k, W_t stays in the
        ball ||W|| <= radius growth^k of the Frobenius norm, with radius > 0 and growth
        >= 1. If a step leaves this ball, W_t is scaled back onto the sphere of this
        radius. The first W_t of each phase k > 0 is always scaled onto the sphere; with
        every = 1, this applies to each W_t after the start. A run in which the radius
        of the ball exceeds e^600 ends as "diverged". By default the radius is infinite,
        and W is never scaled.
    every : int, optional
        The number of steps in a phase.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    In an l_p norm, ``D = sgn(G) |G|^{q-1} / ||G||_q^{q-1}``. For p = 1, D has a single
    entry that is not zero. This entry has the index and the sign of the largest
    absolute entry of G. If several entries of G are equally large, the first one
    counts. Let ``G = U S V^T``. In the spectral norm ``D = U V^T``, and in the nuclear
    norm ``D = u_1 v_1^T``. With `radius`, the rule is the progressive rescaling (PRGD)
    of Wang, Min and Wu (2024).

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.SteepestDescent("spectral", 0.1)
    >>> rule
    SteepestDescent(norm='spectral', step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.298, -0.032],
           [ 0.032, -0.298]])
    """

    formula: ClassVar[str] = r"D=\mathrm{argmax}_{N(D)\le1}\langle G,D\rangle"
    norm: Any
    step_size: float
    normalised: bool = field(default=True, kw_only=True)
    blocks: int = field(default=1, kw_only=True)
    radius: float = field(default=inf, kw_only=True)
    growth: float = field(default=1.0, kw_only=True)
    every: int = field(default=1, kw_only=True)

    def _check(self) -> None:
        """Raise TypeError or ValueError if a setting is not in its range."""
        named = self.norm in ("frobenius", "spectral", "nuclear")
        if not named and not (isinstance(self.norm, Real) and self.norm >= 1):
            raise ValueError(
                f'norm = {self.norm!r}; it must be "frobenius", "spectral", "nuclear" '
                "or an exponent p >= 1"
            )
        super()._check()
        _need_number("radius", self.radius, lambda x: x > 0, "positive")
        _need_number("growth", self.growth, lambda x: 1 <= x < inf, "finite, 1 or more")
        _need_whole("every", self.every, 1)

    def _own_numbers(self) -> dict[str, float]:
        kinds = {
            "spectral": {"kind": codes.SPECTRAL, "shape": codes.POLAR},
            "nuclear": {"kind": codes.SPECTRAL, "shape": codes.LEADING},
            "frobenius": {"kind": codes.ENTRYWISE, "p": 2.0},
        }
        entrywise = {"kind": codes.ENTRYWISE, "p": self.norm}
        return {
            **kinds.get(self.norm, entrywise),
            "normalised": self.normalised,
            "blocks": self.blocks,
            "log_radius": math.log(self.radius),
            "log_growth": math.log(self.growth),
            "every": self.every,
        }


@dataclass(frozen=True, repr=False)
class SignDescent(InCoordinates):
    r"""Steepest descent in the max norm: all entries of W move by the same amount.

    .. math:: D=\mathrm{sgn}(G)

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule equals ``SteepestDescent(inf, step_size)``. It also equals `Signum` without
    momentum. An entry whose gradient is zero does not move.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.SignDescent(0.1)
    >>> rule
    SignDescent(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.3,  0. ],
           [ 0.3, -0.3]])
    """

    formula: ClassVar[str] = r"D=\mathrm{sgn}(G)"
    step_size: float

    def _own_numbers(self) -> dict[str, float]:
        return {"kind": codes.ENTRYWISE, "p": inf}


@dataclass(frozen=True, repr=False)
class Adam(InCoordinates):
    r"""Adam; with `weight_decay`, AdamW.

    .. math:: D=\hat m/(\sqrt{\hat v}+\epsilon)

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    momentum : float, optional
        beta_1 in [0, 1): m = beta_1 m + (1 - beta_1) G.
    memory : float, optional
        beta_2 in [0, 1): v = beta_2 v + (1 - beta_2) G^2, entry by entry.
    epsilon : float, optional
        The number that is added to the square root of v, at least zero. If beta_2 =
        epsilon = 0, an entry whose gradient is zero does not move at this step.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    Adam is due to Kingma and Ba (2015), AdamW to Loshchilov and Hutter (2019). The hats
    correct for the fact that m and v start at zero: m is divided by 1 - beta_1^{t+1},
    and v by 1 - beta_2^{t+1}. The loop stores the scales of m and v as logarithms, so
    that nothing underflows.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.Adam(0.1)
    >>> rule
    Adam(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.3,  0. ],
           [ 0.3, -0.3]])
    """

    formula: ClassVar[str] = r"D=\hat m/(\sqrt{\hat v}+\epsilon)"
    step_size: float
    momentum: float = field(default=0.9, kw_only=True)
    memory: float = field(default=0.999, kw_only=True)
    epsilon: float = field(default=0.0, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.ADAPTIVE,
            "momentum": self.momentum,
            "memory": self.memory,
            "epsilon": self.epsilon,
            "corrected": True,
        }


@dataclass(frozen=True, repr=False)
class RMSprop(InCoordinates):
    r"""RMSprop: Adam without momentum and without corrections.

    .. math:: D=G/(\sqrt v+\epsilon)

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    memory : float, optional
        beta_2 in [0, 1): v = beta_2 v + (1 - beta_2) G^2, entry by entry.
    epsilon : float, optional
        The number that is added to the square root of v, at least zero.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Tieleman and Hinton (2012).

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.RMSprop(0.1)
    >>> rule
    RMSprop(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-1.44 ,  0.   ],
           [ 1.519, -1.46 ]])
    """

    formula: ClassVar[str] = r"D=G/(\sqrt v+\epsilon)"
    step_size: float
    memory: float = field(default=0.99, kw_only=True)
    epsilon: float = field(default=0.0, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.ADAPTIVE,
            "memory": self.memory,
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, repr=False)
class AdaGrad(InCoordinates):
    r"""AdaGrad, entry by entry.

    .. math:: D=G/(\sqrt v+\epsilon),\ v=\sum G^2

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    epsilon : float, optional
        The number that is added to the square root of v, at least zero.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    AdaGrad is due to Duchi, Hazan and Singer (2011). This is their version with a
    diagonal matrix.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.AdaGrad(0.1)
    >>> rule
    AdaGrad(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.227,  0.   ],
           [ 0.229, -0.225]])
    """

    formula: ClassVar[str] = r"D=G/(\sqrt v+\epsilon),\ v=\sum G^2"
    step_size: float
    epsilon: float = field(default=0.0, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {"kind": codes.ADAPTIVE, "epsilon": self.epsilon, "summed": True}


@dataclass(frozen=True, repr=False)
class FullAdaGrad(InCoordinates):
    r"""AdaGrad with the full matrix.

    .. math:: D=S^{-1/2}\mathrm{vec}(G),\ S=\sum\mathrm{vec}(G)\mathrm{vec}(G)^\top

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Duchi, Hazan and Singer (2011). Each step computes the
    eigendecomposition of a square matrix. The number of its rows is the dimension of
    the span of all gradients, which is at most min(n (T - 1), d d_z). The negative
    power is a power of the pseudo-inverse.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.FullAdaGrad(0.1)
    >>> rule
    FullAdaGrad(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.12 ,  0.   ],
           [ 0.149, -0.189]])
    """

    formula: ClassVar[str] = (
        r"D=S^{-1/2}\mathrm{vec}(G),\ S=\sum\mathrm{vec}(G)\mathrm{vec}(G)^\top"
    )
    step_size: float

    def _own_numbers(self) -> dict[str, float]:
        return {"kind": codes.FULL_ADAGRAD}


@dataclass(frozen=True, repr=False)
class Signum(InCoordinates):
    r"""Signum: the sign of a running mean of gradients.

    .. math:: D=\mathrm{sgn}(m)

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    momentum : float, optional
        beta in [0, 1): m = beta m + (1 - beta) G.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Bernstein, Wang, Azizzadenesheli and Anandkumar (2018).

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.Signum(0.1)
    >>> rule
    Signum(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.3,  0. ],
           [ 0.3, -0.3]])
    """

    formula: ClassVar[str] = r"D=\mathrm{sgn}(m)"
    step_size: float
    momentum: float = field(default=0.9, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.SIGN,
            "momentum": self.momentum,
            "first_mix": self.momentum,
        }


@dataclass(frozen=True, repr=False)
class Lion(InCoordinates):
    r"""Lion: the sign of a running mean in which the newest gradient gets extra weight.

    .. math:: D=\mathrm{sgn}(a m+(1-a)G)

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    first_mix : float, optional
        a in [0, 1), the weight of m in the direction.
    momentum : float, optional
        beta in [0, 1): after the step, m becomes beta m + (1 - beta) G.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Chen et al. (2023).

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.Lion(0.1)
    >>> rule
    Lion(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.3,  0. ],
           [ 0.3, -0.3]])
    """

    formula: ClassVar[str] = r"D=\mathrm{sgn}(a m+(1-a)G)"
    step_size: float
    first_mix: float = field(default=0.9, kw_only=True)
    momentum: float = field(default=0.99, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.SIGN,
            "momentum": self.momentum,
            "first_mix": self.first_mix,
        }


@dataclass(frozen=True, repr=False)
class Muon(InCoordinates):
    r"""Muon: the polar factor of a running mean of gradients.

    .. math:: D=UV^\top,\ USV^\top=M

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    momentum : float, optional
        mu in [0, 1): M = mu M + (1 - mu) G.
    nesterov : bool, optional
        Whether D is the polar factor of mu M + (1 - mu) G instead of the polar factor
        of M.
    newton_schulz : int, optional
        The number of quintic steps X <- aX + b(XX^T)X + c(XX^T)^2 X that replace the
        exact polar factor. The first step starts from the matrix divided by its
        Frobenius norm. Zero means that the exact polar factor is used.
    blocks : int, optional
        The number of equal parts into which the rows of W are divided. Each part moves
        by itself, like the heads of a layer. `blocks` must divide the number of rows.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Jordan (2024).

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.Muon(0.1, nesterov=True)
    >>> rule
    Muon(step_size=0.1, nesterov=True)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.298, -0.032],
           [ 0.032, -0.298]])
    """

    formula: ClassVar[str] = r"D=UV^\top,\ USV^\top=M"
    step_size: float
    momentum: float = field(default=0.95, kw_only=True)
    nesterov: bool = field(default=False, kw_only=True)
    newton_schulz: int = field(default=0, kw_only=True)
    blocks: int = field(default=1, kw_only=True)

    def _check(self) -> None:
        """Raise TypeError or ValueError if a setting is not in its range."""
        super()._check()
        _need_whole("newton_schulz", self.newton_schulz, 0)

    def _own_numbers(self) -> dict[str, float]:
        shape = codes.NEWTON_SCHULZ if self.newton_schulz else codes.POLAR
        return {
            "kind": codes.SPECTRAL,
            "shape": shape,
            "iterations": self.newton_schulz,
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "blocks": self.blocks,
        }


@dataclass(frozen=True, repr=False)
class OLion(InCoordinates):
    r"""OLion: the sign of the polar factor that Muon with Nesterov's momentum uses.

    .. math:: D=\mathrm{sgn}(UV^\top),\ USV^\top=\mu M+(1-\mu)G

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    momentum : float, optional
        mu in [0, 1): M = mu M + (1 - mu) G.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule comes from arXiv 2602.01105.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.OLion(0.1)
    >>> rule
    OLion(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.3, -0.3],
           [ 0.3, -0.3]])
    """

    formula: ClassVar[str] = r"D=\mathrm{sgn}(UV^\top),\ USV^\top=\mu M+(1-\mu)G"
    step_size: float
    momentum: float = field(default=0.95, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.SPECTRAL,
            "momentum": self.momentum,
            "nesterov": True,
            "signed": True,
        }


@dataclass(frozen=True, repr=False)
class Shampoo(InCoordinates):
    r"""Shampoo: the gradient, multiplied by a matrix from either side.

    .. math:: D=L^{-1/4}GR^{-1/4}

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    memory : float, optional
        beta_2 in [0, 1): L = beta_2 L + (1 - beta_2) G G^T, and R is the same running
        mean of G^T G. With beta_2 = 0, D is the polar factor of G.
    summed : bool, optional
        Whether L and R are plain sums instead of these running means.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Gupta, Koren and Singer (2018). The negative powers are powers of
    the pseudo-inverses.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.Shampoo(0.1, memory=0.9)
    >>> rule
    Shampoo(step_size=0.1, memory=0.9)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.706, -0.067],
           [ 0.089, -0.672]])
    """

    formula: ClassVar[str] = r"D=L^{-1/4}GR^{-1/4}"
    step_size: float
    memory: float = field(default=0.0, kw_only=True)
    summed: bool = field(default=False, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.SHAMPOO,
            "memory": self.memory,
            "summed": self.summed,
        }


@dataclass(frozen=True, repr=False)
class SOAP(InCoordinates):
    r"""SOAP: Adam in the eigenbases of Shampoo's two matrices.

    .. math:: D=Q_L(Q_L^\top\hat m\,Q_R/\sqrt{\hat v})Q_R^\top

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    momentum : float, optional
        beta_1 in [0, 1), the factor in the running mean m of G.
    memory : float, optional
        beta_2 in [0, 1), the factor in the running means L and R, and in the running
        mean v of the squares of Q_L^T G Q_R.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is given by Algorithms 3 and 4 of Vyas et al. (2024) with frequency 1. A
    step first moves W by means of the bases Q_L and Q_R. Then it updates L and R, and
    updates the bases by one power iteration and a QR decomposition. The published code
    does not move W in the first step. Here, the first step is taken in the singular
    bases of the first gradient, so that D is the polar factor of this gradient.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.SOAP(0.1)
    >>> rule
    SOAP(step_size=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.303, -0.019],
           [ 0.161, -0.28 ]])
    """

    formula: ClassVar[str] = r"D=Q_L(Q_L^\top\hat m\,Q_R/\sqrt{\hat v})Q_R^\top"
    step_size: float
    momentum: float = field(default=0.9, kw_only=True)
    memory: float = field(default=0.999, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.SOAP,
            "momentum": self.momentum,
            "memory": self.memory,
            "corrected": True,
        }


@dataclass(frozen=True, repr=False)
class NaturalGradient(InCoordinates):
    r"""The natural gradient.

    .. math:: D=(F+\delta I)^{-1}G

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    decay : float, optional
        The exponent a of eta_t = eta (t + 1)^-a. If a is negative, the steps grow.
    weight_decay : float, optional
        lambda, the decoupled weight decay, at least zero; eta lambda must be below 1.
        If the steps grow, lambda must be zero.
    batch_size : int, optional
        The number of samples per step, at most n. Within an epoch, the batches follow
        the order of the samples, and an incomplete last batch is left out. Zero means
        that each step uses all samples.
    variance_reduced : bool, optional
        Whether to reduce the variance of the batches by SVRG (Johnson and Zhang, 2013).
        Write g(S, W) for the mean, over a set S of samples, of their negative gradients
        at W. Then G = g(batch, W) - g(batch, anchor) + g(all, anchor). The anchor is W
        at the beginning of the epoch.
    damping : float, optional
        The damping delta >= 0, which multiplies the identity that is added to F. If
        delta is zero, the inverse is a pseudo-inverse. D then grows like the inverse of
        the smallest gradient, so that training soon diverges unless `normalised` is
        set.
    relative : bool, optional
        Whether delta is `damping` times the trace of F, rather than `damping` itself.
    normalised : bool, optional
        Whether D is divided by its Frobenius norm.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    The rule is due to Amari (1998). F is the Fisher matrix of the labels, under the
    probabilities that the model gives to them.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.NaturalGradient(0.1, damping=0.1)
    >>> rule
    NaturalGradient(step_size=0.1, damping=0.1)
    >>> run = dynamics.train(attention.two_examples(), rule, 3, record=[3])
    >>> run.W[0, 0].round(3) + 0.0
    array([[-0.223,  0.   ],
           [ 0.151, -0.273]])
    """

    formula: ClassVar[str] = r"D=(F+\delta I)^{-1}G"
    step_size: float
    damping: float = field(default=0.0, kw_only=True)
    relative: bool = field(default=False, kw_only=True)
    normalised: bool = field(default=False, kw_only=True)

    def _own_numbers(self) -> dict[str, float]:
        return {
            "kind": codes.NATURAL,
            "damping": self.damping,
            "relative": self.relative,
            "normalised": self.normalised,
        }
