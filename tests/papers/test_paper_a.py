"""Every claim of paper A holds on a problem that satisfies it and fails on one that does not."""

from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import coordinates, token_sets, tokens
from lib.companion import claims
from lib.dynamics import rules
from papers import joint_loss
from papers.a import (
    curvature,
    data_and_starts,
    figure3,
    fixed_head,
    gradient_cone,
    joint_training,
    phase_diagram,
)
from papers.wrong_worlds import World

STEPS = 3000


class Fixed:
    space = coordinates.minimal(tokens.gaussian_tokens([0, 1], n=3, T=3, d=60))
    tokens = space.tokens
    svm = svm.token_svm(tokens)
    rules = {"NGD": rules.ngd(0.05), "GD": rules.gd(0.5), "Polyak": rules.polyak()}
    histories = dynamics.train(space, rules, STEPS, targets={"V": svm.W})
    ngd, gd, polyak = histories.values()


class Joint:
    space = coordinates.minimal(tokens.two_token_gaussian([0, 1], n=4, d=100))
    tokens = space.tokens
    svm, head = svm.token_svm(tokens), svm.head_svm(tokens)
    record = np.unique(np.concatenate([dynamics.log_spaced(2000, 40), [1, 2, 3, 100, 101, 1000]]))
    history = dynamics.train(
        space, rules.ngd(0.3, decay=2 / 3), 2000, record,
        targets={"V": svm.W}, head="joint", head_targets={"v": head.value},
    )  # fmt: skip


def listed(found):
    return [found] if isinstance(found, claims.Claim) else list(found)


def backwards(history):
    """The same run turned into a wrong one: it does the opposite of what the paper says.

    Direction errors and opt weights are reversed, the norm is tiny, the descent goes uphill.
    """
    return replace(
        history,
        direction_error={name: value[:, ::-1] for name, value in history.direction_error.items()},
        alignment={name: 0 * value for name, value in history.alignment.items()},
        descent={name: -value for name, value in history.descent.items()},
        log_miss=history.log_miss[:, ::-1],
        norm=history.norm * 1e-6,
        log_gap=history.log_gap * 1e-3,
    )


F, J = Fixed, Joint
SHARP = {  # each claim, the history it holds on, and what must turn it red besides `backwards`
    "saturation": (lambda h: fixed_head.saturation(h, 300), F.ngd),
    "gradient": (lambda h: fixed_head.gradient_direction(h, "GD", "V", 0.1), F.gd),
    "lemma5": (lambda h: fixed_head.lemma5(h, "NGD"), F.ngd),
    "lemma7 lower": (lambda h: fixed_head.lemma7(h, 0.05), F.ngd),
    "direction": (lambda h: fixed_head.direction(h, "NGD", "V", 1000, "Theorem 1"), F.ngd),
    "theorem5": (lambda h: fixed_head.theorem5(h, "V", 0.05, F.tokens, F.svm), F.ngd),
    "polyak gap": (lambda h: fixed_head.polyak_gap(h, F.svm, 300), F.polyak),
    "remark1": (lambda h: fixed_head.remark1(h, "V", "NGD", "zero"), F.ngd),
    "margin_growth": (lambda h: fixed_head.margin_growth(h, "NGD", 0.05 / F.svm.norm, 1000), F.ngd),
}
ON_JOINT = {
    "theorem2": lambda h: joint_training.theorem2(h, 0.3, J.head, 200),
    "theorem3": lambda h: joint_training.theorem3(h, "V", 100),
    "lemma13 opt weight": lambda h: joint_training.lemma13(h, J.tokens, 200)[2],
}


@pytest.mark.parametrize("name", SHARP)
def test_fixed_head_claims_hold_and_can_fail(name):
    claim, history = SHARP[name]
    assert [c.id for c in listed(claim(history)) if not c.holds] == []
    assert not any(c.holds for c in listed(claim(backwards(history))))


