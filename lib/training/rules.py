"""The update rules that the papers compare, as torch optimisers.

They are called as `step(closure)`.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor


@numba.njit(fastmath={"reassoc", "contract"}, nogil=True)
def _square(values: np.ndarray) -> float:
    """Sum the squares of an array in float64."""
    total = 0.0
    for i in range(values.size):
        total += np.float64(values[i]) ** 2
    return total


def norms(tensors: list[Tensor]) -> Tensor:
    """Compute the norm of each of several tensors.

    Parameters
    ----------
    tensors : list of Tensor
        The tensors t.

    Returns
    -------
    Tensor (tensors,)
        ‖t‖ of each.

    Notes
    -----
    Squares are summed in float64. In float32 those of entries below 1e-23 vanish, and
    with them a direction to be kept.
    """
    # On a CPU torch sums wider than it reads one number at a time; a compiled loop does
    # not.
    if all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors):
        arrays = [t.detach().numpy().ravel() for t in tensors]
        squares = np.empty(len(arrays))
        left = enumerate(arrays)

        def sum_the_rest(
            _: int = 0,
        ) -> None:  # a task for each array costs a tenth more
            for i, values in left:  # one thread sums each, so it rounds alike
                squares[i] = _square(values)

        threads = torch.get_num_threads()
        if threads == 1 or sum(a.size for a in arrays) < 1e6:  # starting one costs more
            sum_the_rest()
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(sum_the_rest, range(threads)))
        return torch.from_numpy(squares).sqrt()
    # Apple's devices have no float64.
    if tensors[0].device.type == "mps":
        wide = torch.float32
    else:
        wide = torch.float64
    return torch.stack(torch._foreach_norm(tensors, 2, wide))


class GradientStep(torch.optim.Optimizer):
    """Gradient descent with a step size from the loss and the norm of the gradient.

    θ ← θ - s g, with ‖g‖ over all parameters. The step s is 0 where g = 0.

    Attributes
    ----------
    last_step_size : Tensor ()
        s of the last step.
    last_gradient_norm : Tensor ()
        ‖g‖ of the last step.
    """

    last_step_size: Tensor
    last_gradient_norm: Tensor

    def add_param_group(self, param_group: dict) -> None:
        """Take the parameters.

        Parameters
        ----------
        param_group : dict
            The group of all parameters, as torch has it.

        Raises
        ------
        ValueError
            If this is a second group.
        """
        if self.param_groups:
            raise ValueError(
                f"{type(self).__name__} takes one group of parameters, since its step "
                "size follows from the norm of the whole gradient; pass one list"
            )
        super().add_param_group(param_group)

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return the step size before its cap."""
        raise TypeError(f"{type(self).__name__} does not say its step size")

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # ty: ignore[incompatible-method-override]
        """Take one step.

        Parameters
        ----------
        closure : callable
            A function that computes the loss and calls backward on it.

        Returns
        -------
        Tensor ()
            The loss of `closure`.
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
        if (
            norm.device.type == "cpu"
        ):  # backwards: the cache holds the gradients read last
            torch._foreach_add_(members[::-1], gradients[::-1], alpha=-float(size))
        else:  # a tensor: a number would be fetched from the device
            torch._foreach_sub_(members, torch._foreach_mul(gradients, size))
        return loss


class NormalizedSGD(GradientStep):
    """Normalised gradient descent with a cap on its step size.

    θ ← θ - min(η / ‖g‖, η_max) g, with ‖g‖ over all parameters. The step is 0 where g =
    0.

    Parameters
    ----------
    params : iterable of Tensor
        The parameters θ.
    lr : float
        Length η of a step without cap.
    max_step : float, default inf
        Largest step size η_max.

    Notes
    -----
    Paper A, Eq. 2 and App. C.

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
        super().__init__(params, {"lr": lr, "max_step": max_step})

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return η / ‖g‖."""
        return group["lr"] / norm


class StochasticPolyak(GradientStep):
    """Gradient descent with the stochastic Polyak step and a cap on it.

    θ ← θ - min(f / (2 ‖g‖²), η_max) g, with f the batch's loss, or 0 where it is below,
    and ‖g‖ over all parameters. The step is 0 where g = 0.

    Parameters
    ----------
    params : iterable of Tensor
        The parameters θ.
    max_step : float, default inf
        Largest step size η_max.

    Notes
    -----
    Paper A, Eq. 3 and App. C; SPS_max of Loizou et al. (2021).

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
        super().__init__(params, {"max_step": max_step})

    def _uncapped(self, group: dict, norm: Tensor, loss: Tensor) -> Tensor:
        """Return f / (2 ‖g‖²)."""
        # Two divisions, since ‖g‖² may underflow where ‖g‖ does not.
        return loss.clamp(min=0) / norm / (2.0 * norm)


