"""Tests of the formulas of the map of joint training, by hand on small inputs."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm as normal

from lib import attention, dynamics
from papers.law import global_map
from papers.law.tolerances import SATURATED


def failing(monkeypatch, pairs, longest=Fraction(1, 6)):
    """Return the steps of the proof that do not hold for other pairs, or another
    step.
    """
    monkeypatch.setattr(global_map, "POSTCARD", pairs)
    monkeypatch.setattr(global_map, "LONGEST", longest)
    monkeypatch.setattr(global_map, "_smallest", lambda *sizes, n=2: [])
    return [words for words, holds in global_map.verify().items() if not holds]


@pytest.mark.parametrize(
    "pairs, words",
    [
        (((2, 0), (2, -3)), "u_mm = 1/2, W_mm = 1/4"),
        (((1, Fraction(1, 2)), (1, -3)), "u_mm = 1, W_mm = 2"),
        (((1, 2), (1, -3)), "u_mm scores both opt tokens higher"),
        # (7 - 4)/8 is below a half, and (7 - 3)/8 is not
        (((1, 0), (1, -4)), "the loss can vanish"),
        (((2, 0), (2, -1)), "the first step moves u down"),
        (((1, 0), (2, -2)), "at u = 0, W <= 0 it moves down"),
        (((1, 2), (1, -3)), "at u < 0 it moves W down"),
        (((2, -1), (2, -9)), "so u <= 0 and f_1 = u s_1 <= 0"),
        (((1, 0), (1, -2)), "the first step moves u down"),
        # 2 and 1 are classified, too.
        (((1, 2), (1, -3)), "no other selection classifies"),
    ],
)
def test_a_step_of_the_proof_fails_for_pairs_that_break_it(monkeypatch, pairs, words):
    assert any(words in step for step in failing(monkeypatch, pairs))


@pytest.mark.parametrize(
    "pairs, words",
    [
        (((1, 0), (1, -3)), "the loss can vanish"),
        (((2, 0), (2, -5)), "the first step moves u down"),
        (((1, 0), (1, -3)), "at u = 0, W <= 0 it moves down"),
        (((2, -1), (2, -3)), "at u < 0 it moves W down"),
        (((1, 0), (1, -3)), "so u <= 0 and f_1 = u s_1 <= 0"),
        (((2, 0), (2, -3)), "no other selection classifies"),
        (((2, 0), (2, -3)), "u_mm scores both opt tokens higher"),
    ],
)
def test_a_step_of_the_proof_holds_where_it_should(monkeypatch, pairs, words):
    assert not any(words in step for step in failing(monkeypatch, pairs))


@pytest.mark.parametrize("pairs", [((1, 0), (1, -3)), ((4, -1), (6, -17))])
def test_u_moves_up_only_after_a_step_that_makes_the_ratio_of_losses_two(
    monkeypatch, pairs
):
    """s_i is from b_i to (a_i + b_i)/2; both losses are equal at u = 0."""
    (a_1, b_1), (a_2, b_2) = pairs
    ratio = -(a_2 + b_2) / (a_1 + b_1)
    critical = float(np.log(ratio) / ((a_1 + b_1) / 2 - b_2))
    for factor, holds in ((0.999, True), (1.001, False)):
        longest = Fraction(factor * critical).limit_denominator(10**9)
        steps = failing(monkeypatch, pairs, longest)
        assert any("u moves up only from" in step for step in steps) != holds


def test_the_proof_says_whether_the_pairs_are_the_smallest(monkeypatch):
    found = {(2, 2): [], (3, 2): [global_map.POSTCARD], (9, 1): []}
    for wrong in (None, (2, 2), (3, 2), (9, 1)):
        of = dict(found)
        if wrong:
            of[wrong] = [] if of[wrong] else ["another"]
        monkeypatch.setattr(
            global_map, "_smallest", lambda largest, n=2, of=of: of[largest, n]
        )
        facts = global_map.verify()
        least = facts["no integers below 3 do it"]
        single = facts["one sample does it with no integers up to 9"]
        assert (least, single) == (wrong not in [(2, 2), (3, 2)], wrong != (9, 1))


def test_the_series_bounds_the_exponential_on_both_sides():
    for x in (0.0, 0.5, 2.0, 3.5):
        for terms in (4, 6, 9):
            low, high = global_map._exp_between(Fraction(x), terms)
            assert float(low) <= np.exp(x) * (1 + 1e-14)
            assert np.exp(x) <= float(high) * (1 + 1e-14)
            # The sum has the powers up to x^{terms - 1}.
            powers = [x**k / np.prod(np.arange(1.0, k + 1)) for k in range(terms + 1)]
            assert float(low) == pytest.approx(sum(powers[:-1]))
            # The rest is at most a geometric series of the ratio x / (terms + 1).
            rest = powers[-1] / (1 - x / (terms + 1))
            assert float(high - low) == pytest.approx(rest)


def test_selections_have_the_head_of_their_smallest_token():
    """Tokens of one sign only can be classified by a u; its size is 1 / min |x|."""
    sizes = global_map._selections(((2, -1), (4, -3)))
    assert sizes == {(0, 0): Fraction(1, 2), (1, 1): Fraction(1)}
    assert (1, 1) not in global_map._selections(((2, 0), (4, -3)))
    assert (0, 1) not in global_map._selections(((2, 0), (4, 0)))
    assert global_map._selections(((2, 1), (4, 3)))[1, 0] == 1


def test_problems_are_missed_only_if_their_sum_is_negative():
    assert not global_map._missed(((1, 0), (1, -2)))
    assert global_map._missed(((1, 0), (1, -3)))
    assert not global_map._missed(((1, 0), (2, -2)))


def test_all_small_problems_are_searched(monkeypatch):
    """0 < a <= largest and -largest <= b < a, each pair of them once."""
    monkeypatch.setattr(global_map, "_missed", lambda pairs: True)
    samples = {(a, b) for a in (1, 2, 3) for b in range(-3, a)}
    (single,) = zip(*global_map._smallest(3, n=1), strict=True)
    assert set(single) == samples and len(single) == len(samples)
    count = len(samples)
    assert len(global_map._smallest(3)) == count * (count + 1) // 2


def test_random_problems_have_whole_numbers_with_a_sum_and_labels():
    problems = global_map.random_problems(400, seed=3)
    assert len(problems) == 400
    sizes = {len(one.y[0]) for one in problems}
    signed = [one.y[0, :, None] * one.X[0, :, :, 0] for one in problems]
    a, b = np.concatenate(signed).T
    assert sizes == {1, 2, 3, 4, 5} and set(a) == set(range(1, 10))
    assert (b < a).all() and b.min() == -9 and b.max() == 8
    assert min(abs(pairs.sum()) for pairs in signed) >= 1
    assert {y for one in problems for y in one.y[0]} == {-1, 1}


def test_a_problem_has_its_labels_in_its_tokens():
    one = global_map.problem(((3, 1), (2, -1)), [1, -1])
    np.testing.assert_array_equal(one.X[0, :, :, 0], [[3, 1], [-2, 1]])
    np.testing.assert_array_equal(one.y, [[1, -1]])
    np.testing.assert_array_equal(one.z[0, :, 0], [3, -2])
    assert not one.opt.any() and not one.u.any()


@pytest.mark.parametrize(
    "gap, margin, sign", [(1, 2, 1), (-1, -2, -1), (1, -2, 0), (-1, 2, 0)]
)
def test_the_end_is_that_of_the_last_finite_record(monkeypatch, gap, margin, sign):
    def train(tokens, rule, steps, record, head):
        assert head == "joint" and record[0] == 0 and record[-1] == steps
        assert set(record) == set(range(steps + 1))  # so few steps are all recorded
        return SimpleNamespace(
            norm=np.array([[0.0, 1, 2, np.nan]]),
            score_gaps=np.array([0, -gap, gap, -gap])[None, :, None, None],
            margins=np.array([0, -margin, margin, -margin])[None, :, None, None],
            log_gap=np.log([[1.0, 0.25, 0.5, np.nan]]),
        )

    monkeypatch.setattr(global_map, "train", train)
    found = global_map.end(None, None, 12)
    assert found == (sign, pytest.approx(0.25))


def test_agreement_is_the_share_of_ends_with_the_sign_of_the_sum(monkeypatch):
    positive = global_map.problem(((3, 1), (2, -1)), [1, -1])
    negative = global_map.problem(((1, 0), (1, -3)), [-1, 1])
    monkeypatch.setattr(global_map, "end", lambda data, rule, steps: (1, 0.1))
    claim = global_map.agreement([positive] * 3 + [negative], None, 7)
    assert claim.measured == 0.75 and not claim.holds


@pytest.mark.parametrize(
    "share, gap, reached", [(0.98, 1, 0), (1.02, 1, 1), (9, -1, 0)]
)
def test_opt_tokens_are_reached_by_a_clear_margin_and_higher_scores(
    monkeypatch, share, gap, reached
):
    """All pairs count, at the last record."""

    def train(problem, rule, steps, record, head):
        assert (steps, record, head) == (70, [0, 70], "joint")
        ends = np.full((2, 2, 8, 1), 99.0)
        ends[:, 1, 3, 0] = share * SATURATED
        gaps = np.full((2, 2, 8, 1), 99.0)
        gaps[:, 0] = -gap
        gaps[:, 1, 5, 0] = gap
        return SimpleNamespace(margins=ends, score_gaps=gaps)

    monkeypatch.setattr(global_map, "train", train)
    found = global_map.measure([1, 2], [1.2], [20], dynamics.NGD(0.1), 70)
    assert found.reached.shape == (1, 1, 2) and (found.reached == reached).all()


def test_the_first_step_is_right_if_every_opt_token_scores_higher(monkeypatch):
    """The first head is the mean of y x over all tokens."""

    def train(*call, **more):
        nothing = np.zeros((2, 2, 5, 1))
        return SimpleNamespace(margins=nothing, score_gaps=nothing)

    monkeypatch.setattr(global_map, "train", train)
    alphas = [1.1, 1.6, 2.5]
    found = global_map.measure(range(2), alphas, [9, 30], None, 1, n=5)
    assert found.n == 5 and 0 < found.first.mean() < 1
    for row, d in enumerate((9, 30)):
        for column, alpha in enumerate(alphas):
            data = attention.tokens.two_token_gaussian(
                range(2), n=5, T=2, d=d, signal=alpha
            )
            signed = data.y[..., None, None] * data.X
            scores = np.einsum("rntd,rd->rnt", signed, signed.mean((1, 2)))
            opt = np.take_along_axis(scores, data.opt[..., None], -1)
            expected = (opt >= scores).all((1, 2))
            np.testing.assert_array_equal(found.first[row, column], expected)


@pytest.mark.parametrize("d, n", [(256, 8), (100, 5)])
def test_at_half_of_alpha_the_first_step_is_right_with_probability_one_half(d, n):
    alpha = global_map.half_at_once(d, n)
    gain = (alpha**2 - 1) / (alpha**2 + 1)
    chance = normal.cdf(gain * np.sqrt(d / (n - 1))) ** n
    assert chance == pytest.approx(0.5)


def share_right_at_first(alpha, d, n, draws):
    """Return the share of data sets in which the first step of the head scores every
    opt token highest.
    """
    data = attention.tokens.two_token_gaussian(
        range(draws), n=n, T=2, d=d, signal=alpha
    )
    signed = data.y[..., None, None] * data.X
    scores = np.einsum("rntd,rd->rnt", signed, signed.mean((1, 2)))
    opt = np.take_along_axis(scores, data.opt[..., None], -1)
    return (opt >= scores).all((1, 2)).mean()


def test_the_neglected_terms_matter_in_few_dimensions():
    rough = share_right_at_first(global_map.half_at_once(16, 8), 16, 8, draws=1000)
    whole = global_map.half_with_all_terms(16, 8)
    assert rough > 0.6
    assert share_right_at_first(whole, 16, 8, draws=1000) == pytest.approx(
        0.5, abs=0.05
    )
    assert whole < global_map.half_at_once(16, 8)
    # With many samples in few dimensions, the common direction of the labels suffices.
    assert global_map.half_with_all_terms(1, 200) == 1.0


def a_map(dimensions, n, crossing, seeds=20):
    """Return a map of which the first step decides, from alpha = `crossing` on."""
    alphas = np.geomspace(1.01, 8.0, 60)
    one = np.broadcast_to(alphas[:, None] >= crossing, (60, seeds))
    reached = np.stack([one] * len(dimensions))
    return global_map.GlobalMap(
        alphas=alphas,
        dimensions=np.array(dimensions),
        n=n,
        reached=reached,
        first=reached,
    )


def ids(grid, **more):
    return [claim.id for claim in global_map.global_claims(grid, **more)]


def test_the_threshold_is_judged_from_64_dimensions_on_where_the_bound_is_finite():
    assert np.isfinite(global_map.half_at_once(63, 2))
    found = ids(a_map([63, 64, 65], n=2, crossing=1.1))
    of = [id for id in found if id.startswith("global.threshold")]
    assert of == ["global.threshold.64", "global.threshold.65"]
    assert not np.isfinite(global_map.half_at_once(64, 200))
    assert not any("threshold" in id for id in ids(a_map([64], n=200, crossing=1.1)))


def test_the_formula_is_judged_from_32_dimensions_per_sample_on():
    found = ids(a_map([95, 96, 97], n=3, crossing=1.1))
    of = [id for id in found if id.startswith("global.formula")]
    assert of == ["global.formula.96", "global.formula.97"]


def test_the_formula_is_held_against_the_alpha_of_half_of_the_seeds():
    grid = a_map([128], n=3, crossing=1.5)
    value = global_map.half_of_seeds(grid.alphas, grid.reached[0])[0]
    claims = {claim.id: claim for claim in global_map.global_claims(grid)}
    expected = value / global_map.half_at_once(128, 3) - 1
    assert claims["global.formula.128"].measured == pytest.approx(expected)


def test_wide_runs_are_judged_from_the_easy_alpha_on():
    grid = a_map([32, 64], n=3, crossing=2.0)
    alphas = grid.alphas
    first = alphas[alphas >= 2.0][0]

    def missed(easy, wide=64):
        claims = global_map.global_claims(grid, wide=wide, easy=easy)
        return [claim.measured for claim in claims if claim.id == "global.missed"]

    assert missed(first) == [1.0]
    assert missed(alphas[alphas < 2.0][-1]) == [0.0]
    assert missed(9.0) == [] and missed(first, wide=65) == []


def test_lost_runs_are_named_if_too_many_first_steps_are_undone():
    """Of 100 right first steps, one may be undone."""
    for lost, named in ((1, False), (2, True)):
        reached = np.ones((2, 1, 50), bool)
        reached[1, 0, :lost] = False
        grid = global_map.GlobalMap(
            alphas=np.array([2.0]),
            dimensions=np.array([8, 16]),
            n=3,
            reached=reached,
            first=np.ones_like(reached),
        )
        enough = global_map.global_claims(grid)[0]
        assert enough.measured == pytest.approx(1 - lost / 100)
        assert enough.holds != named
        words = f"later steps undo it: {lost} at d = 16" if named else ""
        assert enough.remark == words


def test_a_crossing_before_the_values_is_at_their_start_and_beyond_them_infinite():
    log = np.log([1.0, 2.0, 4.0])
    assert global_map._crossing(log, np.ones((3, 4))) == pytest.approx(1.0)
    assert global_map._crossing(log, np.zeros((3, 4))) == np.inf
    share = np.array([[0.25], [0.75], [1.0]])
    assert global_map._crossing(log, share) == pytest.approx(2**0.5)
