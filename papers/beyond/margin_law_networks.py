"""What the law of the margins says where more than W is trained: the head as well, or a network.

With the head, kappa_m = |l'_i| Delta_m moves; its limit is known, from the duals of both SVMs
(`margin_slopes.joint_slopes`). In a network tokens move too, and nothing is claimed: `read`
says how far the class token's attention is from what the law needs.
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
from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.data import images
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import GradientRule
from lib.networks import VisionTransformer
from lib.svm.max_margin import Infeasible, head_svm, token_svm
from lib.training.loop import initialised
from lib.training.rules import NormalizedSGD
from papers.beyond import margins as measure
from papers.beyond.margin_law import MarginLaw, margin_law
from papers.beyond.margin_law_premises import SATURATED
from papers.beyond.margin_slopes import joint_slopes, saturated_slopes

OURS = "ours, beyond paper A's Theorem 1"
JOINT = 1e-3  # largest error of an offset, which falls like 1/t only: the head turns that slowly
FORGOTTEN = 0.1  # and with the start's head in place of the limit's it is at least this


@dataclass(frozen=True, kw_only=True)
class Joint:
    """A layer whose head was trained with it: errors of the offsets (runs, records), support only.

    errors: the largest, with the kappa of both SVMs; fixed: the same with the kappa of the head
    that the run started from; law: that of both SVMs. plain and difference (runs,): direction error
    of the last W_t, and of its difference to the record before.
    """

    iterations: np.ndarray
    errors: np.ndarray
    fixed: np.ndarray
    law: MarginLaw
    plain: np.ndarray
    difference: np.ndarray


def joint(tokens: TokenSet, rule: GradientRule, records: Sequence[int]) -> Joint:
    """Train head and W together from u_0 = `tokens.u`; records: ascending iterations, two or more.

    Raises PremiseFails as `margin_law` and `joint_slopes` do.
    """
    problem = coordinates.minimal(tokens)
    data = problem.tokens
    history = train(problem, rule, records[-1], records, head="joint")
    selected = measure.selection(history, data.opt)
    solution, head = token_svm(data, selected), head_svm(data, selected)
    both = joint_slopes(data, head, selected)
    law = margin_law(data, solution, selected, log_slopes=both)
    start = saturated_slopes(data, selected)
    fixed = margin_law(data, solution, selected, log_slopes=start)
    margins = measure.relative_margins(history, data.opt, selected)
    W = [history.weights(k) for k in range(len(records))]
    level = [measure.along_and_off(w, solution.W)[0] / law.norm for w in W]
    level = np.stack(level, 1)  # (runs, records)
    off = margins - level[..., None, None]
    errors, wrong = (np.nanmax(np.abs(off - o.offsets[:, None]), (2, 3)) for o in (law, fixed))
    step = measure.difference(history, -2, -1)
    return Joint(
        iterations=np.asarray(records),
        errors=errors,
        fixed=wrong,
        law=law,
        plain=measure.direction_error(W[-1], solution.W),
        difference=measure.direction_error(step, solution.W),
    )


def joint_claims(found: Joint) -> list[Claim]:
    """The law with kappa from both SVMs, its order in t, and that the start's head would not do."""
    halved = np.log(found.errors[:, -1] / found.errors[:, -2])
    order = halved / np.log(found.iterations[-1] / found.iterations[-2])
    right = "head trained too: largest error of an offset, kappa of both SVMs"
    wrong = "head trained too: least error of the largest offset, kappa of the starting head"
    bent = "head trained too: exponent of that error in t"
    return [
        at_most("law.joint", right, OURS, found.errors[:, -1].max(), JOINT),
        close("law.joint_order", bent, OURS, furthest(order, -1.0), -1.0, 0.02),
        at_least("law.joint_head", wrong, OURS, found.fixed[:, -1].min(), FORGOTTEN),
    ]


@dataclass(frozen=True, kw_only=True)
class LawReading:
    """What the class token's attention in the last block shows.

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
    found = images.load("mnist", "train", demo=True, rows=rows)
    pictures, labels = found.standardise()(found.images), found.labels.long()
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


def attended(network: VisionTransformer, pictures, labels):
    """What the last block of `network` computes with, the loss and its slope, in float64.

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
    arrays = (v.detach().double().numpy() for v in (x, W, logits, logits.grad))
    x, W, logits, slope = arrays
    return x, W, logits, loss.item(), slope


def read(network: VisionTransformer, pictures, labels) -> tuple[LawReading, np.ndarray]:
    """The `LawReading` of a network's last block, and its W (d, d)."""
    x, W, logits, loss, slope = attended(network, pictures, labels)
    selected, z = logits.argmax(-1), x[:, 0]
    place = coordinates.others(selected[None], logits.shape[-1])[0]
    own = np.take_along_axis(logits, selected[:, None], -1)
    margins = own - np.take_along_axis(logits, place, -1)  # (n, T-1)
    pulls = np.take_along_axis(slope, place, -1)  # -dL/dmargin: > 0 where the margin is raised
    pulled = -np.einsum("nt,ntd,ne->de", slope, x, z)
    cosine = np.vdot(pulled, W) / (np.linalg.norm(pulled) * np.linalg.norm(W))
    data = attention.token_set(x, np.ones(len(x)), z, np.zeros(x.shape[-1]), selected)
    rank, refusal = _against_duals(data, pulls)
    least = margins.min()
    if not refusal and least < SATURATED:
        refusal = f"the smallest margin is {least:.2g}, the law needs {SATURATED:g}"
    largest = np.exp(logits - np.logaddexp.reduce(logits, -1, keepdims=True)).max(-1)
    reading = LawReading(
        loss=loss,
        weight=float(np.median(largest)),
        least_margin=float(least),
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
