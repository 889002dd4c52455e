"""Tests of the formulas of the law under other step sizes, by hand on small inputs."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib import svm
from lib.attention import coordinates, tokens
from papers.law import margin_law
from papers.law import margin_law_steps as law_steps
from papers.law.tolerances import LOUD


def line(constant):
    """Return a law whose direction error is C/||W||."""
    return SimpleNamespace(direction_error=lambda norm: constant / norm)


def test_the_ratio_to_the_law_is_taken_at_the_runs_own_norm():
    norm = np.array([[0.0, 2.0, 10.0]])
    history = SimpleNamespace(norm=norm, direction_error={"V": np.array([[1, 3, 0.9]])})
    found = law_steps.ratio_to_law(history, "V", line(6.0))
    np.testing.assert_allclose(found, [[0.0, 1.0, 1.5]])


def settling(level, left, slowest=0.4):
    """Return `_settling_rate` of a run whose slowest mode is `left` at these levels.

    The mode is (3, -1), and a third pair is off the support.
    """
    margins = np.zeros((1, len(level), 1, 3))
    margins[0, :, 0, 0] = 5.0 + left / 2
    margins[0, :, 0, 1] = -2.0 + left / 2
    margins[0, :, 0, 2] = np.nan
    law = SimpleNamespace(
        norm=np.array([2.0]),
        support=np.array([[[True, True, False]]]),
        offsets=np.array([[[5.0, -2.0, np.nan]]]),
        slowest_mode=np.array([[[3.0, -1.0, 0.0]]]),
        slowest=np.array([slowest]),
    )
    history = SimpleNamespace(norm=2 * level[None], margins=margins)
    return law_steps._settling_rate(history, law)


def test_the_settling_rate_is_that_of_an_exponential_between_its_two_bounds():
    """Outside the bounds 1e-3 and 1e-8 the error is another one, which must not
    count.
    """
    level = np.linspace(0.0, 60.0, 400)
    left = np.exp(-1.2 * 0.4 * level)
    level_outside = np.where(left > 1e-3, 0.5, np.where(left < 1e-8, 5e-9, left))
    for sign in (1, -1):
        np.testing.assert_allclose(settling(level, sign * left), 1.2, rtol=1e-6)
        found = settling(level, sign * level_outside)
        np.testing.assert_allclose(found, 1.2, rtol=1e-6)


@pytest.mark.parametrize("bound", [1e-3, 1e-8])
def test_the_settling_rate_is_read_up_to_its_bounds(bound):
    """Three points on a line, and one near the bound that is far off it in level."""
    for factor, inside in ((0.97, True), (1.03, False)):
        if bound < 1e-5:
            factor = 1 / factor
        left = np.array([factor * bound, 1e-5, 1e-6, 1e-7])
        level = -np.log(left) / 0.4
        level[0] += 3.0 if bound > 1e-5 else -3.0
        found = settling(level, left)[0]
        assert (abs(found - 1) > 0.01) == inside


def test_the_claims_of_figure_2_are_about_the_last_records():
    def history(last):
        return SimpleNamespace(
            norm=np.array([[1.0, 10.0]]),
            direction_error={"V": np.array([[9.0, last]])},
        )

    far = {"a": history(0.6), "NGD": history(0.6 * (1 + 1e-5))}
    constant = {"GD": history(0.3), "Polyak": history(0.9)}
    found = {}

    def rate(history, law):
        found["of"] = history
        return np.array([1.01])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(law_steps, "_settling_rate", rate)
        claims = law_steps.figure2_claims(far, constant, "V", line(6.0))
    assert found["of"] is far["NGD"]
    measured = [claim.measured for claim in claims]
    assert measured == pytest.approx([1 + 1e-5, 0.5, 0.5, 1.01])
    assert [claim.holds for claim in claims] == [False, True, True, True]


def test_a_cycle_is_sought_from_offsets_that_are_one_percent_too_long(monkeypatch):
    data = tokens.unit_tokens([1, 3], n=4, T=4, d=8)
    steps = 300
    seen = []

    def train(problem, rule, count, record, start):
        of = coordinates.minimal(data.run(len(seen) // 2))
        solution = svm.token_svm(of.tokens)
        law = margin_law.margin_law(of.tokens, solution)
        delta = coordinates.differences(of.tokens, of.tokens.opt)
        margins = np.einsum("rntd,rde,rne->rnt", delta, start.inside, of.tokens.z)
        on = law.support
        expected = 100 + 1.01 * law.offsets[on]
        np.testing.assert_allclose(margins[on], expected, rtol=1e-6)
        assert count == steps and record[0] == steps - law_steps.LAST
        assert record[-1] == steps and len(record) == law_steps.LAST + 1
        seen.append(rule.step_size / law.longest_step(0.5)[0])
        assert rule.momentum == 0.5
        # One offset on the support moves by 4, and so all others by 4 / (m - 1) less.
        path = np.zeros((1, len(record), *on.shape[1:]))
        first = tuple(np.argwhere(on[0])[0])
        path[(0, slice(3, 7), *first)] = 4.0
        path += np.arange(len(record))[None, :, None, None]  # the level rises
        path[:, :, ~on[0]] = 1e3 * np.random.default_rng(0).uniform(size=(~on).sum())
        m.append(on.sum())
        return SimpleNamespace(margins=path)

    m = []
    monkeypatch.setattr(law_steps, "train", train)
    found = law_steps.cycles(data, [0.9, 1.1], 0.5, steps)
    np.testing.assert_allclose(seen, [0.9, 1.1, 0.9, 1.1])
    moved = 4 * (1 - 1 / np.array(m[::2]))
    np.testing.assert_allclose(found.moved, np.stack([moved, moved], 1))


def moves(*moved):
    return law_steps.Cycles(
        multiples=np.array([0.9, 1.1]), momentum=0.0, moved=np.array(moved)
    )


def test_the_moves_of_one_multiple_are_those_of_all_runs():
    runs = [moves([1e-8, 0.5], [3e-8, 0.2]), moves([2e-8, 0.4])]
    short, long = law_steps.threshold(runs, 0.9, 1.1)
    assert (short.measured, long.measured) == (3e-8, 0.2)
    assert short.id == "law.short" and short.holds and long.holds


@pytest.mark.parametrize("factor, loud", [(0.96, False), (1.04, True)])
def test_a_large_cycle_is_called_so(factor, loud):
    claim = law_steps.short_step([moves([factor * LOUD, 0.5])], 0.9)
    assert ("a large cycle" in claim.remark) == loud and claim.id == "law.short.0.9"


@pytest.mark.parametrize("h", [0.0, 1.5, 3.0])
def test_the_shares_of_the_three_samples_are_those_of_their_scores(h):
    """A_m is (1, 1), (1, 0), (1, -1); kappa is e^-f of the opt tokens' scores."""
    data, start = law_steps._three_samples(h)
    law = margin_law.margin_law(data, svm.token_svm(data))
    kappa = np.exp([-h - 1, -1.0, -h - 1])
    np.testing.assert_allclose(law.duals[0, :, 0], kappa / kappa.sum(), atol=1e-8)
    delta = coordinates.differences(data, data.opt)[0, :, 0]
    np.testing.assert_allclose(delta, [[1, 1], [1, 0], [1, -1]])
    np.testing.assert_array_equal(start.inside.ravel(), [5, 5])


