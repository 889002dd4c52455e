"""Tests of the premises of the law of the margins at their bounds, and of its rates."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers.law import margin_law, margins, real_tokens
from papers.law.margin_law import PremiseFails
from papers.law.tolerances import (
    INDEPENDENT,
    SAME_SOLUTION,
    SATURATED,
    SHARE,
    SMALLEST_DUAL,
    TIGHT,
)

# The margins are 2 w_1, 3 w_2 and 3 w_1 + 3/2 w_2; W_mm is (1/2, 1/3).
DATA = attention.token_set(
    [[[0.0, 0, 0], [-2.0, 0, 0], [0, -3.0, 0], [-3.0, -1.5, -1.0]]],
    [1.0],
    z=[[1.0]],
    u=[0.5, 1.0, 0.25],
)
SOLUTION = svm.token_svm(DATA)


def altered(margins=None, duals=None):
    """Return the law of a solution of which some margins or duals are others."""
    changed = replace(
        SOLUTION, margins=SOLUTION.margins.copy(), duals=SOLUTION.duals.copy()
    )
    for pair, value in (margins or {}).items():
        changed.margins[0, 0, pair] = value
    for pair, value in (duals or {}).items():
        changed.duals[0, 0, pair] = value
    return margin_law.margin_law(DATA, changed)


def refused(premise, **of):
    with pytest.raises(PremiseFails) as why:
        altered(**of)
    assert why.value.premise == premise
    return why.value


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_solution_is_that_of_the_problem_up_to_its_tolerance(sign):
    altered(margins={2: 2 + sign * 0.98 * SAME_SOLUTION})
    found = refused("same problem", margins={2: 2 + sign * 1.02 * SAME_SOLUTION})
    assert found.amount == pytest.approx(1.02 * SAME_SOLUTION, rel=1e-6)


@pytest.fixture
def any_solution(monkeypatch):
    monkeypatch.setattr(margin_law, "SAME_SOLUTION", np.inf)


@pytest.mark.parametrize("factor, tight", [(0.98, True), (1.02, False)])
def test_a_pair_without_a_dual_must_not_be_tight(any_solution, factor, tight):
    of = dict(margins={2: 1 + factor * TIGHT}, duals={2: 0.0})
    if tight:
        # Three features in three dimensions are independent.
        assert "dual is 0.0e+00" in str(refused("positive duals", **of))
    else:
        np.testing.assert_allclose(altered(**of).excess, factor * TIGHT, rtol=1e-6)


@pytest.mark.parametrize("factor, positive", [(1.02, True), (0.98, False)])
def test_a_tight_pair_has_a_dual_of_a_billionth_of_the_largest(
    any_solution, factor, positive
):
    largest = SOLUTION.duals.max()
    assert largest < 0.9
    of = dict(margins={2: 1.0}, duals={2: factor * SMALLEST_DUAL * largest})
    if positive:
        assert altered(**of).support.all()
    else:
        found = refused("positive duals", **of)
        assert found.amount == pytest.approx(factor * SMALLEST_DUAL)


def test_the_distance_is_that_of_the_margins_of_the_duals():
    draw = np.random.default_rng(0)
    delta = draw.standard_normal((3, 2, 4))
    z, duals = draw.standard_normal((3, 5)), draw.uniform(size=(3, 2))
    W = sum(
        duals[i, t] * np.outer(delta[i, t], z[i]) for i in range(3) for t in range(2)
    )
    g = np.array([[delta[i, t] @ W @ z[i] for t in range(2)] for i in range(3)])
    off = np.array([[0.1, -0.7], [0.2, 0.3], [np.nan, 0.0]])
    assert margin_law._distance(delta, z, duals, g + off) == pytest.approx(0.7)


def law(**fields):
    """Return a law of three runs with fields of our choice."""
    of = dict.fromkeys(
        "constant offsets support duals coefficients norm slowest fastest".split()
        + ["slowest_mode", "excess"],
        np.ones(3),
    )
    return margin_law.MarginLaw(**(of | fields))


def test_what_remains_decays_at_the_least_of_three_rates():
    of = law(slowest=np.array([0.2, 3.0, 3.0]), excess=np.array([5.0, 0.5, np.inf]))
    level = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rate = np.array([[0.2], [0.5], [1.0]])
    np.testing.assert_allclose(of.remaining(level), np.exp(-rate * level))


def test_the_longest_step_grows_with_the_momentum():
    """It is the step at which 1 - s fastest / ||W_mm|| is -1."""
    of = law(norm=np.array([2.0, 3.0, 1.0]), fastest=np.array([0.5, 1.5, 0.0]))
    found = of.longest_step()
    np.testing.assert_allclose(1 - found[:2] / of.norm[:2] * of.fastest[:2], -1)
    assert np.isinf(found[2])
    np.testing.assert_allclose(of.longest_step(0.5)[:2], 1.5 * found[:2])


def test_the_direction_error_is_a_right_angle_at_most():
    of = law(constant=np.array([3.0, 3.0, 3.0]))
    norm = np.array([[0.0, 1.0], [3.0, 6.0], [30.0, 3e6]])
    share = np.array([[1, 1], [1, 0.5], [0.1, 1e-6]])
    chord = np.sqrt(2 - 2 * np.sqrt(1 - share**2))
    np.testing.assert_allclose(of.direction_error(norm), chord, rtol=1e-4)


@pytest.fixture(scope="module")
def linear():
    """Return the law of Gaussian tokens with the Jacobian of its offsets' flow."""
    data = tokens.gaussian_tokens([3], n=4, T=3, d=60)
    of = margin_law.margin_law(data, svm.token_svm(data))
    on = of.support[0].ravel()
    K = margin_law.gram(data)[0][np.ix_(on, on)]
    beta = of.duals[0].ravel()[on]
    # de/da = -J e: saturated pulls lose the share e_m, and the level is taken out.
    J = K * beta - np.outer(np.ones(len(beta)), beta) / beta.sum()
    return of, on, J


