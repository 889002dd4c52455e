"""The law of the margins and a network: tokens move too, and nothing is claimed.

`read` says how far the class token's attention is from what the law needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr

from lib import attention
from lib.attention import coordinates
from lib.data import images
from lib.networks import VisionTransformer
from lib.svm.max_margin import Infeasible, token_svm
from lib.training.loop import initialised
from lib.training.rules import NormalizedSGD
from papers.beyond.tolerances import SATURATED


@dataclass(frozen=True, kw_only=True)
class _LawReading:
    """The class token's attention in the last block of a network.

    loss: of the network. weight: median over images of the largest attention weight. least_margin:
    smallest difference of the largest logit to another. toward: share of the pairs whose pull
    raises their margin. rest: cosine of the pull on W = K^T Q and W itself, 1 where the direction
    rests. rank: Spearman's correlation of pulls and the SVM's duals on its support; NaN with the
    reason in `refusal` where there is no SVM.
    """

    loss: float
    weight: float
    least_margin: float
    toward: float
    rest: float
    rank: float
    refusal: str


def trained_networks(counts: Sequence[int], rows: int = 16, seed: int = 0):
    """A small ViT of two blocks and one head after each number of full-batch NGD steps in `counts`.

    Yields (network, images, labels); the network goes on training after each. Images are MNIST's or
    their stand-in's.
    """
    digits = images.load("mnist", "train", demo=True, rows=rows)
    pictures, labels = digits.standardise()(digits.images), digits.labels.long()
    sizes = dict(width=32, depth=2, heads=1, hidden=64, shift=None)
    size = pictures.shape[-1]
    plain = dict(mask_diagonal=False, learn_temperature=False)
    build = partial(VisionTransformer, size, size // 4, **sizes, **plain)
    network = initialised(build, seed)
    optimiser = NormalizedSGD(network.parameters(), lr=0.05)

    def closure():
        optimiser.zero_grad()
        loss = F.cross_entropy(network(pictures), labels)
        loss.backward()
        return loss

    done = 0
    for count in counts:
        for _ in range(count - done):
            optimiser.step(closure)
        done = count
        yield network, pictures, labels


def _attended(network, pictures, labels):
    """The last block of a network in float64.

    Tokens x (n, T, d), W = K^T Q/tau (d, d), logits (n, T) of the class token, the loss, and the
    loss's slope in these logits (n, T).
    """
    block = network.blocks[-1]
    first = network.class_token.expand(len(pictures), -1, -1)
    tokens = torch.cat([first, network.tokens(pictures)], 1) + network.positions
    before = network.blocks[:-1](tokens)
    x = block.attention_norm(before)  # (n, T, d)
    Q, K, V = block.attention.project.weight.chunk(3)  # (d, d) each
    W = K.T @ Q * torch.exp(-block.attention.log_temperature)
    logits = (x @ W @ x[:, 0, :, None])[..., 0]  # (n, T)
    logits.retain_grad()
    mixed = (logits.softmax(-1)[:, None] @ (x @ V.T))[:, 0]  # (n, d)
    row = before[:, 0] + block.attention.merge(mixed)
    row = row + block.mlp(row)
    loss = F.cross_entropy(network.head(row), labels)
    loss.backward()
    x, W, logits, slope = (v.detach().double().numpy() for v in (x, W, logits, logits.grad))
    return x, W, logits, loss.item(), slope


def read(network: VisionTransformer, pictures, labels) -> tuple[_LawReading, np.ndarray]:
    """The `_LawReading` of a network's last block, and its W (d, d)."""
    x, W, logits, loss, slope = _attended(network, pictures, labels)
    selected, z = logits.argmax(-1), x[:, 0]
    place = coordinates.others(selected[None], logits.shape[-1])[0]
    chosen = np.take_along_axis(logits, selected[:, None], -1)
    margins = chosen - np.take_along_axis(logits, place, -1)  # (n, T-1)
    pulls = np.take_along_axis(slope, place, -1)  # -dL/dmargin: > 0 where the margin is raised
    pulled = -np.einsum("nt,ntd,ne->de", slope, x, z)
    cosine = np.vdot(pulled, W) / (np.linalg.norm(pulled) * np.linalg.norm(W))
    data = attention.token_set(x, np.ones(len(x)), z, np.zeros(x.shape[-1]), selected)
    rank, refusal = _against_duals(data, pulls)
    smallest = margins.min()
    if not refusal and smallest < SATURATED:
        refusal = f"the smallest margin is {smallest:.2g}, the law needs {SATURATED:g}"
    largest = np.exp(logits - np.logaddexp.reduce(logits, -1, keepdims=True)).max(-1)
    reading = _LawReading(
        loss=loss,
        weight=float(np.median(largest)),
        least_margin=float(smallest),
        toward=float((pulls > 0).mean()),
        rest=float(cosine),
        rank=rank,
        refusal=refusal,
    )
    return reading, W


def _against_duals(data, pulls):
    """Spearman's correlation of pulls and duals on the support, NaN without an SVM; and why."""
    try:
        solution = token_svm(coordinates.minimal(data).tokens)
    except (Infeasible, RuntimeError) as refused:
        return float("nan"), str(refused)
    on = solution.support[0]
    return float(spearmanr(pulls[on], solution.duals[0][on]).statistic), ""


def turned(W: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """Cosine of after - before and W: 1 where W only grows along itself; all (d, d)."""
    step = after - before
    return float(np.vdot(step, W) / (np.linalg.norm(step) * np.linalg.norm(W)))
