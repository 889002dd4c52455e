"""Tests of the law by its definition, by hand and by brute force.

A failure means that C or its premises are wrong.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers import saturation
from papers.law import margin_law


def law_of(data, **more):
    return margin_law.margin_law(data, svm.token_svm(data), **more)


def one_sample(*constraints, u):
    """Return one sample whose constraints are <a, w> >= 1 for each a."""
    zero = np.zeros(len(u))
    return attention.token_set(
        [[zero, *(-np.array(constraints, float))]], [1.0], z=[[1.0]], u=u
    )


TWO_AXES = one_sample((2, 0), (0, 3), u=[1 / 2, np.e / 3])  # score gaps 1 and e
CORNER = one_sample((1, 0), (1, 1), u=[1.0, 0.5])  # w_1 >= 1 and w_1 + w_2 >= 1


def test_two_orthogonal_constraints_by_hand():
    law = law_of(TWO_AXES)
    beta = np.array([1 / 4, 1 / 9])
    # Kappa = 1 and e, the opt score is zero
    log_ratio = np.array([0.0, 1.0]) - np.log(beta)
    offsets = log_ratio - (beta @ log_ratio) / beta.sum()
    np.testing.assert_allclose(law.offsets[0, 0], offsets, rtol=1e-12)
    # rho = (offset_1 / a, offset_2 / b) up to sign conventions of the axes; K =
    # diag(a^2, b^2)
    np.testing.assert_allclose(law.constant[0], np.hypot(*(offsets / (2, 3))))
    np.testing.assert_allclose([law.slowest[0], law.fastest[0]], [1, 1])
    np.testing.assert_allclose(
        law.longest_step(0.9)[0], 2 * 1.9 * np.hypot(1 / 2, 1 / 3)
    )
    assert law.excess[0] == np.inf


def test_a_single_support_vector_and_what_lies_off_it():
    law = law_of(one_sample((2, 0), u=[1.0, 0.0]))
    assert law.constant[0] < 1e-15 and law.longest_step()[0] == np.inf
    assert law.remaining(np.array([50.0]))[0] == np.exp(-50.0)  # saturation alone
    # Margins at W_mm = (1/2, 0): 1 and 3/2
    law = law_of(one_sample((2, 0), (3, 1), u=[1.0, 0.0]))
    np.testing.assert_allclose(law.excess, [0.5])
    np.testing.assert_array_equal(law.support, [[[True, False]]])
    np.testing.assert_allclose(law.remaining(np.array([10.0])), np.exp(-5.0))


@pytest.mark.parametrize("loss", attention.LOSSES)
def test_slopes_are_the_models_own(loss):
    data = tokens.unit_tokens(4, n=3, T=4, d=8)
    logits = np.zeros((1, 3, 4))
    # Weights e^-25, all others alike
    np.put_along_axis(logits, data.opt[..., None], 25.0, -1)
    at = attention.slopes(logits, attention.scores(data, data.u), loss)
    pull = -np.take_along_axis(at.pull, coordinates.others(data.opt, 4), -1)
    slopes = np.exp(saturation.saturated_slopes(data, loss=loss))
    np.testing.assert_allclose(pull / pull.max(), slopes / slopes.max(), rtol=1e-8)


UNIT, OTHER = (tokens.unit_tokens(seed, n=3, T=4, d=8) for seed in (1, 2))
BEHIND = (UNIT.opt + 1) % 4  # the opt tokens score higher and keep them up
# The last one has w_1 >= 1 twice, and w_1 + w_2 >= 1, which is tight at W_mm = (1, 0)
# but has no dual.
IDLE = one_sample((1, 0), (1, 0), (1, 1), u=[1.0, 0.5])


@pytest.mark.parametrize(
    "premise, data, solution, selected, amount",
    [
        ("same problem", UNIT, svm.token_svm(OTHER), None, "differ by"),
        ("same problem", UNIT, svm.token_svm(UNIT, norm=3), None, "Frobenius"),
        ("positive duals", CORNER, svm.token_svm(CORNER), None, "pair 1.*dual is 0.0e"),
        ("positive duals", IDLE, svm.token_svm(IDLE), None, "pair 2.*dual is 0.0e"),
        ("score gaps", UNIT, svm.token_svm(UNIT, BEHIND), BEHIND, "of .* tokens"),
    ],
)
def test_refusal_names_premise_run_and_amount(
    premise, data, solution, selected, amount
):
    with pytest.raises(margin_law.PremiseFails, match=amount) as refused:
        margin_law.margin_law(data, solution, selected)
    assert refused.value.premise == premise and refused.value.run == 0
    assert np.isfinite(refused.value.amount) and premise in str(refused.value)


def test_wrong_arguments_are_named():
    solution = svm.token_svm(UNIT)
    slopes = saturation.saturated_slopes(UNIT)
    short = replace(solution, duals=solution.duals[..., :2])
    law = law_of(UNIT)
    calls = [
        (
            "log_slopes",
            lambda: margin_law.margin_law(UNIT, solution, log_slopes=slopes[..., :2]),
        ),
        ("solution.duals", lambda: margin_law.margin_law(UNIT, short)),
        ("loss", lambda: saturation.saturated_slopes(UNIT, loss="hinge")),
        *(
            ("momentum", lambda m=m: law.longest_step(m))
            for m in (1.5, 1.0, -0.1, np.nan)
        ),
    ]
    for wrong in (
        UNIT.opt[:, :2],
        UNIT.opt[0],
        UNIT.opt + 4,
        UNIT.opt - 4,
        UNIT.opt + 0.5,
    ):
        calls.append(
            ("select|indices", lambda s=wrong: margin_law.margin_law(UNIT, solution, s))
        )
    for name, call in calls:
        with pytest.raises(ValueError, match=name):
            call()


@given(st.integers(0, 10_000))
@example(7621)  # one share is 3e-14, and counts as zero
@settings(max_examples=15, deadline=None)
def test_dependent_duals_are_those_of_least_entropy(seed):
    """Among random duals of the same W_mm, none is nearer to kappa."""
    draw = np.random.default_rng(seed)
    F = np.c_[np.ones(6), draw.standard_normal((6, 2))]  # 6 constraints in 3 dimensions
    F[:, 1:] -= draw.dirichlet(np.ones(6)) @ F[:, 1:]  # some positive dual exists
    log_slopes = draw.standard_normal(6)
    pi = margin_law._least_entropy(F @ F.T, log_slopes)
    np.testing.assert_allclose(F.T @ pi, [1, 0, 0], atol=1e-12)

    if seed == 7621:
        assert (pi == 0).sum() == 1
        return

    def entropy(p):
        return p @ (np.log(p) - log_slopes)

    beside = np.linalg.svd(F.T)[2][3:]  # F^T of these is zero
    for move in draw.standard_normal((20, 3)) @ beside:
        other = pi + 0.5 * draw.uniform() * move * np.min(pi / np.abs(move))
        assert entropy(other) > entropy(pi)


def test_direction_error_is_a_chord_and_adds_what_lies_outside():
    law = replace(law_of(TWO_AXES), constant=np.array([3.0]))
    norms = np.array([[5.0, 1e6]])
    chord = 2 * np.sin(np.arcsin(5.0 / norms) / 2)
    with np.errstate(invalid="raise"):
        np.testing.assert_allclose(law.direction_error(norms, np.array([4.0])), chord)
    np.testing.assert_allclose(law.direction_error(np.array([3.0])), [np.sqrt(2)])


def test_joint_slopes_are_head_dual_times_score_gap():
    """The tokens are nearly orthogonal, so that all samples carry the head SVM."""
    data = tokens.gaussian_tokens([0], n=4, T=3, d=60)
    head = svm.head_svm(data)
    gaps = saturation.score_gaps(data, head.W)
    slopes = np.exp(margin_law.joint_slopes(data, head))
    np.testing.assert_allclose(slopes, head.duals[..., None] * gaps, rtol=1e-9)
    # one of them by hand
    i = 2
    t = (data.opt[0, 2] + 1) % 3
    gap = data.y[0, i] * (data.X[0, i, data.opt[0, i]] - data.X[0, i, t]) @ head.W[0]
    np.testing.assert_allclose(gaps[0, i, t - (t > data.opt[0, i])], gap)
    # tokens that score higher than the selected one do not pull
    selected = (data.opt + 1) % 3
    opt_among = coordinates.others(selected, 3) == data.opt[..., None]
    of_both = (
        margin_law.joint_slopes(data, head, selected),
        saturation.saturated_slopes(data, selected),
    )
    assert all(np.isnan(slopes[opt_among]).all() for slopes in of_both)
    X = [[[1.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]]  # the second has margin 3
    data = attention.token_set(X, [1.0, 1.0], z=[[1.0], [2.0]], u=[1.0, 0.0])
    with pytest.raises(
        margin_law.PremiseFails, match="whole head.*1 of 2 samples"
    ) as refused:
        margin_law.joint_slopes(data, svm.head_svm(data))
    assert refused.value.amount == 0.0


def test_copies_share_the_dual_of_their_merged_pair():
    """The merged pair, with the sum of the kappa, obeys the law, and so do its
    copies.
    """
    X = [[[0.0, 0.0], [-1.0, 0.0]]] * 2  # two samples of one demand
    law = law_of(attention.token_set(X, [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 0.0]))
    np.testing.assert_allclose(law.duals[0], [[0.5], [0.5]])
    assert law.constant[0] < 1e-12 and (law.slowest[0], law.fastest[0]) == (np.inf, 0)
    merged = tokens.gaussian_tokens([0], n=3, T=3, d=60)
    # Among the other tokens the copy is last.
    first = coordinates.others(merged.opt, 3)[..., :1, None]
    X = np.concatenate([merged.X, np.take_along_axis(merged.X, first, 2)], 2)
    twins = attention.token_set(X, merged.y, merged.z, merged.u, merged.opt)
    slopes = saturation.saturated_slopes(merged)
    slopes[..., 0] += np.log(2.0)
    law = law_of(merged, log_slopes=slopes)
    copies = law_of(twins)
    for name in ("constant", "norm", "slowest", "fastest", "excess"):
        np.testing.assert_allclose(getattr(copies, name), getattr(law, name), rtol=1e-8)
    np.testing.assert_allclose(
        copies.duals[..., [0, 2]].sum(-1), law.duals[..., 0], rtol=1e-8
    )
    history = dynamics.train(twins, dynamics.NGD(0.5), 100_000, [100_000])
    margins = history.margins[0, 0]  # (n, T): the copies are last
    np.testing.assert_allclose(margins[:, 0], margins[:, 2], rtol=1e-9)
    assert np.ptp(margins - copies.offsets[0]) < 1e-6
    # Not with one kappa
    assert np.ptp(margins[:, :2] - law_of(merged).offsets[0]) > 0.1
