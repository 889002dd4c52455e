"""Natural gradient and full-matrix AdaGrad: against many digits, torch, and in degenerate cases."""

import mpmath
import numpy as np
import pytest
import torch

from lib import attention
from lib.attention import tokens
from papers.beyond.engine import matrix_moments, training
from papers.beyond.engine import optimisers as o
from tests.papers.engine import exact

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))


def ours(rule, steps, start=START, data=DATA, loss="exponential"):
    return training.train(data, rule, steps, start, [steps], loss).W[0, -1]


NATURAL = {
    "undamped": o.natural(0.02, normalised=True),
    "damped": o.natural(0.02, 0.1),
    "damped, normalised": o.natural(0.02, 1e-3, normalised=True),
    "relative": o.natural(0.02, 0.1, relative=True, normalised=True),
    "empirical": o.natural(0.02, 0.05, empirical=True),
    "empirical, relative": o.natural(0.02, 1e-6, True, True, True),
}


@pytest.mark.parametrize("name", NATURAL)
@pytest.mark.parametrize("far", [1.0, 900.0])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_natural_gradient_against_many_digits(name, far, loss):
    rule = NATURAL[name]
    with mpmath.workdps(60 if far == 1 else 2500):
        expected = exact.natural(DATA, rule, 8, far * START[0], loss)
    found, moved = ours(rule, 8, far * START, loss=loss), np.abs(expected - far * START[0]).max()
    assert np.abs(found - expected).max() <= max(1e-9 * moved, 1e-13 * np.abs(expected).max())
    assert moved > 0.01 or far > 1 and not rule.normalised  # e^-900 over lambda is no step


def test_batches_against_many_digits():
    rule = o.natural(0.02, 0.1, relative=True)
    with mpmath.workdps(60):
        expected = exact.natural(DATA, rule, 6, START[0], "logistic", size=1)
    found = ours(o.on_batches(rule, 1), 6, loss="logistic")
    np.testing.assert_allclose(found, expected, atol=1e-11)


def test_the_fisher_matrix_is_that_of_the_labels():
    """sum over y of P(y) times the score's outer product, by torch; logistic loss."""
    X, z, y, u = (torch.from_numpy(a[0]) for a in (DATA.X, DATA.z, DATA.y, DATA.u))
    W = torch.tensor(START[0], requires_grad=True)
    fisher, down = torch.zeros(16, 16, dtype=torch.float64), 0
    for i in range(3):
        for label in (1.0, -1.0):
            log_p = torch.nn.functional.logsigmoid(
                label * (u @ (X[i].T @ torch.softmax(X[i] @ W @ z[i], 0)))
            )
            (score,) = torch.autograd.grad(log_p, W)
            fisher += log_p.exp().item() * torch.outer(score.ravel(), score.ravel()) / 3
            down = down + (score.ravel() / 3 if label == y[i] else 0)
    D = (
        torch.linalg.solve(fisher + 0.01 * torch.eye(16, dtype=torch.float64), down)
        .reshape(4, 4)
        .numpy()
    )
    step = ours(o.natural(1.0, 0.01), 1, loss="logistic") - START[0]
    np.testing.assert_allclose(step, D, rtol=1e-9, atol=1e-12)
    D = (torch.linalg.pinv(fisher, rtol=1e-12) @ down).reshape(4, 4).numpy()
    step = ours(o.natural(1.0), 1, loss="logistic") - START[0]
    np.testing.assert_allclose(step, D, rtol=1e-6, atol=1e-9)


def test_large_damping_is_gradient_descent():
    found = ours(o.natural(1e9, 1e9), 10)
    np.testing.assert_allclose(found, ours(o.steepest(2, 1.0, normalised=False), 10), rtol=1e-7)


def test_equal_samples_count_as_one():
    pair = [np.zeros(2), [-1.0, 0.0]]
    once = attention.token_set([pair], [1.0], z=[[1.0]], u=[1.0, 0.0])
    twice = attention.token_set([pair, pair], [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 0.0])
    start = np.zeros((1, 2, 1))
    for rule in (o.natural(0.1), o.natural(0.1, 0.3), o.natural(0.1, 0.3, True)):
        np.testing.assert_allclose(
            ours(rule, 5, start, twice), ours(rule, 5, start, once), rtol=1e-12
        )
        assert ours(rule, 5, start, once)[1, 0] == 0.0


