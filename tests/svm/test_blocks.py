"""Token SVMs in the largest norm of W's blocks: certificates, special cases, bad input."""

import numpy as np
import pytest

from lib import svm
from lib.attention import coordinates, tokens

DATA = tokens.unit_tokens(range(2), n=4, T=4, d=6)
ROWS = coordinates.constraint_rows(coordinates.differences(DATA, DATA.opt), DATA.z)


@pytest.mark.parametrize("inner", ["frobenius", "spectral", "nuclear"])
@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("by_columns", [False, True])
def test_duals_certify_the_norm(inner, count, by_columns):
    """1^T beta over the dual norm of sum beta_m a_m is a lower bound, and W reaches it."""
    solution = svm.token_svm(DATA, norm=svm.Blocks(inner, count, by_columns))
    order = {"frobenius": ("fro", "fro"), "spectral": (2, "nuc"), "nuclear": ("nuc", 2)}[inner]
    for run, (A, beta, W) in enumerate(zip(ROWS, solution.duals, solution.W, strict=True)):
        margins, S = A @ W.ravel(), (A.T @ beta.ravel()).reshape(6, 6)
        of, dual = (
            [np.linalg.norm(part, kind) for part in np.split(M, count, int(by_columns))]
            for M, kind in zip((W, S), order, strict=True)
        )
        assert margins.min() >= 1 - 1e-9 and (beta >= 0).all()
        assert max(of) == pytest.approx(solution.norm[run], rel=1e-9)
        bound = beta.sum() / sum(dual)
        assert bound == pytest.approx(max(of), rel=svm.ACCURACY_OTHER_NORMS)


def test_one_block_is_the_norm_itself():
    for inner in ("frobenius", "spectral", "nuclear"):
        whole, one = (svm.token_svm(DATA, norm=of).norm for of in (inner, svm.Blocks(inner, 1)))
        np.testing.assert_allclose(one, whole, rtol=1e-7)


def test_more_blocks_never_have_a_larger_norm():
    counts = [svm.token_svm(DATA, norm=svm.Blocks("spectral", count)).norm for count in (1, 2, 6)]
    assert (counts[0] > counts[1] + 1e-3).all() and (counts[1] > counts[2] + 1e-3).all()


def test_dual_norms_bound_the_product():
    draw = np.random.default_rng(0)
    for of in (svm.Blocks("spectral", 3), svm.Blocks("frobenius", 2, True)):
        V, W = draw.standard_normal((2, 50, 6, 6))
        assert (np.einsum("rij,rij->r", V, W) <= of.of(W) * of.dual.of(V)).all()
        assert of.dual.dual == of


def test_bad_blocks_are_named():
    for wrong in (
        lambda: svm.Blocks("l_1", 2),
        lambda: svm.Blocks("spectral", 0),
        lambda: svm.token_svm(DATA, norm=svm.Blocks("spectral", 4)),
    ):
        with pytest.raises(ValueError, match="block"):
            wrong()