def test_a_cycle_of_three_samples_is_the_range_of_a_difference(monkeypatch):
    """The first margin less the second is w_2."""
    data, _ = law_steps._three_samples()
    longest = margin_law.margin_law(data, svm.token_svm(data)).longest_step()[0]

    def train(tokens, rule, steps, record, start):
        assert rule.step_size == pytest.approx(0.7 * longest) and steps == 500
        assert list(record) == list(range(500 - law_steps.LAST, 501))
        w = np.where(np.arange(len(record)) % 2, 0.25, -0.5)
        w[0] = 99.0  # the first record is not counted
        rise = np.arange(len(record))
        margins = np.stack([rise + w, rise, rise - w], 1)
        return SimpleNamespace(margins=margins[None, :, :, None])

    monkeypatch.setattr(law_steps, "train", train)
    assert law_steps.cycle_without_momentum(0.7, 500).measured == pytest.approx(0.75)


def test_random_supports_have_shares_and_columns_of_their_sizes():
    draw = np.random.default_rng(0)
    shares, across = law_steps._random_supports(draw, 4000, 3)
    # log shares differ by 2 times a difference of two normal numbers
    ratio = np.log(shares[:, 0] / shares[:, 1])
    assert ratio.std() == pytest.approx(2 * 2**0.5, rel=0.04)
    rows = across[:, 0] - across[:, 1]
    assert rows[:, 0].std() == pytest.approx(2**0.5, rel=0.04)
    # E e^{-2 c} over c in [0, 3]
    assert (rows[:, 1] ** 2).mean() == pytest.approx(2 * (1 - np.exp(-6)) / 6, rel=0.1)


