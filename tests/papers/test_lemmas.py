"""Formulas of paper C's lemmas, each on an input of a few numbers."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import tokens
from lib.mirror import geometry
from papers.c import lemmas
from papers.wrong_worlds import World

DATA = tokens.unit_tokens(range(2), n=3, T=4, d=6)
EXPONENTS = [1.3, 2, 3]
SMALL = {p: lemmas.select(DATA, DATA.opt, p) for p in EXPONENTS}
DRAW = np.random.default_rng(0)
SHAPE = SMALL[2].solution.W.shape


def measured(claims):
    return {claim.id: claim.measured for claim in claims}


def loss_of(data, W, opt=None):
    """Return the logistic loss of each run at W, or that of attending to `opt` only."""
    losses = []
    for run, y in enumerate(data.y):
        values = []
        for i, x in enumerate(data.X[run]):
            score = y[i] * x @ data.u[run]
            logits = x @ W[run] @ data.z[run, i]
            weights = np.exp(logits - max(logits))
            f = weights @ score / weights.sum() if opt is None else score[opt[run, i]]
            values.append(np.log1p(np.exp(-f)))
        losses.append(np.mean(values))
    return np.array(losses)


def descent(data, W, toward):
    """Return <-grad L(W), V> of each run."""
    gradient = attention.gradients(data, W, data.u, "logistic")[1]
    return -(gradient * toward.reshape(gradient.shape)).sum((1, 2))


def test_random_matrices_have_entries_from_a_hundredth_to_a_thousand():
    data = tokens.unit_tokens([0, 1], n=2, T=2, d=30)
    drawn = lemmas.random_matrices(data, 3)
    assert drawn.shape == (3, 2, 30, 30)
    sizes = drawn.std((1, 2, 3))
    np.testing.assert_allclose(sizes, [0.01, np.sqrt(10), 1000], rtol=0.08)


def test_the_spread_is_that_of_the_two_tokens_farthest_apart():
    X = np.array([[[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]])
    data = attention.token_set(X=X, y=[1], z=[[0.5, 0.0]], u=[1.0, 0.0])
    np.testing.assert_allclose(lemmas.spread(data, 2.0), [[2.5]])
    np.testing.assert_allclose(lemmas.spread(data, 1.0), [[3.5]])


def test_the_bounds_of_lemma_16_are_attained_far_along_both_solutions():
    low, high = lemmas.lemma16(DATA, DRAW.standard_normal((2, *SHAPE)))
    assert low.measured == pytest.approx(1.0, abs=1e-12) and low.holds
    assert high.measured == pytest.approx(1.0, abs=1e-12) and high.holds


def test_lemma_16_measures_the_losses_of_the_matrices_themselves(monkeypatch):
    """Without the two solutions, W = 0 and a random W decide."""
    nothing = SimpleNamespace(W=np.zeros(SHAPE))
    monkeypatch.setattr(svm, "token_svm", lambda *how: nothing)
    matrices = np.stack([np.zeros(SHAPE), 5 * DRAW.standard_normal(SHAPE)])
    losses = np.array([loss_of(DATA, W) for W in matrices])
    scores = DATA.y[..., None] * np.einsum("rntd,rd->rnt", DATA.X, DATA.u)
    best, worst = (
        loss_of(DATA, matrices[0], opt)
        for opt in (scores.argmax(-1), scores.argmin(-1))
    )
    low, high = lemmas.lemma16(DATA, matrices)
    assert low.measured == pytest.approx((losses / best).min())
    assert high.measured == pytest.approx((losses / worst).max())


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_two_misclassified_tokens_attain_the_bound_of_lemma_18(p):
    claim = lemmas.lemma18(DATA, np.zeros((1, *SHAPE)), p)
    assert claim.measured == pytest.approx(1.0, abs=1e-9) and claim.holds


def test_the_largest_ratio_of_lemma_18_counts(monkeypatch):
    ratios = iter([[np.array([0.2, 0.7]), np.array([0.9, 0.1])], [np.array([0.5])]])
    monkeypatch.setattr(lemmas, "_gradient_over_bound", lambda *how: next(ratios))
    assert lemmas.lemma18(DATA, None, 2).measured == 0.9


@pytest.mark.parametrize("size", [0.0, 1.0, 10.0])
def test_the_excess_loss_is_the_loss_less_that_of_the_opt_tokens(size):
    W = size * np.random.default_rng(1).standard_normal(SHAPE)
    expected = loss_of(DATA, W) - loss_of(DATA, W, DATA.opt)
    np.testing.assert_allclose(lemmas._excess_loss(DATA, W), expected, rtol=1e-9)


def test_far_along_the_solution_the_excess_loss_is_that_of_the_library():
    W = 300 * SMALL[2].solution.W
    scores = attention.scores(DATA, DATA.u)
    log_gap = attention.slopes(attention.logits(DATA, W), scores, "logistic").log_gap
    np.testing.assert_allclose(np.log(lemmas._excess_loss(DATA, W)), log_gap)


def test_steps_are_the_pairs_of_consecutive_records():
    rule = dynamics.MirrorDescent(3, 0.05)
    W = DRAW.standard_normal((2, 5, 6, 6))
    history = SimpleNamespace(
        iterations=np.array([0, 1, 5, 6, 7]), W=W, loss_rise=np.array([-1, 4])
    )
    steps = lemmas.Steps(DATA, history, rule)
    flat = W.reshape(2, 5, 36)
    np.testing.assert_array_equal(steps.W, flat[:, [0, 2, 3]])
    np.testing.assert_array_equal(steps.later, flat[:, [1, 3, 4]])
    for pair, k in enumerate([0, 2, 3]):
        gradient = attention.gradients(DATA, W[:, k], DATA.u, "logistic")[1]
        gradient = gradient.reshape(2, 36)
        np.testing.assert_allclose(steps.gradient[:, pair], gradient)
        size = (np.abs(gradient) ** 1.5).sum(-1) ** (2 / 3)
        np.testing.assert_allclose(steps.eta[:, pair], 0.05 / size)
        for side, at in zip(steps.losses, (k, k + 1), strict=True):
            expected = loss_of(DATA, W[:, at]) - loss_of(DATA, W[:, at], DATA.opt)
            np.testing.assert_allclose(side[:, pair], expected)
    plain = lemmas.Steps(DATA, history, replace(rule, normalised=False))
    assert plain.eta == 0.05 and plain.loss_rise.tolist() == [-1, 4]


@pytest.mark.parametrize(
    "p, growth", [(1.5, 3**0.5 - 1), (2, 2.0), (3, 8.0), (4, 26.0)]
)
def test_the_mirror_image_grows_like_the_norm_to_the_power_p_minus_1(p, growth):
    step = SimpleNamespace(W=np.array([[1.0, 0.0]]), later=np.array([[0.0, -3.0]]), p=p)
    assert lemmas._growth(step) == pytest.approx([growth])


@pytest.mark.parametrize("p, power", [(1.5, 1 / 6), (3, -1 / 6), (4, -1 / 4), (2, 0)])
def test_lemma_12_is_attained_by_equal_entries_and_by_a_single_one(p, power):
    """Of four equal entries ||W||_p is 4^{1/p - 1/2} ||W||_F, of one it is ||W||_F."""
    W = np.array([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -2.0, 0.0]])
    (low, size), (same, high) = lemmas.lemma12(W, p)
    np.testing.assert_allclose(size, [2 * 4**power, 2])
    np.testing.assert_array_equal(same, size)
    ends = sorted([2.0, 2 * 4**power])
    np.testing.assert_allclose(low, [ends[0]] * 2)
    np.testing.assert_allclose(high, [ends[1]] * 2)


def test_lemma_14_by_hand():
    """At p = 3, x = 3 and y = 2 it says 2 * 5 <= (2/3)(27 - 8) <= 3 * 5."""
    (low, middle), (same, high) = lemmas.lemma14(3.0, 2.0, 3)
    assert (low, high) == (10, 15)
    assert same == middle == pytest.approx(38 / 3)
    (low, middle), (_, high) = lemmas.lemma14(4.0, 1.0, 1.5)
    assert (low, middle, high) == pytest.approx((1, 7 / 3, 4))


@pytest.mark.parametrize(
    "x, y, p, sides",
    [
        (3.0, 2.0, 3, [(4, 5), (5, 6)]),
        (4.0, 1.0, 1.5, [(0.75, 1), (1, 1.5)]),
        (2.0, 1.0, 4, [(3, 7), (7, 12)]),
        (3.0, 1.0, 2, [(2, 2), (2, 2)]),
    ],
)
def test_lemma_15_by_hand(x, y, p, sides):
    np.testing.assert_allclose(lemmas.lemma15(x, y, p), sides)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_lemma_30_asks_for_the_slope_that_the_radius_itself_bends(p):
    """With r = a log k the slope is a / ||W_mm||, from the iteration `since` on."""
    iterations = np.array([1, 5, 10, 100, 1000])
    a = np.array([[2.0], [3.0], [5.0], [9.0]])
    r = a * np.log(iterations)
    r[:, :2] = 70.0  # before `since`
    size = np.array([2.0, 4.0, 4.0, 1.0])
    mean = a[:, 0] * np.log(10) * 2
    ratio = a[:, 0] / size * (1 + (p - 2) * size / mean)
    history = SimpleNamespace(iterations=iterations, own_norm=r)
    stay = np.array([True, True, True, False])
    least, sharp = lemmas.lemma30(history, p, size, 10, stay)
    assert least.measured == pytest.approx(ratio[:3].min())
    assert sharp.measured == pytest.approx(np.median(ratio[:3]))
    assert "3 of 4" in least.statement or "3" in least.statement


def with_margins(selection, margins, scores=None):
    """Return a selection with invented margins, and with tokens of invented scores."""
    data = selection.tokens
    if scores is not None:
        X = data.y[..., None, None] * scores[..., None] * data.u[:, None, None]
        X = X / (data.u**2).sum(-1)[:, None, None, None]
        data = replace(data, X=X)
    solution = replace(selection.solution, margins=margins)
    return lemmas.Selection(data, solution, selection.p)


def scores_with_first_other(value):
    """Return scores 2 of the opt tokens and 0 of all others, but for one of run 0."""
    scores = np.zeros((2, 3, 4))
    np.put_along_axis(scores, DATA.opt[..., None], 2.0, -1)
    place = 0 if DATA.opt[0, 0] else 1
    scores[0, 0, place] = value
    return scores


@pytest.mark.parametrize(
    "score, margin, optimal",
    [
        (1.9, 1.0, True),
        (2.1, 1.0, False),
        (2.1, 1 + 0.5e-6, False),
        (2.1, 1 + 2e-6, True),
        (2.1, 1.5, True),
    ],
)
def test_only_a_better_token_of_margin_one_is_against_definition_3(
    score, margin, optimal
):
    margins = np.ones((2, 3, 3))
    margins[0, 0, 0] = margin
    near = with_margins(SMALL[2], margins, scores_with_first_other(score))
    assert lemmas.locally_optimal(near).tolist() == [optimal, True]


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_edge_is_reached_to_many_digits(p):
    near = SMALL[p]
    E = DRAW.standard_normal((3, *near.direction.shape))
    mu = np.array([0.02, 0.1])
    W = lemmas._edge_along(near, mu, E)
    np.testing.assert_allclose(geometry.norm(W, p), 1)
    D = geometry.directional_bregman(W, near.direction, p)
    np.testing.assert_allclose(D, np.broadcast_to(mu, (3, 2)), rtol=1e-9)
    # W is a positive combination of W_mm and E.
    for k, run in np.ndindex(3, 2):
        pair = np.stack([near.direction[run], E[k, run]], 1)
        parts, rest, *_ = np.linalg.lstsq(pair, W[k, run], rcond=None)
        assert (parts > 0).all() and rest < 1e-20


def test_a_direction_that_stays_inside_is_followed_to_the_end():
    near = SMALL[2]
    E = DRAW.standard_normal((1, *near.direction.shape))
    found = lemmas._edge_along(near, np.full(2, 2.5), E)[0]
    mixed = lemmas._edge_along(near, np.array([0.05, 2.5]), E)[0]
    far = near.direction + np.exp(10.0) * E[0]
    far /= np.linalg.norm(far, axis=-1)[:, None]
    np.testing.assert_allclose(found, far, rtol=0, atol=1e-9)
    # Another run that reaches its edge before does not change that.
    np.testing.assert_allclose(mixed[1], far[1], rtol=0, atol=1e-9)
    D = geometry.directional_bregman(mixed[0], near.direction[0], 2)
    assert D == pytest.approx(0.05)


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_directions_of_the_margins_come_with_both_signs(p):
    E = lemmas._margin_edges(SMALL[p])
    assert len(E) == 2 * 9
    np.testing.assert_array_equal(E[:9], -E[9:])


@pytest.mark.parametrize(
    "slacks, words",
    [
        ([1.0, 1.2, 1.0, 0.9, 0.8], "up to 100 mu_0"),
        ([1.0, 0.9, 1.2, 1.2, 1.2], "up to 1 mu_0"),
        ([2.0, 1.5, 1.5, 1.5, 1.0], "up to 10,000 mu_0"),
        ([0.9, 2.0, 2.0, 2.0, 2.0], ""),
    ],
)
def test_lemma_19_says_how_far_its_equations_hold(monkeypatch, slacks, words):
    near = SMALL[2]

    def slack(selection, mu):
        cones = [10.0**k * lemmas.radius(near) for k in range(5)]
        return slacks[[np.allclose(mu, cone) for cone in cones].index(True)]

    monkeypatch.setattr(lemmas, "_slack", slack)
    claim = lemmas.lemma19(near)
    assert claim.measured == slacks[0] and words in claim.statement
    assert ("up to" in claim.statement) == bool(words)


@pytest.mark.parametrize("p", EXPONENTS)
def test_pi_is_the_ratio_of_the_two_inner_products_with_the_gradient(p):
    near = SMALL[p]
    W = near.direction + 0.2 * DRAW.standard_normal(near.direction.shape)
    size = (np.abs(W) ** p).sum(-1) ** (1 / p)
    at = W.reshape(SHAPE)
    along = descent(DATA, at, W) / size
    expected = along / descent(DATA, at, near.direction) - 1
    np.testing.assert_allclose(lemmas._excess(near, W), expected, rtol=1e-9)


@pytest.mark.parametrize("p", EXPONENTS)
def test_radii_are_multiples_over_the_nearness(p):
    found = lemmas._radii(SMALL[p], [2.0, 6.0])
    nearness = lemmas._nearness(SMALL[p])
    np.testing.assert_allclose(found * nearness, [[2, 2], [6, 6]])


def test_lemma_21_takes_the_worst_run_and_the_largest_earlier_radius(monkeypatch):
    """pi R / log R is invented: it falls in run 0 and peaks in between in run 1."""
    near = SMALL[2]
    multiples = np.array([5.0, 50.0, 500.0])
    radii = lemmas._radii(near, multiples)
    shares = np.array([[3.0, 1.0], [2.0, 4.0], [1.0, 3.5]])

    def largest(selection, at, E):
        np.testing.assert_array_equal(at, radii)
        return shares * np.log(radii) / radii

    monkeypatch.setattr(lemmas, "_largest_pi", largest)
    claim = lemmas.lemma21(near, multiples, 1)
    assert claim.measured == pytest.approx(3.5 / 4) and claim.holds
    shares[2, 0] = -1e-9  # No positive pi is found at the last radius.
    assert not lemmas.lemma21(near, multiples, 1).holds


def test_lemma_21_moves_along_both_signs_and_along_the_margins(monkeypatch):
    near = SMALL[2]
    tried = []

    def largest(selection, radii, E):
        tried.append(E)
        return 1 / radii

    monkeypatch.setattr(lemmas, "_largest_pi", largest)
    lemmas.lemma21(near, np.array([5.0, 50.0]), 2)
    (E,) = tried
    np.testing.assert_array_equal(E[:2], -E[2:4])
    np.testing.assert_array_equal(E[4:], lemmas._margin_edges(near))


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_21_looks_at_its_shifts_and_at_shares_of_the_cone(monkeypatch, p):
    near = SMALL[p]
    tried = []

    def excess(selection, W):
        tried.append(W)
        return W[:, 0]

    monkeypatch.setattr(lemmas, "_excess", excess)
    radii = lemmas._radii(near, [5.0, 5e8])
    E = lemmas._margin_edges(near)
    largest = lemmas._largest_pi(near, radii, E)
    shifts = len(lemmas.SHIFTS)
    W = np.array(tried).reshape(2, shifts + len(lemmas.SHARES), *E.shape)
    np.testing.assert_array_equal(largest, W[..., 0].max((1, 2)))
    sizes = radii * near.solution.norm
    found = geometry.norm(W, p) / sizes[:, None, None]
    np.testing.assert_allclose(found, 1, rtol=1e-12)
    # All lie in the cone of mu_0, and the first share is on its edge.
    D = lemmas.near_divergence(W, near.direction, p) / lemmas.radius(near)
    assert (D <= 1 + 1e-6).all()
    np.testing.assert_allclose(D[:, shifts], 1, rtol=1e-6)
    # Far out the shifts are reached. To keep the norm, W changes the margins a little.
    rows = lemmas._constraint_rows(near)
    away = W[1, :shifts] / sizes[1][:, None] - near.direction
    moved = np.abs(np.einsum("rmD,skrD->skrm", rows, away)).max(-1) * sizes[1]
    ratio = moved / lemmas.SHIFTS[:, None, None]
    assert (ratio < 3).all() and (ratio > 0.1).all()


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("size", [0.01, 0.3])
def test_lemma_21_fails_around_a_rotated_target(p, size):
    near = SMALL[p]
    multiples = np.geomspace(5, 5e6, 7)
    assert lemmas.lemma21(near, multiples, 3).holds
    rotated = World("target rotated", size).selection(near)
    assert not lemmas.lemma21(rotated, multiples, 3).holds


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_divergence_far_below_rounding_is_that_of_the_second_order(p):
    """It is half the Hessian's form, and at a larger distance the plain formula."""
    near = SMALL[p]
    V = near.direction
    E = DRAW.standard_normal(V.shape)
    E -= ((geometry.to_mirror(V, p) * E).sum(-1))[:, None] * V  # the norm stays 1
    smallest = np.abs(V).min() * 1e-4
    D = lemmas.near_divergence(V + smallest * E, V, p)
    form = (p - 1) / 2 * (np.abs(V) ** (p - 2) * (smallest * E) ** 2).sum(-1)
    np.testing.assert_allclose(D, form, rtol=1e-2)
    W = 3 * (V + 0.3 * E)
    plain = geometry.directional_bregman(W, V, p)
    np.testing.assert_allclose(lemmas.near_divergence(W, 2 * V, p), plain, rtol=1e-9)


