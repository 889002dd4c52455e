"""How the compiled loop knows a rule: the numbers of its kind, and its settings."""

import math
from typing import NamedTuple

# The kinds of rules.
ENTRYWISE, SPECTRAL, ADAPTIVE, SIGN, SHAMPOO, SOAP, MIRROR, NATURAL, FULL_ADAGRAD = (
    range(9)
)
# What becomes of the singular values.
POLAR, LEADING, NEWTON_SCHULZ = range(3)


class Numbers(NamedTuple):
    """A rule as the compiled loop takes it: floats, some of them logarithms.

    W_{t+1} = (1 - eta_t lambda) W_t + eta_t D_t with eta_t = eta (t+1)^-a. A rule sets
    what it has; the other numbers keep the values with which the loop does nothing.

    Parameters
    ----------
    kind : float
        The kind, ENTRYWISE to FULL_ADAGRAD.
    log_step_size : float
        log eta.
    decay : float
        The exponent a.
    p : float
        The exponent of an l_p norm.
    normalised : float
        1 if the direction is divided by a norm, else 0.
    shape : float
        POLAR, LEADING or NEWTON_SCHULZ.
    iterations : float
        The number of Newton-Schulz steps.
    momentum, memory : float
        beta_1 and beta_2.
    epsilon : float
        What is added to the root of the second moments.
    nesterov, corrected, summed : float
        1 if Nesterov's momentum is used, if means are corrected, if moments are sums.
    first_mix : float
        Lion's share of the mean in the direction.
    batch : float
        The samples per step, 0 for all.
    blocks : float
        The number of parts of W's rows that move by themselves.
    damping, relative : float
        Of the natural gradient; 1 if it is relative to the trace.
    log_radius, log_growth, every : float
        Of progressive rescaling.
    weight_decay : float
        lambda.
    reduced : float
        1 if the variance on batches is reduced.
    signed : float
        1 if sgn(D) is taken in place of D.
    """

    kind: float
    log_step_size: float
    decay: float = 0.0
    p: float = 2.0
    normalised: float = 1.0
    shape: float = float(POLAR)
    iterations: float = 0.0
    momentum: float = 0.0
    memory: float = 0.0
    epsilon: float = 0.0
    nesterov: float = 0.0
    corrected: float = 0.0
    summed: float = 0.0
    first_mix: float = 0.0
    batch: float = 0.0
    blocks: float = 1.0
    damping: float = 0.0
    relative: float = 0.0
    log_radius: float = math.inf
    log_growth: float = 0.0
    every: float = 1.0
    weight_decay: float = 0.0
    reduced: float = 0.0
    signed: float = 0.0