def plane(random, deltas):
    """Samples of a zero token and of one other, whose pulls lie along `deltas` (n, 2)."""
    n = len(deltas)
    X = [[np.zeros(2), delta] for delta in deltas]
    return attention.token_set(X, np.ones(n), z=np.ones((n, 1)), u=random.standard_normal(2))


def test_of_three_pulls_in_a_plane_the_two_largest_decide():
    """<grad f_i, D> = |l'|/l'' = 1 for these; size: sqrt(l'') max |grad f|."""
    random = np.random.default_rng(0)
    for _ in range(20):
        data = plane(random, random.standard_normal((3, 2)))
        W = random.standard_normal((1, 2, 1))
        f, slopes = (part.astype(float) for part in exact.answers(data, W[0]))
        larger = np.argsort(f - 2 * np.log(np.abs(slopes).max((1, 2))))[:2]
        step = ours(o.natural(1.0), 1, W, data) - W[0]
        np.testing.assert_allclose((slopes * step).sum((1, 2))[larger], 1, rtol=1e-9)


def test_pulls_a_hundredth_apart_both_decide():
    random = np.random.default_rng(1)
    data = plane(random, [[1.0, 0.0], [1.0, 0.01]])
    W = random.standard_normal((1, 2, 1))
    _, slopes = (part.astype(float) for part in exact.answers(data, W[0]))
    step = ours(o.natural(1.0), 1, W, data) - W[0]
    np.testing.assert_allclose((slopes * step).sum((1, 2)), 1, rtol=1e-9)


def test_undamped_and_not_normalised_it_diverges_and_says_so():
    path = training.train(DATA, o.natural(1.0), 500, record=[0, 500])
    assert path.status.tolist() == ["diverged"] and 0 < path.ended[0] < 500


def test_full_matrix_adagrad_against_many_digits():
    with mpmath.workdps(50):
        direction = exact.full_adagrad(matrix_moments.FLOOR)
        expected = exact.train(DATA, direction, 0.1, 12, START[0])
    np.testing.assert_allclose(ours(o.full_adagrad(0.1), 12), expected, atol=1e-8)


def test_full_matrix_adagrad_where_the_softmax_underflows():
    """Its first step is G / ||G||, whatever the gradient's size, and stays in the pulls' span."""
    with mpmath.workdps(1200):
        direction = exact.full_adagrad(matrix_moments.FLOOR)
        expected = exact.train(DATA, direction, 0.1, 3, 900 * START[0])
    np.testing.assert_allclose(ours(o.full_adagrad(0.1), 3, 900 * START), expected, atol=1e-9)
    step = ours(o.full_adagrad(0.1), 1, 900 * START) - 900 * START[0]
    assert np.linalg.norm(step) == pytest.approx(0.1, rel=1e-9)


def test_one_pulled_entry_is_adagrad():
    data = attention.token_set([[np.zeros(2), [-1.0, 0.0]]], [1.0], z=[[1.0]], u=[1.0, 0.0])
    start = np.zeros((1, 2, 1))
    expected = ours(o.adagrad(0.1), 50, start, data)
    np.testing.assert_allclose(ours(o.full_adagrad(0.1), 50, start, data), expected, rtol=1e-11)
    assert expected[1, 0] == 0.0


def test_a_gradient_of_zero_stalls():
    data = attention.token_set([np.zeros((2, 2))], [1.0], z=[[1.0]], u=[1.0, 0.0], opt=[0])
    for rule in (o.natural(0.1), o.natural(0.1, 1.0), o.full_adagrad(0.1)):
        path = training.train(data, rule, 5, record=[0, 5])
        assert path.status.tolist() == ["stalled"] and path.ended.tolist() == [0]


def test_bad_damping_is_named():
    for damping in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="damping"):
            o.natural(0.1, damping)
