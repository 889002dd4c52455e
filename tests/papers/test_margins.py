"""What is read off a history: selections, margins, duals; and that long runs stay exact."""

import decimal

import numpy as np
import pytest

from lib import attention, dynamics
from lib.attention import coordinates, tokens
from papers.beyond import margins


@pytest.fixture(scope="module")
def trained():
    """Unit tokens, two of whose runs end in other selections than the opt tokens."""
    problem = coordinates.minimal(tokens.unit_tokens(range(6), n=6, T=8, d=10))
    history = dynamics.train(problem, dynamics.ngd(0.5), 2000, [0, 500, 1000, 2000])
    return problem.tokens, history


def test_selection_and_margins_are_those_of_the_logits(trained):
    data, history = trained
    selected = margins.selection(history, data.opt)
    relative = margins.relative_margins(history, data.opt, selected)
    for k in range(4):
        logits = attention.logits(data, history.weights(k))
        own = np.take_along_axis(logits, selected[..., None], -1)
        rest = np.take_along_axis(logits, coordinates.others(selected, 8), -1)
        np.testing.assert_allclose(relative[:, k], own - rest, rtol=1e-9, atol=1e-8)
    assert (selected == logits.argmax(-1)).all() and (selected != data.opt).any()
    assert (margins.selection(history, data.opt, 0) == data.opt).all()  # at W_0 = 0 all are level


def test_recovered_duals_are_the_pulls_of_the_gradient(trained):
    data, history = trained
    selected = margins.selection(history, data.opt)
    relative = margins.relative_margins(history, data.opt, selected)[:, -1]
    scores = attention.scores(data, data.u)
    place = coordinates.others(selected, 8)
    gap = np.take_along_axis(scores, selected[..., None], -1)
    gap = gap - np.take_along_axis(scores, place, -1)
    own = np.take_along_axis(scores, selected[..., None], -1)
    with np.errstate(invalid="ignore"):
        shares = margins.recovered_duals(relative, np.log(gap) - own)
    at = attention.slopes(attention.logits(data, history.weights(3)), scores)
    pull = -np.take_along_axis(at.pull, place, -1)
    pull = np.where(gap > 0, pull, 0.0) / pull.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(shares, pull, atol=1e-7)
    np.testing.assert_allclose(shares.sum((1, 2)), 1.0)


def test_difference_of_iterates_is_the_difference(trained):
    _, history = trained
    step = history.weights(3) - history.weights(1)
    assert (margins.difference(history, 1, -1) == step).all()
    with pytest.raises(ValueError, match="records must ascend"):
        margins.difference(history, 2, 2)


def test_a_run_that_ended_is_named():
    data = tokens.unit_tokens(0, n=2, T=2, d=4)
    rule = dynamics.custom(lambda t, log_gap, log_norm: np.where(t < 5, 0.0, np.inf) + 0 * log_norm)
    history = dynamics.train(data, rule, 20, [0, 10, 20])
    with pytest.raises(ValueError, match="run 0 ended as 'diverged' at iteration 5"):
        margins.selection(history, data.opt)


def test_parts_along_and_off_obey_pythagoras():
    draw = np.random.default_rng(0)
    V, W = draw.standard_normal((2, 4, 5, 3))
    along, off = margins.along_and_off(W, V)
    np.testing.assert_allclose(np.hypot(along, off), np.linalg.norm(W, axis=(1, 2)))
    far = 1e9 * V + W
    unit = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
    naive = np.linalg.norm(
        far / np.linalg.norm(far, axis=(1, 2), keepdims=True) - unit, axis=(1, 2)
    )
    np.testing.assert_allclose(margins.direction_error(far, V), naive, rtol=1e-5)
    np.testing.assert_allclose(margins.direction_error(-V, V), 2.0)
    np.testing.assert_allclose(
        margins.direction_error(3 * V, V, np.ones(4)),
        2 * np.sin(np.arctan(1 / (3 * np.linalg.norm(V, axis=(1, 2)))) / 2),
    )


