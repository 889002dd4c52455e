"""Margins of the attention layers of a trained vision transformer, in the norms of the atlas.

Head h gives token t, seen from query z, the logit x_t^T W z with W = W_K^T W_Q / sqrt(d_h), W_K and
W_Q (d_h, d), tokens x and query z behind the layer's LayerNorm. A query's margin is the lead of its
token of largest logit; of all a low quantile over N(W) and the mean of ||x||^2 is compared between
rules, and no SVM is solved.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib import svm
from lib.data import images
from lib.networks import VisionTransformer
from lib.training import loop
from lib.training.batches import Batches
from lib.training.study import TUNING_SEED
from papers.beyond.factor_norms import WHOLE

QUANTILE = 0.1  # of the margins of all queries
REST_RATE = 1e-3  # of Adam on biases, LayerNorms, embeddings and the head, the same for every rule
MOMENTUM = 0.9
MEMORY, EPSILON = 0.999, 1e-8  # of Adam
PLAIN: dict[str, Any] = {"shift": None, "mask_diagonal": False, "learn_temperature": False}


def _polar(M):
    """U V^T of M = U S V^T (..., r, c); directions below 1e-6 of the largest, rounding, stay 0."""
    U, S, V = torch.linalg.svd(M, full_matrices=False)
    return (U * (S > 1e-6 * S[..., :1])[..., None, :]) @ V


def _unit(M):
    """M / ||M||_F of each matrix of M (..., r, c), 0 for 0."""
    size = M.norm(dim=(-2, -1), keepdim=True)
    return M / torch.where(size > 0, size, 1.0)


DIRECTIONS: dict[str, Callable[[Tensor], Tensor] | None] = {  # of a mean of gradients
    "NGD": _unit,
    "Signum": torch.sign,
    "Muon": _polar,
    "Adam": None,
}


class _ByMatrix(torch.optim.Optimizer):
    """M <- M - rate D(m) on the matrices of the blocks, Adam at REST_RATE on all else.

    m a mean of gradients of MOMENTUM, D by DIRECTIONS; W_Q, W_K and W_V, in one parameter (3d, d),
    are three matrices. ValueError for an unknown rule or a rate that is not positive.
    """

    def __init__(self, model: VisionTransformer, rule: str, rate: float):
        if rule not in DIRECTIONS or not 0 < rate < math.inf:
            raise ValueError(f"rule = {rule!r}, rate = {rate}: choose one of {[*DIRECTIONS]}, > 0")
        named = dict(model.named_parameters())
        names = [name for name, p in named.items() if name.startswith("blocks.") and p.ndim == 2]
        matrices = [named.pop(name) for name in names]
        rest = [p for p in named.values() if p.requires_grad]
        groups = [{"params": matrices, "lr": rate, "rule": rule}]
        super().__init__([*groups, {"params": rest, "lr": REST_RATE, "rule": "Adam"}], {})

    @torch.no_grad()
    def step(self, closure=None):
        """One step; returns the closure's loss."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(self._direction(p, group["rule"]), alpha=group["lr"])
        return loss

    def _direction(self, p, rule):
        state = self.state[p]
        if not state:
            state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["t"] += 1
        m = state["m"].lerp_(p.grad, 1 - MOMENTUM)
        if (direction := DIRECTIONS[rule]) is None:
            v = state["v"].mul_(MEMORY).addcmul_(p.grad, p.grad, value=1 - MEMORY)
            m_hat = m / (1 - MOMENTUM ** state["t"])
            return m_hat / ((v / (1 - MEMORY ** state["t"])).sqrt() + EPSILON)
        parts = m.shape[0] // m.shape[1] if m.shape[0] == 3 * m.shape[1] else 1
        return direction(m.reshape(parts, -1, m.shape[1])).reshape(m.shape)


@dataclass(frozen=True)
class Setting:
    """Network and data: image set, training and held-out rows, patches, sizes of the network."""

    rows: int
    held_out: int
    steps: int
    shape: Mapping[str, int]
    name: str = "cifar10"
    patch: int = 8
    batch: int = 50

    def load(self, demo: bool):
        """(training set, held-out set) of the train split."""
        whole = images.load(self.name, "train", rows=self.rows + self.held_out, demo=demo)
        if len(whole) <= self.rows:
            raise ValueError(f"{self.rows} rows leave none of {len(whole)} to hold out")
        return whole[: self.rows], whole.images[self.rows :]


def untrained(setting: Setting, data, seed: int) -> VisionTransformer:
    """The network that every rule's run of this seed starts from."""
    channels, size = data.images.shape[1:3]
    build = lambda: VisionTransformer(
        size, setting.patch, channels, data.classes, **setting.shape, **PLAIN
    )
    return loop.initialised(build, seed).eval()


