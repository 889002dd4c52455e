"""Update rules W_{t+1} = W_t - m_t, m_t = beta m_{t-1} + eta_t grad L(W_t). A rule
gives log eta_t: eta_t and the gradient leave the range of floats long before their
product.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from numbers import Real

import numpy as np

GD, NGD, POLYAK, CUSTOM = range(4)
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class GradientRule:
    """One update rule; build it with `gd`, `ngd`, `polyak`, `custom` or `custom_log`.

    step_size eta, max_step eta_max (paper A, Appendix C), momentum beta, decay the
    exponent p of the factor (t+1)^-p. `joint`: in joint training, normalise W and u
    together (paper A, Eq. 2) instead of each by itself (Eq. 13).
    """

    kind: int
    step_size: float = 1.0
    max_step: float = inf
    momentum: float = 0.0
    decay: float = 0.0
    joint: bool = False
    law: Callable | None = None

    def __post_init__(self):
        needs = {"step_size": "positive and finite", "max_step": "positive"}
        for name in needs:
            value = getattr(self, name)
            if not isinstance(value, Real):
                raise TypeError(f"{name} = {value!r}; it must be a number")
            if not value > 0 or (name == "step_size" and value == inf):
                raise ValueError(f"{name} = {value}; it must be {needs[name]}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum = {self.momentum}; it must be in [0, 1)")
        if not 0 <= self.decay < inf:
            raise ValueError(f"decay = {self.decay}; it must be finite, zero or above")

    def log_step(self, t, log_gap, log_norm):
        """log eta_t at iteration t, from log(L - L*) and log ||grad L||; scalars or
        arrays.
        """
        if self.law is not None:
            return self.law(t, log_gap, log_norm)
        return log_step(*self.numbers()[:3], self.decay, t, log_gap, log_norm)

    def numbers(self) -> tuple[float, ...]:
        """(kind, log step_size, log max_step, momentum, decay, joint), as the kernel
        takes it.
        """
        sizes = math.log(self.step_size), math.log(self.max_step)
        return self.kind, *sizes, self.momentum, self.decay, float(self.joint)


def gd(step_size: float, momentum: float = 0.0, decay: float = 0.0) -> GradientRule:
    """Gradient descent: eta_t = eta (t+1)^-p."""
    return GradientRule(GD, step_size, momentum=momentum, decay=decay)


def ngd(
    step_size: float,
    max_step: float = inf,
    momentum: float = 0.0,
    decay: float = 0.0,
    joint: bool = False,
) -> GradientRule:
    """Normalised gradient descent: eta_t = min(eta (t+1)^-p / ||grad L||, eta_max), eta
    the `step_size`, p the `decay`, eta_max the `max_step`. Source: paper A, Eqs. 2, 4
    and 13; with `momentum` "NGD-mom", our form of it.
    """
    return GradientRule(
        kind=NGD,
        step_size=step_size,
        max_step=max_step,
        momentum=momentum,
        decay=decay,
        joint=joint,
    )


def polyak(max_step: float = inf) -> GradientRule:
    """Polyak step size: eta_t = min((L - L*) / (2 ||grad L||^2), eta_max), paper A, Eq.
    3.
    """
    return GradientRule(POLYAK, max_step=max_step)


def custom(law: Callable) -> GradientRule:
    """Your own step size: eta_t = law(t, gap, norm), gap = L - L*, norm = ||grad L||.

    Both are numbers or arrays (runs,); NGD of eta = 0.1 is lambda t, gap, norm: 0.1 /
    norm. On long runs they fall below the smallest float: take `custom_log`. TypeError
    for no function.
    """
    _check_law(law, "t, gap and norm")

    def plain(t, log_gap, log_norm):
        return np.log(law(t, np.exp(log_gap), np.exp(log_norm)))

    return GradientRule(CUSTOM, law=plain)


def custom_log(law: Callable) -> GradientRule:
    """`custom` in logarithms, at any horizon: log eta_t = law(t, log(L - L*), log
    ||grad L||).
    """
    _check_law(law, "t, log_gap and log_norm")
    return GradientRule(CUSTOM, law=law)


def _check_law(law, takes):
    if not callable(law):
        raise TypeError(f"law = {law!r}; it must be a function of {takes}")


def log_step(kind, log_size, log_cap, decay, t, log_gap, log_norm):
    """log eta_t of a built-in rule; log_size = log eta, log_cap = log eta_max. Also
    compiled.
    """
    shrink = decay * math.log(t + 1.0) if decay > 0 else 0.0
    if kind == GD:
        log_eta = log_size - shrink
    elif kind == NGD:
        log_eta = log_size - shrink - log_norm
    else:
        log_eta = log_gap - LOG_2 - 2.0 * log_norm
    return np.minimum(log_eta, log_cap)
