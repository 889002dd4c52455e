"""The update rules that the papers compare, as torch optimisers called as `step(closure)`.

SNGD and SPS move along the gradient by a step that its norm sets, mirror descent moves in mirrored
weights. On a GPU no value leaves the device inside a step.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def norms(tensors: list[Tensor]) -> Tensor:
    """‖t‖ of each of `tensors`, squares summed in float64: (tensors,) on the first one's device.

    In float32 the squares of entries below 1e-23 vanish, and with them a direction to be kept.
    """
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64  # it has no float64
    return torch.stack([n.to(tensors[0].device) for n in torch._foreach_norm(tensors, 2, wide)])


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """‖g‖ of all `gradients` as one vector, a scalar; 0 for none."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    return torch.linalg.vector_norm(norms(gradients))


def normalized_step(norm: Tensor, lr: float, max_step: float) -> Tensor:
    """The capped step min(η / ‖g‖, η_max), 0 where ‖g‖ = 0; paper A, Eq. 2 and App. C (SNGD)."""
    return _capped(lr / norm, norm, max_step)


def polyak_step(loss: Tensor, norm: Tensor, max_step: float) -> Tensor:
    """The capped Polyak step min(f / (2 ‖g‖²), η_max), 0 where ‖g‖ = 0; f is at least 0.

    Source: paper A, Eq. 3, with the cap of SPS_max of Loizou et al. (2021).
    """
    # Two divisions, since ‖g‖² may underflow where ‖g‖ does not.
    return _capped(loss.clamp(min=0) / norm / (2.0 * norm), norm, max_step)


def _capped(step: Tensor, norm: Tensor, max_step: float) -> Tensor:
    # An infinite step times a zero entry of g is NaN, so even without a cap the step stays finite.
    step = step.clamp(max=min(max_step, torch.finfo(step.dtype).max))
    return torch.where(norm == 0, torch.zeros_like(step), step)


def _move(parameters: list[Tensor], size: Tensor) -> None:
    """θ ← θ - s g for every parameter, in its own precision."""
    for dtype in {p.dtype for p in parameters}:
        members = [p for p in parameters if p.dtype == dtype]
        gradients, step = [p.grad for p in members], size.clamp(max=torch.finfo(dtype).max)
        if step.device.type == "cpu":
            torch._foreach_add_(members, gradients, alpha=-float(step))
        else:  # a tensor: a number would be fetched from the device
            torch._foreach_sub_(members, torch._foreach_mul(gradients, step.to(dtype)))


def _dense(parameters: list[Tensor], rule: object) -> list[Tensor]:
    """Those that have a gradient; RuntimeError for a sparse one."""
    members = [p for p in parameters if p.grad is not None]
    if any(p.grad.is_sparse for p in members):
        name = type(rule).__name__
        raise RuntimeError(f"{name} takes dense gradients; build the embedding with sparse=False")
    return members


def _positive(**values: float) -> dict[str, float]:
    for name, value in values.items():
        if not value > 0 or (name == "lr" and math.isinf(value)):
            raise ValueError(f"{name} must be above 0{' and finite' * (name == 'lr')}, got {value}")
    return values


class _GradientStep(torch.optim.Optimizer):
    """θ ← θ - s g with a step size s that a rule takes from the loss and ‖g‖ over all parameters.

    `last_step_size` and `last_gradient_norm` hold the latest step's values, scalar tensors.
    """

    last_step_size = last_gradient_norm = None

    @torch.no_grad()
    def step(self, closure):
        """Take one step and return the loss of `closure`, which calls backward on it.

        On a CPU, where a look is free, raises FloatingPointError before any parameter moved if the
        loss or the gradient is not finite.
        """
        with torch.enable_grad():
            loss = closure()
        members = _dense([p for group in self.param_groups for p in group["params"]], self)
        norm = gradient_norm([p.grad for p in members])
        value = loss.detach().to(norm.device, norm.dtype)
        if norm.device.type == "cpu" and not (math.isfinite(norm) and math.isfinite(value)):
            raise FloatingPointError(f"loss {value}, gradient norm {norm}: no parameter was moved")
        self.last_step_size = self._step_size(self.param_groups[0], norm, value)
        self.last_gradient_norm = norm
        _move(members, self.last_step_size)
        return loss


class NormalizedSGD(_GradientStep):
    """Stochastic normalised gradient descent with a cap: θ ← θ - min(η / ‖g‖, η_max) g.

    `lr` is η, the length of an uncapped move, `max_step` η_max: once η / ‖g‖ exceeds it the rule is
    SGD. ValueError for either not above 0. Source: paper A, Eq. 2 and App. C ("SNGD").
    """

    def __init__(self, params, lr: float, max_step: float = math.inf):
        super().__init__(params, _positive(lr=lr, max_step=max_step))

    def _step_size(self, group, norm, loss):
        return normalized_step(norm, group["lr"], group["max_step"])


