r"""Update rules that step along the gradient, each a frozen value of its own class.

The rules of this file move W by W_{t+1} = W_t - m_t with m_t = beta m_{t-1} + eta_t
grad L(W_t). A rule determines the step size eta_t. It returns log eta_t, since eta_t
and the gradient leave the range of float64 long before their product does. The rules
that see the coordinates of W are in `lib.dynamics.in_coordinates.rules`.
"""

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from lib.attention.token_sets import as_array

LOG_2 = math.log(2.0)
# The numbers by which the compiled loop distinguishes the classes of rules.
GD_CODE, NGD_CODE, POLYAK_CODE = range(3)


class _Setting:
    """The default of a setting, for rules that do not define this setting themselves.

    It can be read only from a rule, not from the class of the rule. Otherwise a
    dataclass with a field of this name would take it for the default value of the
    field.
    """

    def __init__(self, default: float, meaning: str) -> None:
        self.default = default
        self.__doc__ = meaning

    def __get__(self, rule: Any, owner: type) -> Any:
        if rule is None:
            raise AttributeError(f"{owner.__name__} is a class: make a rule of it")
        return self.default


# Without eq=False, all rules of a plain class would be equal, since they have no
# fields.
@dataclass(frozen=True, repr=False, eq=False)
class Rule:
    r"""The base class of all update rules.

    The rules of this library are frozen dataclasses. The `formula` of a rule is its
    update in TeX. If all settings of a rule are numbers or strings, its `repr`
    evaluates to an equal rule. A subclass of your own defines one of two methods:

    * `log_step` returns log eta_t, and W moves along the gradient. Training then runs
      in the span of the tokens and stays accurate for any number of iterations. If your
      rule sets `momentum`, this value is used as beta.
    * `direction` returns the whole step D_t of W, W_{t+1} = W_t + D_t. Training then
      runs in numpy, on W in the coordinates of the tokens, with a fixed head. Nothing
      is added to this step, even if your rule sets `momentum`.

    Your subclass may be a frozen dataclass or a plain class that sets its attributes in
    ``__init__``. Only dataclasses are compared and printed by their settings. If you
    subclass a rule such as `NGD`, whose settings are fields, pass the settings to
    ``super().__init__``.

    Attributes
    ----------
    momentum : float
        The momentum beta; zero for a rule without this setting.
    decay : float
        The exponent of the factor (t + 1)^-decay; zero for a rule without this setting.
        Only the rules of this library apply this factor. In a `log_step` of your own,
        you may apply it yourself.
    max_step : float
        The cap on the step size; infinite for a rule without this setting. As with
        `decay`, only the rules of this library apply it.
    joint : bool
        Whether `NGD` divides both gradients by their common norm in joint training. All
        other rules always get the common norm in joint training.

    Raises
    ------
    TypeError
        If a subclass defines neither of the two methods, or both; if it derives from a
        rule that sees the coordinates of W, such as `Adam`, and defines `log_step`; if
        `step_size`, `max_step`, `momentum` or `decay` is not a number; if a setting
        whose default is True or False is neither of the two.
    ValueError
        If one of these settings is outside its range: `step_size` must be positive and
        finite, `max_step` positive, `momentum` in [0, 1), and `decay` finite and at
        least zero. Other settings are not checked.

    Notes
    -----
    A rule is checked when it is made, and again by `train`, since a plain class with an
    ``__init__`` of its own may skip the first check.

    `direction` receives the gradient in float64. Once the logit of the opt token
    exceeds every other logit of its sample by more than about 700, the entries of the
    gradient, which are about e^-700, underflow to zero, and the run ends as "stalled".
    The squares of these entries underflow already at half of this difference. So if
    your direction divides by the norm of the gradient, divide the gradient by its
    largest entry first. Otherwise the direction becomes infinite, and the run ends as
    "diverged". Rules with `log_step`, and the rules of this library, go on beyond this
    point; for example, normalised GD with heavy-ball momentum is
    ``NGD(0.05, momentum=0.95)``.

    Examples
    --------
    >>> from lib import attention, dynamics
    >>> rule = dynamics.NGD(0.1, momentum=0.9)
    >>> rule
    NGD(step_size=0.1, momentum=0.9)
    >>> print(rule.formula)
    \eta_t = \min(\eta\,(t+1)^{-p}/\|\nabla L\|,\ \eta_{\max})

    Here is an optimiser of your own: gradient descent with momentum.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class HeavyBall(dynamics.Rule):
    ...     step_size: float
    ...
    ...     def direction(self, gradient, state):
    ...         move = 0.9 * state.get("move", 0.0) - self.step_size * gradient
    ...         state["move"] = move
    ...         return move
    >>> tokens = attention.two_examples()
    >>> mine = dynamics.train(tokens, HeavyBall(0.1), 50)
    >>> theirs = dynamics.train(tokens, dynamics.GD(0.1, momentum=0.9), 50)
    >>> bool(np.allclose(mine.margins, theirs.margins))
    True
    """

    formula: ClassVar[str] = ""

    momentum = _Setting(0.0, "The momentum beta.")
    decay = _Setting(0.0, "The exponent of the factor (t + 1)^-decay.")
    max_step = _Setting(inf, "The cap on the step size.")
    joint = _Setting(False, "Whether NGD divides both gradients by one norm.")

    def log_step(self, t: int, log_gap: Any, log_norm: Any) -> Any:
        """Return log eta_t.

        Parameters
        ----------
        t : int
            The iteration.
        log_gap : float or ndarray (runs,)
            log(L - L*), the logarithm of the difference between the loss and its limit
            L*; in joint training, log L. It is -inf if the loss equals its limit.
        log_norm : float or ndarray (runs,)
            log ||grad L||; in joint training, grad L consists of both gradients. It is
            -inf if the gradient is zero. In joint training, `NGD` without `joint` gets
            the norm of one gradient at a time.

        Returns
        -------
        float or ndarray (runs,)
            The logarithm of the step size: one number for all runs, or one number per
            run.

        Raises
        ------
        NotImplementedError
            If the rule has no `log_step` of its own.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not move along the gradient and has no step "
            "size: pass the rule to train"
        )

    def direction(self, gradient: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        """Return the whole step D_t of W_{t+1} = W_t + D_t.

        Parameters
        ----------
        gradient : ndarray (runs, d, d_z)
            grad_W L in the coordinates of the tokens. It is zero once it is too small
            for float64. The array also contains the runs that have ended.
        state : dict
            A dict in which the rule can store what it needs at later steps. It is empty
            when training starts, and the same dict is passed at every step.

        Returns
        -------
        ndarray (runs, d, d_z)
            The step. The entries for runs that have ended are not used.

        Raises
        ------
        NotImplementedError
            If the rule has no `direction` of its own. No rule of this library has one:
            each is compiled or has a `log_step`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no direction in numpy: pass the rule to train, "
            "which computes its steps"
        )

    @property
    def steps_along_gradient(self) -> bool:
        """Whether the rule has a `log_step` of its own."""
        return type(self).log_step is not Rule.log_step

    @property
    def has_direction(self) -> bool:
        """Whether the rule has a `direction` of its own."""
        return type(self).direction is not Rule.direction

    def __repr__(self) -> str:
        by_place = sorted(fields(self), key=lambda setting: bool(setting.kw_only))
        words = [
            f"{setting.name}={_written(getattr(self, setting.name))}"
            for setting in by_place
            if not _is_default(getattr(self, setting.name), setting.default)
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    def __post_init__(self) -> None:
        check_rule(self)

    def _check_methods(self) -> None:
        """Raise TypeError unless the rule has exactly one of the two methods."""
        name = type(self).__name__
        if not (self.steps_along_gradient or self.has_direction):
            raise TypeError(
                f"{name} defines neither log_step(t, log_gap, log_norm) nor "
                "direction(gradient, state); a rule needs one of them"
            )
        if self.steps_along_gradient and self.has_direction:
            raise TypeError(
                f"{name} defines both log_step and direction, or inherits one of them; "
                "a rule needs one: derive it from lib.Rule and define only that one"
            )

    def _check(self) -> None:
        """Raise TypeError or ValueError if a setting is not a number in its range."""
        for name, needs, holds in (
            ("step_size", "positive and finite", lambda x: 0 < x < inf),
            ("max_step", "positive", lambda x: x > 0),
            ("momentum", "in [0, 1)", lambda x: 0 <= x < 1),
            ("decay", "finite, zero or above", lambda x: 0 <= x < inf),
        ):
            value = getattr(self, name, 1.0)  # only step_size may be missing
            if not isinstance(value, Real):
                raise TypeError(f"{name} = {value!r}; it must be a number")
            if not holds(value):
                raise ValueError(f"{name} = {value}; it must be {needs}")


def check_rule(rule: Rule) -> None:
    """Check the methods and the settings of a rule.

    Parameters
    ----------
    rule : Rule
        The rule.

    Raises
    ------
    TypeError, ValueError
        In the cases that `Rule` lists.
    """
    rule._check_methods()
    for setting in fields(rule):
        if isinstance(setting.default, bool):
            value = getattr(rule, setting.name)
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"{setting.name} = {value!r}; it must be True or False")
    rule._check()


