"""Tests of the formulas of the laws of trained and of several heads, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics
from lib.attention import tokens
from papers.law import head_law, joint_law, margin_law
from papers.law.margin_law import PremiseFails
from papers.law.tolerances import INDEPENDENT, SATURATED, SETTLED_HEADS


@pytest.fixture(scope="module")
def law():
    """The law of two samples with opt tokens 2 e_1 and 3 e_2, both with y = 1."""
    X = [
        [[2.0, 0, 0, 0], [0, 0, 1.0, 0]],
        [[0, 3.0, 0, 0], [0, 0, 0.5, 1.0]],
    ]
    data = attention.token_set(X, [1.0, 1.0], u=[1.0, 1.0, 0, 0])
    return joint_law.predict(data)


NU = np.array([1 / 4, 1 / 9])  # v is (1/2, 1/3)
OFFSETS = -np.log(NU) + NU @ np.log(NU) / NU.sum()


def test_the_head_of_orthogonal_opt_tokens_by_hand(law):
    """<y x_opt, rho_u> is the offset log(1/nu) less its mean."""
    np.testing.assert_allclose(law.head.duals[0], NU)
    np.testing.assert_allclose(law.head_law.offsets.ravel(), OFFSETS)
    size = np.linalg.norm(OFFSETS / [2, 3])
    assert np.linalg.norm(law.residual) == pytest.approx(size)
    assert law.head_law.constant[0] == pytest.approx(size)
    # sum nu x x^T has the eigenvalues nu |x|^2 = 1; ||v||^2 is the sum of nu.
    assert law.curvature[0] == pytest.approx(1 / NU.sum())


def test_the_frozen_part_of_the_first_step_by_hand(law):
    """The mean token of (2, 3) and (1.5, 1) is cut down to its last two axes."""
    even = np.array([2.0, 3.0, 1.5, 1.0]) / 4
    off = np.hypot(1.5, 1.0) / 4 / np.linalg.norm(even)
    assert np.linalg.norm(law.frozen) == pytest.approx(off)


@pytest.mark.parametrize("level", [2.5, 20.0])
def test_the_law_at_a_level_has_the_slopes_of_the_head_there(law, level):
    """kappa is nu times the gap of a v + rho_u."""
    data = law.problem.tokens
    u = level * law.head.W[0] + law.residual[0]
    gap = [
        (x[opt] - x[1 - opt]) @ u for x, opt in zip(data.X[0], data.opt[0], strict=True)
    ]
    slopes = np.log(NU * np.array(gap))[None, :, None]
    expected = margin_law.margin_law(data, law.W, log_slopes=slopes)
    found = law.at_level(np.array([level]))
    assert found.constant[0] == pytest.approx(expected.constant[0])
    np.testing.assert_allclose(found.offsets, expected.offsets)


def test_at_a_level_without_score_gaps_there_is_no_law(law):
    with pytest.raises(PremiseFails, match="at head level -5") as why:
        law.at_level(np.array([-5.0]))
    assert why.value.premise == "score gaps"


def test_the_even_gradient_is_the_mean_of_the_mean_tokens():
    data = tokens.gaussian_tokens([0, 1], n=3, T=4, d=12)
    found = joint_law._even_gradient(data)
    mask = np.random.default_rng(0).uniform(size=(2, 3, 4)) < 0.6
    np.put_along_axis(mask, data.opt[..., None], True, 2)
    masked = attention.token_set(data.X, data.y, data.z, data.u, data.opt, mask)
    of_masked = joint_law._even_gradient(masked)
    for run in range(2):
        whole, shown = np.zeros((2, 12))
        for i in range(3):
            whole += data.y[run, i] * data.X[run, i].mean(0) / 3
            shown += data.y[run, i] * data.X[run, i][mask[run, i]].mean(0) / 3
        np.testing.assert_allclose(found[run], whole)
        np.testing.assert_allclose(of_masked[run], shown)


def test_what_is_off_the_span_by_hand():
    rows = np.array([[[3.0, 0, 0], [1.0, 2.0, 0]]])
    found = joint_law._off_span(rows, np.array([[5.0, 6.0, 7.0]]))
    np.testing.assert_allclose(found, [[0, 0, 7]], atol=1e-12)


@pytest.mark.parametrize("factor, holds", [(1.04, True), (0.96, False)])
def test_opt_tokens_are_independent_from_their_least_cosine_eigenvalue_on(
    factor, holds
):
    """Tokens of the lengths 2 and 5 with the cosine 1 - e have the eigenvalue e."""
    cosine = 1 - factor * INDEPENDENT
    K = np.array([[[4.0, 10 * cosine], [10 * cosine, 25.0]]])
    both = np.concatenate([np.eye(2)[None], K])
    if holds:
        joint_law._check_independent(both)
        return
    with pytest.raises(PremiseFails) as why:
        joint_law._check_independent(both)
    assert why.value.premise == "independent head" and why.value.run == 1


@pytest.mark.parametrize("decay", [0.0, 0.5, 2 / 3])
def test_the_path_of_a_rule_is_the_sum_of_its_steps(decay):
    rule = dynamics.NGD(0.3, decay=decay)
    steps = [np.exp(rule.log_step(t, 0.0, -2.0) - 2.0) for t in range(9)]
    assert joint_law.path_length(rule, 9) == pytest.approx(sum(steps))


@pytest.mark.parametrize(
    "margin, gap, fails",
    [
        (1.02 * SATURATED, 0.01, ""),
        (0.98 * SATURATED, 0.01, "margin"),
        (SATURATED, 0.01, "margin"),
        (1.02 * SATURATED, 0.0, "gap"),
    ],
)
def test_a_joint_run_selects_by_its_last_margins_and_gaps(margin, gap, fails):
    def values(last):
        first = np.full((2, 1, 2, 2), -7.0)
        end = np.full((2, 1, 2, 2), 99.0)
        end[1, 0, 1, 0] = last
        return np.concatenate([first, end], 1)

    history = SimpleNamespace(margins=values(margin), score_gaps=values(gap))
    if not fails:
        joint_law._check_selected(history)
        return
    with pytest.raises(PremiseFails, match=f"smallest {fails} is") as why:
        joint_law._check_selected(history)
    assert why.value.run == 1 and why.value.premise == "selection made"


def test_what_is_measured_on_a_joint_run_by_hand(monkeypatch, law):
    """u is a v plus parts in the span of the opt tokens and outside of it."""
    rows = joint_law._opt_tokens(law.problem.tokens)[0]
    v = law.head.W[0]
    within = np.linalg.solve(rows @ rows.T, rows @ np.ones(len(v))) @ rows
    within -= (within @ v) / (v @ v) * v
    outside = joint_law._off_span(rows[None], np.ones((1, len(v))))[0]
    heads = [
        a * v + b * within + c * outside
        for a, b, c in ((0, 0, 0), (1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12))
    ]
    count = len(heads)
    records = np.arange(count)[None] * 1.0
    history = SimpleNamespace(
        iterations=np.array([0, 1, 10, 50, 100]),
        head=lambda k: heads[k][None],
        direction_error={"W": records},
        norm=2 * records,
        head_norm=3 * records,
    )
    monkeypatch.setattr(joint_law, "_check_selected", lambda history: None)
    monkeypatch.setattr(joint_law, "_check_settled", lambda *call: None)
    monkeypatch.setattr(joint_law, "curvature", lambda history, data: 4 * records)
    found = joint_law._measure(law, dynamics.NGD(0.3), history)
    late = np.array([[2.0, 3, 4]])
    assert found.iterations.tolist() == [10, 50, 100]
    for name, factor in (("error", 1), ("norm", 2), ("head_norm", 3), ("curvature", 4)):
        np.testing.assert_allclose(getattr(found, name), factor * late)
    assert found.residual[0] == pytest.approx(11 * np.linalg.norm(within))
    size = np.linalg.norm(outside)
    np.testing.assert_allclose(found.outside, [[6 * size, 12 * size]])
    np.testing.assert_allclose(found.first, heads[1][None])
    assert found.level[0] == pytest.approx(0.3 * 100 / np.linalg.norm(v))


def test_joint_claims_by_hand():
    rows = SimpleNamespace(tokens=None)
    law = SimpleNamespace(
        problem=rows,
        W_law=SimpleNamespace(constant=np.array([2.0])),
        head_law=SimpleNamespace(constant=np.array([5.0])),
        frozen=np.array([[0.0, 3.0, 4.0]]),
        curvature=np.array([8.0]),
        at_level=lambda level: SimpleNamespace(constant=2.5 * level),
    )
    t = np.array([10.0, 100.0, 1000.0])
    runs = joint_law.JointRuns(
        law=law,
        rule=dynamics.NGD(0.3, decay=0.25),
        iterations=t,
        error=2.02 * t[None] ** -0.75,
        norm=t[None] ** 0.75,
        head_norm=None,
        curvature=8.04 * (t[None] / 1000) ** 0.01,
        residual=np.array([5.002]),
        first=0.3 * np.array([[7.0, 3.0, 4.0 + 1e-10]]),
        outside=np.array([[2.0, 2.0 - 1e-6]]),
        level=np.array([0.8]),
    )
    with pytest.MonkeyPatch.context() as patch:
        opt = np.array([[[1.0, 0, 0]]])
        patch.setattr(joint_law, "_opt_tokens", lambda tokens: opt)
        claims = {c.id: c for c in joint_law.joint_claims({"rule": runs})}
    measured = {id.split(".")[1]: claim.measured for id, claim in claims.items()}
    expected = {
        "limit": 0.01,
        "level": 0.01,
        "exponent": -0.75,
        "head": 4e-4,
        "curvature": 0.005,
        "curvature_power": 0.01,
    }
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value), name
    assert measured["frozen"] == pytest.approx(2e-11, rel=1e-3)
    assert measured["rest"] == pytest.approx(5e-7)
    assert claims["joint.exponent.rule"].holds


def test_the_order_of_a_started_head_is_that_of_its_last_two_records():
    runs = joint_law._StartedHead(
        iterations=np.array([10, 100, 400]),
        errors=np.array([[9.0, 4e-4, 1e-4]]),
        fixed=np.array([[9.0, 8.0, 0.7]]),
        law=None,
    )
    joint, order, fixed = joint_law.start_claims(runs)
    assert (joint.measured, fixed.measured) == (1e-4, 0.7)
    assert order.measured == pytest.approx(-1)


def heads_of(margins, level, rate=1.0):
    law = SimpleNamespace(
        laws=[SimpleNamespace(remaining=lambda a: np.exp(-rate * a))] * 2
    )
    return head_law._refusals(law, np.array(level), np.array(margins), 1000)


def test_heads_have_selected_from_their_least_margin_on():
    far = [[50.0, 60.0]] * 2
    assert heads_of([far, [[50, SATURATED], [60, 70]]], [[40, 40]] * 2) == {}
    found = heads_of([far, [[50, 0.98 * SATURATED], [60, 70]]], [[40, 40]] * 2)
    assert list(found) == [0] and "head 1: the smallest margin is 4.9" in found[0]


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_heads_are_settled_once_little_of_the_slowest_remains(rate):
    far = [[[50.0]] * 2] * 2
    level = -np.log(SETTLED_HEADS) / rate
    assert heads_of(far, [[1.01 * level] * 2] * 2, rate) == {}
    found = heads_of(far, [[9 * level] * 2, [9 * level, level / 4]], rate)
    # The level grows like the number of steps: 4 times as many are needed.
    assert list(found) == [1] and "about 3e+03 steps more" in found[1]
    assert "head 1: wrong offsets" in found[1]
    assert list(heads_of(far, [[0.99 * level] * 2] * 2, rate)) == [0, 1]


def head_runs(norm, error, common=True):
    law = SimpleNamespace(
        norm=np.array([[1.0], [2.0], [4.0]]),
        mean=np.array([[0.5], [-0.25], [0.0]]),
        constant=np.array([[3.0], [6.0], [1.0]]),
    )
    return head_law.HeadRuns(
        law=law,
        common=common,
        norm=norm,
        error=error,
        level=None,
        whole=np.array([100.0]),
        refusals={},
    )


def test_the_claims_of_several_heads_by_hand():
    """At the level 100 a head has the length of a leg and its constant."""
    at_level = np.hypot([100.5, 2 * 99.75, 400], [3, 6, 1])[:, None]
    together = at_level * np.array([[1.0], [1 + 5e-5], [1.0]])
    common = head_runs(together, np.array([[3.0], [6.0], [1.01]]) / together)
    equal = np.array([[2.0], [2.02], [2.0]])
    each = head_runs(equal, np.array([[3.0], [6.06], [1.0]]) / equal, common=False)
    np.testing.assert_allclose(head_law._at_level(common), at_level)
    np.testing.assert_allclose(head_law.ratios(equal), [[1.01], [1.0]])
    limit, level, same, both, alone = head_law.head_claims(common, each)
    off = together[1:, 0] / together[0, 0] / [2, 4] - 1
    assert limit.measured == pytest.approx(off[np.abs(off).argmax()])
    assert level.measured == pytest.approx(5e-5)
    assert same.measured == pytest.approx(0.01)
    assert both.measured == pytest.approx(0.01)
    assert alone.measured == pytest.approx(0.01)


def test_the_heads_have_their_scores_and_their_opt_tokens():
    sets = head_law.three_heads([100, 101], n=5, T=3, d=60)
    np.testing.assert_array_equal(sets[0].opt, sets[2].opt)
    assert (sets[0].opt != sets[1].opt).any()
    for data in sets:
        scores = data.y[..., None] * np.einsum("rntd,rd->rnt", data.X, data.u)
        opt = np.arange(3) == data.opt[..., None]
        assert 0.5 <= scores[opt].min() and scores[opt].max() <= 1.5
        assert -0.5 <= scores[~opt].min() and scores[~opt].max() <= 0.3
    assert np.abs(sets[0].u - sets[2].u).max() > 0.01


def test_the_mean_of_a_head_is_relative_to_that_of_all_heads():
    """log kappa has the sum of the opt scores of all heads, and the head's own gap."""
    heads = head_law.three_heads([100], n=4, T=2, d=60)
    of = head_law.predict(heads)
    lengths = [head_law._opt_scores(head)[0, :, 0] for head in of.heads]
    log_derivative = -np.sum(lengths, axis=0)
    weighted, weight = [], []
    for head, law in zip(of.heads, of.laws, strict=True):
        gaps = np.zeros(4)
        for i, (x, opt) in enumerate(zip(head.X[0], head.opt[0], strict=True)):
            gaps[i] = head.y[0, i] * (x[opt] - x[1 - opt]) @ head.u[0]
        beta = law.duals[0, :, 0]
        weighted.append(beta @ (log_derivative + np.log(gaps) - np.log(beta)))
        weight.append(beta.sum())
    expected = np.array(weighted) / weight - sum(weighted) / sum(weight)
    np.testing.assert_allclose(of.mean[:, 0], expected)
