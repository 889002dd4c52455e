"""Training keys and queries instead of their product: W = K Q^T (2308.16898, Section 3)."""

import numpy as np

from lib import attention
from lib.attention.token_sets import TokenSet


def train_key_query(
    tokens: TokenSet, K: np.ndarray, Q: np.ndarray, step_size: float, record
) -> np.ndarray:
    """W = K Q^T (runs, k, d, d_z) at the iterations `record`, head fixed.

    Of normalised gradient descent on K and Q: K <- K - eta grad_K L / ||grad_K L||_F, Q likewise,
    each normalised by itself, with grad_K L = G Q, grad_Q L = G^T K, G = grad_W L; logistic loss. K
    (runs, d, m), Q (runs, d_z, m). A zero gradient makes no step. Raises ValueError where K and Q
    do not fit the tokens or each other.
    """
    runs, _, _, d = tokens.shape
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        if value.shape != (runs, width, K.shape[-1]):
            raise ValueError(
                f"{name} has shape {value.shape}; it needs {(runs, width, K.shape[-1])}"
            )
    K, Q, kept, wanted = K.copy(), Q.copy(), [], set(map(int, record))
    scores = attention.scores(tokens, tokens.u)
    Xt, zt = np.swapaxes(tokens.X, -1, -2), np.swapaxes(tokens.z, -1, -2)
    for t in range(max(wanted) + 1):
        if t in wanted:
            kept.append(K @ np.swapaxes(Q, 1, 2))
        keys = (tokens.z @ Q) @ np.swapaxes(K, 1, 2)  # (runs, n, d), W z_i
        pull = attention.slopes((tokens.X @ keys[..., None])[..., 0], scores, "logistic").pull
        down = zt @ (Xt @ pull[..., None])[..., 0]  # (runs, d_z, d), -G^T up to a factor
        move_K, move_Q = np.swapaxes(down, 1, 2) @ Q, down @ K
        K += step_size * _unit(move_K)
        Q += step_size * _unit(move_Q)
    return np.stack(kept, 1)


def _unit(a):
    size = np.linalg.norm(a, axis=(1, 2), keepdims=True)
    return a / np.where(size > 0, size, 1.0)
