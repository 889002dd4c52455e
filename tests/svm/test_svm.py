"""Tests of max-margin problems.

They detect a W that is not the smallest, and a wrong proof that none exists.
"""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lib import svm
from lib.attention import coordinates, token_sets, tokens
from lib.svm import norms
from tests.problems import PROBLEMS, SOLVABLE, rows_of, stacked

EXPONENTS = (1.1, 1.5, 1.75, 3, 5)
NORMS = ("frobenius", *EXPONENTS, "nuclear", "spectral", 1, np.inf)


def size(matrix, norm, dual=False):
    """Return the norm of a matrix, or its dual norm."""
    if isinstance(norm, svm.Blocks):
        parts = np.split(matrix, norm.count, int(norm.by_columns))
        return (sum if dual else max)(size(part, norm.inner, dual) for part in parts)
    if norm in ("nuclear", "spectral"):
        values = np.linalg.svd(matrix.astype(float), compute_uv=False)
        if (norm == "nuclear") != dual:
            return values.sum()
        return values[0]
    p = 2.0 if norm == "frobenius" else float(norm)
    conjugate = {1.0: np.inf, np.inf: 1.0}.get(p) or p / (p - 1)
    return np.linalg.norm(matrix.ravel(), conjugate if dual else p)


def all_rows(data):
    return [rows_of(data, run) for run in range(len(data.X))]


def check_certificate(rows, solution, norm):
    """Check feasibility, beta >= 0, and the lower bound 1^T beta / N*(sum beta a).

    All hold within `accuracy`.
    """
    assert (solution.duals >= 0).all()
    for run, (A, W) in enumerate(
        zip(rows, solution.value, strict=True)
    ):  # A in 80 bits
        beta = solution.duals[run].ravel()
        support = solution.support[run].ravel()
        margins = A @ W.ravel()
        primal = size(W, norm)
        np.testing.assert_allclose(
            solution.margins[run].ravel(), margins, rtol=1e-9, atol=1e-9
        )
        assert 1 - margins.min() <= solution.accuracy
        bound = beta.sum() / size((A.T @ beta).reshape(W.shape), norm, dual=True)
        assert primal == pytest.approx(solution.norm[run], rel=1e-9)
        assert -1e-9 <= 1 - bound / primal <= solution.accuracy
        assert abs(1 - bound / primal) == pytest.approx(solution.gap[run], abs=1e-9)
        assert beta.sum() == pytest.approx(primal**2, rel=1e-6)
        assert (
            beta * (margins - 1)
        ).sum() <= 1e-6 * beta.sum()  # complementary slackness
        assert (
            margins[support].max() < 1 + 1e-4 and (margins[~support] > 1 - 1e-9).all()
        )


CASES = {name: PROBLEMS[name].tokens for name in SOLVABLE} | {
    "three runs": tokens.unit_tokens(range(3))
}
BLOCKY = tokens.unit_tokens(range(2), n=4, T=4, d=6)


BLOCKS = [svm.Blocks(norm, count, by_columns) for norm in ("frobenius", "spectral", "nuclear")
          for count in (2, 6) for by_columns in (False, True)]  # fmt: skip


@pytest.mark.parametrize(
    ("norm", "data"),
    [
        *((norm, data) for norm in NORMS for data in CASES.values()),
        *((norm, BLOCKY) for norm in BLOCKS),
    ],
    ids=str,
)
def test_certificate(norm, data):
    check_certificate(all_rows(data), svm.token_svm(data, norm=norm), norm)


def test_frobenius_is_accurate_to_rounding_and_exponents_near_and_far_nearly():
    solution = svm.token_svm(tokens.unit_tokens(range(20)))
    assert solution.gap.max() < 1e-12 and solution.violation.max() < 1e-12
    for p in (1.01, 1.05, 1.25, 2.01, 2.5, 10, 20):
        assert svm.token_svm(tokens.unit_tokens(range(4)), norm=p).gap.max() < 1e-10


