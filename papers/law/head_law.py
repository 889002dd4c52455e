"""The law of the margins for several heads, each of which has its own matrix W_h.

The output is f_i = sum_h f_{h,i}. So |l'_i| is evaluated at this sum, and kappa_{h,m} =
|l'_i| Delta_{h,m}. If the gradients of all heads are divided by one common norm, all
heads have the same margin level a_t, and the norms ||W_h|| have the ratios of the SVM
norms. If the gradient of each head is divided by its own norm, the norms ||W_h|| are
equal. The offsets of a head, minus their mean, are the same in either case. Heads may
share opt tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from companion.claims import Claim
from lib.attention import TokenSet, coordinates, scores, tokens
from lib.seeds import stream
from lib.svm import token_svm
from papers import saturation
from papers.law import margin_law as law_of
from papers.law.margin_law import MarginLaw, PremiseFails, margin_law, require
from papers.law.tolerances import SATURATED, SETTLED_HEADS
from papers.ours import claim
from papers.saturation import saturated_slopes


def _head_with_scores(X: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the shortest u (d,) with x_{i,t}^T u = wanted (n, T), for tokens X (n, T,
    d).

    This requires linearly independent tokens; otherwise u is a least-squares solution.
    """
    rows = X.reshape(-1, X.shape[-1])
    return np.linalg.lstsq(rows, wanted.ravel(), rcond=None)[0]


def three_heads(
    seeds: Sequence[int], n: int = 6, T: int = 4, d: int = 400
) -> list[TokenSet]:
    """Return three heads on the same Gaussian tokens, each as a TokenSet.

    The opt tokens of the first head are twice as long as other tokens. The third head
    has the same opt tokens as the first; the second head has different ones. Opt tokens
    have scores from 0.5 to 1.5, and other tokens from -0.5 to 0.3. The scores are drawn
    anew for each head.
    """
    base = tokens.gaussian_tokens(seeds, n=n, T=T, d=d, signal=2.0)
    u = np.empty((3, *base.u.shape))
    opt = np.stack([base.opt, base.opt, base.opt])
    samples = np.arange(n)
    for run, seed in enumerate(seeds):
        draw = stream(seed, "heads")
        # Only the second head, of index 1, has its own opt tokens.
        opt[1, run] = draw.integers(0, T, n)
        for head in range(3):
            scores_wanted = draw.uniform(-0.5, 0.3, (n, T))
            scores_wanted[samples, opt[head, run]] = draw.uniform(0.5, 1.5, n)
            # The score of a token is y_i x^T u, and y_i = 1 / y_i.
            outputs_wanted = base.y[run, :, None] * scores_wanted
            u[head, run] = _head_with_scores(base.X[run], outputs_wanted)
    return [replace(base, u=u[head], opt=opt[head]) for head in range(3)]


@dataclass(frozen=True)
class _HeadLaw:
    """The laws of all heads, in minimal coordinates. The first axis of an array is the
    head.
    """

    heads: list[TokenSet]
    laws: list[MarginLaw]
    # (H, runs): the beta-weighted mean of log(kappa/beta), minus the mean over all
    # heads
    mean: np.ndarray
    norm: np.ndarray  # (H, runs) ||W_mm,h||
    constant: np.ndarray  # (H, runs) C_h


