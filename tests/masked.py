"""A data set with and without a masked token of junk per sample, and their
comparison.
"""

from dataclasses import replace

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import token_set

JUNK = (np.nan, np.inf, -1e300, 7.0)
RUNS, N, T, D, D_Z = 2, 3, 4, 7, 2


def random_set():
    """Return a set without a mask: two runs, scores without ties."""
    drawn = attention.unit_tokens([1, 2], n=N, T=T, d=D)
    return replace(drawn, X=2 * drawn.X, z=2 * drawn.z[..., :D_Z])


DENSE = random_set()
HIDDEN = np.random.default_rng(0).integers(0, T + 1, (RUNS, N))  # a place a sample


def with_a_token_more(data=DENSE, hidden=HIDDEN):
    """Add one masked token of junk to each sample, at the places `hidden`."""
    runs, n, length, d = data.shape
    X = np.empty((runs, n, length + 1, d))
    mask = np.ones((runs, n, length + 1), bool)
    for k, (r, i) in enumerate(np.ndindex(runs, n)):
        X[r, i] = np.insert(data.X[r, i], hidden[r, i], JUNK[k % 4], axis=0)
        mask[r, i, hidden[r, i]] = False
    opt = data.opt + (data.opt >= hidden)
    return token_set(X, data.y, data.z, data.u, opt=opt, mask=mask)


MASKED = with_a_token_more()


def shown(values, data=MASKED, selected=None):
    """Select values (runs, ..., n, T) or (runs, ..., n, T-1) of tokens that are not
    masked.

    The axis of the tokens becomes the third: the result is (runs, n, shown, ...).
    """
    keep = data.mask
    if values.shape[-1] < keep.shape[-1]:
        keep = ~coordinates.hidden_pairs(
            data, data.opt if selected is None else selected
        )
    runs, n, _ = keep.shape
    return np.stack(
        [
            np.stack([values[r, ..., i, keep[r, i]] for i in range(n)])
            for r in range(runs)
        ]
    )


def aligned(values):
    """Sort values (runs, ..., n, T) of a set without a mask as `shown` does."""
    runs, n = len(values), values.shape[-2]
    return np.stack(
        [
            np.stack([np.moveaxis(values[r, ..., i, :], -1, 0) for i in range(n)])
            for r in range(runs)
        ]
    )


def assert_alike(ours, wanted, fields, rtol=1e-10, atol=1e-12):
    """Assert that histories by rule have the same last W and status, and agree in the
    `fields`, which are separated by blanks.
    """
    for name, expected in wanted.items():
        for field in fields.split():
            np.testing.assert_allclose(
                getattr(ours[name], field),
                getattr(expected, field),
                rtol=rtol,
                atol=atol,
                err_msg=f"{name} {field}",
            )
        np.testing.assert_allclose(
            ours[name].weights(-1),
            expected.weights(-1),
            rtol=rtol,
            atol=atol,
            err_msg=f"{name} W",
        )
        assert (ours[name].status == expected.status).all()
