"""The joint regularisation path of paper C, argmin L(v, W) over ||v||_p <= r, ||W||_{p,p} <= R.

Tokens that are selected are those whose l_p head SVM has the largest label margin: the loss is
about e^{-r margin}. Then v/r turns to its v_mm and W/R to its W_mm.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from lib import attention, svm
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_most
from lib.mirror.geometry import directional_bregman, norm, to_mirror
from lib.svm import MaxMargin
from papers.c import regularisation_path


class Candidate(NamedTuple):
    """The solutions of both SVMs for one selection of tokens that both can make."""

    head: MaxMargin
    weights: MaxMargin


def candidates(tokens: TokenSet, p: float) -> list[Candidate]:
    """All selections of the first run that both SVMs can make, the largest label margin first."""
    found, (_, n, T, _) = [], tokens.shape
    for chosen in product(range(T), repeat=n):
        selected = np.array([chosen])
        try:
            head = svm.head_svm(tokens, selected, p)
            found.append(Candidate(head, svm.token_svm(tokens, selected, norm=p)))
        except svm.Infeasible:
            continue
    return sorted(found, key=lambda one: float(one.head.norm[0]))


def solve(
    tokens: TokenSet, p: float, multiples: Sequence[float], rounds: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """v (k, d) and W (k, d, d_z) of the first run for r = m ||v_mm||, R = m ||W_mm||, m ascending.

    v and W in turn (L-BFGS on their spheres), from every selection's pair of solutions; the
    smallest loss is kept. W's turn works on log(L - L*), which is exact where L itself no longer
    sees W.
    """
    tried = candidates(tokens, p)
    best, found = tried[0], []
    for m in multiples:
        r, R = m * best.head.norm[0], m * best.weights.norm[0]
        ends = [_in_turn(tokens, p, (r, R), one, rounds) for one in tried]
        found.append(min(ends, key=lambda end: end[0])[1:])
    v, W = zip(*found, strict=True)
    return np.array(v), np.array(W)


def _in_turn(tokens, p, radii, start, rounds):
    (r, R), v, W = radii, start.head.value[0], start.weights.W
    W = W * (R / start.weights.norm[0])

    def objective(v, W):
        size = norm(v, p)
        at = attention.slopes(
            attention.logits(tokens, W), attention.scores(tokens, r / size * v[None]), "logistic"
        )
        push = at.push[0] * np.exp(at.log_push_scale[0] - at.log_loss[0])
        gradient = -np.einsum("nt,n,ntd->d", push, tokens.y[0], tokens.X[0])
        along = (gradient @ v) / size * to_mirror(v / size, p)
        return at.log_loss[0], r / size * (gradient - along)

    for _ in range(rounds):
        turned = minimize(objective, v, (W,), "L-BFGS-B", jac=True)
        v = r * turned.x / norm(turned.x, p)
        with_head = replace(tokens, u=v[None])
        W, _ = regularisation_path.solve(with_head, p, np.array([R]), W)
    return objective(v, W)[0], v, W[0]


def claims(tokens: TokenSet, p: float, v, W, named=lambda solution: solution) -> list[Claim]:
    """The last D of v and of W (k, ...) from the SVMs of the largest label margin."""
    best = candidates(tokens, p)[0]
    text, source = (
        f"p = {p:g}: last D of {{}}",
        "paper C, Theorem, joint (our constant, a regression test)",
    )
    ends = {"v": (v[-1:], best.head), "W": (W[-1:].reshape(1, -1), best.weights)}
    found = []
    for name, (end, solution) in ends.items():
        toward = named(solution).value.reshape(1, -1)
        D = directional_bregman(end, toward, p)[0]
        what = text.format(f"{name} from {name}_mm")
        found.append(at_most(f"joint.path.{name}.{p:g}", what, source, D, 1e-3))
    return found