def test_lemma_20_takes_the_worst_pair_and_run_at_each_multiple(monkeypatch):
    """log c is the logarithm of the product, plus its scale and (1 + delta/2) r."""
    near = SMALL[2]
    multiples = np.array([1.0, 2.0, 3.0])
    fall = lemmas._radii(near, multiples) * (1 + lemmas._nearness(near) / 2)
    log_c = np.array(  # by multiple, pair and run
        [[[0.0, 5.0], [1.0, 4.0]], [[0.5, 9.0], [3.0, 8.0]], [[2.0, 7.0], [9.0, 9.5]]]
    )
    pairs = iter([(value, at) for at, values in enumerate(log_c) for value in values])

    def descent(selection, W, toward):
        value, at = next(pairs)
        return np.exp([0.25, 0.5]), value - [0.25, 0.5] - fall[at]

    monkeypatch.setattr(lemmas, "_descent", descent)
    positive, rate = lemmas.lemma20(near, multiples, 2)
    assert positive.measured == pytest.approx(np.exp(0.25))
    # The least log c per run is 0 and 4, then 0.5 and 8, then 2 and 7.
    assert rate.measured == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(2))
def test_a_lead_over_the_support_of_the_own_sample_is_asked(monkeypatch, seed):
    """Far from W_mm margins are large, and their order alone decides."""
    near = SMALL[2]
    draw = np.random.default_rng(seed)
    V = 6 * near.direction + 1.5 * draw.standard_normal(near.direction.shape)
    monkeypatch.setattr(lemmas, "_edge_along", lambda *how: V[None])
    support = np.array([[True, True, False], [True, False, False], [False, True, True]])
    margins = np.stack([np.where(support, 1.0, 1.6), np.where(support, 1.0, 1.2)])
    changed = with_margins(near, margins)
    leads, others = [], []
    for run, delta in ((0, 0.3), (1, 0.1)):
        W = (V[run] * near.solution.norm[run]).reshape(6, 6)
        for i in range(3):
            logits = DATA.X[run, i] @ W @ DATA.z[run, i]
            opt = DATA.opt[run, i]
            m = logits[opt] - np.delete(logits, opt)
            leads.append((min(m[~support[i]]) - max(m[support[i]])) / delta)
            others += [2 * m[support[i]].min(), 1.5 / m[support[i]].max()]
            others.append((min(m[~support[i]]) - 1) / delta)
    assert min(leads) < min(others)
    assert lemmas._slack(changed, np.ones(2)) == pytest.approx(min(leads))


