"""The regularisation paths of paper C: of W alone and, with v, the joint one.

W_R = argmin L(W) over ||W||_{p,p} <= R; jointly argmin L(v, W) over ||v||_p <= r as well: not
convex, solved from several starts. Jointly those tokens are selected whose l_p head SVM has the
largest label margin, as the loss is about e^{-r margin}; v/r turns to its v_mm, W/R to its W_mm.
"""

from dataclasses import replace
from itertools import product

import numpy as np
from scipy.optimize import minimize

from lib import attention, svm
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim
from lib.mirror.geometry import directional_bregman, norm, to_mirror
from papers.c.statements import PAPER

ROUNDS = 3  # of v and W in turn


def _on_the_sphere(function, start, R, p):
    """The minimum of `function` (value, gradient) on ||w||_p = R: where, value."""

    def objective(w):
        size = norm(w, p)
        value, gradient = function(R / size * w)
        along = (gradient @ w) / size * to_mirror(w / size, p)  # the part that only changes ||w||
        return value, R / size * (gradient - along)

    end = minimize(objective, start, method="L-BFGS-B", jac=True)
    return R * end.x / norm(end.x, p), end.fun


def _log_gap_and_gradient(tokens, W):
    """log(L - L*) of the first run, its gradient at W (d, d_z); exact at e^-30000."""
    logits = attention.logits(tokens, W.reshape(1, tokens.shape[-1], -1))
    slopes = attention.slopes(logits, attention.scores(tokens, tokens.u), "logistic")
    pull = slopes.pull[0] * np.exp(slopes.log_scale[0] - slopes.log_gap[0])
    return slopes.log_gap[0], -np.einsum("nt,ntd,ne->de", pull, tokens.X[0], tokens.z[0])


def solve(tokens: TokenSet, p: float, radii, starts) -> np.ndarray:
    """W_R (k, d, d_z) of the first run for ascending `radii` (k,), on ||W||_{p,p} = R: by
    log(L - L*) the best from all starts (starts, d, d_z) and the radius before."""
    path = []

    def function(w):
        value, gradient = _log_gap_and_gradient(tokens, w)
        return value, gradient.ravel()

    for R in radii:
        flat = [start.ravel() for start in (*starts, *path[-1:])]
        ends = [_on_the_sphere(function, w / norm(w, p), R, p) for w in flat]
        W, _ = min(ends, key=lambda end: end[1])
        path.append(W.reshape(starts.shape[1:]))
    return np.array(path)


def _candidates(tokens, p):
    """Head and token SVM of every selection, the largest label margin first."""
    pairs, (_, n, T, _) = [], tokens.shape
    for chosen in product(range(T), repeat=n):
        selected = np.array([chosen])
        try:
            head = svm.head_svm(tokens, selected, p)
            pairs.append((head, svm.token_svm(tokens, selected, norm=p)))
        except svm.Infeasible:
            continue
    return sorted(pairs, key=lambda pair: float(pair[0].norm[0]))


def solve_jointly(tokens: TokenSet, p: float, multiples) -> tuple[np.ndarray, np.ndarray]:
    """v (k, d), W (k, d, d_z) of the first run, r = m ||v_mm||, R = m ||W_mm||, m
    rising: each in turn from every selection's solutions, W by log(L - L*)."""
    pairs, path = _candidates(tokens, p), []
    for m in multiples:
        r, R = (m * solution.norm[0] for solution in pairs[0])
        ends = [_in_turn(tokens, p, r, R, pair) for pair in pairs]
        path.append(min(ends, key=lambda end: end[0])[1:])
    v, W = zip(*path, strict=True)
    return np.array(v), np.array(W)


def _in_turn(tokens, p, r, R, pair):
    head, weights = pair
    v, W = head.value[0], weights.W * (R / weights.norm[0])

    def loss(v):
        scores = attention.scores(tokens, v[None])
        slopes = attention.slopes(attention.logits(tokens, W), scores, "logistic")
        push = slopes.push[0] * np.exp(slopes.log_push_scale[0] - slopes.log_loss[0])
        gradient = -np.einsum("nt,n,ntd->d", push, tokens.y[0], tokens.X[0])
        return slopes.log_loss[0], gradient

    for _ in range(ROUNDS):
        v, _ = _on_the_sphere(loss, v, r, p)
        W = solve(replace(tokens, u=v[None]), p, [R], W)
    return loss(r / norm(v, p) * v)[0], v, W[0]


def joint_claims(tokens: TokenSet, p: float, v, W, named=lambda solution: solution) -> list[Claim]:
    """The last D of v and of W (k, ...) from the SVMs of the largest label margin."""
    ends, claims = {"v": v[-1:], "W": W[-1:].reshape(1, -1)}, []
    for (name, end), solution in zip(ends.items(), _candidates(tokens, p)[0], strict=True):
        D = directional_bregman(end, named(solution).value.reshape(1, -1), p)[0]
        claims.append(PAPER.claim("joint.path", D, name, p))
    return claims
