"""Paper B's in-sample gradients (Eq. 1), of numpy arrays or torch tensors.

Numpy arrays go through the compiled kernel, torch tensors in blocks on their device.
"""

import math

import numpy as np

from lib.regression import kernel

BLOCK = 2**17  # attention weights held at a time, 1 MB in float64: they stay in a core's cache
DEVICE_BLOCK = 2**26  # the same on a GPU, 512 MB in float64


def empirical_gradients(X, Y, A, B):
    """Gradients of Eq. 1 in closed form: grad_A L^ (..., k, d) and grad_B L^ (..., d, d).

    The samples X (..., m, d) are queries and keys. With P the softmax weights, c_j = sum_i P_ji
    x_i, e_j = A c_j - y_j, v_j = A^T e_j:

        grad_A = 1/m sum_j e_j c_j^T, grad_B = 1/m sum_j x_j (sum_i P_ji (v_j^T (x_i - c_j)) x_i)^T

    Y (..., m, k), A (..., k, d), B (..., d, d). Memory is that of BLOCK attention weights, at any
    m. Raises ValueError for shapes that do not fit and for samples that are not finite.
    """
    _check_layer(X, Y, A, B)
    if isinstance(X, np.ndarray):
        return _compiled(X, Y, A, B)
    m, rows = X.shape[-2], _rows(X, B)
    gradient_A, gradient_B = A.new_zeros(A.shape), B.new_zeros(B.shape)
    for queries, labels in zip(X.split(rows, -2), Y.split(rows, -2), strict=True):
        c, E, total = _attend(queries, X, B)  # (..., rows, d), (..., rows, m), (..., rows, 1)
        error = c @ A.mT - labels
        v = error @ A
        pull = (v @ X.mT).mul_(E) @ X / total - c * (v * c).sum(-1, keepdim=True)  # (..., rows, d)
        gradient_A += error.mT @ c
        gradient_B += queries.mT @ pull
    return gradient_A / m, gradient_B / m


def _compiled(X, Y, A, B):
    lead = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2], A.shape[:-2], B.shape[:-2])
    sets = X.shape[:-2]
    if Y.shape[:-2] != sets:
        raise ValueError(f"Y has shape {Y.shape}; its leading axes must be those of X, {sets}")
    set_of_run = np.array(np.broadcast_to(np.arange(math.prod(sets)).reshape(sets), lead)).ravel()

    def flat(value, shape):  # (..., rows, columns) -> (runs, rows, columns)
        # read-only, a type of its own to the compiler
        value = np.broadcast_to(value, (*shape, *value.shape[-2:]))
        return np.array(value, dtype=float, order="C").reshape(-1, *value.shape[-2:])

    sums = kernel.gradients(flat(X, sets), flat(Y, sets), flat(A, lead), flat(B, lead), set_of_run)
    return tuple(total.reshape(*lead, *total.shape[1:]) / X.shape[-2] for total in sums)


def _attend(queries, X, B):
    """c = sum_i P_i x_i for each query, with the unnormalised weights and their sums."""
    E = queries @ B @ X.mT
    E -= E.amax(-1, keepdim=True)
    E.exp_()
    total = E.sum(-1, keepdim=True)
    return E @ X / total, E, total


def _rows(X, B) -> int:
    """How many queries at a time keep the attention weights of all runs within BLOCK."""
    runs = np.broadcast_shapes(X.shape[:-2], B.shape[:-2])
    return max(
        1, (BLOCK if X.device.type == "cpu" else DEVICE_BLOCK) // (math.prod(runs) * X.shape[-2])
    )


def _check_layer(X, Y, A, B):
    m, d, k = X.shape[-2], X.shape[-1], A.shape[-2]
    needed = (("A", A, (k, d)), ("B", B, (d, d)), ("Y", Y, (m, k)))
    for name, value, shape in needed:
        if tuple(value.shape[-2:]) != shape:
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; its last two axes must be {shape}"
            )
    for name, value in (("X", X), ("Y", Y)):
        if not math.isfinite(float(value.sum())):
            raise ValueError(f"{name} holds values that are not finite")