@pytest.mark.parametrize("name", ON_JOINT)
def test_joint_claims_hold_and_can_fail(name):
    claim = ON_JOINT[name]
    assert all(c.holds for c in listed(claim(J.history)))
    assert not any(c.holds for c in listed(claim(backwards(J.history))))


def test_growth_with_another_power_fails():
    assert all(c.holds for c in joint_training.growth(J.history, "Eq. 13", 2 / 3, 200))
    for decay in (0.6, 0.7):
        assert not any(c.holds for c in joint_training.growth(J.history, "Eq. 13", decay, 200))
    assert joint_training.remark3(J.history, "attention", 2 / 3, 200).holds
    assert not joint_training.remark3(J.history, "attention", 0.6, 200).holds


def test_norm_that_is_not_linear_fails():
    assert fixed_head.growth(F.ngd, "NGD", 300, "Eq. 12").holds
    bent = replace(F.ngd, norm=F.ngd.norm**1.1)
    assert not fixed_head.growth(bent, "NGD", 300, "Eq. 12").holds
    assert fixed_head.lemma7(F.ngd, 0.05).holds
    assert not fixed_head.lemma7(replace(F.ngd, norm=F.ngd.norm * 1.003), 0.05).holds
    walked = 0.05 * F.ngd.iterations + F.ngd.norm[:, :1]
    assert (F.ngd.norm <= walked * (1 + 1e-12)).all()  # Lemma 7's upper bound


def test_the_gradient_is_zero_only_where_softmax_is_saturated():
    """Section 3.1: under Assumption 2 every pair pulls, at every W."""
    normal = np.random.default_rng(0).standard_normal((50, *F.svm.W.shape[1:]))
    for W in 3 * normal:
        logits = attention.logits(F.tokens, W[None])
        pull = attention.slopes(logits, attention.scores(F.tokens, F.tokens.u)).pull
        own = np.take_along_axis(pull, F.tokens.opt[..., None], -1)
        assert (own > 0).all() and ((pull < 0).sum(-1) == 2).all()
    far = np.where(np.arange(3) == F.tokens.opt[..., None], 1e4, 0.0)
    saturated = attention.slopes(far, attention.scores(F.tokens, F.tokens.u))
    assert (np.exp(saturated.log_scale)[..., None, None] * saturated.pull == 0).all()


def test_smoothness_bounds_the_curvature():
    rng, data = np.random.default_rng(0), F.tokens
    for size in (0.1, 1.0, 3.0):
        W, V = rng.standard_normal((2, *F.svm.W.shape))
        W, V = size * W, V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
        ahead, behind = (attention.gradients(data, W + e * V, data.u)[1] for e in (1e-5, -1e-5))
        assert (
            np.linalg.norm(ahead - behind, axis=(1, 2)) / 2e-5 <= fixed_head.smoothness(data)
        ).all()


def with_head(history, factor):
    """The run with head u_t times factor[k] at record k, scores and norm accordingly."""
    return replace(
        history,
        score_gaps=history.score_gaps * factor[:, None, None],
        head_norm=history.head_norm * np.abs(factor),
        _head=lambda part: factor[part, None] * history._head(part),
    )


def test_margin_of_the_head_can_fail():
    fixed = replace(
        J.history,
        _head=lambda part: J.history._head(slice(20, 21)),
        head_norm=J.history.head_norm[:, 20:21] + 0 * J.history.head_norm,
    )
    assert all(c.holds for c in joint_training.theorem4(J.history, J.tokens, J.head, 1))
    turned = with_head(J.history, -np.ones(J.record.size))
    assert not any(c.holds for c in joint_training.theorem4(turned, J.tokens, J.head, 1))
    assert not joint_training.theorem4(fixed, J.tokens, J.head, 1)[1].holds
    assert joint_training.head_direction(J.history, "v", 200).holds
    still = {"v": 0 * J.history.norm + 0.1}
    assert not joint_training.head_direction(
        replace(J.history, head_direction_error=still), "v", 200
    ).holds


