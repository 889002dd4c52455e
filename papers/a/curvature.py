"""Paper A's Lemma 3: how loss and gradient bound each other; the curvature of the loss.

In joint training the loss depends on W and u only through margins and scores, which are linear in
them. So the loss on a segment follows from its two ends, and the Hessian's spectrum from a matrix
of size n(2T-1), whatever the dimension.
"""

import numpy as np

from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.dynamics.history import History
from lib.papers.a.fixed_head import REGRESSION
from lib.papers.a.joint_training import opt_scores
from lib.svm.max_margin import MaxMargin


def _opt_first(history, tokens):
    """Margins (runs, k, n, T) with a zero for the opt token in front, and scores in that order."""
    best = opt_scores(history, tokens)[..., None]
    margins = np.concatenate([0 * history.margins[..., :1], history.margins], -1)
    return margins, np.concatenate([best, best - history.score_gaps], -1)


def _log_loss(margins, scores):
    """log L, p and f from opt-first margins and scores (..., n, T); log L (...,)."""
    log_p = -margins - np.logaddexp.reduce(-margins, -1)[..., None]
    p = np.exp(log_p)
    gaps = scores[..., :1] - scores
    f = scores[..., 0] - (p * gaps).sum(-1)
    return np.logaddexp.reduce(-f, -1) - np.log(f.shape[-1]), p, f


def on_segments(history: History, tokens: TokenSet) -> np.ndarray:
    """max L(theta')/L(theta_t) over 9 places of each recorded step from theta_t, (runs, steps)."""
    margins, scores = _opt_first(history, tokens)
    begin = np.flatnonzero(np.diff(history.iterations) == 1)
    largest = np.full((len(margins), begin.size), -np.inf)
    at_begin = _log_loss(margins[:, begin], scores[:, begin])[0]
    for s in np.linspace(0, 1, 9)[1:]:
        between = [(1 - s) * a[:, begin] + s * a[:, begin + 1] for a in (margins, scores)]
        largest = np.maximum(largest, _log_loss(*between)[0] - at_begin)
    return np.exp(largest)


def curvature(history: History, tokens: TokenSet) -> np.ndarray:
    """||Hessian of L in (W, u)|| / L at every record, (runs, k), spectral norm, exponential loss.

    With f_i = sum_t p_t gamma_t as a function of logits a and scores gamma: df/da_t = p_t (gamma_t
    - f), df/dgamma_t = p_t, d^2f/da_s da_t = p_s (1_{st} - p_t)(gamma_s - f) - p_s p_t (gamma_t -
    f), d^2f/da_s dgamma_t = p_s (1_{st} - p_t).
    """
    _, n, T, _ = tokens.shape
    margins, scores = _opt_first(history, tokens)
    log_loss, p, f = _log_loss(margins, scores)
    away, eye = scores - f[..., None], np.eye(T)
    weights = p[..., :, None] * (eye - p[..., None, :])  # p_s (1_{st} - p_t)
    second = weights * away[..., :, None] - p[..., :, None] * (p * away)[..., None, :]
    zero = np.zeros_like(second)
    hessian_f = np.block([[second, weights], [np.swapaxes(weights, -1, -2), zero]])
    first = np.concatenate([p * away, p], -1)
    share = np.exp(-f - log_loss[..., None]) / n  # l_i / (n L)
    block = share[..., None, None] * (first[..., :, None] * first[..., None, :] - hessian_f)
    block = block[..., 1:, 1:]  # the opt token's logit is the reference, (runs, k, n, 2T-1, 2T-1)
    root = _gram_root(tokens)  # (runs, n, 2T-1, m)
    hessian = np.einsum("rnia,rknij,rnjb->rkab", root, block, root, optimize=True)
    return np.abs(np.linalg.eigvalsh(hessian)).max(-1)


def _gram_root(tokens):
    """Rows of a root of the Gram matrix of (W, u) -> logits and scores, opt token first."""
    runs, n, T, d = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt)
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    logits, scores = n * (T - 1), n * T
    of_logits, of_scores = coordinates.gram(delta, tokens.z), signed @ np.swapaxes(signed, 1, 2)
    root = np.zeros((runs, n, 2 * T - 1, logits + scores))
    root[:, :, : T - 1, :logits] = _root(of_logits).reshape(runs, n, T - 1, logits)
    root[:, :, T - 1 :, logits:] = _root(of_scores).reshape(runs, n, T, scores)
    return root


def _root(gram):
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(values.clip(0))[:, None]


def gradient_over_loss(history: History, head: MaxMargin) -> np.ndarray:
    """||grad_u L|| / (gamma* L) at every record, (runs, k)."""
    return np.exp(history.log_gradient_head - history.log_gap) * head.norm[:, None]


def lemma3(history: History, tokens: TokenSet, head: MaxMargin) -> list[Claim]:
    """Along Eq. 13: ||grad_u L|| >= c gamma* L, and L on a step is at most C times L before it.

    c = 1/2 and C = 1 + 1e-9 (our constants: the loss does not rise). The third bound, on the
    curvature, has so much room that no row of it could fail.
    """
    names = "||grad_u L|| / (gamma* L)", "L on a step over L before it"
    gradient = gradient_over_loss(history, head).min()
    segment = on_segments(history, tokens)[:, 1:].max()
    texts, form = [f"Eq. 13: {{}} {name}" for name in names], "paper A, Lemma 3 (our constant)"
    least, most = texts[0].format("smallest"), texts[1].format("largest")
    return [
        at_least("lemma3.gradient", least, form, gradient, 0.5, remark=REGRESSION),
        at_most("lemma3.segment", most, form, segment, 1 + 1e-9),
    ]


def remark4(history: History, head: MaxMargin, since: float) -> Claim:
    """||grad_u L|| is of the order of L, and tends to gamma* L (ours)."""
    ratio = gradient_over_loss(history, head)[:, history.iterations >= since]
    text, source = "Eq. 13: ||grad_u L|| / (gamma* L), late", "ours, beside paper A, Remark 4"
    return close("remark4", text, source, furthest(ratio, 1.0), 1.0, 0.04)