def _mirrored(tensors: list[Tensor], exponent: float) -> list[Tensor]:
    """Compute |t|^exponent sgn t.

    For p - 1 it is the map ∇ψ of ψ = ‖θ‖_p^p / p, for 1 / (p - 1) its inverse.
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
        If `p` is not above 1 and finite.

    Notes
    -----
    Paper C, Algorithm l_p-AttGD as in its App. on real data (not normalised). For p < 2
    the inverse map is flat at 0: in float32 a weight there would stay. So the class
    keeps U = ∇ψ(θ), where η g adds up.

    Examples
    --------
    For p = 3 the map is θ² sgn θ, so a step takes η g from 9 and from -4:

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
            A function that computes the loss and its gradients.

        Returns
        -------
        Tensor or None
            The loss of `closure`, None without one.
        """
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            p = group["p"]
            members = [
                parameter for parameter in group["params"] if parameter.grad is not None
            ]
            for parameter in members:
                if "mirror" not in (state := self.state[parameter]):
                    wide = torch.promote_types(parameter.dtype, torch.float32)
                    (state["mirror"],) = _mirrored([parameter.detach().to(wide)], p - 1)
            images = [self.state[parameter]["mirror"] for parameter in members]
            gradients = [
                each.grad.to(U.dtype) for each, U in zip(members, images, strict=True)
            ]
            torch._foreach_add_(images, gradients, alpha=-group["lr"])
            torch._foreach_copy_(members, _mirrored(images, 1 / (p - 1)))
        return loss


# Rule -> optimiser from parameters, rate and cap. The rate of SPS is its cap, and it
# has no other; SNGD alone has both, and no cap where that is None. l_p is mirror
# descent.
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate),
    "Adam": lambda parameters, rate, cap: torch.optim.Adam(
        parameters, rate, fused=True
    ),
    "SPS": lambda parameters, rate, cap: StochasticPolyak(parameters, rate),
    "SNGD": lambda parameters, rate, cap: NormalizedSGD(
        parameters, rate, cap or math.inf
    ),
    "l1.1": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 1.1),
    "l2": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 2.0),
    "l3": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 3.0),
}
STEP_SIZED = ("SPS", "SNGD")  # rules whose step size changes from step to step
# Of torch.optim those that take no step along dense gradients of any shape and one
# closure's loss.
UNFIT = ("LBFGS", "Muon", "Optimizer", "SparseAdam")


def maker(rule: str) -> Callable[..., torch.optim.Optimizer]:
    """Return the function that makes an optimiser.

    Parameters
    ----------
    rule : str
        A key of `RULES`, or the name of an optimiser of torch.

    Returns
    -------
    callable
        The entry of `RULES`, or torch's optimiser with only its rate set. It takes
        parameters, rate and cap.

    Raises
    ------
    ValueError
        If it is neither.

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
            f"there is no rule {rule!r}, only {', '.join(RULES)} and {rest}"
        )
    return lambda parameters, rate, cap: theirs(parameters, rate)
