"""One-point smoothness around paper B's minima (Eq. 4, Lemma 2): the best constants, attained."""

import numpy as np

from lib import regression, seeds
from lib.companion.claims import Claim, at_most
from lib.regression import manifold
from lib.regression.problem import Regression

EXACT = 1e-10


def steepest(problem: Regression) -> tuple[float, float, np.ndarray]:
    """The best beta of Eq. 4 and of Lemma 2 in "left_right" within the radius r, and where.

    Both are attained at the same Z (k + d, d) (ours). In Y = Sbar^{1/2} Z Sigma^{1/2} the
    gradient's terms of order 1, 2 and 3 in Delta are at most 2 sigma_1, 3/2 (2 sigma_1)^{1/2}
    ||Delta|| and ||Delta||^2 / 2 times ||Delta||, together sigma_1 (2 + a)(1 + a) with a = r / (2
    sigma_1)^{1/2}; integrated, Lemma 2 has sigma_1 (2 + a)^2 / 2. Both are equalities where Y_pi
    grows along sigma_1 alone.
    """
    space = manifold.of(problem)
    largest = space.singular_values[0]
    a = space.constants("left_right").radius / np.sqrt(2 * largest)
    U, D, Vt = np.linalg.svd(problem.M @ problem.root, full_matrices=False)
    Y = np.vstack([U, Vt.T]) * np.sqrt(D)
    Y[:, 0] *= 1 + a
    beta = largest * (2 + a) * (1 + a), largest * (2 + a) ** 2 / 2
    return *beta, space.from_coordinates(Y)


def descent_ratio(problem: Regression, norm: str, draws: int) -> float:
    """Lemma 2: the largest (L_reg(Z) - min) / (beta/2 ||Z - Z_pi||^2) within the radius.

    Over random Z; in "left_right" with the best beta, and over the Z that attains it.
    """
    space, rng, k = manifold.of(problem), seeds.stream(1, "draws"), problem.k
    constants, tried = space.constants(norm), []
    for fraction in rng.uniform(0.05, 1, draws):
        direction = rng.standard_normal((problem.k + problem.d, problem.d))
        move = fraction * constants.radius / space.norm(direction, norm)
        tried.append(space.point() + move * direction)
    beta = constants.smoothness
    if norm == "left_right":
        _, beta, Z = steepest(problem)
        tried.append(Z)
    largest = 0.0
    for Z in tried:
        value = regression.excess_loss(problem, Z[:k], Z[k:])
        value += regression.regulariser(problem.Sigma, Z[:k], Z[k:])
        largest = max(largest, value / (beta / 2 * space.distance(Z, norm) ** 2))
    return float(largest)


def lemma2(ratio: float, norm: str, off: float = 0.0) -> Claim:
    """Lemma 2 from `descent_ratio`; off: the share by which beta is wrong."""
    text, source = f"{norm}: excess of L + R, over beta/2 |Z - Z_pi|^2", "paper B, Lemma 2"
    form = f"{source} (our constant)"
    return at_most(f"lemma2.{norm}", text, form, ratio / (1 + off), 1.0 + EXACT)


def descent_lemma(problem: Regression, draws: int = 200) -> Claim:
    """Lemma 2 in both norms, the larger ratio."""
    ratio = max(descent_ratio(problem, norm, draws) for norm in manifold.NORMS)
    statement, source = "excess of L + R, over beta/2 |Z - Z_pi|^2", "paper B, Lemma 2"
    return at_most("lemma2", statement, f"{source} (our constant)", ratio, 1.0 + EXACT)