def test_equal_matrices_have_the_distance_zero_in_lemma_13():
    W = np.array([0.6, 0.8])
    for p in (1.5, 2, 3):
        assert lemmas.lemma13(W, W, p) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_lemmas_22_24_and_25_by_hand_for_a_cubic_potential():
    """One entry, p = 3: W goes from 1 to 2 under the gradient -3, the loss falls by 8,
    and eta is 1/4. Then ||W||^2 grows by 3 and 2/3 ||W||^3 by 14/3.
    """
    steps = SimpleNamespace(
        W=np.array([[[1.0]]]),
        later=np.array([[[2.0]]]),
        gradient=np.array([[[-3.0]]]),
        losses=(np.array([[9.0]]), np.array([[1.0]])),
        eta=0.25,
        p=3,
        loss_rise=np.array([-1]),
    )
    found = [claim.measured for claim in lemmas.step_claims(steps)]
    of_24 = (3 / 4 - (14 / 3 - 2)) / (3 / 4)
    assert found == pytest.approx([3.0, of_24, 2 / 3])


def test_a_near_token_off_the_support_makes_the_radius_of_lemma_21_large():
    """Then log(8 kappa N (pi m_max + nu) / pi) / delta is the largest of the three."""
    margins = np.full((2, 3, 3), 1.0)
    margins[:, 0, 0] = 1.1
    margins[:, 0, 1] = 3.0
    # The gap of a token off the support does not count.
    near = with_margins(SMALL[2], margins, scores_with_first_other(1.5))
    kappa = (1 / 2) * (1 + np.exp(2))
    expected = np.log(8 * kappa * 9 * (0.8 * 3 + 0.05) / 0.8) / 0.05
    np.testing.assert_allclose(lemmas.lemma21_radius(near, 0.8), expected)


