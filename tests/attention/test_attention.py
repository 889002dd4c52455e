"""Tests of losses, softmax slopes and gradients.

An error here would change every training run without a warning.
"""

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import attention
from lib.attention import coordinates, losses, tokens

LOSSES = {
    "exponential": lambda f: torch.exp(-f),
    "logistic": lambda f: torch.nn.functional.softplus(-f),
    "sigmoid": lambda f: torch.sigmoid(-f),
    "reciprocal": lambda f: torch.where(f < 0, 1 - f, 1 / (1 + f.abs())),
}
IN_DIGITS = {  # l and l' by their definitions
    "exponential": (lambda f: mp.exp(-f), lambda f: -mp.exp(-f)),
    "logistic": (lambda f: mp.log1p(mp.exp(-f)), lambda f: -1 / (1 + mp.exp(f))),
    "sigmoid": (
        lambda f: 1 / (1 + mp.exp(f)),
        lambda f: -1 / ((1 + mp.exp(f)) * (1 + mp.exp(-f))),
    ),
    "reciprocal": (
        lambda f: 1 - f if f < 0 else 1 / (1 + f),
        lambda f: mp.mpf(-1) if f < 0 else -1 / (1 + f) ** 2,
    ),
}


@pytest.mark.parametrize("loss", attention.LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_closed_form_gradients_equal_autograd(loss, seed):
    data = tokens.unit_tokens([seed, seed + 10], n=5, T=4, d=7)
    rng = np.random.default_rng(seed)
    W = 2 * rng.standard_normal((2, 7, 7))
    u = rng.standard_normal((2, 7))
    value, grad_W, grad_u = attention.gradients(data, W, u, loss)
    for run in range(2):
        X, y, z = (torch.tensor(a[run]) for a in (data.X, data.y, data.z))
        w = torch.tensor(W[run], requires_grad=True)
        v = torch.tensor(u[run], requires_grad=True)
        p = torch.softmax(torch.einsum("ntd,de,ne->nt", X, w, z), -1)
        total = LOSSES[loss](y * torch.einsum("nt,ntd,d->n", p, X, v)).mean()
        total.backward()
        np.testing.assert_allclose(value[run], total.item(), rtol=1e-12)
        for ours, theirs in ((grad_W[run], w.grad), (grad_u[run], v.grad)):
            assert np.abs(ours - theirs.numpy()).max() <= 1e-12 * np.abs(ours).max()


@pytest.mark.parametrize(
    "side, loss, message",
    [(3, "logistic", "W has shape"), (10, "hinge", "loss must be one of")],
)
def test_bad_input_is_named(side, loss, message):
    data = tokens.unit_tokens(0)
    with pytest.raises(ValueError, match=message):
        attention.gradients(data, np.zeros((1, side, side)), data.u, loss)


@pytest.mark.parametrize("runs, given", [(3, 2), (3, 0), (1, 3), (3, 1)])
def test_a_single_run_is_used_for_all_and_other_numbers_must_agree(runs, given):
    data = tokens.unit_tokens(range(runs))
    W = np.random.default_rng(0).standard_normal((given, 10, 10))
    for name, call in {
        "W": lambda: attention.logits(data, W),
        "u": lambda: attention.scores(data, W[:, 0]),
    }.items():
        if 1 in (runs, given):
            assert call().shape == (3, 6, 8)
        else:
            with pytest.raises(ValueError, match=f"{name} has shape .*; it needs"):
                call()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-2000, 2000), min_size=4, max_size=4),
    # Below 1e-280 a weighted mean of scores has no digits left to compare.
    st.lists(
        st.floats(-5, 5).filter(lambda g: not 0 < abs(g) < 1e-280),
        min_size=4,
        max_size=4,
    ),
    st.sampled_from(attention.LOSSES),
)
def test_slopes_agree_with_many_digits_at_any_logits(a, gamma, loss):
    at = attention.slopes(np.array([a]), np.array([gamma]), loss)
    value, derivative = IN_DIGITS[loss]
    with mp.workdps(60):
        a = [mp.mpf(v) for v in a]
        gamma = [mp.mpf(v) for v in gamma]
        e = [mp.exp(v - max(a)) for v in a]
        p = [v / mp.fsum(e) for v in e]
        lag = mp.fsum(x * (max(gamma) - g) for x, g in zip(p, gamma, strict=True))
        with mp.workdps(2500):  # the scores distinguish l(best - e^-4000) from l(best)
            gap = value(max(gamma) - lag) - value(max(gamma))
        slope = -derivative(mp.fsum(x * g for x, g in zip(p, gamma, strict=True)))
        lead = [
            mp.fsum(x * (top - g) for x, g in zip(p, gamma, strict=True))
            for top in gamma
        ]
        pull = [slope * p[t] * lead[t] for t in range(4)]
        largest = max(abs(v) for v in pull)
        for t in range(4):
            ours = mp.mpf(float(at.pull[0, t])) * mp.exp(mp.mpf(float(at.log_scale)))
            assert abs(ours - pull[t]) <= 1e-9 * largest
        if gap > 0:
            assert abs(mp.mpf(float(at.log_gap)) - mp.log(gap)) <= 1e-9 * max(
                1, abs(mp.log(gap))
            )
        else:
            assert at.log_gap == -np.inf


