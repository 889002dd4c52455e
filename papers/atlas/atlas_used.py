"""The atlas under practical conditions: weight decay, rules that have their own norm,
variance reduction, and rotated factors.

Decoupled weight decay lambda keeps N(W) <= 1/lambda, where N is the norm of the rule's
step. A run converges to the W in this ball at which log sum_m kappa_m e^{-g_m} is
smallest, with the margins g_m and the weights kappa_m of `saturation`. By duality g_m =
gamma_N / lambda + a_m. Here a_m = log(kappa_m / beta_m) minus its beta-weighted mean,
and beta are the duals of the token SVM in N. To first order 1 - ratio = -min_m a_m
lambda / gamma_N (our result).

A rule whose divisors converge, so that D = H^{-1} G, is gradient descent in the norm
N(W)^2 = <W, H W>. The largest margin in this norm is 1 / ||V||_F, where V is the
shortest vector with <H^{-1/2} A_m, V> >= 1. For AdaGrad H = diag(sqrt v), where v is
the sum of G^2 (Qian and Qian, 1906.03559). For Adam on single samples H = diag(s)
(Baek, Song and Yun, 2510.26303, for linear models). For Shampoo with sums H W = L^{1/4}
W R^{1/4}, and for SOAP the norm is l_inf of Q_L^T W Q_R (the last two are our results).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import nnls

from companion.claims import Claim
from lib import dynamics, svm
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from lib.dynamics.in_coordinates import factored
from lib.seeds import stream
from papers import saturation
from papers.atlas import atlas, atlas_rules, factored_atlas
from papers.atlas.atlas_rules import GAMMA, GROWTH, OURS, TENTH, Row, atlas_claim, step
from papers.ours import BOUNDS, claim

ADAMW = "arXiv 2404.04454, any loss"  # Xie and Li
LION_K = "arXiv 2506.15054, any loss"  # Chen, Li and Liu
# The rows of the atlas whose rules have their own norm, and who predicts this norm.
OWN_SOURCES = {
    "Adam, 0.999, per sample": "ours, measured; predicted by arXiv 2510.26303 "
    "for linear models",
    "AdaGrad": "ours, measured; predicted by arXiv 1906.03559 for linear models",
    "Shampoo, sums": "ours",
    "SOAP": "ours",
}
QUICK = 2 * GROWTH  # the growth of margins per step under weight decay
# The largest margins that the decays allow, gamma_N / lambda. These are margins and not
# norms: weight decay keeps N(W) <= 1 / lambda, and in this ball no margin is larger
# than gamma_N / lambda. For gamma_N we take the typical value, GAMMA.
ALLOWED = (1, 3, 10, 30, 100)
# AdamW with the long memory 0.999, so that sqrt(v) decays by only 0.0005 per step.
SLOW = "AdamW, 0.999, 100"
# An eigenvalue or entry below this share of the largest one counts as zero.
FLOOR = 1e-12
# The fixed point has converged if the relative change of s is at most this.
CONVERGED = 1e-9
GAP = 1e-7  # largest relative duality gap of a shortest vector


@dataclass(frozen=True)
class _Decayed:
    """A rule under weight decay.

    `norm` is the norm of the rule's steps, `source` says who proved that the rule stays
    in the ball, and `of` returns the rule for a step size. The step size of the rule is
    divided by `slower`.
    """

    norm: str
    source: str
    of: Callable[..., dynamics.Rule]
    slower: int = 1

    def row(self, allowed: float) -> Row:
        """Return the rule with the decay that allows margins up to `allowed`, assuming
        that the largest margin of a W of norm 1 is the value in GAMMA.

        The number of steps is so large that the start no longer matters at the end.
        """
        gamma = GAMMA[self.norm]
        rule = replace(
            self.of(QUICK / self.slower / gamma), weight_decay=gamma / allowed
        )
        steps = self.slower * max(5_000, int(12 * allowed / QUICK))
        return Row(rule, None, self.norm, steps, self.source)


DECAYED = {
    "GD": _Decayed(
        norm="Frobenius", source=OURS, of=partial(dynamics.SteepestDescent, 2)
    ),
    "sign": _Decayed(norm="l_inf", source=LION_K, of=dynamics.SignDescent),
    "Signum": _Decayed(norm="l_inf", source=LION_K, of=dynamics.Signum),
    "Lion": _Decayed(norm="l_inf", source=LION_K, of=dynamics.Lion, slower=4),
    "AdamW": _Decayed(
        norm="l_inf", source=ADAMW, of=partial(dynamics.Adam, memory=0.95), slower=2
    ),
    "Muon": _Decayed(norm="spectral", source=LION_K, of=dynamics.Muon),
}


def decay_rows() -> dict[str, Row]:
    """Return every rule of DECAYED with every allowed margin in ALLOWED, and the row
    SLOW.

    A name is the rule and the allowed margin, such as "GD, 10".
    """
    rows = {f"{k}, {m}": rule.row(m) for k, rule in DECAYED.items() for m in ALLOWED}
    return rows | {
        SLOW: _Decayed(norm="l_inf", source=ADAMW, of=dynamics.Adam).row(ALLOWED[-1])
    }


def other_rows() -> dict[str, Row]:
    """Return three variance-reduced rules on single samples, and OLion, whose step is
    the sign of a polar factor.
    """
    rules = {
        "NGD": ("Frobenius", 2),
        "sign": ("l_inf", np.inf),
        "polar": ("spectral", "spectral"),
    }
    rows = {}
    for name, (norm, p) in rules.items():
        rule = dynamics.SteepestDescent(
            p, step(norm) / 4, batch_size=1, variance_reduced=True
        )
        rows[f"{name}, variance reduced"] = Row(
            rule, norm, norm, TENTH, atlas_rules.BATCHES
        )
    return rows | {"OLion": Row(dynamics.OLion(step("l_inf")), None, "l_inf", TENTH)}


@dataclass(frozen=True)
class AtRest:
    """The points at which runs under one weight decay have stopped moving.

    All arrays have the shape (runs,).

    Parameters
    ----------
    size : ndarray
        N(W) times the decay, which is 1 on the boundary of the ball.
    missing : ndarray
        The measured 1 - ratio. It is NaN for a run without a selection.
    law : ndarray
        The 1 - ratio that the law predicts. It is NaN for a run without a selection,
        and for a run with a score gap that is not positive.
    selection : ndarray of int (runs, n)
        The selected tokens.
    allowed : ndarray
        gamma_N / decay, the largest margin in the ball. It is NaN for a run without a
        selection, that is, a run that did not complete or that ends with a tie.
    """

    size: np.ndarray
    missing: np.ndarray
    law: np.ndarray
    selection: np.ndarray
    allowed: np.ndarray


def at_rest(row: Row, path: History, best: atlas.BestMargins) -> AtRest:
    """Measure where the runs of a row of `decay_rows` have stopped moving.

    Norms and margins are measured in the norm of the row's steps.
    """
    tokens = best.tokens
    W = path.W[:, -1]
    decay = row.rule.weight_decay
    norm = row.highest
    selection = atlas.selected(tokens, W)
    size = svm.norm_of(W, atlas.NORMS[norm])
    margins = atlas.least_margins(tokens, selection, W[:, None])[:, 0]
    missing, law, allowed = np.full((3, len(W)), np.nan)
    for run in np.flatnonzero((margins > 0) & (path.status == "completed")):
        solution = best.solution(run, selection[run], norm)
        slopes = saturation.saturated_slopes(tokens.run(run), selection[run : run + 1])[
            0
        ]
        on = solution.support[0] & (solution.duals[0] > 0)
        offsets, _ = saturation.log_ratios(slopes[on], solution.duals[0][on])
        missing[run] = 1 - margins[run] * solution.norm[0] / size[run]
        law[run] = -offsets.min() * decay * solution.norm[0]
        allowed[run] = 1 / (solution.norm[0] * decay)
    return AtRest(
        size=size * decay,
        missing=missing,
        law=law,
        selection=selection,
        allowed=allowed,
    )


def decay_claims(ends: Mapping[str, AtRest]) -> list[Claim]:
    """Check that weight decay keeps runs on the boundary of its ball, and that the law
    of the margins holds there.

    There are three kinds of claims:

    * For every rule of DECAYED, N(W) times the decay is 1 with every decay of ALLOWED.
      We measure the largest absolute deviation from 1.
    * With the weakest decay, which allows the largest margin, 1 - ratio has the value
      that the law predicts. We measure the absolute relative deviation for each run.
    * AdamW with the long memory 0.999 (SLOW) must stay inside the ball. We measure N(W)
      times the decay for this rule.

    `ends` has the result of `at_rest` for each row of `decay_rows`.
    """
    claims = []
    for name, rule in DECAYED.items():
        runs = [ends[f"{name}, {m}"] for m in ALLOWED]
        # Unlike max, np.max is NaN if one of the values is. The claim then fails.
        off = np.max([np.abs(end.size - 1).max() for end in runs])
        why = (
            f"A step of {name} can be longer than one, so that 1/decay is no "
            "bound of its norm"
        )
        about = dict(source=f"ours, measured; {rule.source}", why=why)
        claims.append(atlas_claim("decay.norm", off, name, rule.norm, **about))
        off = np.abs(runs[-1].missing / runs[-1].law - 1)
        kept = (off <= BOUNDS["atlas.decay.law"]).sum()
        why = f"Only to first order: {kept} of {len(off)} runs keep to the bound"
        claims.append(atlas_claim("decay.law", off, name, why=why))
    return [*claims, claim("atlas.decay.slow", ends[SLOW].size, "", SLOW)]


def forbidden(ends: Mapping[str, AtRest]) -> dict[str, int]:
    """Count, for each row, the runs in which the decay does not allow a margin of 1, or
    in which no tokens are selected.

    Rows without such runs are left out.
    """
    counts = {name: int((~(end.allowed >= 1)).sum()) for name, end in ends.items()}
    return {name: count for name, count in counts.items() if count}


def selection_claims(by_rule: Mapping[tuple, tuple]) -> list[Claim]:
    """Check that if strong decay makes a run select other tokens than weak decay, the
    tokens selected under strong decay allow a larger margin.

    `by_rule` is the result of `chosen`. The measured value is the share of such runs in
    which this is true. It is NaN if there are no such runs.
    """
    runs, larger = (sum(counts[k] for counts in by_rule.values()) for k in (2, 3))
    share = larger / runs if runs else np.nan
    why = (
        f"Refuted: {runs - larger} of these runs select tokens of less margin; "
        "why is not shown"
    )
    return [claim("atlas.decay.selection", share, "", runs, why=why)]


def chosen(ends: Mapping[str, AtRest]) -> dict[tuple, tuple]:
    """Compare the tokens selected under each decay with those selected under the
    weakest decay.

    The function returns four counts by (rule, allowed margin): the samples in which
    another token is selected, all samples, the runs with such a sample, and the runs
    among these in which the tokens selected under the strong decay have the larger
    gamma_N. A run without a selection under the strong decay counts as having no sample
    with another token. The counted runs also have a selection under the weakest decay.
    """
    counts = {}
    for name, m in product(DECAYED, ALLOWED[:-1]):
        weak = ends[f"{name}, {ALLOWED[-1]}"]
        strong = ends[f"{name}, {m}"]
        other = (strong.selection != weak.selection) & np.isfinite(strong.allowed)[
            :, None
        ]
        larger = strong.allowed * (ALLOWED[-1] / m) > weak.allowed
        runs = other.any(1) & np.isfinite(weak.allowed)
        samples = int(other.sum()), other.size
        counts[name, m] = *samples, int(runs.sum()), int(larger[runs].sum())
    return counts


def turns(seeds: Sequence[int], columns: int) -> np.ndarray:
    """Return a random orthogonal matrix for each seed.

    The result has the shape (runs, columns, columns).
    """
    drawn = [
        stream(seed, "draws").standard_normal((columns, columns)) for seed in seeds
    ]
    return np.stack([np.linalg.qr(M)[0] for M in drawn])


def turned_back(
    tokens: TokenSet,
    seeds: Sequence[int],
    steps: int,
) -> dict:
    """Measure by how much a rotation of the factors changes the trained W.

    W is trained from (K, Q), and W' from (K R, Q R), where R is the orthogonal matrix
    of `turns`. The function returns, by rule, ||W' - W||/||W|| (runs,) after `steps`
    steps, in the Frobenius norm.
    """
    K, Q = factored.small_start(tokens, seeds, factored_atlas.COLUMNS, size=1.0)
    R = turns(seeds, K.shape[-1])
    rules = {name: row.rule for name, row in factored_atlas.rows().items()}
    plain = {
        "GD": dynamics.SteepestDescent(2, 0.05, normalised=False),
        "NGD": rules.pop("gradient descent"),
    }
    starts = (K, Q), (K @ R, Q @ R)
    W, turned = (
        factored.train(tokens, plain | rules, *start, [steps]) for start in starts
    )

    def length(W: np.ndarray):
        return np.linalg.norm(W[:, -1], axis=(1, 2))

    return {name: length(turned[name].W - W[name].W) / length(W[name].W) for name in W}


def gauge_claims(moved: Mapping[str, np.ndarray]) -> list[Claim]:
    """Check that rotated factors lead to the same W under GD, NGD and polar steps, and
    under no other rule.
    """
    why = "{:.0e} in the best run: rounding grows along some runs"
    return [
        atlas_claim("gauge", x, name, why=why.format(x.min()))
        for name, x in moved.items()
    ]


def own_claims(
    own: Mapping[str, np.ndarray],
    by_rule: Mapping[str, atlas.Ratios],
    residuals: Mapping[str, np.ndarray],
) -> list[Claim]:
    """Check that rules reach the largest margin in their own norms.

    For Adam on single samples, we measure the ratio in its own norm. For every other
    rule, we measure the share of runs in which the ratio in its own norm is larger than
    the ratios in all seven norms. `own` has the ratios (runs,) in the rules' own norms,
    `by_rule` has those in the seven norms, and `residuals` has the residuals of
    `own_ratios`. A remark names the runs whose fixed point has not converged.
    """
    claims = []
    for name, value in own.items():
        if "per sample" in name:
            measured = value
            bound = BOUNDS[f"atlas.own_norm.{atlas_rules.word(name)}"]
            why = f"{(value >= bound).sum()} of {len(value)} runs reach it"
        else:
            above = value > by_rule[name].last.max(1)
            measured = above.mean()
            why = (
                f"In {(~above).sum()} of {len(above)} runs one of the seven "
                "norms is above it"
            )
        why += f", after {by_rule[name].iterations[-1]:,} steps"
        open_points = unconverged(residuals[name])
        if open_points:
            why += f"; {open_points}"
        about = dict(source=OWN_SOURCES[name], remark=open_points, why=why)
        claims.append(atlas_claim("own_norm", measured, name, **about))
    return claims


def unconverged(residuals: np.ndarray) -> str:
    """Say in how many runs the iteration of `_fixed_point` has not converged, or return
    "" if there is no such run.

    `residuals` (runs,) are those of `own_ratios`. A run without a selection does not
    count.
    """
    beyond = int((residuals > CONVERGED).sum())
    if not beyond:
        return ""
    furthest = np.nanmax(residuals)
    return (
        f"the fixed point has not converged in {beyond} of {len(residuals)} runs, in "
        f"which the last iteration changes s by up to a relative {furthest:.1e}"
    )


def _shortest(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest V (k,) with rows V >= 1, for `rows` (m, k), and the duals
    (m,) of V, which are at least 0.

    The function raises RuntimeError if the accuracy GAP is not reached, for example
    because no V exists.
    """
    scale = np.linalg.norm(rows, axis=1).max()
    scaled = rows / scale
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    weights, _ = nnls(
        np.vstack([scaled.T, np.ones(len(rows))]), target, maxiter=10 * rows.size
    )
    V = scaled.T @ weights
    smallest = (scaled @ V).min()
    square = V @ V
    if not smallest >= (1 - GAP) * square / weights.sum():
        raise RuntimeError(
            "no shortest vector to the accuracy asked for: not separable?"
        )
    return V / (smallest * scale), weights / (smallest * scale**2)