def test_a_tiny_gap_of_scores_makes_the_radius_of_lemma_21_large():
    """Then the weights decide: 2 log(2 (T-1) G / g_min), with T - 1 = 3."""
    scores = scores_with_first_other(2.0 - 1e-6)
    near = with_margins(SMALL[2], np.ones((2, 3, 3)), scores)
    found = lemmas.lemma21_radius(near, 0.999)[0]
    assert found == pytest.approx(2 * np.log(2 * 3 * 2 / 1e-6), rel=1e-6)


def test_the_slopes_of_lemma_21_are_those_of_the_extreme_scores():
    """With scores from -1 to 3, c_max is 1/(1 + e^-1) and c_min is 1/(1 + e^3). G is 3
    in one sample, from -1 to 2, and in the other, from 0 to 3.
    """
    scores = scores_with_first_other(-1.0)
    scores[0, 1, DATA.opt[0, 1]] = 3.0
    near = with_margins(SMALL[2], np.ones((2, 3, 3)), scores)
    kappa = (1 + np.exp(3)) / (1 + np.exp(-1)) * 3 / 2
    found = lemmas.lemma21_radius(near, 0.1)[0]
    assert found == pytest.approx(np.log(8 * kappa * 9 * 0.5 / 0.1) / 0.1)


def invented_turns(monkeypatch, inside, slack):
    turns = iter(zip(inside, slack, strict=True))
    monkeypatch.setattr(
        lemmas, "_turning", lambda *how: tuple(map(np.array, next(turns)))
    )