def test_lemmas_12_and_13_can_fail():
    larger = with_head(J.history, np.full(J.record.size, 10.0))
    wrong = with_head(J.history, -np.ones(J.record.size))
    assert (
        joint_training.lemma12(J.history, 0.3).holds
        and not joint_training.lemma12(larger, 0.3).holds
    )
    good, bad = (joint_training.lemma13(h, J.tokens, 200) for h in (J.history, wrong))
    assert all(c.holds for c in good) and not bad[0].holds
    assert not joint_training.lemma13(larger, J.tokens, 200)[1].holds


def test_lemma3_and_remark4_can_fail():
    h, t = J.history, J.record
    assert all(c.holds for c in curvature.lemma3(h, J.tokens, J.head))
    assert curvature.remark4(h, J.head, 1000).holds
    small, large = replace(h, log_gap=h.log_gap + 9), replace(h, log_gap=h.log_gap - 9)
    assert not curvature.lemma3(small, J.tokens, J.head)[0].holds
    assert not curvature.remark4(large, J.head, 1000).holds
    jump = with_head(h, np.where(t == 2, -9.0, 1.0))
    assert not curvature.lemma3(jump, J.tokens, J.head)[1].holds


def test_curvature_is_the_hessian_of_the_loss():
    k, one = 12, J.tokens.run(0)
    W, u = J.history.weights(k)[:1], J.history.head(k)[:1]

    def gradient(x):
        _, grad_W, grad_u = attention.gradients(
            one, x[: W.size].reshape(W.shape), x[W.size :].reshape(u.shape)
        )
        return np.concatenate([grad_W.ravel(), grad_u.ravel()]) / loss0

    x, loss0 = np.concatenate([W.ravel(), u.ravel()]), attention.gradients(one, W, u)[0]
    hessian = (
        np.stack([gradient(x + 1e-5 * e) - gradient(x - 1e-5 * e) for e in np.eye(x.size)]) / 2e-5
    )
    assert np.abs(np.linalg.eigvalsh((hessian + hessian.T) / 2)).max() == pytest.approx(
        joint_loss.curvature(J.history, J.tokens)[0, k], rel=1e-6
    )


def test_losses_along_a_run_are_those_of_the_model():
    k = 9
    loss = attention.gradients(J.tokens, J.history.weights(k), J.history.head(k))[0]
    log_losses = joint_training.log_losses(J.history, J.tokens)[:, k]
    np.testing.assert_allclose(np.exp(log_losses).mean(-1), loss, rtol=1e-12)
    np.testing.assert_allclose(np.exp(J.history.log_gap[:, k]), loss, rtol=1e-12)


def test_reference_and_figure_3_claims_can_fail():
    names = list(figure3.measured(J.history, "V", "v", J.tokens, J.head, 100))
    assert names[0] == "log L" and names[-1] == "score gap"
    values = {
        t: {name: np.array([1.3 * value]) for name, value in zip(names, row, strict=True)}
        for t, row in figure3.REFERENCE.items()
    }
    assert all(c.holds for c in figure3.against_reference(values))
    far = {t: {name: 2 * value for name, value in row.items()} for t, row in values.items()}
    assert not any(c.holds for c in figure3.against_reference(far))
    slow = replace(with_head(J.history, np.full(J.record.size, 0.5)), log_gap=J.history.log_gap / 2,
                   norm=J.history.norm / 2, log_miss=J.history.log_miss / 2)  # fmt: skip
    runs = {"slow": slow, "fast": J.history}
    assert all(c.holds for c in figure3.slower_than_others(runs, "slow", ["fast"]))
    assert not any(c.holds for c in figure3.slower_than_others(runs, "fast", ["slow"]))
    ahead = figure3.ahead(slow, J.history, ("slow", "fast"), "V", "v", since=2)
    assert [c.holds for c in ahead] == [False, False, False, True, True]


