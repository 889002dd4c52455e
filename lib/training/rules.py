"""The update rules that the papers compare, as torch optimisers, and their names.

Like every optimiser of torch, these take a step by `step(closure)`. `optimiser` builds
an optimiser from the name of a rule, from a class of optimisers, or from a function of
your own.
"""

import functools
import inspect
import math
import uuid
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lib import files
from lib.training.norms import norms

# A rule of your own: a class of optimisers, which is called with (list of parameters,
# rate), or a function of (dict of parameters by name, rate) that returns an optimiser.
Rule = Callable[..., torch.optim.Optimizer]


class GradientStep(torch.optim.Optimizer):
    """Gradient descent whose step size depends on the loss and the gradient's norm.

    θ ← θ - s g, where s may depend on ‖g‖, the norm over all parameters that have a
    gradient. The step size s is 0 if g = 0. A subclass computes s, before the cap, in
    `_uncapped`, and its groups of parameters have an entry "max_step".

    Attributes
    ----------
    last_step_size : Tensor ()
        The step size s of the last step, in the floating-point type that `norms`
        returns. The attribute does not exist before the first step.
    last_gradient_norm : Tensor ()
        The norm ‖g‖ at the last step, in the same type. The attribute does not exist
        before the first step.
    """

    last_step_size: Tensor
    last_gradient_norm: Tensor

    def add_param_group(self, param_group: dict) -> None:
        """Add the group of parameters; there can only be one.

        Parameters
        ----------
        param_group : dict
            The group of all parameters, in the form that torch defines.

        Raises
        ------
        ValueError
            If there already is a group.
        """
        if self.param_groups:
            raise ValueError(
                f"{type(self).__name__} takes one group of parameters, since its step "
                "size follows from the norm of the whole gradient; pass one list"
            )
        super().add_param_group(param_group)

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return the step size (), before the cap is applied."""
        raise TypeError(f"{type(self).__name__} does not say its step size")

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # ty: ignore[incompatible-method-override]
        """Take one step.

        Parameters
        ----------
        closure : callable
            A function that sets the gradients to zero, computes the loss (), calls
            backward on it and returns it.

        Returns
        -------
        Tensor ()
            The loss of `closure`.

        Raises
        ------
        RuntimeError
            If no parameter has a gradient.
        """
        with torch.enable_grad():
            loss = closure()
        (group,) = self.param_groups
        members = [
            parameter for parameter in group["params"] if parameter.grad is not None
        ]
        gradients = [parameter.grad for parameter in members]
        norm = torch.linalg.vector_norm(norms(gradients))
        size = self._uncapped(group, norm, loss.detach().to(norm))
        size = torch.where(norm == 0, 0.0, size.clamp(max=group["max_step"]))
        self.last_step_size = size
        self.last_gradient_norm = norm
        if norm.device.type == "cpu":
            # Go in reverse order, since the cache contains the gradients that were read
            # last.
            torch._foreach_add_(members[::-1], gradients[::-1], alpha=-float(size))
        else:
            # Multiply by a tensor: a number would have to be fetched from the device.
            torch._foreach_sub_(members, torch._foreach_mul(gradients, size))
        return loss


def _check_not_negative(**sizes: float) -> None:
    """Raise ValueError if a size is negative or NaN."""
    for name, size in sizes.items():
        if not size >= 0:
            raise ValueError(f"{name} must be zero or above, got {size}")


class NormalizedSGD(GradientStep):
    """Normalised gradient descent with a cap on its step size.

    θ ← θ - min(η / ‖g‖, η_max) g, where ‖g‖ is the norm over all parameters. The step
    is 0 if g = 0.

    Parameters
    ----------
    params : iterable of Tensor
        The parameters θ, in one group.
    lr : float
        The length η of a step that the cap does not shorten.
    max_step : float, default inf
        The largest step size η_max, the factor in front of g.

    Raises
    ------
    ValueError
        If `lr` or `max_step` is negative or NaN.

    Notes
    -----
    The rule is Eq. 2 of paper A. The cap is described in Appendix C of the paper.

    Examples
    --------
    >>> import torch
    >>> from lib.training import NormalizedSGD
    >>> theta = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimiser = NormalizedSGD([theta], lr=1.0)
    >>> def closure():
    ...     optimiser.zero_grad()
    ...     loss = (theta**2).sum() / 2  # its gradient is theta, of norm 5
    ...     loss.backward()
    ...     return loss
    >>> loss = optimiser.step(closure)
    >>> theta.detach().numpy().round(3)  # moved by a vector of length 1
    array([2.4, 3.2], dtype=float32)
    """

    def __init__(self, params: Any, lr: float, max_step: float = math.inf) -> None:
        _check_not_negative(lr=lr, max_step=max_step)
        super().__init__(params, {"lr": lr, "max_step": max_step})

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return η / ‖g‖."""
        return group["lr"] / norm