def test_random_starts_have_lognormal_lengths_around_1_over_e():
    starts = law_steps._random_starts(np.random.default_rng(0), 1000, 4)
    assert starts.shape == (1000, 20, 3)
    log_length = np.log(np.linalg.norm(starts, axis=-1))
    assert log_length.mean() == pytest.approx(-1, abs=0.03)
    assert log_length.std() == pytest.approx(1, abs=0.03)
    np.testing.assert_allclose(starts.mean((0, 1)), 0, atol=0.02)


# The fast mode is along the first axis, and its rate is twenty times that of the slow
# one.
SHARES = np.array([0.4, 0.4, 0.2])
ACROSS = np.array([[1.0, 0.1], [-1.0, 0.1], [0.0, -0.4]])
FAST, SLOW = np.eye(2)


def simulated(start, momentum, steps):
    """Return the path and the net move of the last LAST steps, divided by the step."""
    H = sum(pi * np.outer(u, u) for pi, u in zip(SHARES, ACROSS, strict=True))
    step = 0.9 * 2 * (1 + momentum) / np.linalg.eigvalsh(H).max()
    path = [step * np.asarray(start)]
    before = path[0]
    for _ in range(steps):
        pi = SHARES * np.exp(-ACROSS @ path[-1])
        D = (pi / pi.sum()) @ ACROSS
        kick = step * D / np.linalg.norm([1.0, *D])
        path.append(path[-1] + kick + momentum * (path[-1] - before))
        before = path[-2]
    last = np.array(path[-law_steps.LAST - 1 :])
    length = np.linalg.norm(np.diff(last, axis=0), axis=1).sum()
    return length / step, np.linalg.norm(last[-1] - last[0]) / step


def crossing(below):
    """Find the number between 0 and 3 at which `below` ceases to be true."""
    low, high = 0.0, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def test_a_run_cycles_if_its_path_is_long_enough():
    steps = law_steps.LAST

    def path(size):
        return simulated(size * FAST, 0.0, steps)[0]

    size = crossing(lambda size: path(size) <= law_steps.LAST * LOUD)
    assert 1e-3 < size < 2.9
    ratio = simulated(size * FAST, 0.0, steps)
    assert ratio[1] < ratio[0] / 8
    found = law_steps._which_cycle(
        SHARES[None],
        ACROSS[None],
        np.array([[0.995 * size * FAST, 1.005 * size * FAST]]),
        0.0,
        steps,
    )
    assert found.tolist() == [[False, True]]


def test_a_run_does_not_cycle_if_it_moves_an_eighth_of_its_path():

    def start(size):
        return 0.08 * FAST + size * SLOW

    def few(size):
        path, net = simulated(start(size), 0.0, law_steps.LAST)
        return net < path / 8

    size = crossing(few)
    assert 1e-3 < size < 2.9
    found = law_steps._which_cycle(
        SHARES[None],
        ACROSS[None],
        np.array([[start(0.99 * size), start(1.01 * size)]]),
        0.0,
        law_steps.LAST,
    )
    assert found.tolist() == [[True, False]]