def test_the_rates_are_those_of_the_linear_flow(linear):
    of, _, J = linear
    rates = np.sort(np.linalg.eigvals(J).real)
    assert abs(rates[0]) < 1e-9  # along the level
    np.testing.assert_allclose([of.slowest[0], of.fastest[0]], rates[[1, -1]])


def test_the_slowest_mode_is_a_left_eigenvector_of_the_linear_flow(linear):
    of, on, J = linear
    v = of.slowest_mode[0].ravel()[on]
    np.testing.assert_allclose(v @ J, of.slowest[0] * v, atol=1e-9)
    assert np.linalg.norm(v) > 1e-3


def test_rho_perp_has_the_offsets_as_its_margins(linear):
    of, on, _ = linear
    data = tokens.gaussian_tokens([3], n=4, T=3, d=60)
    K = margin_law.gram(data)[0][np.ix_(on, on)]
    c = of.coefficients[0].ravel()[on]
    np.testing.assert_allclose(K @ c, of.offsets[0].ravel()[on], atol=1e-8)
    assert of.constant[0] == pytest.approx(np.sqrt(c @ K @ c))


@pytest.mark.parametrize("factor, rank", [(1.04, 2), (0.96, 1)])
def test_features_leave_out_directions_below_their_bound(factor, rank):
    """Features of the lengths 2 and 5 with the cosine 1 - e have the eigenvalue e."""
    cosine = 1 - factor * INDEPENDENT
    K = np.array([[4.0, 10 * cosine], [10 * cosine, 25.0]])
    F = margin_law.features(K)
    assert F.shape == (2, rank)
    np.testing.assert_allclose(F @ F.T, K, atol=1e-7)


def test_entropy_is_least_where_the_shares_are_kappas():
    """kappa itself is a dual, so that pi is kappa."""
    F = np.c_[np.ones(4), [1.0, -1.0, 2.0, -0.5]]
    kappa = np.array([0.2, 0.35, 0.1, 0.35])
    assert F[:, 1] @ kappa == pytest.approx(-0.125)
    F[:, 1] -= F[:, 1] @ kappa
    pi = margin_law._least_entropy(F @ F.T, np.log(kappa) + 700.0)
    np.testing.assert_allclose(pi, kappa, atol=1e-12)