class StochasticPolyak(GradientStep):
    """Gradient descent with the stochastic Polyak step size and a cap on it.

    θ ← θ - min(f / (2 ‖g‖²), η_max) g, where f is the loss of the batch (or 0 if this
    loss is negative), and ‖g‖ is the norm over all parameters. The step is 0 if g = 0.

    Parameters
    ----------
    params : iterable of Tensor
        The parameters θ, in one group.
    max_step : float, default inf
        The largest step size η_max, the factor in front of g.

    Raises
    ------
    ValueError
        If `max_step` is negative or NaN.

    Notes
    -----
    The rule is Eq. 3 of paper A, with the cap of Appendix C of the paper. Loizou et al.
    (2021) call it SPS_max.

    Examples
    --------
    >>> import torch
    >>> from lib.training import StochasticPolyak
    >>> theta = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimiser = StochasticPolyak([theta])
    >>> def closure():
    ...     optimiser.zero_grad()
    ...     loss = (theta**2).sum() / 2  # 12.5; its gradient is theta, of norm 5
    ...     loss.backward()
    ...     return loss
    >>> loss = optimiser.step(closure)
    >>> float(optimiser.last_step_size)  # 12.5 / (2 * 25)
    0.25
    >>> theta.detach().numpy().round(3)
    array([2.25, 3.  ], dtype=float32)
    """

    def __init__(self, params: Any, max_step: float = math.inf) -> None:
        _check_not_negative(max_step=max_step)
        super().__init__(params, {"max_step": max_step})

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return f / (2 ‖g‖²)."""
        # Divide twice, since ‖g‖² may underflow even if ‖g‖ does not.
        return loss.clamp(min=0) / norm / (2.0 * norm)


def _mirrored(tensors: list[Tensor], exponent: float) -> list[Tensor]:
    """Return |t|^exponent sgn t for each tensor t.

    For the exponent p - 1, this is the map ∇ψ of ψ = ‖θ‖_p^p / p. For the exponent 1 /
    (p - 1), it is the inverse of this map.
    """
    powers = torch._foreach_pow(torch._foreach_abs(tensors), exponent)
    torch._foreach_mul_(powers, torch._foreach_sign(tensors))
    return list(powers)


class MirrorDescent(torch.optim.Optimizer):
    """Mirror descent in the l_p geometry, entry by entry.

    |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g.

    Parameters
    ----------
    params : iterable of Tensor
        The parameters θ.
    lr : float
        The step size η.
    p : float
        The exponent, above 1 and finite.

    Raises
    ------
    ValueError
        If `lr` is negative or NaN, or if `p` is not above 1 and finite.

    Notes
    -----
    This is l_p-AttGD of paper C, in the form that the appendix of the paper uses on
    real data (not normalised). For p < 2, the inverse map is flat at 0, so that in
    float32 a weight of 0 would never move. So at the first step, the class stores U =
    ∇ψ(θ), in float32 or a wider type, and every step subtracts η g from U. If anything
    else changes θ after the first step, this change is lost.

    Examples
    --------
    For p = 3, the map is θ² sgn θ, so that a step subtracts η g from 9 and from -4:

    >>> import torch
    >>> from lib.training import MirrorDescent
    >>> theta = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    >>> optimiser = MirrorDescent([theta], lr=1.0, p=3.0)
    >>> theta.grad = torch.tensor([5.0, 5.0])
    >>> optimiser.step()
    >>> theta.detach().numpy().round(3)
    array([ 2., -3.], dtype=float32)
    """

    def __init__(self, params: Any, lr: float, p: float) -> None:
        _check_not_negative(lr=lr)
        if not 1 < p < math.inf:
            raise ValueError(
                f"p must be above 1 and finite, got {p}: else there is no inverse map"
            )
        super().__init__(params, {"lr": lr, "p": p})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Parameters
        ----------
        closure : callable, optional
            A function that computes the loss and its gradients. Without it, the present
            gradients of the parameters are used.

        Returns
        -------
        Tensor or None
            The loss of `closure`, or None if there is no closure.

        Raises
        ------
        RuntimeError
            If no parameter of a group has a gradient.
        """
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            p = group["p"]
            members = [
                parameter for parameter in group["params"] if parameter.grad is not None
            ]
            for parameter in members:
                state = self.state[parameter]
                if "mirror" not in state:
                    wide = torch.promote_types(parameter.dtype, torch.float32)
                    (state["mirror"],) = _mirrored([parameter.detach().to(wide)], p - 1)
            images = [self.state[parameter]["mirror"] for parameter in members]
            gradients = [
                each.grad.to(U.dtype) for each, U in zip(members, images, strict=True)
            ]
            torch._foreach_add_(images, gradients, alpha=-group["lr"])
            torch._foreach_copy_(members, _mirrored(images, 1 / (p - 1)))
        return loss