def test_lemma_27_takes_the_steps_in_the_cone_of_consecutive_records(monkeypatch):
    invented_turns(
        monkeypatch,
        [[True, True], [True, False], [False, False]],
        [[0.3, 0.2], [0.4, -1.0], [-2.0, -3.0]],
    )
    history = SimpleNamespace(iterations=np.array([0, 1, 2, 7, 8]))
    claim = lemmas.lemma27(SMALL[2], [history], 0.1)
    assert claim.measured == 0.2 and "at the 50 %" in claim.statement


def test_lemma_27_is_undecided_if_one_run_starts_outside(monkeypatch):
    invented_turns(monkeypatch, [[True, False]], [[0.3, 0.2]])
    history = SimpleNamespace(iterations=np.array([0, 1]))
    assert np.isnan(lemmas.lemma27(SMALL[2], [history], 0.1).measured)


def test_a_record_is_in_the_cone_up_to_its_largest_d_and_from_its_least_norm_on():
    near = SMALL[2]
    W = 9 * (near.direction + 0.1 * DRAW.standard_normal(near.direction.shape))
    D = geometry.directional_bregman(W, near.direction, 2)
    size = np.linalg.norm(W, axis=-1)
    history = SimpleNamespace(W=np.stack([W, W]).reshape(2, *SHAPE).swapaxes(0, 1))
    for mu, least, expected in (
        (D * (1 + 1e-12), size * (1 - 1e-12), True),
        (0.999 * D, 0.999 * size, False),
        (1.001 * D, 1.001 * size, False),
        (1.001 * D, 0.999 * size, True),
    ):
        inside, _ = lemmas._turning(near, history, 0, 0.1, 0.5, mu, least)
        assert inside.tolist() == [expected] * 2