def test_the_search_counts_supports_with_some_cycle_and_those_that_last(monkeypatch):
    """Of all supports one start cycles on the even ones, and still on the first."""
    seen = []

    def which(shares, across, starts, momentum, steps=3000):
        seen.append((len(shares), momentum, steps, starts.shape))
        found = np.zeros(starts.shape[:2], bool)
        if steps == 3000:
            found[::2, 3:5] = True
        elif sum(call[2] != 3000 for call in seen) == 1:
            found[0, 1] = True
        return found

    monkeypatch.setattr(law_steps, "_which_cycle", which)
    assert law_steps.search(120, 3, momentum=0.4, longer=77) == (60, 1)
    chunks = [call for call in seen if call[2] == 3000]
    assert [call[0] for call in chunks] == [50, 50, 20]
    assert [call[3] for call in chunks] == [(k, 20, 2) for k in (50, 50, 20)]
    late = [call for call in seen if call[2] != 3000]
    assert len(late) == 60
    assert set(late) == {(1, 0.4, 77, (1, 2, 2))}
    seen.clear()
    assert law_steps.search(20, 3) == (10, 0) and len(seen) == 1
    seen.clear()
    assert law_steps.search(20, 3, longer=1)[1] == 1


def test_the_difference_error_is_that_of_the_later_record_less_the_earlier():
    W = [np.array([[[a], [b]]]) for a, b in ((0.0, 0.0), (2.0, 1.0), (2.0, 3.0))]
    history = SimpleNamespace(iterations=np.arange(3), weights=lambda k: W[k])
    found = law_steps.difference_errors(history, np.array([[[0.0], [1.0]]]))
    to_first = 2 * np.sin(np.arctan2(2, 1) / 2)
    np.testing.assert_allclose(found, [[to_first, 0.0]], atol=1e-12)


@pytest.mark.parametrize("slowest, order", [(0.6, 0.6), (1.05, 1.0), (3.0, 1.0)])
def test_the_order_of_gd_is_fitted_over_the_last_five_records(slowest, order):
    t = 2.0 ** np.arange(1, 12)
    errors = np.log(t) / t**order
    errors[:6] = 7.0
    history = SimpleNamespace(iterations=np.r_[1.0, t])
    claim = law_steps.gd_order(
        history, errors[None], SimpleNamespace(slowest=np.array([slowest]))
    )
    assert claim.measured == pytest.approx(0.0, abs=1e-9)
    wrong = errors * np.where(t == t[-5], 1.2, 1.0)
    claim = law_steps.gd_order(
        history, wrong[None], SimpleNamespace(slowest=np.array([slowest]))
    )
    assert abs(claim.measured) > 0.01


def test_a_long_run_is_judged_by_its_last_record_and_its_gain():
    history = SimpleNamespace(
        iterations=np.array([1000, 2000]),
        norm=np.array([[1.0, 10.0]]),
        direction_error={"V": np.array([[9.0, 0.6 * (1 + 1e-4)]])},
    )
    errors = np.array([[5.0, 3e-6]])
    off, gain = law_steps.ngd_claims(history, "V", errors, line(6.0))
    assert off.measured == pytest.approx(1e-4) and not off.holds
    assert gain.measured == pytest.approx(0.6 * (1 + 1e-4) / 3e-6) and gain.holds
    assert "t = 2,000" in off.statement


def test_growing_steps_are_those_of_their_names():
    gd = law_steps._growing_gd(0.5, 0.25)
    assert np.exp(gd.log_step(8, -3.0, -5.0)) == pytest.approx(0.5 * np.exp(2.0))
    polyak = law_steps._growing_polyak(0.5, 0.25)
    assert np.exp(polyak.log_step(8, -3.0, -5.0)) == pytest.approx(0.5 * np.exp(2.0))
    step = np.exp(-3.0) / (2 * np.exp(-1.0) ** 2)
    assert np.exp(polyak.log_step(8, -3.0, -1.0)) == pytest.approx(step)