def _sgd(
    parameters: list[nn.Parameter], rate: float, cap: float | None
) -> torch.optim.Optimizer:
    """Make stochastic gradient descent."""
    return torch.optim.SGD(parameters, rate)


def _adam(
    parameters: list[nn.Parameter], rate: float, cap: float | None
) -> torch.optim.Optimizer:
    """Make Adam, in its fused form."""
    return torch.optim.Adam(parameters, rate, fused=True)


def _polyak(
    parameters: list[nn.Parameter], rate: float, cap: float | None
) -> torch.optim.Optimizer:
    """Make the stochastic Polyak rule, whose rate is the cap on its step size."""
    return StochasticPolyak(parameters, rate)


def _normalised(
    parameters: list[nn.Parameter], rate: float, cap: float | None
) -> torch.optim.Optimizer:
    """Make normalised gradient descent, without a cap if `cap` is None."""
    return NormalizedSGD(parameters, rate, math.inf if cap is None else cap)


def _mirror(p: float) -> Callable[..., torch.optim.Optimizer]:
    """Return the function that makes mirror descent with this exponent."""

    def make(
        parameters: list[nn.Parameter], rate: float, cap: float | None
    ) -> torch.optim.Optimizer:
        return MirrorDescent(parameters, rate, p)

    return make


# The papers' rules by name. Each is a function of parameters, rate and cap; only SNGD
# uses the cap. To try a rule of your own, pass it in `Study.rules`. This table is for
# rules that are to stay.
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": _sgd,
    "Adam": _adam,
    "SPS": _polyak,
    "SNGD": _normalised,
    "l1.1": _mirror(1.1),
    "l2": _mirror(2.0),
    "l3": _mirror(3.0),
}
STEP_SIZED = ("SPS", "SNGD")  # rules whose step size changes from step to step
# Classes of torch.optim that cannot be used. They do not accept dense gradients of
# every shape, or call the closure more than once per step, or are the base class.
UNFIT = ("LBFGS", "Muon", "Optimizer", "SparseAdam")


def optimiser(
    rule: str | Rule, network: nn.Module, rate: float, cap: float | None = None
) -> torch.optim.Optimizer:
    """Make the optimiser of a network according to a rule.

    Parameters
    ----------
    rule : str or type or callable
        A key of `RULES`, the name of an optimiser of torch, a class of optimisers that
        is called with (list of parameters, rate), a `functools.partial` of one, or a
        function of (dict of parameters by name, rate).
    network : torch.nn.Module
        The network.
    rate : float
        The learning rate. For "SPS", it is the cap on the step size.
    cap : float, optional
        The cap on the step size of "SNGD". All other rules ignore it. Default: no cap.

    Returns
    -------
    torch.optim.Optimizer
        The optimiser of all parameters. If the rule is a function of your own, it is
        the optimiser of the parameters that this function chooses.

    Raises
    ------
    ValueError
        If there is no rule of this name.
    TypeError
        If a rule of your own cannot be called in this way, or does not return an
        optimiser.

    Examples
    --------
    A rule can be a name, a class, or a function, which may treat matrices and vectors
    differently:

    >>> import torch
    >>> from lib.training.rules import optimiser
    >>> network = torch.nn.Linear(3, 2)
    >>> type(optimiser("SNGD", network, rate=0.1, cap=0.5)).__name__
    'NormalizedSGD'
    >>> type(optimiser(torch.optim.RMSprop, network, rate=1e-3)).__name__
    'RMSprop'
    >>> def matrices_faster(parameters, rate):
    ...     matrices = [p for p in parameters.values() if p.ndim == 2]
    ...     vectors = [p for p in parameters.values() if p.ndim < 2]
    ...     groups = [{"params": matrices, "lr": 10 * rate}, {"params": vectors}]
    ...     return torch.optim.SGD(groups, rate)
    >>> len(optimiser(matrices_faster, network, rate=0.1).param_groups)
    2
    """
    if isinstance(rule, str):
        return maker(rule)(list(network.parameters()), rate, cap)
    try:
        if _is_class(rule):
            made = rule(list(network.parameters()), rate)
        else:
            made = rule(dict(network.named_parameters()), rate)
    except TypeError as error:
        raise TypeError(
            f"the rule {rule!r} failed ({error}): a class is called with (list of "
            "parameters, rate), a function with (dict of parameters by name, rate), "
            "and torch's optimisers take the list of its values()"
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"a rule must return a torch.optim.Optimizer, {rule!r} returned "
            f"{type(made).__name__}"
        )
    return made