def _fixed_point(
    A: np.ndarray, sample: np.ndarray, most: int = 300
) -> tuple[np.ndarray, float, int]:
    """Find Adam's s (d, d_z) on single samples, by iteration.

    s solves s = sqrt(sum_i (sum_t beta_it A_it)^2) up to scale. A (m, d, d_z) are the
    features of all pairs (i, t), `sample` (m,) is the index i of each pair, and beta
    are the duals of the shortest vector for s. The function returns s, the relative
    change of s in the last iteration, and the number of iterations, which is at most
    `most`.
    """
    s = np.ones(A.shape[1:])
    flat = A.reshape(len(A), -1)
    of_sample = [np.flatnonzero(sample == i) for i in np.unique(sample)]
    residual = np.inf
    steps = 0
    while residual > CONVERGED and steps < most:
        _, duals = _shortest((A / np.sqrt(s)).reshape(-1, s.size))
        pulls = np.stack([np.einsum("m,mk->k", duals[m], flat[m]) for m in of_sample])
        new = np.sqrt((pulls**2).sum(0)).reshape(s.shape)
        new = np.sqrt(s * np.maximum(new, FLOOR * new.max()))
        new /= np.sqrt((new**2).mean())
        residual = float(np.abs(new / s - 1).max())
        s = new
        steps = steps + 1
    return s, residual, steps