class StochasticPolyak(_GradientStep):
    """Stochastic Polyak step with a cap: θ ← θ - min(f / (2 ‖g‖²), η_max) g, f the batch's loss.

    ValueError for `max_step`, η_max, not above 0. With several processes the closure must return
    the loss averaged over them, as the gradient is. Source: paper A, Eq. 3 and App. C ("SPS").
    """

    def __init__(self, params, max_step: float = math.inf):
        super().__init__(params, _positive(max_step=max_step))

    def _step_size(self, group, norm, loss):
        return polyak_step(loss, norm, group["max_step"])


def to_mirror(weights: list[Tensor], p: float) -> list[Tensor]:
    """The mirror map ∇ψ(θ) = |θ|^(p-1) sgn θ, entry by entry, of ψ(θ) = ‖θ‖_p^p / p; 0 stays 0."""
    return _signed_power(weights, p - 1)


def from_mirror(mirrored: list[Tensor], p: float) -> list[Tensor]:
    """The inverse of `to_mirror`: θ = |U|^(1/(p-1)) sgn U, entry by entry."""
    return _signed_power(mirrored, 1 / (p - 1))


def _signed_power(tensors: list[Tensor], exponent: float) -> list[Tensor]:
    powers = torch._foreach_pow(torch._foreach_abs(tensors), exponent)
    torch._foreach_mul_(powers, torch._foreach_sign(tensors))
    return powers


class MirrorDescent(torch.optim.Optimizer):
    """l_p mirror descent: |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g, entry by entry.

    `lr` is η, `p` any number above 1; 2 is SGD. For p < 2 the inverse map is flat at 0: a weight at
    0 moves by |η g|^(1/(p-1)), which in float32 rounds to 0 again. So the class keeps U = ∇ψ(θ),
    where η g adds up (one more copy of the parameters, at least float32; none for p = 2). A
    parameter that someone else changed in place is mirrored afresh; a loaded state is taken at its
    word at its first step. ValueError for lr not above 0 or p not above 1 and finite. Source: paper
    C, Algorithm l_p-AttGD as in its App. on real data (not normalised).
    """

    def __init__(self, params, lr: float, p: float):
        if not (math.isfinite(p) and p > 1):
            raise ValueError(f"p must be above 1 and finite, got {p}: else there is no inverse map")
        super().__init__(params, _positive(lr=lr) | {"p": p})
        self._versions: dict[Tensor, int] = {}  # of each parameter when its U was last true

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._versions = {}

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step and return the loss of `closure` (None without one)."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            members, lr, p = _dense(group["params"], self), group["lr"], group["p"]
            gradients = [parameter.grad for parameter in members]
            if p == 2 or not members:
                torch._foreach_add_(members, gradients, alpha=-lr) if members else None
                continue
            mirrored = [self._mirror(parameter, p) for parameter in members]
            wide = [g.to(U.dtype) for g, U in zip(gradients, mirrored, strict=True)]
            torch._foreach_add_(mirrored, wide, alpha=-lr)
            torch._foreach_copy_(members, from_mirror(mirrored, p))
            self._versions |= {parameter: parameter._version for parameter in members}
        return loss

    def _mirror(self, parameter: Tensor, p: float) -> Tensor:
        state = self.state[parameter]
        changed = self._versions.get(parameter, parameter._version) != parameter._version
        if "mirror" not in state or changed:
            wide = torch.promote_types(parameter.dtype, torch.float32)
            (state["mirror"],) = to_mirror([parameter.detach().to(wide)], p)
        return state["mirror"]


# Rule -> optimiser from parameters, rate and cap. The rate of SPS is its cap, and it has no other;
# SNGD alone has both, and no cap where that is None. l_p is mirror descent.
RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate),
    "Adam": lambda parameters, rate, cap: torch.optim.Adam(parameters, rate, fused=True),
    "SPS": lambda parameters, rate, cap: StochasticPolyak(parameters, rate),
    "SNGD": lambda parameters, rate, cap: NormalizedSGD(
        parameters, rate, math.inf if cap is None else cap
    ),
    "l1.1": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 1.1),
    "l2": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 2.0),
    "l3": lambda parameters, rate, cap: MirrorDescent(parameters, rate, 3.0),
}
STEP_SIZED = ("SPS", "SNGD")  # rules whose step size changes from step to step