def test_record_that_is_not_there():
    with pytest.raises(ValueError, match="iteration 17"):
        figure3.at(replace(J.history, iterations=J.record * 2), 17)


def test_lemmas_2_6_and_9_need_the_right_direction():
    def claims_at(world):
        target = world.target(F.svm)
        found = gradient_cone.lemma2(F.tokens, target, 1, (10, 100), 1)
        return [*found, gradient_cone.lemma6(F.tokens, target)]

    assert all(c.holds for c in claims_at(World()))
    assert not any(c.holds for c in claims_at(World("target rotated", 0.05)))


def test_pulls_of_pairs_are_the_gradient():
    of, W = (
        gradient_cone.pairs(F.tokens, 0),
        np.random.default_rng(0).standard_normal(F.svm.W[:1].shape),
    )
    one = F.tokens.run(0)
    gradient = attention.gradients(one, W, one.u)[1].ravel()
    found = of.pulls(of.A @ W.ravel()) @ of.A
    np.testing.assert_allclose(
        found / np.linalg.norm(found), -gradient / np.linalg.norm(gradient), atol=1e-10
    )


def test_lemma4_small_and_large_starts():
    std = data_and_starts.start_size(F.tokens)
    start = dynamics.gaussian_start(F.space, std, [5, 6])
    assert all(c.holds for c in data_and_starts.lemma4(F.tokens, start, std, 60))
    twice = replace(F.tokens, X=2 * F.tokens.X, z=2 * F.tokens.z)  # |x^T W z| <= B^2 ||W||
    assert data_and_starts.start_size(twice) == pytest.approx(std / 4)
    larger = dynamics.Start(100 * start.inside, 100 * start.outside)
    assert not any(c.holds for c in data_and_starts.lemma4(F.tokens, larger, std, 60))


def test_lemma8_and_its_assumptions():
    high = tokens.gaussian_tokens(range(29), n=2, T=3, d=4000)
    assert all(c.holds for c in data_and_starts.lemma8(high))
    few = tokens.gaussian_tokens(range(28), n=2, T=3, d=4000)  # too few for a probability of 0.1
    assert [c.holds for c in data_and_starts.lemma8(few)] == [False, False, True]
    low = phase_diagram.skewed(tokens.class_mean_tokens([0, 1], n=4, T=3, d=6), 0.5, [0, 1])
    assert not any(c.holds for c in data_and_starts.lemma8(low))
    assert data_and_starts.definition1(high).holds
    turned = World("label turned", 1.0).tokens(high)
    assert not data_and_starts.definition1(turned).holds


def test_lemma11_and_14_can_fail():
    drawn = tokens.two_token_gaussian(range(5), n=4, d=100)
    assert all(c.holds for c in data_and_starts.lemma11(drawn, 3.0, 0.1))
    assert not any(c.holds for c in data_and_starts.lemma11(drawn, 3.0, 0.01))

    def exponents(off):
        draw = lambda seeds, d: tokens.two_token_gaussian(seeds, n=4, d=d)
        return data_and_starts.lemma11_exponents(draw, 40, 3.0, off)

    assert all(c.holds for c in exponents(0.0))
    assert not any(c.holds for c in exponents(0.15))
    assert all(c.holds for c in data_and_starts.lemma14(J.tokens, J.head))
    X = J.tokens.X.copy()
    X[:, :, 0] = -2 * X[:, :, 1]
    assert not data_and_starts.lemma14(replace(J.tokens, X=X), J.head)[1].holds


def test_head_svm_of_inseparable_opt_tokens_is_infeasible():
    X = np.repeat(np.eye(3)[None, :2], 2, 0)  # two samples with the same tokens and opposite labels
    with pytest.raises(svm.Infeasible, match="head SVM"):
        svm.head_svm(token_sets.token_set(X, np.array([1.0, -1.0]), opt=np.array([1, 1])))