def test_l1_solutions_are_vertices_and_the_exponent_two_is_the_frobenius_norm():
    solution = svm.token_svm(CASES["three runs"], norm=1)
    W = np.abs(solution.W)
    assert (
        (W > 1e-6 * W.max((1, 2), keepdims=True)).sum((1, 2)) <= solution.duals[0].size
    ).all()
    assert solution.problem == "token SVM, l_1 norm"
    by_name, by_number = (
        svm.token_svm(BLOCKY, norm=norm).W for norm in ("frobenius", 2)
    )
    np.testing.assert_array_equal(by_number, by_name)


def test_more_dimensions_than_tokens():
    data = tokens.gaussian_tokens(0, n=3, T=3, d=40)
    for norm in ("nuclear", "spectral"):
        check_certificate(all_rows(data), svm.token_svm(data, norm=norm), norm)
    # W is not built
    solution = svm.token_svm(tokens.gaussian_tokens(0, n=3, T=3, d=100_000))
    assert "value" not in vars(solution) and solution.gap.max() < 1e-9


def test_thousands_of_dependent_constraints():
    data = tokens.unit_tokens(0, n=60, T=21, d=20)  # 1200 constraints in 400 unknowns
    solution = svm.token_svm(data)
    assert max(solution.gap.max(), solution.violation.max()) < svm.ACCURACY
    assert solution.support.sum() <= 400


def test_infeasible_run_is_named():
    both = (PROBLEMS[name].tokens for name in ("two at a right angle", "opposed"))
    with pytest.raises(svm.Infeasible, match="run 1") as caught:
        svm.token_svm(stacked(*both))
    assert caught.value.run == 1
    sent = pickle.loads(pickle.dumps(caught.value))  # as a pool of processes does
    assert str(sent) == str(caught.value)
    np.testing.assert_array_equal(sent.certificate, caught.value.certificate)


@pytest.mark.parametrize("p", [2, *EXPONENTS, 1, np.inf])
def test_head_against_its_certificate(p):
    data = tokens.gaussian_tokens(range(2), n=6, T=3, d=18)
    solution = svm.head_svm(data, p=p)
    assert solution.W.shape == (2, 18) and solution.duals.shape == (2, 6)
    opt = np.take_along_axis(data.X, data.opt[..., None, None], 2)[:, :, 0]
    check_certificate(data.y[..., None] * opt, solution, p)


def test_head_infeasible_with_a_proof():
    data = token_sets.token_set(
        np.ones((2, 2, 3)) * [[[1], [2]], [[3], [4]]], [1, -1], opt=[0, 0]
    )
    with pytest.raises(
        svm.Infeasible, match=r"head SVM of run 0.* samples 0, 1 .*Select other"
    ) as caught:
        svm.head_svm(data, p=1.5)
    # a non-negative combination of sum one that is zero
    proof = caught.value.certificate
    assert (proof >= 0).all() and proof.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(proof * data.y[0] @ data.X[0, :, 0], 0, atol=1e-12)


@pytest.mark.parametrize(
    "norm", [0.5, -2.0, np.nan, "fro", None, (2,), True, -(10**400)]
)
def test_unknown_norm(norm):
    data = tokens.unit_tokens(0)
    with pytest.raises(ValueError, match=r"norm = .*exponent p >= 1"):
        svm.token_svm(data, norm=norm)
    with pytest.raises(ValueError, match=r"p = .*exponent p >= 1"):
        svm.head_svm(data, p=norm)


def test_less_than_the_accuracy_raises_with_what_to_do(monkeypatch):
    # gives up at its start
    monkeypatch.setattr(norms, "entrywise", lambda rows, p, w, beta: (w, beta))
    with pytest.raises(
        RuntimeError, match="run 0: the relative duality gap .* Take an exponent"
    ):
        svm.token_svm(tokens.unit_tokens(0), norm=3)