def test_lemma_28_says_how_d_ends_and_leaves_out_what_rounding_decides():
    D = np.array([[0.1, 0.3, 0.05], [0.2, 0.1, 0.8], [0.1, 0.9, 0.3]])
    mu = np.array([0.4, 1.0, 1e-14])
    claim = lemmas.lemma28(SMALL[2], D, mu)
    assert claim.measured == pytest.approx(0.8)
    assert "2 of 3 runs" in claim.statement and claim.remark.endswith(": 0.5 to 4")
    none = lemmas.lemma28(SMALL[2], D, np.full(3, 1e-15))
    assert np.isnan(none.measured) and none.remark.endswith("unresolved")


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_the_step_is_a_share_of_the_median_size_of_the_mirror_images(p):
    start = np.array([[[3.0, 0.0]], [[0.0, -5.0]], [[1.0, 100.0]]])
    rule = lemmas.relative_rule(start, p, 0.1)
    assert rule.step_size == pytest.approx(0.1 * 5 ** (p - 1))
    both = np.full((1, 2, 2), 2.0)  # ||W||_p = 2 * 4^{1/p}
    rule = lemmas.relative_rule(both, p, 0.5)
    assert rule.step_size == pytest.approx(0.5 * (2 * 4 ** (1 / p)) ** (p - 1))
    assert rule.p == p and rule.normalised


