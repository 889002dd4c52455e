"""Tests of the formulas of the law for idle pairs, by hand on small inputs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, svm
from lib.attention import coordinates, tokens
from papers.law import margin_law, margins, zero_duals
from papers.law.margin_law import PremiseFails
from papers.law.tolerances import APART, SETTLED_IDLE, SMALLEST_DUAL, TIGHT

# One sample. The margins are 2 w_1, 2 w_1 + w_2 and 2 w_1 + 2/3 w_2 + 2 w_3, and W_mm is
# (1/2, 0, 0), so that the last two are idle.
IDLE = [[[0.0, 0, 0], [-2.0, 0, 0], [-2.0, -1.0, 0], [-2.0, -2 / 3, -2.0]]]
U = [1.0, 0.5, 0.2]


def corner():
    return zero_duals._ZeroDuals(attention.token_set(IDLE, [1.0], z=[[1.0]], u=U), 2)


def test_the_duals_of_the_corner_solve_its_two_equations():
    """<A_k, D> = 1 for D = sum_k y_k (A_k less its part along the support)."""
    of = corner()
    Q = np.array([[1, 2 / 3], [2 / 3, 4 / 9 + 4]])
    np.testing.assert_allclose(Q @ of.duals, 1)
    np.testing.assert_allclose(of.slopes, 1)
    np.testing.assert_allclose(of.lengths, [1, 40 / 9])
    assert of.pairs.tolist() == [1, 2] and of.tight.all()


def test_the_constants_of_the_corner_by_hand():
    """kappa is e^0 times the score gap; on the support kappa/beta is 2 / (1/4)."""
    of = corner()
    gaps = np.array([2.0, 2.5, 2 + 1 / 3 + 0.4])
    expected = np.log(gaps[1:]) - np.log(of.duals) - np.log(8.0)
    np.testing.assert_allclose(of.constants, expected)
    np.testing.assert_allclose(of.rest, [0.0, *expected])


def test_the_residual_is_the_shortest_w_with_the_predicted_offsets():
    of = corner()
    A = -np.array(IDLE[0][1:])
    for level in (1.0, 7.0, 300.0):
        offsets = of.rest + np.log(level) * np.array([0.0, 1.0, 1.0])
        shortest = np.linalg.lstsq(A, offsets, rcond=None)[0]
        found = of.residual(np.array([level, 2.0]))[0]
        assert found == pytest.approx(np.linalg.norm(shortest))


def test_the_rate_is_that_of_the_linear_flow_of_the_idle_offsets():
    """Their errors e obey de/dlog a = -Q Y e."""
    of = corner()
    Q = np.array([[1, 2 / 3], [2 / 3, 40 / 9]])
    assert of.rate == pytest.approx(np.linalg.eigvals(Q * of.duals).real.min())


def test_a_pair_without_pull_has_no_part_in_the_rate():
    """The third pair has the slope 2, and Q y^2 = 1 of the other one gives the rate."""
    X = [[[0.0, 0, 0], [-1.0, 0, 0], [-1.0, -0.5, 0], [-1.0, -1.0, -0.5]]]
    of = zero_duals._ZeroDuals(attention.token_set(X, [1.0], z=[[1.0]], u=U), 2)
    np.testing.assert_allclose(of.slopes, [1, 2])
    assert of.rate == pytest.approx(1.0) and np.isnan(of.constants).tolist() == [0, 1]


def test_the_step_is_half_of_the_longest_but_at_most_w_mm():
    """With a single pair on the support no step is too long."""
    assert corner().step == pytest.approx(0.5)
    data = zero_duals._tightened(tokens.unit_tokens(101, n=6, T=8, d=10))
    of = zero_duals._ZeroDuals(data)
    law = margin_law.from_duals(
        margin_law.gram(of.tokens),
        np.where(of.solution.support, of.solution.duals, 0.0),
        of.solution.margins,
        np.zeros(of.solution.duals.shape),
    )
    half = law.longest_step()[0] / 2
    assert of.step == pytest.approx(min(half, of.solution.norm[0]))


@pytest.mark.parametrize(
    "excess, share, count",
    [
        (0.96 * TIGHT, 0, 2),
        (1.04 * TIGHT, 0, 1),
        (0, 0.96 * SMALLEST_DUAL, 2),
        (0, 1.04 * SMALLEST_DUAL, 1),
    ],
)
def test_a_pair_is_idle_if_it_is_tight_and_its_dual_is_zero(
    monkeypatch, excess, share, count
):
    true = zero_duals.token_svm

    def altered(data):
        solution = true(data)
        duals, margins = solution.duals.copy(), solution.margins.copy()
        margins[0, 0, 1] = 1 + excess
        duals[0, 0, 1] = share * duals.max()
        return replace(solution, duals=duals, margins=margins)

    monkeypatch.setattr(zero_duals, "token_svm", altered)
    data = attention.token_set(IDLE, [1.0], z=[[1.0]], u=U)
    with pytest.raises(PremiseFails, match=f"^.*{count} tight constraints") as why:
        zero_duals._ZeroDuals(data, 7)
    assert why.value.premise == "zero duals"


@pytest.mark.parametrize("above, holds", [(1.04, True), (0.96, False)])
def test_the_slope_of_a_pair_without_pull_is_apart_from_one(above, holds):
    """The third pair is at w_2 = 2 (1 + above * APART) of the second."""
    X = [[[0.0, 0, 0], [-1.0, 0, 0], [-1.0, -0.5, 0], [-1.0, 0.0, -0.5]]]
    X[0][3][1] = -0.5 * (1 + above * APART)
    data = attention.token_set(X, [1.0], z=[[1.0]], u=U)
    if holds:
        slopes = zero_duals._ZeroDuals(data, 2).slopes
        np.testing.assert_allclose(slopes, [1, 1 + above * APART])
        return
    with pytest.raises(PremiseFails) as why:
        zero_duals._ZeroDuals(data, 2)
    assert why.value.premise == "second margin"
    assert f"needs {1 + APART:g}" in str(why.value)


@pytest.mark.parametrize("count", [1, 3])
def test_tightened_pairs_are_those_of_least_slack_and_have_margin_one(count):
    data = tokens.gaussian_tokens(100, n=6, T=6, d=36)
    before = svm.token_svm(data)
    moved = zero_duals._tightened(data, count)
    delta = coordinates.differences(moved, moved.opt)
    after = np.einsum("rntd,rde,rne->rnt", delta, before.W, moved.z)
    slack = np.where(before.support, np.inf, before.margins - 1).ravel()
    chosen = np.argsort(slack)[:count]
    expected = before.margins.ravel().copy()
    expected[chosen] = 1
    np.testing.assert_allclose(after.ravel(), expected, atol=1e-9)
    assert (np.abs(moved.X - data.X).max(-1) > 0).sum() == count


def run_of(monkeypatch, level, rate, idle):
    """Run a made-up problem whose W is `level` times W_mm, which has the norm 2."""
    V = np.array([[[2.0]]])
    seen = {}

    def train(data, rule, steps, record):
        seen.update(step=rule.step_size, steps=steps, record=record)
        margins = np.array([[[[level(t), idle(t)]] for t in record]])
        return SimpleNamespace(
            margins=margins + 10,
            weights=lambda k: level(record[k]) * V,
        )

    monkeypatch.setattr(zero_duals, "train", train)
    monkeypatch.setattr(
        margins, "residual", lambda data, opt, tight, w, V: w[:, 0, 0] / 2
    )
    law = SimpleNamespace(
        tokens=SimpleNamespace(opt=None),
        solution=SimpleNamespace(W=V, norm=np.array([2.0]), duals=np.zeros((1, 1, 2))),
        step=0.7,
        rate=rate,
        pairs=np.array([1]),
        tight=np.array([True, True]),
    )
    return law, seen


def test_a_run_is_read_in_its_last_decades(monkeypatch):
    law, seen = run_of(
        monkeypatch, level=lambda t: 0.5 * t, rate=1.0, idle=lambda t: 3 * t
    )
    run = zero_duals._run(law, 10_000)
    assert seen["step"] == 0.7 and seen["steps"] == 10_000
    start, *late = seen["record"]
    assert start == 0 and late[0] == 1000 and late[-1] == 10_000 and len(late) == 9
    late = np.array(late)
    ratios = late[1:] / late[:-1]
    np.testing.assert_allclose(ratios, ratios[0], rtol=2e-3)
    np.testing.assert_allclose(run.level, 0.5 * late)
    np.testing.assert_allclose(run.residual, 0.5 * late)
    np.testing.assert_allclose(run.offsets[:, 0], 10 + 3 * late - 0.5 * late)
    zero_duals._run(law, 10_000, decades=2, step=0.1)
    assert seen["step"] == 0.1 and seen["record"][1] == 100


@pytest.mark.parametrize("factor, settled", [(0.98, True), (1.02, False)])
@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_idle_pairs_have_settled_once_their_power_of_the_level_is_small(
    monkeypatch, rate, factor, settled
):
    last = (factor * SETTLED_IDLE) ** (-1 / rate)
    law, _ = run_of(
        monkeypatch,
        level=lambda t: last * t / 10_000,
        rate=rate,
        idle=lambda t: 0.0,
    )
    if settled:
        zero_duals._run(law, 10_000)
        return
    with pytest.raises(PremiseFails) as why:
        zero_duals._run(law, 10_000)
    assert why.value.premise == "idle pairs settled"
    assert why.value.amount == pytest.approx(factor * SETTLED_IDLE)


def test_studies_of_one_idle_pair_are_of_unit_tokens_over_two_decades(monkeypatch):
    seen = []
    monkeypatch.setattr(zero_duals, "_tightened", lambda data, count: (data, count))
    monkeypatch.setattr(zero_duals, "_ZeroDuals", lambda data, count: (*data, count))
    monkeypatch.setattr(zero_duals, "_run", lambda *call: seen.append(call))
    for count, where in ((1, ""), (2, "2 idle pairs, ")):
        zero_duals.study([5], count, 900, 0.3)
        (data, tightened, law), steps, decades, step = seen.pop()
        assert (tightened, law, steps, step) == (count, count, 900, 0.3)
        assert (data.shape[1:], decades) == (
            ((6, 8, 10), 2) if count == 1 else ((6, 6, 36), 1)
        )
        monkeypatch.setattr(margins, "each_seed", lambda *call: call)
        assert zero_duals.study([5], count, 900)[2] == where
        monkeypatch.undo()
        monkeypatch.setattr(zero_duals, "_tightened", lambda data, count: (data, count))
        monkeypatch.setattr(
            zero_duals, "_ZeroDuals", lambda data, count: (*data, count)
        )
        monkeypatch.setattr(zero_duals, "_run", lambda *call: seen.append(call))


def made_up(offset, slope, bend=0.0):
    """Return a run of one idle pair whose offset is log a + 2, and off by the rest."""
    level = np.geomspace(10, 1000, 9)
    early = np.where(np.arange(9) < 4, bend, 0.0)
    offsets = 2 + np.log(level) + offset + slope * np.log(level / 1000) + early
    law = SimpleNamespace(
        constants=np.array([2.0]),
        slopes=np.array([1.0]),
        pairs=np.array([1]),
        residual=lambda level: 5 * level,
    )
    return zero_duals._ZeroDualsRun(
        law=law, level=level, offsets=offsets[:, None], residual=5.01 * level
    )


def test_one_idle_pair_is_judged_by_its_offset_and_its_last_five_records():
    runs = [made_up(0.01, 0.0, bend=3.0), made_up(0.0, 0.015)]
    offset, slope = zero_duals.zero_claims(runs)
    assert offset.measured == pytest.approx(0.01)
    assert slope.measured == pytest.approx(1.015)


def test_several_idle_pairs_are_judged_by_offset_slope_and_residual():
    runs = [made_up(0.01, 0.0), made_up(0.0, 0.015)]
    claims = zero_duals.zeros_claims(runs)
    assert [claim.measured for claim in claims] == pytest.approx([0.01, 0.015, 0.002])
    # A pair with y = 0 has no constant, and makes no claim about its offset.
    two = zero_duals._ZeroDualsRun(
        law=SimpleNamespace(
            constants=np.array([2.0, np.nan]),
            slopes=np.array([1.0, 3.0]),
            pairs=np.array([1, 2]),
            residual=lambda level: np.nan * level,
        ),
        level=runs[0].level,
        offsets=np.c_[runs[0].offsets, 3.01 * np.log(runs[0].level)],
        residual=runs[0].level,
    )
    offset, slope, _ = zero_duals.zeros_claims([two])
    assert offset.measured == pytest.approx(0.01)
    assert slope.measured == pytest.approx(0.01)


@pytest.mark.parametrize(
    "Y, h",
    [(-0.5, 2 * np.exp(-1.5)), (0.5, 2 * np.exp(-0.5)), (1.05, 2.1025), (1.5, 3.25)],
)
def test_the_terms_of_the_bound_by_hand(Y, h):
    """One pair on the support and kappa = (1, e^Y): Y_m is Y less log(1 + e^Y)."""
    slopes = np.array([0.0, Y])
    total = np.logaddexp(0.0, Y)
    K = np.eye(2)
    on = np.array([True, False])
    found = zero_duals._bound(
        K, on, np.array([1.0, 0.0]), np.array([1.0, 1.25]), slopes
    )
    inside = Y - total  # always below 1, where h is 2 e^(Y - 1)
    expected = np.sqrt(np.exp(total) * 2 * np.exp(inside - 1) / 0.25)
    assert found == pytest.approx(expected)
    # With two on the support whose offsets are x and -x, the margin falls by c x, and
    # 2 cosh x = 3: c is chosen such that Y_m is Y.
    c = (Y + np.log(3)) / np.arccosh(1.5)
    K = np.array([[1.0, 0, c], [0, 1, 0], [c, 0, 1 + c * c]])
    found = zero_duals._bound(
        K,
        np.array([True, True, False]),
        np.array([1.0, 1.0, 0.0]),
        np.array([1.0, 1.0, 3.0]),
        np.zeros(3),
    )
    if c > 0:
        assert found == pytest.approx(np.sqrt(3 * h / 2), rel=1e-6)


def test_the_lowest_margin_of_uneven_duals_is_that_of_a_search():
    """beta is (1, 2), so that the offsets are (2 x, -x); kappa is (1, 1/2)."""
    x = np.linspace(-3, 3, 60_001)
    slopes = np.array([0.0, np.log(0.5)])
    total = np.log(2.5)
    allowed = np.exp(slopes[0] - 2 * x) + np.exp(slopes[1] + x) <= 2.5
    for direction in ([1.0, 0.3], [-0.5, 2.0]):
        values = direction[0] * 2 * x - direction[1] * x
        found = zero_duals._lowest(
            np.array(direction), np.array([1.0, 2.0]), slopes, total
        )
        assert found == pytest.approx(values[allowed].min(), abs=5e-4)


def test_the_lowest_margin_of_three_pairs_is_that_of_a_search():
    """The offsets are (x, y, -(x + 2 y)/3), by beta."""
    beta = np.array([1.0, 2.0, 3.0])
    slopes = np.log([1.0, 0.5, 2.0])
    x, y = np.meshgrid(np.linspace(-3, 6, 1201), np.linspace(-3, 6, 1201))
    o = np.stack([x, y, -(x + 2 * y) / 3], -1)
    allowed = np.exp(slopes - o).sum(-1) <= 3.5
    for direction in ([1.0, 0.3, -0.4], [-0.5, 2.0, 1.0]):
        found = zero_duals._lowest(np.array(direction), beta, slopes, np.log(3.5))
        assert found == pytest.approx((o @ direction)[allowed].min(), abs=0.02)


def test_offsets_that_no_multiplier_reaches_have_no_lowest_margin():
    """The constraint holds at no offset: the sum of kappa is above e^total at all."""
    found = zero_duals._lowest(
        np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.zeros(2), np.log(1.0)
    )
    assert found == -np.inf


def test_beyond_the_span_is_the_gram_matrix_of_what_is_left():
    draw = np.random.default_rng(0)
    A = draw.standard_normal((5, 6))
    on = np.array([True, False, True, False, False])
    basis = np.linalg.qr(A[on].T)[0]
    rest = A - A @ basis @ basis.T
    found = zero_duals._beyond_span(A @ A.T, on, ~on)
    np.testing.assert_allclose(found, (rest @ rest.T)[np.ix_(~on, ~on)], atol=1e-12)


def test_runs_with_other_steps_end_at_the_same_level(monkeypatch):
    """The steps are shares of the longest; their number is inverse to them."""
    seen = []

    def train(data, rule, count, record):
        seen.append((rule.step_size, count, record))
        return SimpleNamespace(
            margins=np.full((1, 2, 1, 1), 9.0),
            weights=lambda k: rule.step_size * count * np.ones((1, 1, 1)),
        )

    monkeypatch.setattr(zero_duals, "train", train)
    monkeypatch.setattr(margins, "outside_support", lambda data, opt, on, W: W[0, 0])
    problem = SimpleNamespace(
        tokens=SimpleNamespace(opt=None),
        W_mm=np.full((1, 1, 1), 4.0),
        law=SimpleNamespace(
            longest_step=lambda: np.array([0.5]), norm=np.array([4.0]), support=None
        ),
        flow=lambda level: 10 * level,
        first_order=lambda: 3.0,
    )
    for name in ("K", "on_support", "beta", "margins", "log_kappa"):
        setattr(problem, name, name)
    monkeypatch.setattr(zero_duals, "_bound", lambda *call: call)
    found = zero_duals._left(problem, 7000)
    shares = np.array(zero_duals.STEPS)
    counts = 7000 * shares.min() / shares
    assert [step for step, *_ in seen] == pytest.approx(list(0.5 * shares))
    assert [count for _, count, _ in seen] == counts.tolist()
    assert [record for *_, record in seen] == [[0, count] for count in counts]
    ends = 0.5 * shares * counts
    np.testing.assert_allclose(found.measured.ravel(), ends)
    np.testing.assert_allclose(found.predicted, 10 * ends / 4)
    assert found.bound == ("K", "on_support", "beta", "margins", "log_kappa")


def test_the_order_of_what_is_left_is_one_if_it_grows_like_the_step():
    steps = np.array(zero_duals.STEPS)

    def left(factor):
        return zero_duals.Left(
            measured=2 * (1 + factor * steps),
            predicted=np.full(2, 2.0),
            first=3.0,
            bound=5.0,
        )

    claims = zero_duals.left_claims([left(0.2), left(-0.1), left(0.3)])
    flow, order, first, bound = (claim.measured for claim in claims)
    assert flow == pytest.approx(0.3 * steps[-1]) and order == pytest.approx(1)
    assert first == pytest.approx(1.5 / (1 + 0.3 * steps[-1]))
    assert bound == pytest.approx(2.5 / (1 + 0.3 * steps[-1]))


def test_the_pull_of_one_sample_by_hand():
    """The pull is e^{least margin} p_t (s_opt - ...) |l'(f)| of one sample."""
    shown = np.array([[True, True]])
    of = SimpleNamespace(
        scores=np.array([[0.25, -0.5]]), opt_scores=np.array([1.0]), shown=shown
    )
    g = np.array([1.5, 2.0])
    found = zero_duals._Pulls.pull(of, g)
    p = np.exp(-np.array([0.0, *g]))
    p /= p.sum()
    f = p @ [1.0, 0.25, -0.5]
    expected = np.exp(-f) * p[1:] * (f - np.array([0.25, -0.5]))
    np.testing.assert_allclose(found, np.exp(1.5) * expected)


def test_a_head_without_score_gaps_or_without_a_rest_is_refused():
    data = zero_duals.PROBLEMS["Gaussian"](100)
    with pytest.raises(PremiseFails) as why:
        zero_duals._Pulls(replace(data, u=-data.u))
    assert why.value.premise == "score gaps"
    with pytest.raises(PremiseFails) as why:
        zero_duals._Pulls(tokens.gaussian_tokens(0, n=3, T=2, d=40))
    assert why.value.premise == "partial support"