def test_outside_the_support_is_what_no_combination_reaches(trained):
    data, _ = trained
    draw = np.random.default_rng(1)
    support = draw.random((6, 6, 7)) < 0.4
    delta = coordinates.differences(data, data.opt)
    weights = np.where(support, draw.standard_normal(support.shape), 0.0)
    inside = np.einsum("rnt,rntd,rne->rde", weights, delta, data.z)
    assert margins.outside_support(data, data.opt, support, inside).max() < 1e-10
    W = draw.standard_normal(inside.shape)
    left = margins.outside_support(data, data.opt, support, W)
    for run in range(6):
        rows = np.einsum("ntd,ne->ntde", delta[run], data.z[run])[support[run]]
        rows = rows.reshape(len(rows), -1)
        fit = rows.T @ np.linalg.lstsq(rows.T, W[run].ravel(), rcond=None)[0]
        np.testing.assert_allclose(left[run], np.linalg.norm(W[run].ravel() - fit))


def test_residual_is_what_is_left_in_the_span_across_the_solution(trained):
    data, _ = trained
    draw = np.random.default_rng(2)
    support = draw.random((6, 6, 7)) < 0.4
    delta = coordinates.differences(data, data.opt)
    pulled = lambda w: np.einsum("rnt,rntd,rne->rde", np.where(support, w, 0.0), delta, data.z)
    V, rho = (pulled(draw.standard_normal(support.shape)) for _ in range(2))
    rho -= np.einsum("rij,rij->r", rho, V)[:, None, None] * V / np.sum(V**2, (1, 2), keepdims=True)
    W = draw.standard_normal(V.shape)
    omega = W - margins.span_part(data, data.opt, support, W)
    assert (np.linalg.norm(omega, axis=(1, 2)) > 0.1).all()
    found = margins.residual(data, data.opt, support, 1e5 * V + rho + 7.0 * omega, V)
    np.testing.assert_allclose(found, np.linalg.norm(rho, axis=(1, 2)), rtol=1e-7)


def test_margins_and_weights_do_not_drift_apart_in_a_million_steps():
    problem = coordinates.minimal(tokens.unit_tokens(2, n=3, T=3, d=5))
    history = dynamics.train(problem, dynamics.ngd(0.2), 1_000_000, [1_000_000])
    logits = attention.logits(problem.tokens, history.weights(0))
    opt = np.take_along_axis(logits, problem.tokens.opt[..., None], -1)
    rest = np.take_along_axis(logits, coordinates.others(problem.tokens.opt, 3), -1)
    assert np.abs(history.margins[:, 0]).max() > 1e4
    assert np.abs(opt - rest - history.margins[:, 0]).max() < 1e-9  # plain sums: 1e-6


def test_twenty_thousand_steps_agree_with_30_digits():
    """The kernel's recursion in 30 digits on a small twin, margins and W to the last digits."""
    steps, step = 20_000, 0.2
    problem = coordinates.minimal(tokens.unit_tokens(2, n=3, T=3, d=5))
    data = problem.tokens
    history = dynamics.train(problem, dynamics.ngd(step), steps, [steps])
    delta = coordinates.differences(data, data.opt)[0]
    K = coordinates.gram(delta[None], data.z)[0]
    scores = attention.scores(data, data.u)[0]
    own = np.take_along_axis(scores, data.opt[0][:, None], -1)
    gaps = own - np.take_along_axis(scores, coordinates.others(data.opt, 3)[0], -1)
    digits = np.vectorize(decimal.Decimal, otypes=[object])
    with decimal.localcontext(prec=30):
        K, gaps, own, eta = digits(K), digits(gaps), digits(own[:, 0]), decimal.Decimal(step)
        g, alpha = digits(np.zeros(6)), digits(np.zeros(6))
        for _ in range(steps):
            odds = np.array([(-margin).exp() for margin in g]).reshape(3, 2)
            weights = odds / (1 + odds.sum(1))[:, None]
            lag = (weights * gaps).sum(1)
            slope = np.array([x.exp() for x in lag - own])
            c = (slope[:, None] * weights * (gaps - lag[:, None])).ravel()
            k = K @ c
            scale = eta / (c @ k).sqrt()
            g, alpha = g + scale * k, alpha + scale * c
        exact_g, exact = g.astype(float), alpha.astype(float)
    W = np.einsum("nt,ntd,ne->de", exact.reshape(3, 2), delta, data.z[0])
    assert exact_g.max() > 500
    np.testing.assert_allclose(history.margins[0, 0].ravel(), exact_g, rtol=1e-12)
    np.testing.assert_allclose(history.weights(0)[0], W, atol=1e-12 * np.abs(W).max())
