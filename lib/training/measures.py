"""What is measured of a network, on whatever device it lies."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Evaluate = Callable[[nn.Module], Mapping[str, float]]  # a model in evaluation mode to named numbers


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of logits model(inputs) (b, classes) against targets (b,), in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


@torch.no_grad()
def predict(model: nn.Module, rows: Tensor, transform: Callable = lambda x: x, size=250) -> Tensor:
    """What `model` says of `rows` (N, ...), `size` at a time on the model's device: on the CPU."""
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def right(logits: Tensor, targets: Tensor) -> Tensor:
    """Which rows are classified correctly: bool (N,); logits (N, classes), or (N,) of label 1."""
    return logits.argmax(1) == targets if logits.ndim > 1 else (logits > 0) == (targets > 0)


def correctness(hits: Tensor) -> dict[str, np.ndarray]:
    """Which test rows (N,) bool are classified correctly, as packed bits, and N."""
    return {"test_correct": np.packbits(hits.numpy()), "test_rows": np.array(len(hits))}


def classification(
    inputs: Tensor, targets: Tensor, transform=lambda x: x, size: int = 250, name: str = "test"
) -> Evaluate:
    """An `evaluate`: {"<name>_loss": mean cross-entropy, "<name>_accuracy": share correct}."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if logits.ndim > 1:
            return F.cross_entropy(logits, labels, reduction="sum")
        return F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits = predict(model, inputs, transform, size)
        parts = zip(logits.split(size), targets.split(size))
        return {
            f"{name}_loss": float(sum(loss(*part) for part in parts)) / len(targets),
            f"{name}_accuracy": float(right(logits, targets).sum()) / len(targets),
        }

    return evaluate