@pytest.mark.parametrize("loss", attention.LOSSES)
def test_gap_of_a_loss_on_both_sides_of_zero_and_across_it(loss):
    value, _ = IN_DIGITS[loss]
    for best in (-2.0, 0.0, 0.5, 3.0):
        for epsilon in (1e-12, 0.25, 1.0, 7.0):
            with mp.workdps(40):
                gap = mp.log(
                    value(mp.mpf(best) - mp.mpf(epsilon)) - value(mp.mpf(best))
                )
            ours = losses.log_gap(np.log(epsilon), np.float64(best), loss)
            np.testing.assert_allclose(ours, float(gap), rtol=1e-13, atol=1e-13)


def test_log_weights_stay_exact_far_below_the_smallest_float():
    at = attention.slopes(np.array([[0.0, -3e4, -3.1e4]]), np.array([[1.0, 0.0, 0.5]]))
    np.testing.assert_allclose(at.log_weights, [[0.0, -3e4, -3.1e4]], rtol=1e-15)
    # the smallest weight is e^-1000 times the largest
    np.testing.assert_allclose(at.pull[0, :2], [1.0, -1.0])
    np.testing.assert_allclose(at.log_gap, -1.0 - 3e4)


@pytest.mark.parametrize("loss", attention.LOSSES)
@pytest.mark.parametrize("f", [-800.0, -5.0, 0.0, 30.0, 36.9, 37.1, 60.0, 800.0])
def test_log_losses_against_many_digits(f, loss):
    with mp.workdps(400):
        expected = [mp.log(abs(exact(mp.mpf(f)))) for exact in IN_DIGITS[loss]]
    ours = losses.log_loss(np.array(f), loss), losses.log_derivative(np.array(f), loss)
    np.testing.assert_allclose(ours, [float(value) for value in expected], rtol=1e-14)


def test_first_equal_names_the_first_of_equal_tokens_among_others_that_share_an_entry():
    a = [1.0, 2.0]
    b = [1.0, 3.0]
    c = [0.0, 2.0]
    X = [
        [[a, b, a, c, b, a], [c, c, b, a, a, c]],
        [[a, b, c, a, b, c], [b, a, b, b, c, b]],
    ]
    expected = [
        [[0, 1, 0, 3, 1, 0], [0, 0, 2, 3, 3, 0]],
        [[0, 1, 2, 0, 1, 2], [0, 1, 0, 0, 4, 0]],
    ]
    np.testing.assert_array_equal(coordinates.first_equal(np.array(X)), expected)


# Data with tokens that a class shares, repeated tokens, more tokens than coordinates,
# and a wide set that is treated in blocks.
DEGENERATE = {
    "one opt token a class": lambda seed: tokens.class_mean_tokens(
        seed, n=8, T=4, d=60
    ),
    "antipodal": lambda seed: tokens.class_mean_tokens(
        seed, n=8, T=4, d=60, antipodal=True
    ),
    "repeated": lambda seed: tokens.two_token_gaussian(seed, n=4, T=5, d=50),
    "in the plane": lambda seed: tokens.two_examples(),
    "more tokens than coordinates": lambda seed: tokens.unit_tokens(
        seed, n=6, T=8, d=10
    ),
    "wide": lambda seed: tokens.class_mean_tokens(seed, n=4, T=3, d=5000),
}


@pytest.mark.parametrize(
    "kind", [*DEGENERATE, coordinates.BLOCK + 1, 3 * coordinates.BLOCK, 9001]
)
def test_minimal_coordinates_are_orthonormal_and_lead_back(kind):
    if kind in DEGENERATE:
        data = DEGENERATE[kind](0)
    else:
        data = tokens.unit_tokens(range(2), 3, 2, kind)
    space = coordinates.minimal(data)
    for basis, vectors, inside in (
        (space.token_basis, data.X, space.tokens.X),
        (space.query_basis, data.z, space.tokens.z),
    ):
        runs, d, r = basis.shape
        assert r == min(d, vectors[0].size // d)
        back = np.swapaxes(basis, 1, 2)
        vectors = vectors.reshape(runs, -1, d)
        np.testing.assert_allclose(
            back @ basis, np.tile(np.eye(r), (runs, 1, 1)), atol=1e-13
        )
        again = inside.reshape(runs, -1, r) @ back
        np.testing.assert_allclose(again, vectors, atol=1e-13 * np.abs(vectors).max())
    if d < 100:  # a matrix is d x d
        W = np.random.default_rng(0).standard_normal(
            (runs, *space.tokens.X.shape[3:], r)
        )
        np.testing.assert_allclose(space.reduce(space.expand(W))[0], W, atol=1e-12)


@pytest.mark.parametrize("word", ["hinge", "Logistic", "", None])
def test_an_unknown_loss_is_refused_wherever_a_loss_is_named(word):
    one = np.ones(1)
    logits = np.zeros((1, 1, 2))
    calls = [
        lambda: losses.log_loss(one, word),
        lambda: losses.log_derivative(one, word),
        lambda: losses.log_gap(-one, one, word),
        lambda: attention.slopes(logits, logits, word),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="loss must be one of"):
            call()