def _power(M: np.ndarray, exponent: float):
    """Return M^exponent for a symmetric positive semidefinite M (d, d).

    Eigenvalues that are zero up to rounding stay zero, even for a negative exponent.
    """
    values, vectors = np.linalg.eigh(M)
    kept = values > FLOOR * values[-1]
    return (vectors[:, kept] * values[kept] ** exponent) @ vectors[:, kept].T


def _quadratic(A: np.ndarray, W: np.ndarray, root: np.ndarray, inverse: np.ndarray):
    """Return the margin of W divided by the largest margin, in the norm N(W)^2 = <W, H
    W>.

    A (m, d, d_z) are the features, and W has the shape (d, d_z). `root` (d, d_z) is
    H^{1/2} W, and `inverse` (m, d, d_z) is H^{-1/2} A.
    """
    V, _ = _shortest(inverse.reshape(-1, W.size))
    margin = np.einsum("mde,de->m", A, W).min()
    return margin * np.linalg.norm(V) / np.linalg.norm(root)


def _entrywise(A: np.ndarray, W: np.ndarray, s: np.ndarray) -> float:
    """Return the margin of W divided by the largest margin, in the norm N(W)^2 = sum_j
    s_j W_j^2, for s (d, d_z).

    Entries of s below FLOOR times the largest entry are raised to this value.
    """
    root = np.sqrt(np.maximum(s, FLOOR * s.max()))
    return _quadratic(A, W, root * W, A / root)