def predict(heads: Sequence[TokenSet]) -> _HeadLaw:
    """Compute the law for heads that start at W_0 = 0 and end at their opt tokens.

    The loss is exponential. The function raises ValueError if the heads do not have the
    same tokens, labels, queries and mask, PremiseFails in the cases in which
    `margin_law` does, and Infeasible if no W selects the opt tokens of a head.
    """
    for h, head in enumerate(heads):
        if not _sees_the_same(head, heads[0]):
            raise ValueError(
                f"head {h} has other tokens, labels, queries or another mask "
                "than head 0"
            )
    small = [coordinates.minimal(head).tokens for head in heads]
    # The value that -log |l'| would have if this were the only head, (runs, n, 1).
    opt = [_opt_scores(head) for head in small]
    laws = []
    sums = np.zeros((2, len(heads), len(small[0].y)))
    for h, head in enumerate(small):
        # log kappa is log |l'| at the sum of all heads, plus the logarithm of this
        # head's score gap.
        slope = saturated_slopes(head) + opt[h] - sum(opt)
        law = margin_law(head, token_svm(head), log_slopes=slope)
        beta = np.where(law.support, law.duals, 0.0)
        ratio = np.where(
            law.support, slope - np.log(np.where(law.support, beta, 1.0)), 0.0
        )
        sums[:, h] = (beta * ratio).sum((1, 2)), beta.sum((1, 2))
        laws.append(law)
    whole = sums[0].sum(0) / sums[1].sum(0)
    norm, constant = (
        np.stack([getattr(law, k) for law in laws]) for k in ("norm", "constant")
    )
    return _HeadLaw(
        heads=small,
        laws=laws,
        mean=sums[0] / sums[1] - whole,
        norm=norm,
        constant=constant,
    )


def _sees_the_same(head: TokenSet, first: TokenSet) -> bool:
    """Return whether two heads have the same tokens, labels, queries and mask."""
    alike = [
        np.array_equal(getattr(head, name), getattr(first, name))
        for name in ("y", "z", "mask")
    ]
    if not all(alike):
        return False
    # Masked tokens are filled with the opt token, which can differ between heads.
    shown = slice(None) if head.mask is None else head.mask
    return np.array_equal(head.X[shown], first.X[shown])


def _opt_scores(head: TokenSet) -> np.ndarray:
    """Return the scores of the opt tokens of one head.

    The result has the shape (runs, n, 1).
    """
    return np.take_along_axis(scores(head, head.u), head.opt[..., None], -1)


@dataclass(frozen=True, kw_only=True)
class HeadRuns:
    """Trained heads at the end of their runs.

    The claims leave out runs for which a premise of the law fails.
    """

    law: _HeadLaw
    common: bool  # whether the gradients of all heads are normalised together
    norm: np.ndarray  # (H, runs) ||W_h||
    error: np.ndarray  # (H, runs) direction error
    level: np.ndarray  # (H, runs) a_h
    whole: np.ndarray  # (runs,) the common level of all heads
    refusals: dict[int, str]  # the premise that a run violates, by run

    @property
    def kept(self) -> np.ndarray:
        """Return, for each run, whether it meets the premises of the law.

        The result has the shape (runs,).
        """
        return np.array([run not in self.refusals for run in range(self.norm.shape[1])])


def train(law: _HeadLaw, step_size: float, steps: int, common: bool) -> HeadRuns:
    """Train all heads by NGD from W_h = 0, with the margins of all pairs as variables.

    If `common`, the gradients of all heads are divided by one common norm, and the step
    of all heads together has the length `step_size`. Otherwise the gradient of each
    head is divided by its own norm, and the step of each head has this length. The loss
    is exponential.
    """
    K = np.stack([law_of.gram(head, masked_as_zero=True) for head in law.heads])
    opt = np.stack([_opt_scores(head) for head in law.heads])
    gaps = np.stack([saturation.score_gaps(head, head.u) for head in law.heads])
    # A masked token has an infinite margin, so that its weight is zero whatever its gap
    # is.
    shown = np.isfinite(gaps)
    gaps = np.where(shown, gaps, 0.0)
    shown = shown.reshape(*gaps.shape[:2], K.shape[-1])
    alpha = np.zeros(shown.shape)
    g = np.where(shown, 0.0, np.inf)
    axes = (0, 2, 3) if common else (2, 3)
    for _ in range(steps):
        log_odds = -g.reshape(gaps.shape)
        log_p = (
            log_odds - np.logaddexp(0.0, np.logaddexp.reduce(log_odds, -1))[..., None]
        )
        # gamma_opt - f, (H, runs, n, 1)
        lag = (np.exp(log_p) * gaps).sum(-1, keepdims=True)
        scale = log_p + (lag - opt).sum(0, keepdims=True)  # log of p |l'|
        c = np.exp(scale - scale.max(axes, keepdims=True)) * (gaps - lag)
        c = c.reshape(alpha.shape)
        pulled = (K @ c[..., None])[..., 0]
        square = (c * pulled).sum(-1, keepdims=True)
        length = np.sqrt(square.sum(0, keepdims=True) if common else square)
        alpha = alpha + step_size * c / length
        g = g + step_size * pulled / length
    beta = np.stack([head.duals.reshape(len(K[0]), -1) for head in law.laws])
    square = law.norm**2
    # <W_h, W_mm,h> / ||W_mm,h||^2
    level = (beta * np.where(shown, g, 0.0)).sum(-1) / square
    apart = alpha - level[..., None] * beta
    off = np.sqrt(np.einsum("hrm,hrmk,hrk->hr", apart, K, apart).clip(0))
    along = level * law.norm
    return HeadRuns(
        law=law,
        common=common,
        norm=np.hypot(along, off),
        error=2 * np.sin(np.arctan2(off, along) / 2),
        level=level,
        whole=(level * square).sum(0) / square.sum(0),
        refusals=_refusals(law, level, g, steps),
    )


