"""Several heads, a W each: the law of the margins with one normalisation for all, and one per head.

f_i = sum_h f_{h,i}, so |l'_i| is that of the sum, and kappa_{h,m} = |l'_i| Delta_{h,m}. One common
normalisation descends on (W_1, ..., W_H) as one parameter: its SVM separates into blocks, all heads
have margin level a_t, and ||W_h|| stands in the ratio of the SVM norms. One normalisation per head
makes the norms equal. A head's own offsets, less their mean, do not depend on which.

Heads may share opt tokens: their constraints lie in blocks of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib.attention import coordinates, model, tokens
from lib.attention.token_sets import TokenSet
from lib.seeds import stream
from lib.svm.max_margin import token_svm
from papers.beyond.joint_law import score_gaps
from papers.beyond.margin_law import MarginLaw, margin_law
from papers.beyond.margin_law_premises import SATURATED
from papers.beyond.margin_slopes import PremiseFails, saturated_slopes

SETTLED = 1e-6  # largest e^{-rate a_t} that counts as settled


def three_heads(seeds: Sequence[int], n: int = 6, T: int = 4, d: int = 400) -> list[TokenSet]:
    """Three fixed heads on the same Gaussian tokens, each with opt tokens and scores of its own.

    The third head shares the opt tokens of the first, which are twice as long. All scores differ:
    opt tokens score 0.5 to 1.5, the others -0.5 to 0.3. One TokenSet a head: same X, y, z. Needs n
    T <= d.
    """
    base = tokens.gaussian_tokens(seeds, n=n, T=T, d=d, signal=2.0)
    second, heads = np.empty_like(base.opt), np.empty((3, *base.u.shape))
    for run, seed in enumerate(seeds):
        draw = stream(seed, "heads")
        second[run] = draw.integers(0, T, n)
        for h, opt in enumerate((base.opt[run], second[run], base.opt[run])):
            scores = draw.uniform(-0.5, 0.3, (n, T))
            scores[np.arange(n), opt] = draw.uniform(0.5, 1.5, n)
            wanted = (base.y[run, :, None] * scores).ravel()
            rows = base.X[run].reshape(n * T, d)
            heads[h, run] = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    opts = base.opt, second, base.opt
    return [replace(base, u=u, opt=opt) for u, opt in zip(heads, opts, strict=True)]


@dataclass(frozen=True, kw_only=True)
class HeadLaw:
    """The laws of all heads, h leading, and the heads in minimal coordinates.

    mean (H, runs): beta-weighted mean of a head's log(kappa/beta), less that of all heads: how far
    its margins stand from the common level. norm, constant (H, runs): ||W_mm,h|| and C_h.
    """

    heads: list[TokenSet]
    laws: list[MarginLaw]
    mean: np.ndarray
    norm: np.ndarray
    constant: np.ndarray


def predict(heads: Sequence[TokenSet]) -> HeadLaw:
    """The law of heads that each end in their opt tokens; exponential loss, W_0 = 0.

    Raises ValueError where heads do not see the same tokens, PremiseFails as `margin_law` does.
    """
    for h, head in enumerate(heads):
        if not all(np.array_equal(getattr(head, k), getattr(heads[0], k)) for k in ("X", "y", "z")):
            raise ValueError(f"head {h} has other tokens, labels or queries than head 0")
    small = [coordinates.minimal(head).tokens for head in heads]
    slopes = [saturated_slopes(head) for head in small]  # log |l'| of one head alone + log gap
    own = [_opt_scores(head) for head in small]  # -log |l'| of one head alone, (runs, n, 1)
    slopes = [slope + score - sum(own) for slope, score in zip(slopes, own, strict=True)]
    laws = [
        margin_law(head, token_svm(head), log_slopes=slope)
        for head, slope in zip(small, slopes, strict=True)
    ]
    sums = np.zeros((2, len(heads), len(small[0].y)))
    for h, (law, slope) in enumerate(zip(laws, slopes, strict=True)):
        beta = np.where(law.support, law.duals, 0.0)
        ratio = np.where(law.support, slope - np.log(np.where(law.support, beta, 1.0)), 0.0)
        sums[:, h] = (beta * ratio).sum((1, 2)), beta.sum((1, 2))
    whole = sums[0].sum(0) / sums[1].sum(0)
    return HeadLaw(
        heads=small,
        laws=laws,
        mean=sums[0] / sums[1] - whole,
        norm=np.stack([law.norm for law in laws]),
        constant=np.stack([law.constant for law in laws]),
    )


def _opt_scores(head):
    return np.take_along_axis(model.scores(head, head.u), head.opt[..., None], -1)  # (runs, n, 1)


@dataclass(frozen=True, kw_only=True)
class HeadRuns:
    """Trained heads at the end: norm, error, level (H, runs): ||W_h||, direction error, a_h.

    common: one normalisation for all. whole (runs,): the level of all heads together. refusals: run
    -> which premise it fails; such a run is in no claim.
    """

    of: HeadLaw
    common: bool
    norm: np.ndarray
    error: np.ndarray
    level: np.ndarray
    whole: np.ndarray
    refusals: dict[int, str]

    @property
    def kept(self) -> np.ndarray:
        """Which runs meet the premises, (runs,)."""
        return np.array([run not in self.refusals for run in range(self.norm.shape[1])])


def train(of: HeadLaw, step_size: float, steps: int, common: bool) -> HeadRuns:
    """NGD on all W_h from zero, normalised together (`common`) or each by itself.

    On the margins, in logarithms up to one factor a normalisation, so exact at any horizon. Runs
    that have not selected or not settled are named in `refusals`: how far, how many steps more.
    """
    delta = [coordinates.differences(head, head.opt) for head in of.heads]
    K = np.stack([coordinates.gram(d, h.z) for d, h in zip(delta, of.heads, strict=True)])
    own = np.stack([_opt_scores(head) for head in of.heads])
    gaps = np.stack([score_gaps(head, head.u) for head in of.heads])
    alpha = np.zeros((*gaps.shape[:2], K.shape[-1]))  # (H, runs, m)
    g = np.zeros_like(alpha)
    axes = (0, 2, 3) if common else (2, 3)
    for _ in range(steps):
        log_odds = -g.reshape(gaps.shape)
        log_p = log_odds - np.logaddexp(0.0, np.logaddexp.reduce(log_odds, -1))[..., None]
        lag = (np.exp(log_p) * gaps).sum(-1, keepdims=True)  # gamma_opt - f, (H, runs, n, 1)
        log_l = (lag - own).sum(0, keepdims=True)
        scale = log_p + log_l
        c = np.exp(scale - scale.max(axes, keepdims=True)) * (gaps - lag)
        c = c.reshape(alpha.shape)
        pulled = (K @ c[..., None])[..., 0]
        square = (c * pulled).sum(-1, keepdims=True)
        length = np.sqrt(square.sum(0, keepdims=True) if common else square)
        alpha, g = alpha + step_size * c / length, g + step_size * pulled / length
    return _measure(of, K, alpha, g, common, steps)


def _measure(of, K, alpha, g, common, steps):
    beta = np.stack([law.duals.reshape(len(K[0]), -1) for law in of.laws])
    square = of.norm**2
    level = (beta * g).sum(-1) / square  # <W_h, W_mm,h> / ||W_mm,h||^2
    apart = alpha - level[..., None] * beta
    off = np.sqrt(np.einsum("hrm,hrmk,hrk->hr", apart, K, apart).clip(0))
    along = level * of.norm
    return HeadRuns(
        of=of,
        common=common,
        norm=np.hypot(along, off),
        error=2 * np.sin(np.arctan2(off, along) / 2),
        level=level,
        whole=(level * square).sum(0) / square.sum(0),
        refusals=_refusals(of, level, g, steps),
    )


def _refusals(of, level, margins, steps):
    """Run -> what is missing, from level (H, runs) and margins (H, runs, m) at the end."""
    found = {}
    left = np.stack([law.remaining(a) for law, a in zip(of.laws, level, strict=True)])
    for run in range(margins.shape[1]):
        least, rest = margins[:, run].min(-1), left[:, run].max()
        if least.min() < SATURATED:
            said = f"head {least.argmin()}: the smallest margin is {least.min():.2g}"
            said = f"{said}, it needs {SATURATED:g}"
            refused = PremiseFails("selection made", run, least.min(), said)
        elif rest > SETTLED:
            more = steps * (np.log(SETTLED) / np.log(rest) - 1) if rest < 1 else np.inf
            said = f"wrong offsets have decayed to {rest:.1e}, they need {SETTLED:.0e}"
            head = left[:, run].argmax()
            said = f"head {head}: {said}: about {more:.2g} steps more"
            refused = PremiseFails("long enough", run, rest, said)
        else:
            continue
        found[run] = str(refused)
    return found