def _in_turned(
    tokens: TokenSet,
    selection: np.ndarray,
    W: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
) -> float:
    """Return the margin of W divided by the largest margin, in the norm max |Q_L^T W
    Q_R|.

    `tokens` has one run, and `selection` has the shape (n,). `left` is Q_L (d, d) and
    `right` is Q_R (d_z, d_z); these matrices are orthogonal.
    """
    other = replace(tokens, X=tokens.X @ left, u=tokens.u @ left, z=tokens.z @ right)
    best = 1 / svm.token_svm(other, selection[None], np.inf).norm[0]
    margin = atlas.least_margins(tokens, selection[None], W[None, None])[0, 0]
    return margin / np.abs(left.T @ W @ right).max() / best


def _own(
    name: str,
    tokens: TokenSet,
    selection: np.ndarray,
    W: np.ndarray,
    second: np.ndarray | None,
    left: np.ndarray,
    right: np.ndarray,
):
    """Return a run's margin ratio in the own norm of the rule `name`, and the residual
    of `_fixed_point`, which is 0 for rules that need no fixed point.

    `second` (d, d_z), `left` (d, d) and `right` (d_z, d_z) are the rule's moments. If
    `second` is None, the norm is the Frobenius norm.
    """
    if name == "SOAP":
        return _in_turned(tokens, selection, W, left, right), 0.0
    A, sample = atlas.features(tokens, selection)
    if name == "Shampoo, sums":  # N(W)^2 = <W, L^{1/4} W R^{1/4}>
        L, R, inverse_L, inverse_R = (
            _power(M, e) for e in (1 / 8, -1 / 8) for M in (left, right)
        )
        return _quadratic(A, W, L @ W @ R, inverse_L @ A @ inverse_R), 0.0
    if second is None:
        return _entrywise(A, W, np.ones(W.shape)), 0.0
    if name == "AdaGrad":
        return _entrywise(A, W, np.sqrt(second)), 0.0
    s, residual, _ = _fixed_point(A, sample)
    return _entrywise(A, W, s), residual


def own_ratios(
    tokens: TokenSet,
    name: str,
    path: History,
    reached: atlas.Ratios,
) -> np.ndarray:
    """Return the last ratio in a rule's own norm, and the residual of `_fixed_point`,
    as two arrays (runs,).

    The ratio and the residual are NaN for a run without a selection. If the residual is
    above CONVERGED, the norm is that of the last iterate, which is not a fixed point.
    """
    value = np.full((len(path.W), 2), np.nan)
    for run in np.flatnonzero(np.isfinite(reached.last).all(1)):
        W = path.W[run, -1]
        sides = [path.moments[side][run] for side in ("second", "left", "right")]
        value[run] = _own(name, tokens.run(run), reached.selection[run], W, *sides)
    return value.T
