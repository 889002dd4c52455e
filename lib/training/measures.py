"""What is measured of a network, on whatever device it lies."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.training.batches import trim

Evaluate = Callable[[nn.Module], Mapping[str, float]]  # a model in evaluation mode to named numbers
EDGES = np.geomspace(1e-6, 10, 71)  # of the bins of weight histograms


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
        parts = zip(logits.float().split(size), targets.split(size), strict=True)
        return {
            f"{name}_loss": float(sum(loss(*part) for part in parts)) / len(targets),
            f"{name}_accuracy": float(right(logits, targets).sum()) / len(targets),
        }

    return evaluate


def judge(tokens, probe: int = 16, size: int = 64) -> Evaluate:
    """An `evaluate` for a BERT classifier: "test_loss" and "test_accuracy" of `tokens`.

    With it the entropy of each layer's attention on the first `probe` rows, "entropy.0", ....
    """
    ordered = tokens.take(tokens.lengths.argsort(stable=True))  # so that little is padding

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits = predict(model, ordered.inputs, trim, size).float()
        return {
            "test_loss": float(F.cross_entropy(logits, ordered.labels)),
            "test_accuracy": float(right(logits, ordered.labels).double().mean()),
        } | {
            f"entropy.{k}": float(e) for k, e in enumerate(entropies(model, tokens.inputs[:probe]))
        }

    return evaluate


@torch.no_grad()
def entropies(model: nn.Module, inputs: Tensor) -> Tensor:
    """Relative entropy of each layer's attention (layers,): 1 for uniform weights, 0 for one token.

    H = -Σ_s p_s log p_s / log T over the T tokens of a row, averaged over its T queries, heads and
    rows; padding of `inputs` (b, 2, T) is left out. A row needs two tokens or more.
    """
    inputs = trim(inputs).to(next(model.parameters()).device)
    model.network.set_attn_implementation("eager")  # the fused attention does not give its weights
    try:
        with torch.autocast(inputs.device.type, enabled=False):
            _, attentions = model(inputs, output_attentions=True)
    finally:
        model.network.set_attn_implementation("sdpa")
    return torch.stack([entropy(weights.double(), inputs[:, 0] != 0) for weights in attentions])


def entropy(weights: Tensor, used: Tensor) -> Tensor:
    """Mean relative entropy of `weights` (b, heads, T, T) over the queries `used` (b, T)."""
    found = torch.special.entr(weights).sum(-1).mean(1)  # (b, heads, T) -> (b, T)
    return (found / used.sum(1, keepdim=True).double().log())[used].mean()


def binned(matrices: Iterable[np.ndarray]) -> np.ndarray:
    """How many magnitudes of all `matrices` fall into each bin of `EDGES`: (bins,).

    Those below the first edge and above the last are counted in the outer bins.
    """
    return sum(np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0] for W in matrices)


def correctness(hits: Tensor) -> dict[str, np.ndarray]:
    """Which test rows (N,) bool are classified correctly, as packed bits, and N."""
    return {"test_correct": np.packbits(hits.numpy()), "test_rows": np.array(len(hits))}