@pytest.mark.parametrize("factor, kept", [(1.1, True), (0.9, False)])
def test_a_share_below_its_bound_is_zero(factor, kept):
    """Two equal pairs have the shares of their kappa."""
    share = factor * SHARE
    log_slopes = np.log([1 - share, share])
    pi = margin_law._least_entropy(np.ones((2, 2)), log_slopes)
    assert pi[1] == (pytest.approx(share) if kept else 0.0)


def test_newtons_method_gives_up_after_its_steps():
    draw = np.random.default_rng(0)
    F = np.c_[np.ones(6), draw.standard_normal((6, 2))]
    F[:, 1:] -= draw.dirichlet(np.ones(6)) @ F[:, 1:]
    with pytest.raises(RuntimeError, match="not done after 1 steps"):
        margin_law._least_entropy(F @ F.T, draw.standard_normal(6), steps=1)


@pytest.mark.parametrize("factor, whole", [(1.02, True), (0.98, False)])
def test_a_head_is_whole_if_each_dual_is_a_billionth_of_the_largest(factor, whole):
    data = tokens.gaussian_tokens([0, 1], n=3, T=2, d=20)
    head = svm.head_svm(data)
    duals = np.array([[0.5, 0.2, 0.3], [0.5, 0.5 * factor * SMALLEST_DUAL, 0.4]])
    head = replace(head, duals=duals)
    if whole:
        assert np.isfinite(margin_law.joint_slopes(data, head)).all()
        return
    with pytest.raises(PremiseFails, match="1 of 3 samples carry nothing") as why:
        margin_law.joint_slopes(data, head)
    assert why.value.run == 1
    assert why.value.amount == pytest.approx(factor * SMALLEST_DUAL)


def test_a_tie_selects_the_opt_token_and_another_lead_the_other():
    history = SimpleNamespace(
        margins=np.array([[[[5.0, 5.0], [0.0, 2.0], [-1e-9, 2.0], [3.0, -2.0]]]])
    )
    opt = np.array([[0, 1, 1, 2]])
    found = margins.selection(history, opt)
    np.testing.assert_array_equal(found, [[0, 1, 0, 1]])


def test_one_sample_of_many_tokens_selects_the_farthest_ahead():
    history = SimpleNamespace(margins=np.array([[[[5.0, -1.0, -3.0]]]]))
    assert margins.selection(history, np.array([[0]])) == 3
    assert margins.selection(history, np.array([[3]])) == 2


def test_margins_relative_to_another_token_by_hand():
    """The logits relative to the opt token 1 are -3, 0 and 2, and 2 is selected."""
    history = SimpleNamespace(margins=np.array([[[[3.0, -2.0]]]]))
    found = margins.relative_margins(history, np.array([[1]]), np.array([[2]]))
    np.testing.assert_allclose(found, [[[[5.0, 2.0]]]])


def reading(monkeypatch, margin=99.0, length=0.1):
    """Read a short run of which the last margin and step are those of our choice."""
    data = tokens.gaussian_tokens([0], n=3, T=2, d=20)
    true = real_tokens.train

    def train(*call, **more):
        history = true(*call, **more)
        last = history.margins.copy()
        last[0, -1] = 99.0
        last[0, -1, 1, 0] = margin
        log_step = history.log_step.copy()
        log_step[0, -1] = np.log(length) - history.log_gradient[0, -1]
        return replace(history, margins=last, log_step=log_step)

    monkeypatch.setattr(real_tokens, "train", train)
    return data, real_tokens.read(data, dynamics.NGD(0.1), 400, 5)


@pytest.mark.parametrize("factor, made", [(1.0, True), (0.98, False)])
def test_a_reading_needs_a_saturated_last_margin(monkeypatch, factor, made):
    _, one = reading(monkeypatch, margin=factor * SATURATED)
    assert ("selection made" in one.refusal) != made