def test_runs_from_a_cone_start_on_its_edge_at_the_multiple_of_the_solution():
    near = SMALL[3]
    history, data = lemmas.from_cone(near, 0.05, 7.0, 1, draws=3)
    assert history.W.shape[0] == 6
    W = history.W[:, 0].reshape(6, -1)
    size = geometry.norm(W, 3)
    np.testing.assert_allclose(size, np.tile(7 * near.solution.norm, 3))
    D = geometry.directional_bregman(W, np.tile(near.direction, (3, 1)), 3)
    np.testing.assert_allclose(D, 0.05)
    np.testing.assert_array_equal(data.X, np.concatenate([DATA.X] * 3))
    # A normalised step moves the mirror image by the step size.
    moved = np.subtract(*(geometry.to_mirror(history.W[:, k], 3) for k in (1, 0)))
    step = 0.02 * np.median(size**2)
    np.testing.assert_allclose(geometry.norm(moved.reshape(6, -1), 1.5), step)


def test_the_exponent_is_that_of_the_second_half_of_the_range_of_log_r():
    log_r = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 4.0])
    log_D = np.array([[0.0, -9, 8, -1, -4, -6], [0.0, 5, -9, -1, -2, -3]])
    history = SimpleNamespace(own_norm=np.exp([log_r, 1 + log_r]))
    found = lemmas.slopes(history, np.exp(log_D))
    np.testing.assert_allclose(found, [-2.5, -1.0])


