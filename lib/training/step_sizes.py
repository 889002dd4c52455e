"""Normalised and Polyak step sizes as `torch.optim` classes; both move along the gradient.

Each rule is a function of tensors (`normalized_step`, `polyak_step`); the classes gather gradients,
measure their norm once over the whole model and move all parameters together. On a GPU no value
leaves the device inside a step, unless `check_finite=True` asks.
"""

import math

import torch
from torch import Tensor

LARGE = 65_536  # entries from which on a float32 tensor on a CPU is summed row by row
ROW = 256  # entries whose squares are summed in float32
SAFE = (1e-15, 1e15)  # norms whose squares float32 holds, with what matters among the entries
Check = bool | str | None  # what `check_finite` may be


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """The norm ‖g‖ of all `gradients` as one vector: a float64 scalar on the first one's device.

    Squares are summed in float64, since in float32 those of entries below 1e-23 vanish,
    and with them the direction that is to be kept. Large float32 tensors on a CPU are
    summed in float32 within rows of `ROW`, with a relative error of about 1e-9; a norm
    outside `SAFE` is measured again.
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    device = gradients[0].device
    large = [g for g in gradients if _large(g)] if device.type == "cpu" else []
    if large:
        small = [g for g in gradients if not _large(g)]
        norm = torch.linalg.vector_norm(torch.cat([*map(_row_norms, large), _norms(small, device)]))
        if SAFE[0] < norm < SAFE[1]:
            return norm
    return torch.linalg.vector_norm(_norms(gradients, device))


def _large(gradient: Tensor) -> bool:
    kind = gradient.device.type, gradient.dtype
    return kind == ("cpu", torch.float32) and gradient.numel() >= LARGE


def _row_norms(gradient: Tensor) -> Tensor:
    """Norms of rows of `ROW` entries and of what remains: (rows + 1,) float64."""
    flat = gradient.reshape(-1)
    whole = flat.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1).double()  # (rows,)
    return torch.cat([rows, torch.linalg.vector_norm(flat[whole:].double())[None]])


def _norms(gradients: list[Tensor], device: torch.device) -> Tensor:
    """The norm of each tensor, squares summed in float64: (tensors,)."""
    wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPU has no float64
    if not gradients:
        return torch.zeros(0, dtype=wide, device=device)
    return torch.stack([n.to(device) for n in torch._foreach_norm(gradients, 2, wide)])


def normalized_step(norm: Tensor, lr: float, max_step: float) -> Tensor:
    """The capped normalised step size min(η / ‖g‖, η_max), and 0 where ‖g‖ = 0.

    `norm` is ‖g‖, `lr` is η (the length of an uncapped move), `max_step` is η_max.
    Source: paper A, Eq. 2 and App. C (SNGD with a cap).
    """
    return _capped(lr / norm, norm, max_step)


def polyak_step(gap: Tensor, norm: Tensor, c: float, max_step: float) -> Tensor:
    """The capped Polyak step size min((f - f*)₊ / (c ‖g‖²), η_max), and 0 where ‖g‖ = 0.

    `gap` is f - f*, of which a negative value counts as 0; `norm` is ‖g‖; `max_step` is
    η_max. Source: paper A, Eq. 3, which has c = 2; the cap and a free c are SPS_max of
    Loizou et al. (2021).
    """
    # Two divisions, since ‖g‖² may underflow where ‖g‖ does not.
    return _capped(gap.clamp(min=0) / norm / (c * norm), norm, max_step)


def _capped(step: Tensor, norm: Tensor, max_step: float) -> Tensor:
    # An infinite step times a zero entry of g is NaN, so even without a cap the step stays finite.
    step = step.clamp(max=min(max_step, torch.finfo(step.dtype).max))
    return torch.where(norm == 0, torch.zeros_like(step), step)


def _move(parameters: list[Tensor], size: Tensor, bad: Tensor | None = None) -> None:
    """θ ← θ - s g for every parameter, in its own precision; nothing where `bad`."""
    for device, dtype in {(p.device, p.dtype) for p in parameters}:
        members = [p for p in parameters if (p.device, p.dtype) == (device, dtype)]
        gradients = [p.grad for p in members]
        step = size.clamp(max=torch.finfo(dtype).max)
        if device.type == "cpu" and bad is None:
            torch._foreach_add_(members, gradients, alpha=-float(step))
            continue
        step = step.to(device, dtype)  # a tensor: a number would be fetched from the device
        if bad is not None:
            # A step of 0 does not do, since 0 times infinity is NaN.
            nothing, bad = torch.zeros((), device=device, dtype=dtype), bad.to(device)
            gradients = [torch.where(bad, nothing, g) for g in gradients]
        torch._foreach_sub_(members, torch._foreach_mul(gradients, step))


def _positive(name: str, value: float) -> float:
    if isinstance(value, Tensor) or not value > 0:
        raise ValueError(f"{name} must be a number above 0, got {value}")
    return value


class _GradientStep(torch.optim.Optimizer):
    """θ ← θ - s g with a step size s that a rule takes from ‖g‖ over all parameters of all groups.

    `last_step_size` (the largest over parameter groups) and `last_gradient_norm` hold the latest
    step's values as scalar tensors; `skipped_steps` counts what check_finite="skip" left out.
    """

    def __init__(self, params, defaults: dict, check_finite: Check):
        if check_finite not in (allowed := (True, False, None, "skip")):
            raise ValueError(f"check_finite must be one of {allowed}, got {check_finite!r}")
        super().__init__(params, defaults | {"steps": 0, "skipped": 0})
        self.check_finite = check_finite
        self.last_step_size = self.last_gradient_norm = None

    @property
    def skipped_steps(self) -> int:
        """Steps left out since loss or gradient was not finite; reading it waits for the device."""
        return int(self.param_groups[0]["skipped"])

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step and return the loss of `closure` (None without one).

        `closure` zeroes the gradients, calls backward on the loss and returns it. Raises
        FloatingPointError, before any parameter moved, if loss or gradient is not finite and
        `check_finite` is on.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        gradients = [p.grad for members in groups for p in members]
        if any(g.is_sparse for g in gradients):
            remedy = "build the embedding with sparse=False"
            raise RuntimeError(f"{type(self).__name__} takes dense gradients; {remedy}")
        norm = gradient_norm(gradients)
        value = None if loss is None else _scalar(loss, norm)
        self.param_groups[0]["steps"] += 1
        self._require_finite(value, norm)
        sizes = [self._step_size(group, norm, value) for group in self.param_groups]
        bad = None
        if self.check_finite == "skip":
            bad = ~torch.isfinite(norm if value is None else norm + value)
            sizes = [torch.where(bad, torch.zeros_like(size), size) for size in sizes]
            self.param_groups[0]["skipped"] = self.param_groups[0]["skipped"] + bad.long()
            if norm.device.type == "cpu":  # where the verdict is free to read
                groups, bad = ([] if bad else groups), None
        for members, size in zip(groups, sizes, strict=False):
            _move(members, size, bad)
        self.last_step_size, self.last_gradient_norm = torch.stack(sizes).amax(), norm
        return loss

    def _require_finite(self, loss: Tensor | None, norm: Tensor) -> None:
        # Reading a verdict waits for the device: free on a CPU, a stall on a GPU.
        free = self.check_finite is None and norm.device.type == "cpu"
        if not (free or self.check_finite is True):
            return
        what = {"gradient norm": norm} | ({} if loss is None else {"loss": loss})
        bad = [f"{name} is {float(v)}" for name, v in what.items() if not math.isfinite(v)]
        if bad:
            raise FloatingPointError(
                f"step {self.param_groups[0]['steps']}: {' and '.join(bad)}; no parameter was moved"
            )


def _scalar(loss, norm: Tensor) -> Tensor:
    loss = torch.as_tensor(loss).detach()
    if loss.numel() != 1:
        raise ValueError(f"the closure must return a scalar loss, it has shape {tuple(loss.shape)}")
    return loss.reshape(()).to(norm.device, norm.dtype)


class NormalizedSGD(_GradientStep):
    """Stochastic normalised gradient descent with a cap: θ ← θ - min(η / ‖g‖, η_max) g.

    g is the mini-batch gradient, ‖g‖ its norm over all parameters of all groups together.

    Args:
        params: parameters or parameter groups; a group may carry its own `lr` and `max_step`.
        lr: η, the length of an uncapped move, above 0.
        max_step: η_max, above 0. Once η / ‖g‖ exceeds it the rule is SGD with step η_max.
        check_finite: True raises FloatingPointError, naming the step, on a non-finite loss or
            gradient; False does not look; "skip" leaves the step out and counts it in
            `skipped_steps`, without waiting for the device. None: True where parameters are on a
            CPU, else False, since the check waits for the device.

    Parameters without a gradient are left out. Raises ValueError for lr or max_step not above 0,
    RuntimeError for sparse gradients. Source: paper A, Eq. 2 and App. C ("SNGD").
    """

    def __init__(
        self, params, lr: float, max_step: float = math.inf, *, check_finite: Check = None
    ):
        if not math.isfinite(_positive("lr", lr)):
            raise ValueError(f"lr must be finite, got {lr}")
        defaults = {"lr": lr, "max_step": _positive("max_step", max_step)}
        super().__init__(params, defaults, check_finite)

    def _step_size(self, group, norm, loss):
        return normalized_step(norm, group["lr"], group["max_step"])


class StochasticPolyak(_GradientStep):
    """Stochastic Polyak step with a cap: θ ← θ - min((f - f*)₊ / (c ‖g‖²), η_max) g.

    f is the mini-batch loss, as the closure returns it, and g its gradient over
    all groups' parameters.

    Args:
        params: parameters or groups; a group may carry its own `max_step`, `c` and `f_star`.
        max_step: η_max, above 0.
        c: the formula's constant, above 0. 2 is paper A, Eq. 3; Loizou et al. (2021) have 0.5 to 1.
        f_star: f*, the smallest value the loss can take; 0 for cross-entropy of a network that can
            fit every batch. A loss below it moves nothing.
        check_finite: as in `NormalizedSGD`.

    Raises TypeError for a step without closure, ValueError for max_step or c not above 0 or an
    f_star that is not finite, RuntimeError for sparse gradients. With several processes the closure
    must return the loss averaged over them, as the gradient is. Source: paper A, Eq. 3 and App. C
    ("SPS"); Loizou et al. (2021).
    """

    def __init__(self, params, max_step=math.inf, c=2.0, f_star=0.0, *, check_finite: Check = None):
        if not math.isfinite(f_star):
            raise ValueError(f"f_star must be finite, got {f_star}")
        defaults = {"max_step": _positive("max_step", max_step), "c": _positive("c", c)}
        super().__init__(params, defaults | {"f_star": f_star}, check_finite)

    def step(self, closure=None):
        """Take one step and return the loss, as `NormalizedSGD.step`; TypeError without closure."""
        if closure is None:
            raise TypeError(
                "StochasticPolyak.step needs a closure that returns the loss:"
                " its step size depends on it"
            )
        return super().step(closure)

    def _step_size(self, group, norm, loss):
        return polyak_step(loss - group["f_star"], norm, group["c"], group["max_step"])
