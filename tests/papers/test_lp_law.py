"""Tests of the formulas of the law under l_p mirror descent, by hand on small inputs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics
from lib.mirror import geometry
from papers.law import lp_law
from papers.law.margin_law import PremiseFails
from papers.ours import BOUNDS

# One sample with the constraints 2 w_1 >= 1 and 3 w_2 >= 1; its score gaps are 1 and e.
TWO_AXES = attention.token_set(
    [[[0.0, 0.0], [-2.0, 0.0], [0.0, -3.0]]], [1.0], z=[[1.0]], u=[1 / 2, np.e / 3]
)
W = np.array([1 / 2, 1 / 3])


def by_hand(p):
    """Return r for two constraints that are orthogonal.

    Here w^{p-1} = beta A entry by entry, and A r = log(kappa/beta).
    """
    beta = W ** (p - 1) * W
    return (np.array([0.0, 1.0]) - np.log(beta)) * W


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_the_direction_of_w_plus_r_has_the_laws_error(p):
    law = lp_law._LpLaw(TWO_AXES, p)
    far = 1e4 * W + by_hand(p)
    D = geometry.directional_bregman(far[None], W[None], p)[0]
    found = geometry.norm(far, p) * np.sqrt(2 * D)
    assert law.constant == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_offsets_of_orthogonal_constraints_decay_at_the_rate_of_the_level(p):
    assert lp_law._LpLaw(TWO_AXES, p).fastest == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_the_residual_of_an_entry_is_relative_to_its_w(p):
    """r up to a multiple of w, so that the norm does not change to first order."""
    law = lp_law._LpLaw(TWO_AXES, p)
    r = by_hand(p)
    along = (W ** (p - 1) @ r) / (W ** (p - 1) @ W)
    np.testing.assert_allclose(law.relative, np.abs(r / W - along))
    squares = (p - 1) * W ** (p - 2) * (r - along * W) ** 2
    np.testing.assert_allclose(law.share, squares / squares.sum())


def test_offsets_are_margins_less_their_mean():
    law = lp_law._LpLaw(TWO_AXES, 1.5)
    found = law.offsets(np.array([[[5.0], [6.0]], [[1.0], [0.0]]]))
    np.testing.assert_allclose(found, [[-4.0, 4.0], [1.0, -1.0]])


def altered(monkeypatch, data, change):
    """Make the law of a solution whose duals and margins `change` has altered."""
    true = lp_law.token_svm(data, norm=1.5)
    duals, margins = true.duals.copy(), true.margins.copy()
    change(duals[0], margins[0])
    other = replace(true, duals=duals, margins=margins)
    monkeypatch.setattr(lp_law, "token_svm", lambda data, norm: other)
    return lp_law._LpLaw(data, 1.5)


@pytest.mark.parametrize("share, idle", [(1.04e-9, False), (0.96e-9, True)])
def test_a_dual_below_a_billionth_of_the_largest_is_idle(monkeypatch, share, idle):
    def change(duals, margins):
        duals[0, 1] = share * duals.max()

    if idle:
        with pytest.raises(PremiseFails, match="1 of 2 constraints do not carry"):
            altered(monkeypatch, TWO_AXES, change)
    else:
        altered(monkeypatch, TWO_AXES, change)


@pytest.mark.parametrize("excess, idle", [(0.96e-6, False), (1.04e-6, True)])
def test_a_margin_a_millionth_above_one_is_idle(monkeypatch, excess, idle):
    def change(duals, margins):
        margins[0, 0] = 1 + excess

    if idle:
        with pytest.raises(PremiseFails, match="1 of 2 constraints do not carry"):
            altered(monkeypatch, TWO_AXES, change)
    else:
        altered(monkeypatch, TWO_AXES, change)


def small_entries(p, level, bound_share):
    """Check a law of which the second entry has the relative residual 7."""
    law = SimpleNamespace(
        p=p,
        share=np.array([1 - bound_share, bound_share]),
        relative=np.array([0.5, 7.0]),
    )
    lp_law._LpLaw.check_resolved(law, level)


def test_an_entry_is_resolved_once_it_is_ten_times_its_residual():
    small_entries(1.5, 70.1, 0.5)
    with pytest.raises(PremiseFails, match="hold 0.5 of the residual"):
        small_entries(1.5, 69.9, 0.5)


def test_small_entries_may_hold_one_percent_of_the_residual():
    small_entries(1.5, 50.0, 0.0099)
    with pytest.raises(PremiseFails) as why:
        small_entries(1.5, 50.0, 0.0101)
    assert why.value.premise == "entries resolved" and why.value.amount == 0.0101


def test_at_two_nothing_is_expanded():
    small_entries(2.0, 1.0, 0.9)
    with pytest.raises(PremiseFails):
        small_entries(2.2, 1.0, 0.9)


def test_the_refusal_says_how_much_longer_w_must_be():
    """70 is needed, and 0.75 has been reached: log10(70 / 0.75) is 1.97."""
    with pytest.raises(PremiseFails, match=r"\|\|W\|\| 10\^2.0 longer"):
        small_entries(1.5, 0.75, 0.5)


class Recorded:
    """Stand in for `train`, with a path of our own, and remember the call."""

    def __init__(self, offset, level):
        self.offset = offset
        self.level = level

    def __call__(self, data, rule, steps, record, start=None):
        self.rule, self.steps, self.record, self.start = rule, steps, record, start
        t = np.asarray(record)
        norm = np.array([[self.level(k) for k in t]])
        W = np.stack([norm[0], [self.offset(k) for k in t]], 1)[None]
        D = lambda V, p: 2 / norm**2  # noqa: E731
        return SimpleNamespace(own_norm=norm, W=W, divergence=D)


def made_up_law(p=1.5, fastest=4.0):
    """Return a law with ||W_mm|| = 3 whose offsets are the second entry of W and 0."""
    return SimpleNamespace(
        tokens=None,
        p=p,
        fastest=fastest,
        solution=SimpleNamespace(norm=np.array([3.0]), W=None),
        offsets=lambda W: np.c_[W[:, 1:], 0 * W[:, 1:]],
        check_resolved=lambda level: None,
    )


def test_a_run_takes_the_steps_whose_sum_gives_its_size(monkeypatch):
    """||W||_p = (eta steps)^{1/(p-1)}, and the records are of the last decade of it."""
    train = Recorded(lambda t: 0.0, lambda t: 3e-3 * t)
    monkeypatch.setattr(lp_law, "train", train)
    run = lp_law._run(made_up_law(), 100.0, 10_000)
    assert (train.rule.step_size * 10_000) ** 2 == pytest.approx(100.0)
    assert train.rule.p == 1.5 and train.steps == 10_000 and not run.started
    first, last = train.record[0], train.record[-1]
    assert last == 10_000 and (last / first) ** 2 == pytest.approx(10.0, rel=1e-3)
    # sqrt(2 D) of D = 2 / norm^2
    np.testing.assert_allclose(run.error * run.norm, 2.0)
    lp_law._run(made_up_law(), 100.0, 2)
    assert train.record[0] == 1  # a record at 0 has no direction
    start = np.ones((1, 1, 1))
    assert lp_law._run(made_up_law(), 100.0, 10_000, start).started
    assert train.start is start


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_step_is_too_long_if_it_raises_the_margins_by_two_over_fastest(
    monkeypatch, p
):
    """The level grows like t^{1/(p-1)}: a step raises it by level / ((p-1) t)."""

    def run(rise):
        # The level is c t for c = rise (p - 1), at every record.
        train = Recorded(lambda t: 0.0, lambda t: 3 * rise * (p - 1) * t)
        monkeypatch.setattr(lp_law, "train", train)
        lp_law._run(made_up_law(p), 100.0, 10_000)

    run(0.99 * 2 / 4)
    with pytest.raises(PremiseFails, match="a step is 1.2 times as long") as why:
        run(1.2 * 2 / 4)
    assert why.value.premise == "short steps"
    with pytest.raises(PremiseFails):
        run(2 / 4)


def test_the_longest_of_the_late_steps_counts(monkeypatch):
    def level(t):
        return 3 * 0.5 * t * (1.2 * 2 / 4 if 2000 < t < 8000 else 0.1)

    monkeypatch.setattr(lp_law, "train", Recorded(lambda t: 0.0, level))
    with pytest.raises(PremiseFails, match="a step is 1.2 times as long"):
        lp_law._run(made_up_law(), 100.0, 10_000)


def test_small_entries_are_sought_at_the_first_late_level(monkeypatch):
    levels = []
    law = made_up_law()
    law.check_resolved = levels.append
    monkeypatch.setattr(lp_law, "train", Recorded(lambda t: 0.0, lambda t: 3e-3 * t))
    lp_law._run(law, 100.0, 10_000)
    assert levels == [pytest.approx(1e-3 * lp_law.train.record[0])]


def test_an_offset_rests_if_it_moves_by_a_hundredth_between_the_last_records(
    monkeypatch,
):
    for moved, rests in ((0.0099, True), (0.0101, False)):
        for last in (moved, -moved):
            monkeypatch.setattr(
                lp_law,
                "train",
                Recorded(
                    # Before the last two records it moved by more.
                    lambda t, x=last: x if t == 10_000 else (3.0 if t < 6000 else 0.0),
                    lambda t: 1e-3 * t,
                ),
            )
            if rests:
                lp_law._run(made_up_law(), 100.0, 10_000)
                continue
            with pytest.raises(PremiseFails, match="moved by 0.01 between") as why:
                lp_law._run(made_up_law(), 100.0, 10_000)
            assert why.value.premise == "offsets at rest"


@pytest.mark.parametrize("p", [1.25, 1.75])
def test_at_the_onset_a_step_raises_the_level_by_two_over_fastest(monkeypatch, p):
    """||W||_p is (eta t)^{1/(p-1)}, and its level ||W||_p / ||W_mm||."""
    moves = {500: 4e-4, 900: 0.25, 1250: -0.5}

    def offset(t):  # moves from t to t + 1 by moves[t]
        return sum(by for k, by in moves.items() if k < t)

    train = Recorded(offset, lambda t: 1.0)
    monkeypatch.setattr(lp_law, "train", train)
    np.testing.assert_allclose(lp_law._onset(made_up_law(p), 1000), [0.25, 0.5])
    assert train.record == [500, 501, 900, 901, 1250, 1251] and train.steps == 1251

    def level(t):
        return (train.rule.step_size * t) ** (1 / (p - 1)) / 3

    assert (level(1000.5) - level(999.5)) == pytest.approx(2 / 4, rel=1e-5)
    moves[500] = BOUNDS["lp.rests"] * 1.02
    with pytest.raises(PremiseFails, match="moves by 0.001 a step at half") as why:
        lp_law._onset(made_up_law(p), 1000)
    assert why.value.amount == pytest.approx(moves[500])


@pytest.mark.parametrize("p", [1.5, 1.75, 2.5])
def test_decaying_steps_raise_the_level_by_the_same_amount_each(p):
    """The level is (sum of eta)^{1/(p-1)} / ||W_mm||, up to the start of the sum."""
    law = made_up_law(p)
    rule = lp_law._decaying(law, 0.6)
    eta = rule(np.arange(200_000))
    level = np.cumsum(eta) ** (1 / (p - 1)) / 3
    rises = np.diff(level[[100_000, 199_999]]) / 99_999
    np.testing.assert_allclose(rises, 0.6 * 2 / 4, rtol=5e-3)


@pytest.mark.parametrize("p", [1.25, 1.75, 2.5])
def test_constant_steps_lead_to_the_level_of_the_decaying_ones(p):
    rule = lp_law._constant(made_up_law(p), 0.6, 500)
    assert rule(0) == rule(499)
    level = (500 * rule(0)) ** (1 / (p - 1)) / 3
    assert level == pytest.approx(500 * 0.6 * 2 / 4)


@pytest.mark.parametrize("p", [1.5, 1.75, 2.5])
def test_training_by_the_pairs_is_mirror_descent(p):
    """The scores of the two tokens and the heads of the samples differ."""
    data = lp_law._problem(100)
    assert data.shape == (1, 4, 2, 10)
    u = data.u + 0.5 * np.random.default_rng(0).standard_normal(data.u.shape)
    data = replace(data, u=u)
    opt = attention.scores(data, data.u).argmax(-1)
    law = lp_law._LpLaw(replace(data, opt=opt), p)
    W = lp_law._train(law, [lambda t: 0.1, lambda t: 0.3], 60, [0, 7, 60])
    for eta, path in zip((0.1, 0.3), W, strict=True):
        alone = dynamics.train(law.tokens, dynamics.MirrorDescent(p, eta), 60, [7, 60])
        np.testing.assert_allclose(path[1:], alone.W[0].reshape(2, -1), rtol=1e-6)
        assert not path[0].any()


def test_each_step_has_the_length_of_its_iteration():
    """At p = 2, U is W."""
    law = lp_law._LpLaw(TWO_PAIRS, 2.0)
    W = lp_law._train(law, [lambda t: 0.5 / (t + 1)], 3, [0, 1, 2, 3])[0]
    lengths = np.linalg.norm(np.diff(W, axis=0), axis=1)
    np.testing.assert_allclose(lengths, [0.5, 0.25, 0.5 / 3])


TWO_PAIRS = lp_law._problem(100)


def made_up_runs(p, started, power, off=0.0):
    norm = np.geomspace(10.0, 100.0, 12)
    law = SimpleNamespace(p=p, constant=2.0)
    error = 2.0 * (1 + off) / 100 * (norm / 100) ** power
    return lp_law._LpRun(law=law, started=started, norm=norm, error=error)


@pytest.mark.parametrize("p", [1.5, 1.75, 3.0])
def test_the_error_falls_like_the_norm_to_the_minus_one_or_the_starts_power(p):
    runs = [
        made_up_runs(p, False, -1.0, off=0.01),
        made_up_runs(p, True, -min(1.0, p - 1)),
    ]
    zero, constant, start = lp_law.lp_claims(runs)
    assert zero.id == f"lp.zero.{p:g}" and zero.measured == pytest.approx(-1)
    assert constant.measured == pytest.approx(0.01)
    assert start.id == f"lp.start.{p:g}" and start.holds and zero.holds
    wrong = [made_up_runs(p, True, -min(1.0, p - 1) - 0.06)]
    assert not lp_law.lp_claims(wrong)[0].holds


def test_the_claims_of_the_onset_are_about_its_two_sides():
    rests, cycles = lp_law.onset_claims(1.5, np.array([[1e-4, 0.5], [2e-4, 0.3]]))
    assert rests.measured == 2e-4 and cycles.measured == 0.3


def test_steps_claims_are_about_the_share_that_they_name():
    def settled(moved, pace, error):
        return lp_law.Settled(
            law=SimpleNamespace(p=1.5),
            moved=np.array(moved),
            constant=0.4,
            pace=np.array(pace),
            error=error,
        )

    runs = [settled([7.0, 2e-4, 0.6], [1.002, 9, 9], 1.01)]
    runs += [settled([7.0, 1e-4, 0.5], [1.001, 9, 9], 1.0)]
    measured = [claim.measured for claim in lp_law.steps_claims(runs)]
    assert measured == pytest.approx([2e-4, 0.5, 0.4, 0.002, 0.01])