def test_a_divergence_below_rounding_counts_as_rounding():
    history = SimpleNamespace(own_norm=np.exp([[0.0, 1.0, 2.0, 3.0, 4.0]]))
    D = np.array([[1.0, 1.0, 1e-16 * np.exp(1.0), 0.0, 1e-30]])
    # log D is 1, 0 and 0 above rounding.
    assert lemmas.slopes(history, D) == pytest.approx([-0.5])


def test_captured_is_the_share_of_runs_that_end_at_the_tokens(monkeypatch):
    data = DATA.take(np.array([0, 1, 0, 1]))
    W = np.tile(SMALL[2].solution.W, (2, 1, 1))
    signs = {0.1: [1, 1, 1, -1], 0.5: [-1, 1, -1, -1]}

    def from_cone(selection, mu, multiple, steps, *, draws, seed):
        assert (multiple, steps, draws) == (4, 50, 2)
        assert seed == [0.1, 0.5].index(mu)
        end = np.array(signs[mu])[:, None, None] * W
        return SimpleNamespace(W=np.stack([W, -end, end], 1)), data

    monkeypatch.setattr(lemmas, "from_cone", from_cone)
    found = lemmas.captured(SMALL[2], [0.1, 0.5], 4, 50, 2)
    assert found.tolist() == [0.75, 0.25]


def test_the_narrowest_and_the_widest_cone_are_judged():
    rows = lemmas.local_claims({2: np.array([1.0, 0.3, 0.8])}, [0.001, 0.2, 1.9], 10)
    assert [row.measured for row in rows] == [1.0, 0.8]
    assert "0.001" in rows[0].statement and "2" in rows[1].statement


def test_found_selections_keep_the_last_tokens_of_locally_optimal_runs(monkeypatch):
    data = tokens.unit_tokens(range(3), n=3, T=4, d=6)
    end = svm.token_svm(data).W
    worst = (data.y[..., None] * np.einsum("rntd,rd->rnt", data.X, data.u)).argmin(-1)
    end[1] = svm.token_svm(replace(data, opt=worst)).W[1]
    history = SimpleNamespace(W=np.stack([-end, end, -end, end], 1))
    monkeypatch.setattr(dynamics, "train", lambda *how, **more: history)
    found = lemmas.found_selections(data, range(3), 2, 10)
    np.testing.assert_array_equal(found.tokens.opt, data.opt[[0, 2]])
    np.testing.assert_array_equal(found.tokens.X, data.X[[0, 2]])
