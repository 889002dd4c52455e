"""Paper A's Lemma 3: how loss and gradient bound each other in joint training."""

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, close, furthest
from lib.dynamics.history import History
from lib.svm.max_margin import MaxMargin
from papers import joint_loss
from papers.a.fixed_head import REGRESSION


def on_segments(history: History, tokens: TokenSet) -> np.ndarray:
    """max L(theta')/L(theta_t) over 9 places of each recorded step from theta_t, (runs, steps)."""
    margins, scores = joint_loss.opt_first(history, tokens)
    begin = np.flatnonzero(np.diff(history.iterations) == 1)
    largest = np.full((len(margins), begin.size), -np.inf)
    at_begin = joint_loss.log_loss_parts(margins[:, begin], scores[:, begin])[0]
    for s in np.linspace(0, 1, 9)[1:]:
        between = [(1 - s) * a[:, begin] + s * a[:, begin + 1] for a in (margins, scores)]
        largest = np.maximum(largest, joint_loss.log_loss_parts(*between)[0] - at_begin)
    return np.exp(largest)


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
