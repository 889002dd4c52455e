"""The loss that is trained by default, and what is measured of a classifier on test rows."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Evaluate = Callable[[nn.Module], Mapping[str, float]]  # a model in evaluation mode to named numbers


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of logits model(inputs) (b, classes) against targets (b,), in nats."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs), targets)


def classification(
    inputs: Tensor, targets: Tensor, transform=None, size: int = 250, binary: bool = False
) -> Evaluate:
    """An `evaluate` for `train`: {"test_loss": mean cross-entropy, "test_accuracy": share correct}.

    `inputs` (N, ...), `targets` (N,), taken `size` rows at a time. The model gives a logit a class,
    (size, classes), or where `binary` the one of target 1, (size,).
    """

    @torch.no_grad()
    def evaluate(model: nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        loss = correct = 0.0
        for rows, labels in zip(inputs.split(size), targets.to(device).split(size), strict=True):
            rows = rows.to(device)
            logits = model(rows if transform is None else transform(rows))
            if binary:
                logits, positive = logits.float(), labels.float()
                loss += F.binary_cross_entropy_with_logits(logits, positive, reduction="sum")
                correct += ((logits > 0) == (labels > 0)).sum()
            else:
                loss += F.cross_entropy(logits, labels, reduction="sum")
                correct += (logits.argmax(1) == labels).sum()
        return {
            "test_loss": float(loss) / len(targets),
            "test_accuracy": float(correct) / len(targets),
        }

    return evaluate
