"""Tests of what is measured on a run, and of what is predicted for it, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers.law import margin_law, margins, prediction
from papers.law import margin_law_runs as runs
from papers.law.margin_law import PremiseFails
from papers.law.tolerances import AT_REST, ROUNDING, SATURATED, SETTLED

# One sample with the margins 2 w_1 and 3 w_2; W_mm is (1/2, 1/3).
TWO_AXES = attention.token_set(
    [[[0.0, 0, 0], [-2.0, 0, 0], [0, -3.0, 0]]], [1.0], z=[[1.0]], u=[0.5, 1.0, 0.0]
)
W_MM = np.array([1 / 2, 1 / 3, 0.0])


def test_splitting_along_v_by_hand():
    W = np.array([[[3.0, 1.0]], [[-1.0, 2.0]]])
    along, off = margins.along_and_off(W, np.array([[[5.0, 0.0]]]))
    np.testing.assert_allclose(along, [3, -1])
    np.testing.assert_allclose(off, [1, 2])


def test_the_direction_error_is_the_distance_of_the_unit_vectors():
    draw = np.random.default_rng(0)
    W, V = draw.standard_normal((2, 3, 2, 4))
    size = np.linalg.norm(W, axis=(1, 2))
    units = W / size[:, None, None] - V / np.linalg.norm(V, axis=(1, 2))[:, None, None]
    expected = np.linalg.norm(units, axis=(1, 2))
    np.testing.assert_allclose(margins.direction_error(W, V), expected)
    # A part of W that the coordinates leave out is orthogonal to V.
    outside = np.array([0.0, 1.0, 5.0])
    cosine = (1 - expected**2 / 2) * size / np.hypot(size, outside)
    found = margins.direction_error(W, V, outside)
    np.testing.assert_allclose(found, np.sqrt(2 - 2 * cosine))


def test_a_w_in_other_coordinates_is_refused():
    """Two samples of three dimensions, whose queries have one."""
    data = attention.token_set(
        [[[0.0, 0, 0], [-2.0, 0, 0]]] * 2, [1.0, 1.0], z=[[1.0]] * 2, u=[1.0, 0, 0]
    )
    on = np.ones((1, 2, 1), bool)
    assert margins.outside_support(data, data.opt, on, np.ones((1, 3, 1))).shape == (1,)
    for shape in ((1, 3, 2), (1, 2, 1), (2, 3, 1)):
        with pytest.raises(ValueError, match="these tokens need"):
            margins.outside_support(data, data.opt, on, np.ones(shape))


def test_w_is_split_into_ray_span_and_rest_by_hand():
    """The support spans the first two axes; V is (1/2, 1/3)."""
    data = replace(TWO_AXES, z=2 * TWO_AXES.z)  # the span is the same
    W = np.array([[[4.0], [-1.0], [7.0]]])
    on = np.ones((1, 1, 2), bool)
    assert margins.outside_support(data, data.opt, on, W)[0] == pytest.approx(7)
    V = W_MM[None, :, None]
    across = np.array([4.0, -1.0]) @ [1 / 3, -1 / 2] / np.linalg.norm(W_MM)
    found = margins.residual(data, data.opt, on, W, V)[0]
    assert found == pytest.approx(abs(across))
    # With the second pair alone, the first axis is outside, too.
    on = np.array([[[False, True]]])
    found = margins.outside_support(data, data.opt, on, W)[0]
    assert found == pytest.approx(np.hypot(4, 7))


def test_duals_are_read_off_margins_as_shares_of_the_pulls():
    log_slopes = np.array([[np.log(2.0), np.nan], [0.0, np.log(3.0)]])
    g = np.array([[101.0, 100.0], [102.0, 103.0]])
    pull = np.array([[2 * np.exp(-1), 0], [np.exp(-2), 3 * np.exp(-3)]])
    found = margins.recovered_duals(g, log_slopes)
    np.testing.assert_allclose(found, pull / pull.sum())
    # Each run has its own sum.
    both = margins.recovered_duals(np.stack([g, 0 * g]), np.stack([log_slopes] * 2))
    even = np.array([[2.0, 0.0], [1.0, 3.0]]) / 6
    np.testing.assert_allclose(both, [pull / pull.sum(), even])


@pytest.mark.parametrize("share, made", [(0.98, False), (1.0, True), (1.02, True)])
def test_a_selection_is_made_at_its_margin(share, made):
    g = np.array([[50.0, 60.0], [50.0, share * SATURATED]])
    if made:
        margins.check_selection(0, g)
        return
    with pytest.raises(PremiseFails, match=r"\(sample 1, pair 1\)"):
        margins.check_selection(0, g)


def settled(
    step=0.5, moved=0.0, levels=(90.0, 100.0), momentum=0.0, steps=1000, **rates
):
    """Check a run with ||W_mm|| = 2 and rates of our choice."""
    rate = dict(longest=0.9, slowest=1.0, excess=np.inf, fastest=0.0) | rates
    law = SimpleNamespace(
        longest_step=lambda beta: np.array([rate["longest"] * (1 + beta)]),
        remaining=lambda level: np.exp(-rate["slowest"] * level),
        excess=np.array([rate["excess"]]),
        fastest=np.array([rate["fastest"]]),
        norm=np.array([2.0]),
    )
    measured = SimpleNamespace(
        step_length=step,
        moved=moved,
        level=np.array(levels),
        iterations=np.array([steps // 10, steps]),
    )
    margins.check_settled(3, law, measured, momentum)


def refusal(premise, **of):
    with pytest.raises(PremiseFails) as why:
        settled(**of)
    assert why.value.premise == premise and why.value.run == 3
    return why.value


def test_a_step_must_be_shorter_than_the_longest():
    settled(step=0.899)
    assert refusal("short steps", step=0.9).amount == 1.0
    assert refusal("short steps", step=1.8).amount == pytest.approx(2.0)
    settled(step=0.901, momentum=0.5)


ENOUGH = -np.log(SETTLED)


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_offsets_are_settled_at_the_last_level(rate):
    settled(levels=(1.0, 1.01 * ENOUGH / rate), slowest=rate)
    of = dict(levels=(1.0, 0.5 * ENOUGH / rate), slowest=rate)
    assert refusal("long enough", **of).amount == pytest.approx(SETTLED**0.5)
    assert "margins 2 times as large" in str(refusal("long enough", **of))
    assert refusal("long enough", levels=(1.0, 0.99 * ENOUGH / rate), slowest=rate)


def test_pairs_off_the_support_have_stopped_pulling_at_the_first_late_level():
    settled(levels=(1.01 * ENOUGH / 0.5, 999.0), excess=0.5)
    assert refusal("long enough", levels=(0.99 * ENOUGH / 0.5, 999.0), excess=0.5)


def overshooting(power):
    """Return a run whose error in the fastest mode is SETTLED ** power at its end.

    Each of its 1000 steps multiplies this error by step / ||W_mm|| fastest - 1.
    """
    steps = 1000
    ratio = SETTLED ** (power / steps)
    return dict(step=0.8, fastest=(1 + ratio) * 2 / 0.8, steps=steps)


@pytest.mark.parametrize("power", [0.5, 0.99])
def test_a_run_that_still_overshoots_in_the_fastest_mode_is_too_short(power):
    why = refusal("long enough", **overshooting(power))
    assert why.amount == pytest.approx(SETTLED**power)


@pytest.mark.parametrize(
    "of",
    [
        overshooting(1.01),
        # With momentum the fastest mode has another rate, which is not judged here.
        overshooting(0.99) | dict(momentum=0.5),
        dict(step=0.1, fastest=1.0),  # this step does not overshoot
    ],
)
def test_a_run_whose_fastest_mode_has_converged_is_long_enough(of):
    assert settled(**of) is None


@pytest.mark.parametrize("level", [100.0, 1e10])
def test_an_offset_rests_up_to_rounding(level):
    allowed = max(AT_REST, ROUNDING * np.finfo(float).eps * level)
    assert (allowed > AT_REST) == (level > 1e9)
    settled(moved=0.98 * allowed, levels=(90.0, level))
    assert refusal("offsets at rest", moved=1.02 * allowed, levels=(90.0, level))


def test_excluded_seeds_have_their_reason():
    def study(seed):
        if seed == 2:
            raise PremiseFails("long steps", 0, 1.0, "too long")
        if seed == 3:
            raise RuntimeError("not found")
        return 10 * seed

    found, refused = margins.each_seed([1, 2, 3, 4], study, "here, ")
    assert found == [10, 40]
    assert refused == {
        2: "here, seed 2: premise 'long steps' fails: too long",
        3: "here, seed 3: not found",
    }


def made_up(speed_of="NGD", slope=1.0, **measured):
    """Return a comparison whose 1/error is `slope` times t, and ||W|| = 3 level."""
    t = np.array([100, 200, 400])
    rule = dict(NGD=dynamics.NGD(0.2, momentum=0.5), Polyak=dynamics.Polyak())[speed_of]
    m = dict(
        iterations=t,
        error=1 / (slope * t),
        norm=3.0 * t,
        level=1.0 * t,
        residual=2.02,
        outside=1.5,
        difference_error=1e-9,
        difference_gap=-1e-10,
    )
    law = SimpleNamespace(
        constant=np.array([2.0]),
        norm=np.array([3.0]),
        offsets=np.array([[[1.0, -1.0, np.nan]]]),
        support=np.array([[[True, True, False]]]),
        duals=np.array([[[3.0, 1.0, 0.0]]]),
        direction_error=lambda norm, outside: np.hypot(2.0, outside) / norm,
    )
    ends = np.array([401.0, 399.0, 999.0]) + [1e-7, 0, 0]
    return runs.Comparison(
        setting=runs.LawSetting("", None, rule),
        run=0,
        margins=np.array([0 * ends, 0 * ends, ends])[:, None],
        law=law,
        log_slopes=np.array([[[0.0, -2.0, 0.0]]]),
        measured=SimpleNamespace(**(m | measured)),
    )


def test_the_values_of_a_run_by_hand():
    values = runs._values(made_up(slope=0.5))
    predicted = np.hypot(2, 1.5) / 1200
    assert values["constant"] == pytest.approx(1 / 200 / predicted - 1)
    assert values["residual"] == pytest.approx(0.01)
    assert values["exponent"] == pytest.approx(-1)
    # NGD: ||W|| grows by 0.2 / (1 - 0.5) per iteration.
    assert values["lower_bound"] == pytest.approx(0.5 * 2.5 / 0.4)
    np.testing.assert_allclose(values["offsets"], [1e-7, 0], atol=1e-9)
    # e^-1 to e^(2 - 1 + ...): kappa e^-g is e^-401 and e^-401, the duals 3 to 1.
    np.testing.assert_allclose(values["duals"], [0.5 / 0.75 - 1, 1], rtol=1e-6)
    assert values["norm"] == pytest.approx(0)
    assert values["difference"] == pytest.approx(1 / 200 / 1e-9)
    assert values["certificate"] == 1e-10
    polyak = runs._values(made_up("Polyak", slope=0.5))
    assert polyak["lower_bound"] == pytest.approx(0.5 * 2.5 / 1.5)


def test_the_duality_gap_of_an_arbitrary_w_by_hand():
    """The margin of W is 2 w_1; the bound is sum beta / ||sum beta A||."""
    W = np.array([[[1.0], [1.0], [2.0]]])
    duals = np.array([[[1.0, 2.0]]])
    found = runs._duality_gap(TWO_AXES, TWO_AXES.opt, W, duals)
    assert found[0] == pytest.approx(1 - 3 / np.hypot(2, 6) * 2 / 6**0.5)


def test_what_is_measured_on_a_run_by_hand():
    """W is (a/2 + x, a/3, y) at the levels of five records."""
    solution = svm.token_svm(TWO_AXES)
    law = margin_law.margin_law(TWO_AXES, solution)
    a = np.array([0.0, 1.0, 5.0, 8.0, 9.0, 10.0])
    x = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    y = np.array([3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    W = a[:, None] * W_MM + np.stack([x, 0 * x, y], 1)
    norm = np.linalg.norm(W, axis=1)
    history = SimpleNamespace(
        iterations=np.array([0, 100, 500, 700, 999, 1000]),
        weights=lambda k: W[k][None, :, None],
        log_step=np.array([[9.0, np.log(0.3)]]),
        log_gradient=np.array([[9.0, np.log(2.0)]]),
        norm=norm[None],
    )
    g = W @ np.array([[2.0, 0, 0], [0, 3.0, 0]]).T
    slopes = np.zeros((1, 1, 2))
    c = SimpleNamespace(
        run=0,
        solution=solution,
        law=law,
        margins=g[[1, 4, 5]][:, None],
        tokens=TWO_AXES,
        selected=TWO_AXES.opt,
        log_slopes=slopes,
    )
    m = runs._measure(c, history, 0.0)
    late = [1, 2, 3, 5]  # all but the start and the last iteration but one
    np.testing.assert_array_equal(m.iterations, history.iterations[late])
    V = W_MM / np.linalg.norm(W_MM)
    unit = W[late] / norm[late, None]
    np.testing.assert_allclose(m.error, np.linalg.norm(unit - V, axis=1))
    np.testing.assert_allclose(m.norm, norm[late])
    np.testing.assert_allclose(m.level, (W[late] @ V) / np.linalg.norm(W_MM))
    assert m.step_length == pytest.approx(0.6)
    offsets = g - g.mean(1, keepdims=True)
    assert m.moved == pytest.approx(np.abs(offsets[5] - offsets[4]).max())
    assert m.outside == pytest.approx(3.0)  # that of W_0, since all are on the support
    assert runs._measure(c, history, 4.0).outside == pytest.approx(5.0)
    off_ray = np.array([0.7, 0.0]) @ [1 / 3, -1 / 2] / np.linalg.norm(W_MM)
    assert m.residual == pytest.approx(abs(off_ray))
    move = W[5] - W[2]
    error = np.linalg.norm(move / np.linalg.norm(move) - V)
    assert m.difference_error == pytest.approx(error)
    beta = np.exp(-g[5]) / np.exp(-g[5]).sum()
    bound = 1 / np.linalg.norm(beta * [2, 3])
    least = min(2 * move[0], 3 * move[1])
    gap = 1 - bound * least / np.linalg.norm(move)
    assert m.difference_gap == pytest.approx(gap)


def test_off_the_support_the_outside_is_that_of_the_first_late_record():
    data = attention.token_set(
        [[[0.0, 0, 0], [-2.0, 0, 0], [-3.0, -3.0, 0]]],
        [1.0],
        z=[[1.0]],
        u=[0.5, 1.0, 0.0],
    )
    solution = svm.token_svm(data)
    law = margin_law.margin_law(data, solution)
    W = np.array([[0.0, 3.0, 0.0], [1.0, 4.0, 0.0], [2.0, 6.0, 0.0], [4.0, 9.0, 0.0]])
    history = SimpleNamespace(
        iterations=np.array([0, 50, 99, 100]),
        weights=lambda k: W[k][None, :, None],
        log_step=np.zeros((1, 4)),
        log_gradient=np.zeros((1, 4)),
        norm=np.ones((1, 4)),
    )
    c = SimpleNamespace(
        run=0,
        solution=solution,
        law=law,
        margins=np.ones((3, 1, 2)),
        tokens=data,
        selected=data.opt,
        log_slopes=np.zeros((1, 1, 2)),
    )
    assert runs._measure(c, history, 0.0).outside == pytest.approx(4.0)


def test_a_comparison_keeps_the_margins_of_three_records(monkeypatch):
    data = tokens.gaussian_tokens([0, 1], n=3, T=2, d=20)
    seen = {}
    true = runs.train

    def train(problem, rule, steps, record, **more):
        seen["record"] = list(record)
        seen["history"] = true(problem, rule, steps, record, **more)
        return seen["history"]

    monkeypatch.setattr(runs, "train", train)
    found = runs.compare(runs.LawSetting("", data, dynamics.NGD(0.3)), 1000)
    record = seen["record"]
    assert record[0] == 0 and record[1] == 100 and record[-2:] == [999, 1000]
    assert 500 in record and len(record) == 14
    opt = coordinates.minimal(data).tokens.opt
    for run, at in enumerate(found):
        kept = seen["history"].margins[run, [1, -2, -1]]
        np.testing.assert_allclose(at.margins, kept)
        assert (at.selected is None) or (at.selected == opt[run]).all()


def test_duals_alone_predict_without_a_start_and_off_nothing():
    def alone(start, whole):
        law = SimpleNamespace(support=np.array([True, whole]))
        setting = SimpleNamespace(start=start)
        return runs.Comparison.duals_alone.fget(
            SimpleNamespace(setting=setting, law=law)
        )

    assert alone(None, True)
    assert not alone(None, False) and not alone("start", True)


def test_a_step_of_a_run_is_compared_with_the_longest_of_its_law():
    def check(*shares):
        run = SimpleNamespace(
            log_step=np.log([[99.0, 0.5 * share] for share in shares]),
            log_gradient=np.log([[99.0, 3.0]] * len(shares)),
        )
        law = SimpleNamespace(longest_step=lambda beta: 1.5 * np.ones(len(shares)))
        prediction._check_steps(run, law, 0.5)

    check(0.5, 0.999)
    with pytest.raises(PremiseFails) as why:
        check(0.5, 1.25, 0.1)
    assert why.value.run == 1 and why.value.amount == pytest.approx(1.25)
    with pytest.raises(PremiseFails):
        check(1.0000001)


def test_the_pull_off_the_support_is_that_of_the_excess():
    law = SimpleNamespace(excess=np.array([0.5, np.inf, 2.0]))
    found = prediction._pull_outside(law, np.array([3.0, 4.0, 0.0]))
    np.testing.assert_allclose(found, [np.exp(-1.5), 0.0, 1.0])


@pytest.mark.parametrize(
    "slowest, excess, wanted",
    [
        (0.5, np.inf, 2.0),
        (0.5, 4.0, 2.5),  # ten times 1 / excess
        (0.5, 30.0, 2.0),
        (3.0, 0.25, 40.0),
        (3.0, np.inf, 1.0),  # the rate is at most 1
    ],
)
def test_the_steps_needed_are_those_of_the_last_and_of_ten_times_the_tenth(
    monkeypatch, slowest, excess, wanted
):
    """The level is t / 10, so that log(100) is reached at 10 log(100)."""

    def reached(run, r, level, wanted):
        return 10 * wanted

    monkeypatch.setattr(prediction, "_reached", reached)
    law = SimpleNamespace(slowest=np.array([slowest]), excess=np.array([excess]))
    run = SimpleNamespace(iterations=np.array([0, 5]))
    found = prediction._steps_needed(run, law, np.zeros((1, 2)), np.ones((1, 2)))
    assert found[0] == np.ceil(wanted * 10 * np.log(100))


def test_a_settled_run_needs_at_most_its_own_steps(monkeypatch):
    monkeypatch.setattr(prediction, "_reached", lambda *call: np.array(70.0))
    law = SimpleNamespace(slowest=np.ones(2), excess=np.full(2, np.inf))
    run = SimpleNamespace(iterations=np.array([0, 50]))
    remaining = np.array([[1.0, 0.98 * 0.01], [1.0, 1.02 * 0.01]])
    found = prediction._steps_needed(run, law, np.zeros((2, 2)), remaining)
    np.testing.assert_array_equal(found, [50, 700])


def prediction_of(remaining, needed=400.0):
    whole = prediction.predict(
        TWO_AXES, dynamics.train(TWO_AXES, dynamics.NGD(0.1), 2000)
    )
    last = np.array([[1.0, remaining]])
    return repr(replace(whole, remaining=last, steps_needed=np.array([needed])))


def test_a_prediction_is_not_to_be_trusted_from_one_percent_on():
    assert "to be trusted" not in prediction_of(0.0099)
    assert "not yet to be trusted in 1 of 1" in prediction_of(0.0101)


def test_more_than_a_trillion_steps_are_out_of_reach():
    assert "train for about" in prediction_of(0.5, 1e12)
    assert "train with NGD" in prediction_of(0.5, 1.05e12)