def _is_default(value: Any, default: Any) -> bool:
    """Return whether a setting, which may be an array, equals its default.

    MISSING is the default of a setting that must be given.
    """
    return default is not MISSING and np.array_equal(value, default)


def _written(value: Any) -> str:
    """Return a number or string as an expression that Python evaluates without imports.

    Any other setting, such as a function, is returned as its `repr`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


@dataclass(frozen=True, repr=False)
class BuiltIn(Rule):
    """A rule that the compiled loop contains, which selects its formula by `code`."""

    code: ClassVar[int]

    def log_step(self, t: int, log_gap: Any, log_norm: Any) -> Any:
        """Return log eta_t; see `Rule.log_step`."""
        code, log_size, log_cap, _, decay, _ = self.numbers()
        return log_step(code, log_size, log_cap, decay, t, log_gap, log_norm)

    def numbers(self) -> tuple[float, ...]:
        """Return the rule as a row of the table that the compiled loop reads.

        Returns
        -------
        tuple of float
            (code, log step_size, log max_step, momentum, decay, joint). For a rule
            without `step_size`, log step_size is 0. The last entry, joint, is 0 or 1.
        """
        log_size = math.log(getattr(self, "step_size", 1.0))
        log_cap = math.log(self.max_step)
        return (
            self.code,
            log_size,
            log_cap,
            self.momentum,
            self.decay,
            float(self.joint),
        )


@dataclass(frozen=True, repr=False)
class GD(BuiltIn):
    r"""Gradient descent with a constant or decaying step size.

    .. math:: \eta_t = \eta\,(t + 1)^{-p}

    Parameters
    ----------
    step_size : float
        eta, positive and finite.
    momentum : float, optional
        beta in [0, 1): W_{t+1} = W_t - m_t with m_t = beta m_{t-1} + eta_t grad L.
    decay : float, optional
        p, at least zero. If it is zero, the step size is constant.

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Examples
    --------
    >>> from lib import dynamics
    >>> dynamics.GD(0.5)
    GD(step_size=0.5)
    >>> rule = dynamics.GD(0.5, decay=1.0)
    >>> round(float(np.exp(rule.log_step(t=4, log_gap=0.0, log_norm=0.0))), 6)
    0.1
    """

    formula: ClassVar[str] = r"\eta_t = \eta\,(t+1)^{-p}"
    code: ClassVar[int] = GD_CODE
    step_size: float
    momentum: float = field(default=0.0, kw_only=True)
    decay: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True, repr=False)
class NGD(BuiltIn):
    r"""Normalised gradient descent.

    .. math:: \eta_t = \min(\eta\,(t + 1)^{-p} / \|\nabla L\|,\; \eta_{\max})

    Parameters
    ----------
    step_size : float
        eta, positive and finite. Without `decay` and `momentum`, it is the length of
        every step that the cap does not shorten.
    max_step : float, optional
        eta_max, the cap on the step size, positive.
    momentum : float, optional
        beta in [0, 1): W_{t+1} = W_t - m_t with m_t = beta m_{t-1} + eta_t grad L.
    decay : float, optional
        p, at least zero. If it is zero, the factor is 1 at all iterations.
    joint : bool, optional
        In joint training, divide both gradients by their common norm (paper A, Eq. 2)
        instead of dividing each gradient by its own norm (Eq. 13).

    Raises
    ------
    TypeError, ValueError
        If a setting has the wrong type, or is outside its range.

    Notes
    -----
    This is paper A's rule. Eq. 2 divides the gradient by its norm, Eq. 4 does so for W
    with a fixed head, and Eq. 13 divides each gradient of joint training by its own
    norm. The cap is described in Appendix C of the paper. With `momentum`, the rule
    stands for the paper's "NGD-mom"; we chose the formula for the momentum ourselves.

    Examples
    --------
    >>> from lib import dynamics
    >>> rule = dynamics.NGD(0.1)
    >>> log_norm = -1000.0  # float64 cannot hold such a gradient; its step is 0.1 long
    >>> float(np.exp(rule.log_step(0, 0.0, log_norm) + log_norm).round(6))
    0.1
    """

    formula: ClassVar[str] = (
        r"\eta_t = \min(\eta\,(t+1)^{-p}/\|\nabla L\|,\ \eta_{\max})"
    )
    code: ClassVar[int] = NGD_CODE
    step_size: float
    max_step: float = field(default=inf, kw_only=True)
    momentum: float = field(default=0.0, kw_only=True)
    decay: float = field(default=0.0, kw_only=True)
    joint: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class Polyak(BuiltIn):
    r"""Polyak's step size.

    .. math:: \eta_t = \min\left(\frac{L - L^*}{2\|\nabla L\|^2},\; \eta_{\max}\right)

    Parameters
    ----------
    max_step : float, optional
        eta_max, the cap on the step size, positive.

    Raises
    ------
    TypeError, ValueError
        If the cap is not a positive number.

    Notes
    -----
    This is paper A's Eq. 3. With a fixed head, L* is the loss at the largest scores. In
    joint training, L* = 0, and grad L consists of both gradients.

    Examples
    --------
    >>> from lib import dynamics
    >>> rule = dynamics.Polyak(max_step=10.0)
    >>> float(np.exp(rule.log_step(0, log_gap=np.log(8.0), log_norm=0.0)).round(6))
    4.0
    """

    formula: ClassVar[str] = r"\eta_t = \min((L-L^*)/(2\|\nabla L\|^2),\ \eta_{\max})"
    code: ClassVar[int] = POLYAK_CODE
    max_step: float = inf


@dataclass(frozen=True, repr=False)
class Custom(Rule):
    r"""A step size of your own.

    .. math:: \eta_t = f(t,\ L - L^*,\ \|\nabla L\|)

    Parameters
    ----------
    law : callable
        The function f of t, gap = L - L* and norm = ||grad L||, where gap and norm are
        numbers or arrays (runs,). In training they are arrays, and f returns one number
        for all runs or one number per run, at least zero. In joint training, L* = 0,
        and grad L consists of both gradients.
    logarithmic : bool, optional
        Whether `law` works with logarithms instead: log eta_t = f(t, log(L - L*), log
        ||grad L||). In long runs, gap and norm fall below the smallest float64, and
        then only this form still works.
    momentum : float, optional
        The momentum beta in [0, 1): W_{t+1} = W_t - m_t with m_t = beta m_{t-1} + eta_t
        grad L.

    Raises
    ------
    TypeError
        If `law` cannot be called; in training, if it returns anything but real numbers.
    ValueError
        If the momentum is outside its range; in training, if `law` returns a negative
        step size, or neither one number nor one number per run, or NaN at the first
        step.

    Notes
    -----
    The rule can be pickled if `law` can be: a function that is defined in a module can
    be pickled, but a lambda cannot. The `repr` of the rule shows `law`, so that this
    `repr` cannot be evaluated.

    Examples
    --------
    Normalised gradient descent can be written in both forms:

    >>> from lib import dynamics
    >>> plain = dynamics.Custom(lambda t, gap, norm: 0.1 / norm)
    >>> def shorter(t, log_gap, log_norm):
    ...     return np.log(0.1) - log_norm
    >>> logs = dynamics.Custom(shorter, logarithmic=True)
    >>> float(np.exp(plain.log_step(0, 0.0, np.log(2.0))).round(6))
    0.05
    >>> float(np.exp(logs.log_step(0, 0.0, np.log(2.0))).round(6))
    0.05
    """

    formula: ClassVar[str] = r"\eta_t = f(t,\ L-L^*,\ \|\nabla L\|)"
    law: Callable
    logarithmic: bool = False
    momentum: float = field(default=0.0, kw_only=True)

    def _check(self) -> None:
        if not callable(self.law):
            raise TypeError(
                f"law = {self.law!r}; it must be a function of t, gap and norm"
            )
        super()._check()

    def log_step(self, t: int, log_gap: Any, log_norm: Any) -> Any:
        """Return log eta_t; see `Rule.log_step`."""
        if self.logarithmic:
            return self.law(t, log_gap, log_norm)
        eta = self.law(t, np.exp(log_gap), np.exp(log_norm))
        eta = real_numbers("law", eta)
        if (eta < 0).any():
            raise ValueError(
                f"law returned the step size {eta.min()} at iteration {t}; it must be "
                "zero or above"
            )
        with np.errstate(divide="ignore"):  # a step size of zero gives log eta = -inf
            return np.log(eta)


def own_log_step(
    rule: Rule, t: int, log_gap: np.ndarray, log_norm: np.ndarray
) -> np.ndarray:
    """Call the `log_step` of a rule, and check the value that it returns.

    Parameters
    ----------
    rule : Rule
        The rule.
    t : int
        The iteration.
    log_gap, log_norm : ndarray (runs,)
        log(L - L*) and log ||grad L||. The rule gets copies, which it may change.

    Returns
    -------
    ndarray (runs,)
        log eta_t of every run, as floats.

    Raises
    ------
    TypeError
        If the rule returns anything but real numbers.
    ValueError
        If the rule returns neither one number nor one number per run, or if it returns
        NaN at t = 0 for a run with a finite log_gap and log_norm.
    """
    log_eta = rule.log_step(t, log_gap.copy(), log_norm.copy())
    name = type(rule).__name__
    log_eta = real_numbers(f"the step size of {name}", log_eta)
    if log_eta.shape not in ((), (1,), log_gap.shape):
        raise ValueError(
            f"the step size of {name} has shape {log_eta.shape}; it needs one number, "
            f"or one of each run, {log_gap.shape}"
        )
    known = np.isfinite(log_gap) & np.isfinite(log_norm)
    if t == 0 and (np.isnan(log_eta) & known).any():
        raise ValueError(
            f"the step size of {name} is NaN at the first step, of a finite loss and "
            "gradient"
        )
    return log_eta + np.zeros(len(log_gap))


def real_numbers(name: str, value: Any) -> np.ndarray:
    """Return a value as an array of real numbers.

    Parameters
    ----------
    name : str
        The name of the value, for the error message.
    value : Any
        A number, or an array or tensor of numbers.

    Returns
    -------
    ndarray
        The numbers. Integers stay integers, and floats stay floats. NaN and infinity
        are accepted; booleans are not.

    Raises
    ------
    TypeError
        If the value contains anything but real numbers.
    ValueError
        If the value has masked entries, or contains sequences of different lengths.
    """
    numbers = as_array(name, value)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} is {type(value).__name__} of type {numbers.dtype}; it needs real "
            "numbers"
        )
    return numbers


def log_step(
    code: float,
    log_size: float,
    log_cap: float,
    decay: float,
    t: int,
    log_gap: Any,
    log_norm: Any,
) -> Any:
    """Return log eta_t of a built-in rule. The compiled loop calls this function, too.

    Parameters
    ----------
    code : float
        The `code` of the rule's class.
    log_size, log_cap : float
        The logarithms of the rule's step size and of its cap. The rule with POLYAK_CODE
        does not use `log_size`.
    decay : float
        The exponent p of the factor (t + 1)^-p, at least zero. The rule with
        POLYAK_CODE does not use it.
    t : int
        The iteration.
    log_gap, log_norm : float or ndarray (runs,)
        log(L - L*) and log ||grad L||. Only the rule with POLYAK_CODE uses `log_gap`.
        The rule with GD_CODE uses neither.

    Returns
    -------
    float or ndarray (runs,)
        log eta_t, which is one number for GD_CODE.
    """
    shrink = decay * math.log(t + 1.0) if decay > 0 else 0.0
    if code == GD_CODE:
        log_eta = log_size - shrink
    elif code == NGD_CODE:
        log_eta = log_size - shrink - log_norm
    else:
        log_eta = log_gap - LOG_2 - 2.0 * log_norm
    return np.minimum(log_eta, log_cap)
