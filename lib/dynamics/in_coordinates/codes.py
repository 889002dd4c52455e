"""The codes that tell the compiled loop the kind and the settings of a rule."""

import math
from typing import NamedTuple

# The kinds of rules.
ENTRYWISE, SPECTRAL, ADAPTIVE, SIGN, SHAMPOO, SOAP, MIRROR, NATURAL, FULL_ADAGRAD = (
    range(9)
)
# What a spectral rule does with the singular values: set all to one, keep only the
# largest, or apply the steps of Newton and Schulz.
POLAR, LEADING, NEWTON_SCHULZ = range(3)


class Numbers(NamedTuple):
    """The settings of a rule for the compiled loop: floats, some of them logarithms.

    W_{t+1} = (1 - eta_t lambda) W_t + eta_t D_t with eta_t = eta (t+1)^-a. A rule sets
    the numbers that it uses. All other numbers keep their default values, which have no
    effect.

    Parameters
    ----------
    kind : float
        The kind of the rule, one of ENTRYWISE to FULL_ADAGRAD.
    log_step_size : float
        log eta.
    decay : float
        The exponent a.
    p : float
        The exponent of an l_p norm.
    normalised : float
        1 if the direction is divided by its norm, else 0.
    shape : float
        What a spectral rule does with singular values: POLAR, LEADING or NEWTON_SCHULZ.
    iterations : float
        The number of Newton-Schulz steps.
    momentum, memory : float
        beta_1 and beta_2.
    epsilon : float
        The number that is added to the square root of the second moments.
    nesterov : float
        1 if Nesterov's momentum is used.
    corrected : float
        1 if running means are corrected for the fact that they start at zero.
    summed : float
        1 if moments are sums instead of running means.
    first_mix : float
        The weight of the running mean of gradients in the direction of Lion.
    batch : float
        The number of samples per step; 0 if each step uses all samples.
    blocks : float
        The number of parts of W's rows, each of which moves by itself.
    damping, relative : float
        The damping of the natural gradient, and 1 if this damping is relative to the
        trace of the Fisher matrix.
    log_radius, log_growth, every : float
        The settings of progressive rescaling: the logarithms of radius and growth, and
        the number of steps in a phase.
    weight_decay : float
        lambda.
    reduced : float
        1 if batches use variance reduction.
    signed : float
        1 if the step is along sgn(D) instead of D.
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