@pytest.mark.parametrize("norm", NORMS)
def test_margins_are_those_of_the_given_tokens_and_the_least_is_one(norm):
    data = tokens.unit_tokens([0, 1], n=4, T=3, d=4)
    # Samples of unequal length are solved scaled
    long = 10.0 ** np.arange(4)[None, :, None, None]
    data = replace(data, X=long * data.X)
    solution = svm.token_svm(data, norm=norm)
    exact = np.einsum("rmk,rk->rm", all_rows(data), solution.W.reshape(2, -1))
    np.testing.assert_allclose(
        solution.margins.reshape(2, -1), exact.astype(float), rtol=1e-9
    )
    np.testing.assert_allclose(solution.margins.min((1, 2)), 1.0, rtol=0, atol=1e-12)


def test_a_minimal_is_solved_in_its_own_coordinates():
    data = tokens.unit_tokens([0, 1], n=3, T=4, d=20)
    space = coordinates.minimal(data)
    for norm in ("frobenius", "nuclear", 2):
        inside = svm.token_svm(space, norm=norm)
        whole = svm.token_svm(data, norm=norm)
        np.testing.assert_allclose(inside.norm, whole.norm, rtol=1e-6)
    inside = svm.token_svm(space)
    whole = svm.token_svm(data)
    np.testing.assert_allclose(
        space.expand(inside.W), whole.W, atol=1e-9 * inside.norm.max()
    )
    assert inside.tokens is space.tokens and whole.tokens is data


SPACE = coordinates.minimal(BLOCKY)
FAR = token_sets.token_set([[[1.5e308], [-1.5e308]]], [1.0], z=[[1.0]], opt=[0])


@pytest.mark.parametrize(
    "solve, message",
    [
        *(
            (partial(svm.token_svm, SPACE, norm=norm), "sees the coordinates")
            for norm in (3, np.inf)
        ),
        (
            partial(svm.token_svm, SPACE, norm=svm.Blocks("spectral", 2)),
            "sees the coordinates",
        ),
        (partial(svm.head_svm, SPACE, p=1), "sees the coordinates"),
        (lambda: svm.Blocks("l_1", 2), "N must be one of"),
        (
            partial(svm.token_svm, FAR),
            r"X holds tokens whose difference exceeds 1.8e\+308",
        ),
        *(
            (partial(svm.Blocks, "spectral", count), "count = .*; it must be a whole")
            for count in (0, 1.5, np.inf, "x", None)
        ),
        (lambda: svm.Blocks(["spectral"], 2), "N must be one of"),
        (
            partial(svm.token_svm, BLOCKY, norm=svm.Blocks("spectral", 4)),
            "4 blocks do not divide",
        ),
        *(
            (partial(solve, BLOCKY, selected), message)
            for solve in (svm.token_svm, svm.head_svm)
            for selected, message in (
                (np.zeros(4, int), r"shape \(4,\).*\(2, 4\)"),
                (np.zeros((2, 4)), "float64"),
                (np.full((2, 4), 4), r"0 \.\.\. 3"),
                (np.full((2, 4), -1), r"0 \.\.\. 3"),
            )
        ),
    ],
)
def test_bad_input_is_named(solve, message):
    with pytest.raises(ValueError, match=message):
        solve()


@pytest.mark.parametrize("norm", [0.5, 0, -1, np.nan, True, "l1", None, [1]])
def test_what_is_no_norm_is_refused_by_norm_of_as_by_the_solver(norm):
    words = r"norm = .*; it must be 'frobenius', .* an exponent p >= 1"
    with pytest.raises(ValueError, match=words):
        svm.norm_of(np.eye(2), norm)
    with pytest.raises(ValueError, match=words):
        svm.token_svm(tokens.two_examples(), norm=norm)


def test_norm_of_takes_lists_of_rows_and_no_single_row():
    assert svm.norm_of([[1, -2], [3, 4]], 1) == 10
    for W in (np.ones(3), np.ones((2, 0)), np.ones((0, 2))):
        with pytest.raises(ValueError, match=r"W has shape \(.*\); it needs"):
            svm.norm_of(W, 2)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral", 1, 3, np.inf])
def test_no_matrices_have_no_norms(norm):
    assert svm.norm_of(np.zeros((0, 2, 3)), norm).shape == (0,)