def _refusals(
    law: _HeadLaw, level: np.ndarray, g: np.ndarray, steps: int
) -> dict[int, str]:
    """Return, by run and in words, the first premise that the run violates.

    `level` (H, runs) and the margins `g` (H, runs, m) belong to the last record, and
    `steps` is the number of steps that were made. A run without an entry meets all
    premises.
    """
    refusals = {}
    remaining = np.stack(
        [head.remaining(a) for head, a in zip(law.laws, level, strict=True)]
    )
    for run in range(g.shape[1]):
        # The smallest margin over the pairs, for each head.
        smallest = g[:, run].min(-1)
        head, least = smallest.argmin(), smallest.min()
        slowest, most = remaining[:, run].argmax(), remaining[:, run].max()
        # The fraction of the error of the offsets that remains is e^{-rate a_t}, and
        # a_t grows like t.
        more = np.inf
        if 0 < most < 1:
            more = steps * (np.log(SETTLED_HEADS) / np.log(most) - 1)
        too_small = (
            f"head {head}: the smallest margin is {least:.2g}, it needs {SATURATED:g}"
        )
        too_short = (
            f"head {slowest}: wrong offsets have decayed to {most:.1e}, they need "
            f"{SETTLED_HEADS:.0e}: about {more:.2g} steps more"
        )
        try:
            require(least >= SATURATED, "selection made", least, too_small, run)
            require(most <= SETTLED_HEADS, "long enough", most, too_short, run)
        except PremiseFails as why:
            refusals[run] = str(why)
    return refusals


def ratios(norm: np.ndarray) -> np.ndarray:
    """Return ||W_h||/||W_1|| of all heads after the first, an array (H - 1, runs), from
    the norms (H, runs).
    """
    return norm[1:] / norm[:1]


def _at_level(runs: HeadRuns) -> np.ndarray:
    """Return the predicted ||W_h|| (H, runs) at the measured common level.

    We assume that every constraint is tight, so that the level of a head is the common
    level plus the head's mean offset.
    """
    along = runs.law.norm * (runs.whole + runs.law.mean)
    return np.hypot(along, runs.law.constant)


def head_claims(common: HeadRuns, each: HeadRuns) -> list[Claim]:
    """Check the norms ||W_h|| of the heads, and the constants C_h.

    If the gradients of all heads are divided by one common norm (`common`), the norms
    ||W_h|| must have the ratios of the SVM norms. If each gradient is divided by its
    own norm (`each`), the norms ||W_h|| must be equal. In either case C_h must be as
    predicted.
    """
    limit = (ratios(common.norm) / ratios(common.law.norm) - 1)[:, common.kept]
    level = (ratios(common.norm) / ratios(_at_level(common)) - 1)[:, common.kept]
    equal = (ratios(each.norm) - 1)[:, each.kept]
    both, alone = (r.norm * r.error / r.law.constant - 1 for r in (common, each))
    return [
        claim("heads.common", limit),
        claim("heads.level", level),
        claim("heads.each", equal),
        claim("heads.constant", both[:, common.kept], "common", "together"),
        claim("heads.constant", alone[:, each.kept], "each", "each"),
    ]