def _is_class(rule: Rule) -> bool:
    """Whether a rule is a class of optimisers, or a partial of such a class."""
    if isinstance(rule, functools.partial):
        rule = rule.func
    return isinstance(rule, type)


def maker(rule: str) -> Callable[..., torch.optim.Optimizer]:
    """Return the function that makes the optimiser of a named rule.

    Parameters
    ----------
    rule : str
        A key of `RULES`, or the name of an optimiser of torch.

    Returns
    -------
    callable
        The entry of `RULES`, or a function that makes torch's optimiser and sets only
        its rate. The function takes a list of parameters, a rate, and a cap, which may
        be None.

    Raises
    ------
    ValueError
        If the name is neither a key of `RULES` nor the name of an optimiser of torch.

    Examples
    --------
    >>> import torch
    >>> from lib.training.rules import maker
    >>> theta = torch.nn.Parameter(torch.zeros(2))
    >>> type(maker("RMSprop")([theta], 0.1, None)).__name__
    'RMSprop'
    """
    if rule in RULES:
        return RULES[rule]
    theirs = getattr(torch.optim, rule, None)
    if not isinstance(theirs, type) or rule in UNFIT:
        rest = f"torch.optim's, without {', '.join(UNFIT)}"
        raise ValueError(
            f"there is no rule {rule!r}, only {', '.join(RULES)} and {rest}; "
            "a rule of your own is given with rules={name: class or function}"
        )

    def make(
        parameters: list[nn.Parameter], rate: float, cap: float | None
    ) -> torch.optim.Optimizer:
        return theirs(parameters, rate)

    return make


def identity(rule: Rule) -> str:
    """Return a string that identifies a rule of your own in the files of its runs.

    The string prevents another rule from continuing these runs. Two rules with the same
    name and the same source get the same identity, even if their globals or base
    classes differ.

    Parameters
    ----------
    rule : type or callable
        A class of optimisers, a function, or a `functools.partial` of either.

    Returns
    -------
    str
        The dotted name of the rule, a hash of its source, the arguments of a partial,
        the values that a function takes from the enclosing function, and the defaults
        of its parameters. A rule without a source file, such as a function typed into a
        console, gets a new identity at each call, so that its runs are never resumed.
        If one of these values is itself a function, the identity changes from process
        to process.

    Raises
    ------
    TypeError
        If the rule is neither a class nor a function.

    Examples
    --------
    >>> import torch
    >>> from lib.training.rules import identity
    >>> identity(torch.optim.RMSprop).split()[0]
    'torch.optim.rmsprop.RMSprop'
    """
    arguments = ""
    if isinstance(rule, functools.partial):
        arguments = f" {rule.args} {rule.keywords}"
        rule = rule.func
    if inspect.isfunction(rule):
        # If a function makes several rules, say with different momenta, they share one
        # source. They differ in the values that they take from this function, or in
        # the defaults of their parameters.
        if rule.__closure__:
            arguments += f" {inspect.getclosurevars(rule).nonlocals}"
        if rule.__defaults__ or rule.__kwdefaults__:
            arguments += f" {rule.__defaults__} {rule.__kwdefaults__}"
    if not isinstance(rule, type) and not inspect.isfunction(rule):
        raise TypeError(
            "a rule is a class of torch optimisers or a function of (dict of "
            f"parameters by name, rate), got {rule!r}"
        )
    try:
        source = files.sha256(inspect.getsource(rule).encode())
    except OSError:
        source = uuid.uuid4().hex
    return f"{rule.__module__}.{rule.__qualname__} {source}{arguments}"