@pytest.mark.parametrize("factor, short", [(0.999, True), (1.0001, False)])
def test_a_reading_needs_steps_below_the_longest(monkeypatch, factor, short):
    data = tokens.gaussian_tokens([0], n=3, T=2, d=20)
    of = margin_law.margin_law(data, svm.token_svm(data))
    longest = of.longest_step()[0]
    _, one = reading(monkeypatch, length=factor * longest)
    assert ("short steps" in one.refusal) != short


def test_a_reading_has_its_records_and_its_softmax(monkeypatch):
    data, one = reading(monkeypatch)
    assert one.iterations[0] == 0 and one.iterations[-1] == 400
    ratios = one.iterations[2:] / one.iterations[1:-1]
    np.testing.assert_allclose(ratios, 400**0.25, rtol=0.15)
    small = coordinates.minimal(data)
    history = dynamics.train(small, dynamics.NGD(0.1), 400, one.iterations)
    for k in (0, 3):
        logits = attention.logits(small.tokens, history.weights(k))[0]
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        np.testing.assert_allclose(one.weights[k], p)
    of = margin_law.margin_law(
        data, svm.token_svm(data), log_slopes=np.zeros((1, 3, 1))
    )
    assert one.plain == pytest.approx(of.constant[0])


def made_reading(residual, plain, refusal=""):
    return real_tokens._Reading(
        iterations=None,
        weights=None,
        refusal=refusal,
        law=SimpleNamespace(constant=np.array([2.0])),
        residual=np.array([9.0, residual]),
        plain=plain,
    )


def test_the_claims_on_real_tokens_count_constants_within_one_percent():
    runs = [
        made_reading(2.0 * 1.0099, 2.5),
        made_reading(2.0 * 0.9901, 1.8),
        made_reading(2.0 * 1.0101, 2.1),
        made_reading(2.0 * 0.9899, 2.5),
        made_reading(2.0, 2.0, refusal="no"),
    ]
    share, apart = real_tokens.claims(runs)
    assert share.measured == 0.5 and apart.measured == pytest.approx(0.05)


def test_the_figure_shows_each_ratio_after_the_start():
    def run(ratios, refusal=""):
        return real_tokens._Reading(
            iterations=np.array([0, 10, 100]),
            weights=None,
            refusal=refusal,
            law=SimpleNamespace(constant=np.array([2.0])),
            residual=2.0 * np.array([0.0, *ratios]),
        )

    readings = {"one set": [run((0.5, 0.98)), run((7.0, 7.0), "no")]}
    readings["another"] = [run((0.7, 1.01))]
    (axis,) = real_tokens.draw(readings).axes
    drawn = [line for line in axis.lines if len(line.get_xdata()) == 2][:2]
    for line, ratios in zip(drawn, ((0.5, 0.98), (0.7, 1.01)), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [10, 100])
        np.testing.assert_allclose(line.get_ydata(), ratios)
    words = " ".join(text.get_text() for text in axis.texts)
    assert "2 runs end on the line,\noff by 2.0" in words and "-2" in words


def test_the_sentence_is_shown_at_the_first_middle_and_last_record():
    """Word pieces that continue a word are shown without their marks."""
    weights = np.arange(12.0).reshape(6, 1, 2) / 20
    of = SimpleNamespace(iterations=np.arange(6) * 7, weights=weights)
    sentences = SimpleNamespace(words=[["token", "##ise"]])
    (axis,) = real_tokens.draw_sentence(sentences, of).axes
    shown = [text.get_text() for text in axis.texts]
    expected = [[f"t = {7 * k}", "token", "ise"] for k in (1, 3, 5)]
    assert shown == sum(expected, [])
    boxes = [text.get_bbox_patch() for text in axis.texts]
    shades = [box.get_alpha() for box in boxes if box is not None]
    np.testing.assert_allclose(shades, weights[[1, 3, 5], 0].ravel())
