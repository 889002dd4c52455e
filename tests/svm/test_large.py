"""Tests of token SVMs with many constraints.

A failure means that a solver is wrong where nobody can check it by hand, or takes
memory that is not there.
"""

import re

import numpy as np
import pytest
from scipy.linalg import cho_solve

from lib import attention, memory, svm
from lib.attention import coordinates
from lib.seeds import stream
from lib.svm import large, max_margin

METHODS = {
    "pivoting": (),
    "interior point": ("interior point",),
    "dual descent": ("dual descent",),
}


def drawn(seed, n, T, r, q, *, solvable=True):
    """Draw tokens whose opt tokens a random W selects, or random opt tokens."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, T, r))
    z = rng.standard_normal((n, q))
    W = rng.standard_normal((r, q))
    opt = np.einsum("ntd,de,ne->nt", X, W, z).argmax(1)
    if not solvable:
        opt = rng.integers(0, T, n)
    return attention.token_set(X, np.ones(n), z=z, opt=opt)


def force(monkeypatch, name):
    """Make `token_svm` take one method, whatever the size."""
    monkeypatch.setattr(large, "methods", lambda *size: METHODS[name])
    monkeypatch.setattr(large, "MOST_PIVOTING", 0)  # and no other one after it


def rows_of(data):
    """Return the constraints of a run, (m, r q), by their definition."""
    delta = coordinates.differences(data, data.opt)[0]
    outer = delta[:, :, :, None] * data.z[0][:, None, None]
    return outer.reshape(len(delta) * delta.shape[1], -1)


@pytest.mark.parametrize("method", ["interior point", "dual descent"])
@pytest.mark.parametrize("sizes", [(40, 6, 8, 8), (60, 5, 3, 2)])
def test_every_method_finds_the_same_w_with_its_certificate(method, sizes, monkeypatch):
    data = drawn(0, *sizes)
    expected = svm.token_svm(data)
    force(monkeypatch, method)
    found = svm.token_svm(data)
    assert found.solver == (method,)
    np.testing.assert_allclose(found.W, expected.W, rtol=1e-8, atol=1e-8)
    A = rows_of(data)
    duals = found.duals.ravel()
    W = found.W.ravel()
    assert (duals >= 0).all()
    assert (A @ W).min() >= 1 - 1e-9
    # The dual value is below every norm, and reaches this one.
    bound = duals.sum() / np.linalg.norm(A.T @ duals)
    assert abs(np.linalg.norm(W) - bound) <= 1e-9 * bound


@pytest.mark.parametrize("sizes", [(60, 5, 3, 2), (200, 9, 4, 4)])
def test_the_interior_point_proves_that_there_is_none(sizes, monkeypatch):
    data = drawn(1, *sizes, solvable=False)
    force(monkeypatch, "interior point")
    with pytest.raises(svm.Infeasible) as caught:
        svm.token_svm(data)
    weights = caught.value.certificate.ravel()
    A = rows_of(data)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    size = np.linalg.norm(A, axis=1) @ weights
    assert np.linalg.norm(A.T @ weights) <= 1e-10 * size


def test_dual_descent_says_nothing_where_there_is_none(monkeypatch):
    data = drawn(1, 60, 5, 3, 2, solvable=False)
    force(monkeypatch, "dual descent")
    with pytest.raises(RuntimeError, match=r"by dual descent on its 240 constraints"):
        svm.token_svm(data)


@pytest.mark.parametrize("kind", ["a sample twice", "integers", "scales", "a turn"])
@pytest.mark.parametrize("method", ["interior point", "pivoting"])
def test_degenerate_problems_are_decided_alike(kind, method, monkeypatch):
    verdicts = []
    for seed in range(12):
        data = drawn(seed, 12, 4, 3, 2)
        X, z, opt = data.X[0].copy(), data.z[0].copy(), data.opt[0].copy()
        if kind == "a sample twice":
            X[6:], z[6:], opt[6:] = X[:6], z[:6], opt[:6]
        elif kind == "integers":
            X, z = np.round(X), np.round(z)
        elif kind == "scales":
            X *= 10.0 ** np.arange(-3, 3).repeat(2)[:, None, None]
        else:  # one opt token is the second best
            logits = X[0] @ np.random.default_rng(seed).standard_normal((3, 2)) @ z[0]
            opt[0] = np.argsort(logits)[-2]
        verdicts.append(attention.token_set(X, np.ones(12), z=z, opt=opt))
    before = [outcome(data) for data in verdicts]
    force(monkeypatch, method)
    if method == "pivoting":
        monkeypatch.setattr(large, "MOST_PIVOTING", 6000)
    for data, (verdict, norm) in zip(verdicts, before, strict=True):
        found, other = outcome(data)
        assert found == verdict
        assert other == pytest.approx(norm, rel=1e-7)


def outcome(data):
    """Return the verdict of `token_svm`, and the norm of W or zero."""
    try:
        return "solved", svm.token_svm(data).norm[0]
    except svm.Infeasible:
        return "infeasible", 0.0


def test_masked_tokens_are_no_constraints(monkeypatch):
    data = drawn(2, 40, 6, 8, 8)
    mask = np.ones((1, 40, 6), bool)
    mask[0, ::2, 5] = data.opt[0, ::2] == 5  # the last token, unless it is the best
    masked = attention.token_set(data.X, data.y, z=data.z, opt=data.opt, mask=mask)
    expected = svm.token_svm(masked)
    for method in ("interior point", "dual descent"):
        with monkeypatch.context() as patch:
            force(patch, method)
            found = svm.token_svm(masked)
        np.testing.assert_allclose(found.W, expected.W, rtol=1e-8, atol=1e-8)
        hidden = np.isnan(found.margins)
        np.testing.assert_array_equal(hidden, np.isnan(expected.margins))
        assert hidden.any()
        assert not found.duals[hidden].any()


def test_thousands_of_constraints_are_solved():
    data = drawn(3, 400, 11, 5, 5)  # 4,000 constraints in 25 unknowns
    solution = svm.token_svm(data)
    assert solution.solver == ("interior point",)
    assert solution.gap[0] <= 1e-9
    assert solution.violation[0] <= 1e-9
    with pytest.raises(svm.Infeasible):
        svm.token_svm(drawn(3, 400, 11, 5, 5, solvable=False))
    wide = attention.unit_tokens(0, n=100, T=10, d=40)  # 900 in 1,600 unknowns
    solution = svm.token_svm(wide)
    assert solution.solver == ("dual descent",)
    assert solution.gap[0] <= 1e-9


def test_what_does_not_fit_is_refused_with_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e5)
    monkeypatch.setattr(large, "ALWAYS_THERE", 1e5)
    with pytest.raises(MemoryError) as caught:
        svm.token_svm(drawn(3, 400, 11, 5, 5))
    sentence = str(caught.value)
    assert "4,000 constraints in 25 unknowns (interior point) needs" in sentence
    assert "0.0 GB are available" in sentence
    assert "samples would fit" in sentence


@pytest.mark.parametrize(
    "norm, size",
    [(3, ""), ("nuclear", " in 6 unknowns, 1,200 entries,")],
)
def test_a_norm_that_would_take_hours_is_refused_with_numbers(norm, size, monkeypatch):
    monkeypatch.setattr(max_margin, "MOST_CONSTRAINTS", 100)
    monkeypatch.setattr(max_margin, "MOST_ENTRIES", 100)
    data = drawn(0, 40, 6, 3, 2)
    with pytest.raises(
        ValueError, match=f"norm {norm}.*: 200 constraints{size} are .* the 100"
    ):
        svm.token_svm(data, norm=norm)


@pytest.mark.parametrize("near", [0.0, 1e-3])
def test_texts_that_begin_alike_are_decided(near):
    """Many samples share their query, exactly or nearly, and have both labels."""
    rng = np.random.default_rng(0)
    n, T, d = 60, 15, 12
    X = rng.standard_normal((n, T, d))
    queries = rng.standard_normal((10, d))[rng.integers(0, 10, n)]
    z = queries + near * rng.standard_normal((n, d))
    data = attention.token_set(X, rng.choice([-1, 1], n), z, rng.standard_normal(d))
    with pytest.raises(svm.Infeasible) as caught:
        svm.token_svm(data)
    error = caught.value
    assert error.one_query == (near == 0)
    assert ("one query" in str(error)) == (near == 0)
    assert (error.certificate >= 0).all()
    delta = coordinates.differences(data, data.opt)[0]
    total = np.einsum("nt,ntd,ne->de", error.certificate, delta, data.z[0])
    assert np.abs(total).max() < 1e-9


def nearly_equal_queries(noise, *, twice=0.0):
    """Make texts with labels of their own whose queries differ by `noise` alone.

    The tokens of the second half equal those of the first, up to a part `twice`.
    """
    draws = stream(0, "data")
    n, T, d = 60, 20, 16
    X = draws.standard_normal((n, T, d))
    if twice:
        X[:, T // 2 :] = X[:, : T // 2] + twice * X[:, T // 2 :]
    z = draws.standard_normal(d) + noise * draws.standard_normal((n, d))
    y = draws.choice([-1, 1], n)
    return attention.token_set(X, y, z, draws.standard_normal(d))


@pytest.mark.parametrize("noise", [1e-1, 1e-2, 1e-3, 1e-4])
def test_nearly_equal_queries_are_separated_by_a_large_w(noise, monkeypatch):
    data = nearly_equal_queries(noise)
    force(monkeypatch, "interior point")
    solution = svm.token_svm(data)
    assert solution.gap[0] <= 1e-9
    margins = rows_of(data) @ solution.W.ravel()
    assert margins.min() >= 1 - 2e-9
    # W has to read the difference of the queries, which shrinks with the noise.
    assert 0.1 / noise < solution.norm[0] < 10 / noise


@pytest.mark.parametrize("twice", [1e-3, 1e-6])
def test_tokens_that_are_nearly_there_twice_are_decided(twice, monkeypatch):
    data = nearly_equal_queries(1.0, twice=twice)
    force(monkeypatch, "interior point")
    verdict, norm = outcome(data)
    monkeypatch.undo()
    assert (verdict, pytest.approx(norm, rel=1e-7)) == outcome(data)


def test_two_samples_of_one_query_that_contradict_each_other_are_named(monkeypatch):
    """Of the same two tokens one sample selects the first, and the other the second."""
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((4, 3, 2)), rng.standard_normal((4, 2))
    X[2], z[2] = X[1], z[1]
    data = attention.token_set(X, np.ones(4), z=z, opt=[0, 0, 1, 0])
    force(monkeypatch, "interior point")
    with pytest.raises(svm.Infeasible) as caught:
        svm.token_svm(data)
    assert caught.value.one_query
    assert set(np.nonzero(caught.value.certificate)[0]) == {1, 2}


@pytest.mark.parametrize(
    "method, sizes",
    [
        ("interior point", (400, 10, 5, 5)),
        ("interior point", (50, 4, 10, 40)),  # fewer samples have fewer unknowns
        ("dual descent", (100, 9, 40, 40)),
        ("pivoting", (50, 4, 10, 40)),
    ],
)
def test_so_many_samples_fit_as_the_message_says(method, sizes, monkeypatch):
    n, S, r, q = sizes
    there = 0.1 * large.memory_of(*sizes, method)
    monkeypatch.setattr(memory, "available", lambda: there)
    monkeypatch.setattr(large, "ALWAYS_THERE", 0.0)
    with pytest.raises(MemoryError) as caught:
        large.check_memory(*sizes, method)
    (fits,) = re.findall(r"about ([\d,]+) samples would fit", str(caught.value))
    fits = int(fits.replace(",", ""))

    def needed(count):
        return large.memory_of(count, S, r, min(q, count), method)

    assert needed(fits) <= there < needed(1.2 * fits + 1)
    assert fits > 1


def axes_and_diagonal():
    """Return the rows e_1, e_2 and (1, 1)/sqrt(2), of samples of their own.

    They ask for 1, 1/2 and 1.5/sqrt(2), the margins of w = (1, 1/2).
    """
    half = 0.5**0.5
    delta = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[half, half]]])
    return large.Rows(
        delta=delta, z=np.ones((3, 1)), b=np.array([[1], [0.5], [1.5 * half]])
    )


def test_exchanges_end_where_a_constraint_off_the_support_is_tight():
    rows = axes_and_diagonal()
    for support in ([1, 1, 0], [1, 0, 0], [0, 0, 1]):
        duals = np.array([[3.0], [2.0], [1.0]])
        found = large.exchange(rows, duals, np.array(support, bool)[:, None])
        assert (found >= 0).all()
        np.testing.assert_allclose(rows.weights(found).ravel(), [1, 0.5])


def test_the_gap_closes_at_the_solution_alone():
    rows = axes_and_diagonal()
    x = np.array([[1.0], [0.5], [0.0]])

    def gap(v, tau=1.0):
        pulled = np.append(rows.weights(x).ravel(), -(x * rows.b).sum())
        return large._gap(rows, np.array([*v, tau]), x, pulled)

    assert gap((1, 0.5)) == pytest.approx(0, abs=1e-14)
    assert gap((2, 1)) == pytest.approx(
        0, abs=1e-14
    )  # a multiple is the same direction
    # Its least margin is 1, its norm sqrt(2); the dual value is sqrt(5)/2.
    assert gap((1, 1)) == pytest.approx(1 - (5 / 8) ** 0.5)
    assert gap((1, -1)) == gap((1, 0.5), tau=0) == np.inf


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_the_normal_matrix_is_the_identity_and_the_weighted_rows(tau):
    rng = np.random.default_rng(0)
    n, S, r, q = 5, 3, 3, 2
    delta, z = rng.standard_normal((n, S, r)), rng.standard_normal((n, q))
    b, theta = rng.uniform(0.1, 1, (2, n, S))
    rows = large.Rows(delta=delta, z=z, b=b)
    factor = large._NormalMatrix(rows).factor(theta, tau=tau)
    outer = np.einsum("ntr,nq->ntrq", delta, z).reshape(n * S, -1)
    A = np.c_[outer, -tau * b.ravel()]
    matrix = np.eye(r * q + 1) + A.T @ (theta.reshape(-1, 1) * A)
    right = rng.standard_normal(r * q + 1)
    found = cho_solve((factor, True), right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-10)
