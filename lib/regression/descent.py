"""Descent on paper B's layer: every rule on every seed in one loop, on the gradients of one source.

Layers are torch tensors A (rules, seeds, k, d) and B (rules, seeds, d, d), on any device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib.regression.gradient_sources import Source
from lib.regression.losses import excess_loss, regulariser_gradients
from lib.regression.problem import Regression, covariance_root
from lib.regression.rules import Library, PreconditionedRule
from lib.representation import Shapes

LARGEST = 1e8  # an entry of A or B beyond it counts as divergence


@dataclass(frozen=True, repr=False)
class RegressionHistory(Shapes):
    """Layers at the K recorded iterations: A (seeds, K, k, d), B (seeds, K, d, d).

    They are NaN from divergence on. diverged (seeds,) is the iteration whose step left the numbers
    up to LARGEST, -1 where none did.
    """

    iterations: np.ndarray
    A: np.ndarray
    B: np.ndarray
    diverged: np.ndarray

    def excess(self, problems: Sequence[Regression]) -> np.ndarray:
        """L(Z_t) - min L of each seed's problem, (seeds, K)."""
        return np.stack(
            [excess_loss(p, A, B) for p, A, B in zip(problems, self.A, self.B, strict=True)]
        )


def descend(
    source: Source,
    rules: Mapping[str, PreconditionedRule | Library],
    starts: Mapping[str, tuple[np.ndarray, np.ndarray]],
    covariance: np.ndarray,
    steps: int,
    record: Sequence[int],
    device: str = "cpu",
) -> dict[str, RegressionHistory]:
    """Train every rule from its start on every seed, all on the gradients of `source`.

    `steps` iterations, of which those in `record` are kept.

    starts: per rule A_0 (seeds, k, d) and B_0 (seeds, d, d); covariance (seeds, d, d) is the Sigma^
    of regulariser and preconditioner. A run that diverges stops there and says so in its History;
    the others go on. Raises ValueError for a missing start, an iteration to record outside
    0..steps, or a singular covariance.
    """
    import torch

    record = np.unique(record)
    if record[0] < 0 or record[-1] > steps:
        raise ValueError(
            f"record must lie within 0..{steps}, it runs from {record[0]} to {record[-1]}"
        )
    if missing := set(rules) - set(starts):
        raise ValueError(f"starts lacks {', '.join(sorted(missing))}")
    A, B = (
        torch.tensor(np.stack([starts[name][part] for name in rules]), device=device)
        for part in (0, 1)
    )
    update = _Update(list(rules.values()), A, B, covariance)
    diverged = torch.full(A.shape[:2], -1)
    kept = {}
    for t in range(steps + 1):
        if t in record:
            kept[t] = A.cpu().numpy().copy(), B.cpu().numpy().copy()
        if t == steps or (diverged >= 0).all():
            break
        update(*source(t, A, B))
        size = torch.maximum(A.abs().amax((-1, -2)), B.abs().amax((-1, -2)))
        if not bool((size <= LARGEST).all()):  # catches NaN as well
            gone = ~(size <= LARGEST)
            A[gone], B[gone] = torch.nan, torch.nan
            diverged[(gone.cpu()) & (diverged < 0)] = t + 1
    nothing = np.full(A.shape, np.nan), np.full(B.shape, np.nan)
    A_path, B_path = (np.stack([kept.get(t, nothing)[part] for t in record], 2) for part in (0, 1))
    return {
        name: RegressionHistory(record, A_path[r], B_path[r], diverged[r].numpy())
        for r, name in enumerate(rules)
    }


class _Update:
    """Applies every rule's step in place to A and B.

    Own rules are one formula for all; library optimisers work on views of A and B.
    """

    def __init__(self, rules, A, B, covariance):
        import torch

        self.A, self.B = A, B
        own = [r for r, rule in enumerate(rules) if isinstance(rule, PreconditionedRule)]
        self.own = torch.tensor(own, device=A.device)
        self.library = []
        for r, rule in enumerate(rules):
            if not isinstance(rule, PreconditionedRule):
                matrices = [*A[r].unbind(), *B[r].unbind()]  # views: a step moves A and B
                self.library.append((r, matrices, rule.make(matrices)))
        kind = dict(dtype=A.dtype, device=A.device)
        self.Sigma = torch.as_tensor(covariance, **kind)
        for Sigma in np.asarray(covariance):
            covariance_root(Sigma, "covariance")  # which raises for a singular one
        inverse = torch.as_tensor(np.linalg.inv(covariance), **kind)
        eye = torch.eye(A.shape[-1], **kind).expand_as(inverse)
        chosen = [rules[r] for r in own]
        self.left = [eye if rule.preconditioner == "none" else inverse for rule in chosen]
        self.right = [inverse if rule.preconditioner == "left_right" else eye for rule in chosen]
        if chosen:
            # (own, seeds, d, d)
            self.left, self.right = torch.stack(self.left), torch.stack(self.right)
            numbers = [(rule.step_size, float(rule.regularised)) for rule in chosen]
            # (own, 2) -> 2 x (own, 1, 1, 1)
            self.step, self.weight = torch.tensor(numbers, **kind).T[..., None, None, None]

    def __call__(self, gradient_A, gradient_B):
        if len(self.own):
            A, B = self.A[self.own], self.B[self.own]
            reg_A, reg_B = regulariser_gradients(self.Sigma, A, B)
            g_A = gradient_A[self.own] + self.weight * reg_A
            g_B = gradient_B[self.own] + self.weight * reg_B
            self.A[self.own] = A - self.step * g_A @ self.right
            self.B[self.own] = B - self.step * self.left @ g_B @ self.right
        for r, matrices, optimiser in self.library:
            for matrix, g in zip(
                matrices, [*gradient_A[r].unbind(), *gradient_B[r].unbind()], strict=True
            ):
                # optimisers that decompose matrices raise on NaN: a diverged one stands still
                matrix.grad = g if bool(matrix.isfinite().all()) else None
            optimiser.step()
