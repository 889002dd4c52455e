"""Attention that selects several tokens at once (2308.16898): no single token is the best mixture.

Head h(x) = sum_j max(x_j, 0). It is linear around a mixture x, with u = 1[x > 0], so that loss and
gradient are those of `lib.attention.slopes` with one head per sample.
"""

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.svm import frobenius


def train_relu_head(
    tokens: TokenSet, step_size: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """W (runs, d, d_z) after normalised gradient descent from zero, and its softmax weights.

    f_i = y_i h(X_i^T softmax(X_i W z_i)), logistic loss; tokens.u is not used.
    """
    W = np.zeros((len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]))
    for _ in range(steps):
        weights = attention.weights(tokens, W)
        mixture = np.einsum("rnt,rntd->rnd", weights, tokens.X)
        head = (mixture > 0).astype(float)
        scores = tokens.y[..., None] * np.einsum("rntd,rnd->rnt", tokens.X, head)
        pull = attention.slopes(attention.logits(tokens, W), scores, "logistic").pull
        down = np.einsum("rnd,rne->rde", np.einsum("rnt,rntd->rnd", pull, tokens.X), tokens.z)
        size = np.linalg.norm(down, axis=(1, 2), keepdims=True)
        W = W + step_size * down / np.where(size > 0, size, 1.0)
    return W, attention.weights(tokens, W)


def max_margin(tokens: TokenSet, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(W, E) for the first run and the tokens `chosen` (n, T) of bool, at least one per sample.

    W (d, d_z) = argmin ||W||_F with (x_t - x_s)^T W z_i = 0 for chosen t, s and >= 1 for chosen t
    and other s. The orthonormal rows E (e, d d_z) span the equations; the part of training that
    stays finite lives there. Raises svm.Infeasible where there is no W; ValueError if a sample has
    no chosen token or no sample another.
    """
    if not chosen.any(1).all() or chosen.all():
        raise ValueError(
            "every sample needs a chosen token, and some sample one that is not chosen"
        )
    X, z, first = tokens.X[0], tokens.z[0], chosen.argmax(1)
    apart = X[np.arange(len(X)), first][:, None] - X  # chosen first minus every token
    rows = coordinates.constraint_rows(apart, z).reshape(*chosen.shape, -1)
    same = chosen & (np.arange(chosen.shape[1]) != first[:, None])
    _, sizes, E = np.linalg.svd(rows[same], full_matrices=False)
    E = E[sizes > 1e-10 * sizes.max(initial=0)]
    A = rows[~chosen] - rows[~chosen] @ E.T @ E
    ones = np.ones((len(A), 1))
    constraints = frobenius.Constraints(
        problem="multi-token SVM",
        run=0,
        shape=ones.shape,
        delta=A[:, None],
        z=ones,
        stretch=ones[:, 0],
    )
    beta, *_ = frobenius.solve(A @ A.T, constraints)
    return (A.T @ beta).reshape(X.shape[-1], z.shape[-1]), E
