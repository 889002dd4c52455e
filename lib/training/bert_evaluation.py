"""What fine-tuning a BERT classifier needs beside the loop: batches by length, and measurements."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib import seeds
from lib.networks.bert import Classifier, Tokens
from lib.training.batches import Batches

POOL = 8  # batches whose rows are sorted by length among themselves


def trim(inputs: Tensor) -> Tensor:
    """Batch (b, 2, T) without the columns that are padding in every row."""
    return inputs[..., : int((inputs[:, 0] != 0).sum(1).max())]


class Bucketed(Batches):
    """`Batches` of tokens whose rows have similar lengths, so that little is padding.

    The rows of `POOL` consecutive batches are sorted by length and dealt out again, in random
    order. Batch k is still a function of (seed, k) alone, and an epoch still takes every row once.
    """

    def rows(self, step: int) -> Tensor:
        """Row numbers of batch `step` (from 0): (size,), or this part's (size / n,)."""
        epoch, place = divmod(step, self.per_epoch)
        first = place // POOL * POOL
        count = min(POOL, self.per_epoch - first)
        whole = replace(self, part=(0, 1))
        start = epoch * self.per_epoch + first
        # (count size,)
        pool = torch.cat([super(Bucketed, whole).rows(start + k) for k in range(count)])
        lengths = (self.inputs[pool.to(self.inputs.device), 0] != 0).sum(1).cpu()
        dealt = pool[lengths.argsort(stable=True)].reshape(count, self.size)
        order = seeds.stream_at(self.seed, "buckets", epoch, first).permutation(count)
        k, n = self.part
        # (size,) -> (n, size / n) -> (size / n,)
        return dealt[order[place - first]].reshape(n, -1)[k]


def batches(tokens: Tokens, size: int, seed: int) -> Bucketed:
    """Training batches of `tokens`, trimmed to their longest row."""
    return Bucketed(tokens.inputs, tokens.labels, size, seed, trim)


def judge(tokens: Tokens, probe: int = 16, size: int = 64) -> Callable[[Classifier], dict]:
    """An `evaluate` for `training.train`: loss and accuracy of `tokens`, `size` rows at a time.

    It returns "test_loss" and "test_accuracy"; "worst_group_accuracy" where the texts have groups;
    and the entropy of each layer's attention, "entropy.0", ..., on the first `probe` rows
    (`attention_entropy`).
    """
    sorted_tokens = tokens.take(tokens.lengths.argsort(stable=True))  # so that little is padding
    groups, seen = sorted_tokens.groups, tokens.inputs[:probe]

    @torch.no_grad()
    def evaluate(model: Classifier) -> dict[str, float]:
        device = next(model.parameters()).device
        labels = sorted_tokens.labels.to(device)
        logits = torch.cat(
            [model(trim(rows).to(device)) for rows in sorted_tokens.inputs.split(size)]
        ).float()
        correct = logits.argmax(1) == labels  # (N,)
        found = {
            "test_loss": float(F.cross_entropy(logits, labels)),
            "test_accuracy": float(correct.double().mean()),
        }
        if groups is not None:
            found["worst_group_accuracy"] = worst_group(
                correct.cpu().numpy(), labels.cpu().numpy(), groups
            )
        entropies = attention_entropy(model, trim(seen).to(device))
        return found | {f"entropy.{k}": float(entropy) for k, entropy in enumerate(entropies)}

    return evaluate


def worst_group(correct: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> float:
    """The smallest share of correct rows over all pairs of a group and a label that have a row.

    `correct` (N,), `labels` (N,), `groups` (N, k). A row may lie in several groups. NaN if no row
    lies in any. Source: WILDS, CivilComments.
    """
    members = [
        groups[:, k] & (labels == label)
        for k in range(groups.shape[1])
        for label in np.unique(labels)
    ]
    return min((float(correct[rows].mean()) for rows in members if rows.any()), default=math.nan)


@torch.no_grad()
def attention_entropy(model: Classifier, inputs: Tensor) -> Tensor:
    """Relative entropy of each layer's attention (layers,): 1 for uniform weights, 0 for one token.

    H = -Σ_s p_s log p_s / log T over the T tokens of a row, averaged over its T queries, heads and
    rows; padding of `inputs` (b, 2, T) is left out. A row needs two tokens or more.
    """
    used = inputs[:, 0] != 0  # (b, T)
    model.network.set_attn_implementation("eager")  # the fused attention does not give its weights
    try:
        with torch.autocast(inputs.device.type, enabled=False):
            _, attentions = model(inputs, output_attentions=True)
    finally:
        model.network.set_attn_implementation("sdpa")
    return torch.stack([_entropy(weights.double(), used) for weights in attentions])


def _entropy(weights: Tensor, used: Tensor) -> Tensor:
    """Mean relative entropy of `weights` (b, heads, T, T) over the queries that are no padding."""
    # (b, heads, T, T) -> (b, heads, T) -> (b, T)
    entropy = torch.special.entr(weights).sum(-1).mean(1)
    relative = entropy / used.sum(1, keepdim=True).double().log()
    return relative[used].mean()