def test_repeated_token_keeps_assumption_2_at_every_step():
    history = dynamics.train(
        tokens.two_token_gaussian([0, 1], n=4, T=4, d=60),
        rules.ngd(0.3, decay=2 / 3),
        300,
        head="joint",
    )
    assert np.ptp(history.score_gaps, axis=-1).max() < 1e-10
    assert np.ptp(history.margins, axis=-1).max() < 1e-10


def test_zero_head_has_no_gradient_in_W_and_the_head_moves_first():
    first = np.searchsorted(J.record, 1)
    assert (J.history.log_gradient[:, 0] == -np.inf).all() and (J.history.norm[:, first] == 0).all()
    np.testing.assert_allclose(J.history.head_norm[:, first], 0.3)
    assert (J.history.norm[:, np.searchsorted(J.record, 2)] > 0).all()


def test_linear_predictor_leaves_attention_alone():
    history = dynamics.train(
        joint_training.linear_predictor(J.space), rules.ngd(0.3), 50, head="joint"
    )
    assert (history.norm == 0).all() and (np.diff(history.log_gap) < 0).all()


def test_broken_assumptions():
    data = phase_diagram.bounded_tokens([0, 1], n=4, T=3, d=20, ratio=2.0)
    skewed = phase_diagram.skewed(data, 0.5, [0, 1])
    before, after = (attention.scores(part, part.u) for part in (data, skewed))
    best = np.take_along_axis(before, data.opt[..., None], -1)
    np.testing.assert_allclose(np.take_along_axis(after, data.opt[..., None], -1), best)
    np.testing.assert_allclose(
        np.abs(after - np.where(before == best, before, 0))[after < best.min()].max(),
        0.5 * best.min(),
    )
    assert np.linalg.norm(data.X, axis=-1).max() < 4 and (after.argmax(-1) == data.opt).all()
    with pytest.raises(ValueError, match="spread = 1.0"):
        phase_diagram.skewed(data, 1.0, [0, 1])


@pytest.mark.parametrize("overlap, holds", [(-1.0, True), (1.0, False)])
def test_two_samples_whose_pairs_oppose_each_other_need_assumption_1(overlap, holds):
    data = phase_diagram.two_samples(overlap)
    assert (data.opt == 1).all() and data_and_starts.assumption1(data) < 1
    K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0]
    np.testing.assert_allclose(K[0, 1], 3 * overlap + 1e-4)
    named = {"NGD": rules.ngd(0.05), "GD": rules.gd(0.2)}
    found = phase_diagram.assumption1_needed(data, named, 1000)
    assert [c.holds for c in found] == [holds, holds]


def test_runs_without_a_solution_are_left_out():
    flat = tokens.class_mean_tokens(range(12), n=6, T=6, d=3)
    kept = svm.feasible(flat)
    assert kept is None or 0 < len(kept.y) < 12
    found = phase_diagram.fraction_reached(flat, {"NGD": rules.ngd(0.1)}, 10)
    assert found["feasible"] == (0 if kept is None else len(kept.y) / 12)
    easy = phase_diagram.fraction_reached(
        tokens.class_mean_tokens([0, 1], n=3, T=3, d=50), {"NGD": rules.ngd(0.1)}, 300
    )
    assert easy == {"feasible": 1.0, "NGD": 1.0}


@pytest.mark.parametrize(
    "claim, margin",
    [
        (claims.at_most("a", "s", "p", 0.5, 1.0), 2.0),
        (claims.at_most("a", "s", "p", -1.0, -0.5), 2.0),
        (claims.at_most("a", "s", "p", -1.0, 0.5), np.inf),
        (claims.at_least("a", "s", "p", 3.0, 1.0), 3.0),
        (claims.at_least("a", "s", "p", -3.0, 1.0), 0.0),
        (claims.close("a", "s", "p", 1.5, 1.0, 0.1), 0.2),
        (claims.at_least("a", "s", "p", np.nan, 1.0), np.nan),
    ],
)
def test_margin(claim, margin):
    assert claim.margin == pytest.approx(margin, nan_ok=True)
