"""l_p mirror descent as a `torch.optim` class.

The rule is a pair of maps on lists of tensors, `to_mirror` and `from_mirror`, between which the
gradient step is taken; the class keeps the mirrored weights from step to step.
"""

import math

import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps  # paper C's guard of the dual norm


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


def dual_norm(gradients: list[Tensor], p: float) -> Tensor:
    """‖g‖_q, 1/p + 1/q = 1, of all `gradients` as one vector: a float64 scalar.

    Entries are divided by the largest first: q is 11 for p = 1.1, and the eleventh power of 1e-30
    is nothing even in float64. It lies on the first one's device. 0 for no gradients.
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    device, q = gradients[0].device, p / (p - 1)
    wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPU has no float64
    norms = [norm.to(device, wide) for norm in torch._foreach_norm(gradients, math.inf)]
    largest = torch.stack(norms).amax()
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    parts = [
        torch.linalg.vector_norm(g.to(wide) / scale.to(g.device), q).to(device) for g in gradients
    ]
    return scale * torch.linalg.vector_norm(torch.stack(parts), q)


class MirrorDescent(torch.optim.Optimizer):
    """l_p mirror descent: |θ⁺|^(p-1) sgn θ⁺ = |θ|^(p-1) sgn θ - η g, entry by entry.

    Args:
        params: parameters or parameter groups; a group may carry its own `lr`, `p` and `normalize`.
        lr: η, above 0. With `normalize` off its scale depends strongly on p; see paper C's table.
        p: any number above 1; 2 is SGD. Near 1 weights become sparse, large p levels them.
        normalize: g / (‖g‖_q + ε) in place of g, 1/p + 1/q = 1, one norm per parameter group; ε is
            `EPS`. Put W and v into groups of their own for the joint rule of paper C.

    Weights at exactly zero. For p < 2 the inverse map is flat at 0: a weight at 0 moves by |η
    g|^(1/(p-1)), which for p = 1.1 is the tenth power, and in float32 rounds to 0 again. Were U =
    ∇ψ(θ) worked out from θ at each step, such a weight would never leave 0. The class keeps U
    instead (one more copy of the parameters, at least float32; none for p = 2), where η g adds up,
    so that the weight leaves as it would in exact arithmetic. For p > 2 the inverse map is
    infinitely steep at 0: the first step throws a zero weight to ±|η g|^(1/(p-1)), far beyond η g,
    which is the rule itself; no value is divided, so nothing becomes infinite.

    A parameter that someone else changed in place (a loaded checkpoint, a clipped weight) is
    mirrored afresh; only a change through `.data` goes unnoticed. Loading both a model and this
    optimiser's state goes on to the bit, in whichever order: a state that was loaded is taken at
    its word at its first step.

    Raises ValueError for lr not above 0 or p not above 1 and finite, RuntimeError for sparse
    gradients. Source: paper C, Algorithm l_p-AttGD (normalised in its synthetic runs) and App. on
    real data (not normalised).
    """

    def __init__(self, params, lr: float, p: float, *, normalize: bool = False):
        if not (math.isfinite(lr) and lr > 0):
            raise ValueError(f"lr must be above 0 and finite, got {lr}")
        super().__init__(params, {"lr": lr, "p": p, "normalize": normalize})
        # Of each parameter when its mirrored weights were last true.
        self._versions: dict[Tensor, int] = {}

    def add_param_group(self, group: dict) -> None:
        p = group.get("p", self.defaults["p"])
        if not (math.isfinite(p) and p > 1):
            raise ValueError(
                f"p must be above 1 and finite, got {p}: elsewhere the mirror map has no inverse"
            )
        super().add_param_group(group)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._versions = {}

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step and return the loss of `closure` (None without one).

        `closure` zeroes the gradients, computes the loss, calls backward and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._move(group)
        return loss

    def _move(self, group: dict) -> None:
        members = [parameter for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in members]
        if any(g.is_sparse for g in gradients):
            raise RuntimeError(
                "MirrorDescent takes dense gradients; build the embedding with sparse=False"
            )
        if not members:
            return
        p, lr = group["p"], group["lr"]
        if group["normalize"]:
            # stays on the device
            gradients = torch._foreach_div(gradients, dual_norm(gradients, p) + EPS)
        if p == 2:
            torch._foreach_add_(members, gradients, alpha=-lr)
            return
        mirrored = [self._mirror(parameter, p) for parameter in members]
        torch._foreach_add_(
            mirrored, [g.to(U.dtype) for g, U in zip(gradients, mirrored, strict=True)], alpha=-lr
        )
        torch._foreach_copy_(members, from_mirror(mirrored, p))
        self._versions |= {parameter: parameter._version for parameter in members}

    def _mirror(self, parameter: Tensor, p: float) -> Tensor:
        state = self.state[parameter]
        changed = self._versions.get(parameter, parameter._version) != parameter._version
        if "mirror" not in state or changed:
            wide = torch.promote_types(parameter.dtype, torch.float32)
            (state["mirror"],) = to_mirror([parameter.detach().to(wide)], p)
        return state["mirror"]