def trained(setting: Setting, data, rule: str, rate: float, seed: int):
    """(network, loss of every step) after setting.steps steps of `rule` on the ImageSet `data`."""
    model = untrained(setting, data, seed)
    batches = Batches(data.images, data.labels, setting.batch, seed, data.standardise())
    optimizer = _ByMatrix(model, rule, rate)
    loss = loop.train(model, optimizer, batches, setting.steps, cpu=True).loss
    rest = np.full(setting.steps - len(loss), np.nan)  # of a run that diverged
    return model.eval(), np.concatenate([loss, rest])


def tuned(setting: Setting, data, rates: Mapping[str, Sequence[float]], last: int) -> dict:
    """Every rule's mean of the `last` losses, {rule: {rate: loss}}, inf for NaN; TUNING_SEED."""

    def end(rule, rate):
        loss = float(np.mean(trained(setting, data, rule, rate, TUNING_SEED)[1][-last:]))
        return loss if math.isfinite(loss) else math.inf

    return {rule: {rate: end(rule, rate) for rate in grid} for rule, grid in rates.items()}


@dataclass(frozen=True)
class MarginReading:
    """Of every layer and head: ratio (..., NORMS), quantile and least margin, factors K and Q
    (..., d_h, d); ... (layers, heads)."""

    ratio: np.ndarray
    quantile: np.ndarray
    least: np.ndarray
    K: np.ndarray
    Q: np.ndarray

    @property
    def W(self) -> np.ndarray:
        """W_K^T W_Q / sqrt(d_h), (layers, heads, d, d)."""
        return _product(self.K, self.Q)


def _product(K, Q):
    return np.swapaxes(K, -1, -2) @ Q / math.sqrt(K.shape[-2])


@torch.no_grad()
def _entrances(network, pictures):
    """What enters the attention of every block, behind its LayerNorm, (b, T, d) each."""
    first = network.class_token.expand(len(pictures), -1, -1)
    tokens, entered = torch.cat([first, network.tokens(pictures)], 1) + network.positions, []
    for block in network.blocks:
        entered.append(block.attention_norm(tokens))
        tokens = block(tokens)
    return entered


def _factors(network):
    """K and Q of all blocks and heads, (layers, heads, d_h, d) each, float64."""
    attention: list[Any] = [block.attention for block in network.blocks]
    heads, weights = attention[0].heads, [one.project.weight.detach() for one in attention]
    Q, K, _ = np.split(torch.stack(weights).double().numpy(), 3, axis=1)  # (layers, d, d) each
    layers, d, _ = Q.shape
    shape = layers, heads, d // heads, d
    return K.reshape(shape), Q.reshape(shape)


def _norms(K, Q):
    """N(W) of W = K^T Q / sqrt(d_h) in NORMS, (..., norms); K, Q (..., d_h, d).

    Of the sign norm the bound sqrt(d_h) max |K| max |Q|: at d = 48 the sign vectors are too many.
    """
    W, root = _product(K, Q), math.sqrt(K.shape[-2])
    whole = [svm.norm_of(W, norm) for norm in WHOLE.values()]
    return np.stack([*whole, root * np.abs(K).max((-2, -1)) * np.abs(Q).max((-2, -1))], -1)


def read(network: VisionTransformer, pictures: Tensor, quantile: float = QUANTILE) -> MarginReading:
    """The `MarginReading` of a network on standardised pictures (b, channels, s, s)."""
    K, Q = _factors(network)
    W = _product(K, Q)
    low, least, scale = (np.zeros(K.shape[:2]) for _ in range(3))
    for layer, entered in enumerate(_entrances(network, pictures)):
        x = entered.double().numpy()
        scale[layer] = (x**2).sum(-1).mean()
        for head in range(K.shape[1]):
            logits = np.sort(x @ W[layer, head].T @ np.swapaxes(x, 1, 2), -1)  # (b, query, token)
            leads = logits[..., -1] - logits[..., -2]
            low[layer, head], least[layer, head] = np.quantile(leads, quantile), leads.min()
    ratio = (low / scale)[..., None] / _norms(K, Q)
    return MarginReading(ratio=ratio, quantile=low, least=least, K=K, Q=Q)


def moved(before: MarginReading, after: MarginReading) -> float:
    """Median over layers and heads of ||W - W_0||_F / ||W_0||_F."""
    size = np.linalg.norm(before.W, axis=(-2, -1))
    return float(np.median(np.linalg.norm(after.W - before.W, axis=(-2, -1)) / size))
