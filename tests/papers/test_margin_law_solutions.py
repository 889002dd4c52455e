"""The law of the margins against its definition, by hand, by brute force, and where it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers.beyond import least_entropy, margin_law, margin_slopes

SEEDS = st.integers(0, 10_000)


def solved(seed, **sizes):
    """A problem whose law exists, its solution and the law."""
    data = tokens.unit_tokens(seed, **({"n": 3, "T": 4, "d": 8} | sizes))
    solution = svm.token_svm(data)
    slopes = np.where(solution.support, 0.3 * np.sin(np.arange(9)).reshape(1, 3, 3), 0.0)
    return data, solution, margin_law.margin_law(data, solution, log_slopes=slopes), slopes


def two_axes(a=2.0, b=3.0):
    """One sample, constraints a w_1 >= 1 and b w_2 >= 1, score gaps 1 and e."""
    X = [[[0.0, 0.0], [-a, 0.0], [0.0, -b]]]
    return attention.token_set(X, [1.0], z=[[1.0]], u=[1 / a, np.e / b])


def test_two_orthogonal_constraints_by_hand():
    a, b = 2.0, 3.0
    data = two_axes(a, b)
    law = margin_law.margin_law(data, svm.token_svm(data))
    beta = np.array([1 / a**2, 1 / b**2])
    log_ratio = np.array([0.0, 1.0]) - np.log(beta)  # kappa = 1 and e, the opt score is zero
    offsets = log_ratio - (beta @ log_ratio) / beta.sum()
    np.testing.assert_allclose(law.offsets[0, 0], offsets, rtol=1e-12)
    # rho = (offset_1 / a, offset_2 / b) up to sign conventions of the axes; K = diag(a^2, b^2)
    np.testing.assert_allclose(law.constant[0], np.hypot(offsets[0] / a, offsets[1] / b))
    np.testing.assert_allclose([law.slowest[0], law.fastest[0]], [1, 1])
    np.testing.assert_allclose(law.longest_step(0.9)[0], 2 * 1.9 * np.hypot(1 / a, 1 / b))
    assert law.excess[0] == np.inf


def test_a_single_support_vector_has_nothing_to_settle():
    data = attention.token_set([[[0.0, 0.0], [-2.0, 0.0]]], [1.0], z=[[1.0]], u=[1.0, 0.0])
    law = margin_law.margin_law(data, svm.token_svm(data))
    assert law.constant[0] < 1e-15 and law.longest_step()[0] == np.inf
    assert law.remaining(np.array([50.0]))[0] == np.exp(-50.0)  # saturation alone


def test_constraints_off_the_support_leave_an_excess():
    X = [[[0.0, 0.0], [-2.0, 0.0], [-3.0, -1.0]]]  # margins at W_mm = (1/2, 0): 1 and 3/2
    data = attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.0])
    law = margin_law.margin_law(data, svm.token_svm(data))
    np.testing.assert_allclose(law.excess, [0.5])
    np.testing.assert_array_equal(law.support, [[[True, False]]])
    np.testing.assert_allclose(law.remaining(np.array([10.0])), np.exp(-5.0))


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_residual_has_these_margins_and_no_part_along_the_solution(seed):
    data, solution, law, _ = solved(seed)
    delta = coordinates.differences(data, data.opt)
    residual = np.einsum("rnt,rntd,rne->rde", law.coefficients, delta, data.z)
    margins = np.einsum("rntd,rde,rne->rnt", delta, residual, data.z)
    np.testing.assert_allclose(margins[law.support], law.offsets[law.support], atol=1e-8)
    assert abs(np.vdot(residual, solution.W)) < 1e-8 * (1 + law.constant[0])
    np.testing.assert_allclose(np.linalg.norm(residual), law.constant[0], atol=1e-8)
    assert abs((law.duals[law.support] * law.offsets[law.support]).sum()) < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_residual_minimises_the_loss_across_the_solution(seed):
    data, solution, law, slopes = solved(seed)
    on = law.support[0].ravel()
    delta = coordinates.differences(data, data.opt)
    rows = np.einsum("rntd,rne->rntde", delta, data.z).reshape(on.size, -1)[on]
    unit = solution.W.ravel() / law.norm[0]
    across = np.linalg.svd((rows - np.outer(rows @ unit, unit)).T, full_matrices=False)[0][:, :-1]

    def objective(x):  # log sum kappa e^{-<A, rho>} over rho across W_mm
        powers = slopes[0].ravel()[on] - rows @ (across @ x)
        top = powers.max()
        weights = np.exp(powers - top)
        gradient = -across.T @ (rows.T @ weights) / weights.sum()
        return top + np.log(weights.sum()), gradient

    found = minimize(objective, np.zeros(across.shape[1]), jac=True, method="BFGS", tol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.x), law.constant[0], rtol=1e-5)


def test_only_differences_of_slopes_count():
    data, solution, law, slopes = solved(1)
    again = margin_law.margin_law(data, solution, log_slopes=slopes + 700.0)
    np.testing.assert_allclose(again.offsets, law.offsets, atol=1e-9)
    np.testing.assert_allclose(again.constant, law.constant)


def test_eigenvalues_are_those_of_the_map_of_offsets():
    data, solution, law, _ = solved(2)
    on = law.support[0].ravel()
    K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0][np.ix_(on, on)]
    beta = law.duals[0].ravel()[on]

    def step(offsets):  # of NGD with step length one; offsets are relative to the settled ones
        c = beta * np.exp(-offsets)
        return offsets + K @ c / np.sqrt(c @ K @ c)

    tiny = 1e-6
    columns = [(step(tiny * e) - step(-tiny * e)) / (2 * tiny) for e in np.eye(on.sum())]
    multipliers = np.sort(np.linalg.eigvals(np.array(columns).T).real)
    expected = np.sort([1 - law.fastest[0] / law.norm[0], 1 - law.slowest[0] / law.norm[0], 1.0])
    np.testing.assert_allclose(multipliers[[0, -2, -1]], expected, atol=1e-6)


@pytest.mark.parametrize("loss", attention.LOSSES)
def test_slopes_are_the_models_own(loss):
    data = tokens.unit_tokens(4, n=3, T=4, d=8)
    logits = np.zeros((1, 3, 4))
    np.put_along_axis(logits, data.opt[..., None], 25.0, -1)  # weights e^-25, all others alike
    at = attention.slopes(logits, attention.scores(data, data.u), loss)
    place = coordinates.others(data.opt, 4)
    pull = -np.take_along_axis(at.pull, place, -1)
    slopes = np.exp(margin_slopes.saturated_slopes(data, loss=loss))
    np.testing.assert_allclose(pull / pull.max(), slopes / slopes.max(), rtol=1e-8)


def broken(premise):
    """(tokens, solution, selected) that break a premise, and a part of what must be said."""
    data = tokens.unit_tokens(1, n=3, T=4, d=8)
    if premise == "same problem":
        return data, svm.token_svm(tokens.unit_tokens(2, n=3, T=4, d=8)), None, "differ by"
    if premise == "positive duals":
        X = [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]]  # w_1 >= 1 and w_1 + w_2 >= 1
        corner = attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.5])
        return corner, svm.token_svm(corner), None, "pair 1) is tight"
    selected = (data.opt + 1) % 4  # outscored by the opt tokens, which hold them up
    return data, svm.token_svm(data, selected), selected, "score at least"


@pytest.mark.parametrize("premise", ["same problem", "positive duals", "score gaps"])
def test_refusal_names_premise_run_and_amount(premise):
    data, solution, selected, said = broken(premise)
    with pytest.raises(margin_slopes.PremiseFails, match=premise) as refused:
        margin_law.margin_law(data, solution, selected)
    assert refused.value.premise == premise and refused.value.run == 0
    assert np.isfinite(refused.value.amount)
    assert said in str(refused.value) and "needs" in str(refused.value)


def test_other_norms_are_another_problem():
    data = tokens.unit_tokens(1, n=3, T=4, d=8)
    with pytest.raises(margin_slopes.PremiseFails, match="same problem"):
        margin_law.margin_law(data, svm.token_svm(data, norm=3))


def test_infeasible_selections_never_reach_the_law():
    X = [[[1.0, 0.0], [-1.0, 0.0]], [[-1.0, 0.0], [1.0, 0.0]]]
    data = attention.token_set(X, [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 0.0], opt=[0, 0])
    with pytest.raises(svm.Infeasible, match="infeasible"):
        svm.token_svm(data)


def test_wrong_shapes_are_named():
    data, solution, _, slopes = solved(1)
    with pytest.raises(ValueError, match=r"log_slopes has shape \(1, 3, 2\)"):
        margin_law.margin_law(data, solution, log_slopes=slopes[..., :2])
    with pytest.raises(ValueError, match="solution.duals has shape"):
        margin_law.margin_law(data, replace(solution, duals=solution.duals[..., :2]))
    with pytest.raises(ValueError, match="loss must be one of"):
        margin_slopes.saturated_slopes(data, loss="hinge")


def test_wrong_selections_and_momenta_are_named():
    data, solution, law, _ = solved(1)
    for selected in (data.opt[:, :2], data.opt[0]):
        with pytest.raises(ValueError, match=r"selected has shape .* of shape \(1, 3\)"):
            margin_law.margin_law(data, solution, selected)
    for selected in (data.opt + 4, data.opt - 4):
        with pytest.raises(ValueError, match=r"it needs indices 0 \.\.\. 3"):
            margin_law.margin_law(data, solution, selected)
    with pytest.raises(ValueError, match="type float64; it needs token indices"):
        margin_law.margin_law(data, solution, data.opt + 0.5)
    for momentum in (1.5, 1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="it needs 0 <= momentum < 1"):
            law.longest_step(momentum)


def twins_of(merged):
    """The same samples, the first other token of each repeated: the copies stand last."""
    place = coordinates.others(merged.opt, merged.shape[2])
    copied = np.take_along_axis(merged.X, place[..., :1, None], 2)
    X = np.concatenate([merged.X, copied], 2)
    return attention.token_set(X, merged.y, merged.z, merged.u, merged.opt)


def test_two_samples_of_one_demand_share_a_dual():
    X = [[[0.0, 0.0], [-1.0, 0.0]]] * 2
    data = attention.token_set(X, [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 0.0])
    law = margin_law.margin_law(data, svm.token_svm(data))
    np.testing.assert_allclose(law.duals[0], [[0.5], [0.5]])
    assert law.constant[0] < 1e-12 and (law.slowest[0], law.fastest[0]) == (np.inf, 0)


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_dependent_duals_are_those_of_least_entropy(seed):
    """Among all duals of the same W_mm, found at random, none is nearer to kappa."""
    draw = np.random.default_rng(seed)
    F = np.c_[np.ones(6), draw.standard_normal((6, 2))]  # 6 constraints in 3 dimensions
    F[:, 1:] -= draw.dirichlet(np.ones(6)) @ F[:, 1:]  # some positive dual exists
    log_slopes = draw.standard_normal(6)
    pi = least_entropy.least_entropy(F @ F.T, log_slopes)
    np.testing.assert_allclose(F.T @ pi, [1, 0, 0], atol=1e-12)
    entropy = lambda p: p @ (np.log(p) - log_slopes)
    beside = np.linalg.svd(F.T)[2][3:]  # F^T of these is zero
    for move in draw.standard_normal((20, 3)) @ beside:
        other = pi + 0.5 * draw.uniform() * move * np.min(pi / np.abs(move))
        assert entropy(other) > entropy(pi)


def test_where_a_dependent_constraint_must_carry_nothing_the_law_refuses():
    """w_1 >= 1 twice, and w_1 + w_2 >= 1, which is tight at W_mm = (1, 0) and carries nothing."""
    X = [[[0.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]]
    data = attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.5])
    with pytest.raises(margin_slopes.PremiseFails, match="pair 2. is tight .* dual is 0.0e"):
        margin_law.margin_law(data, svm.token_svm(data))


def test_direction_error_is_a_chord_and_adds_what_lies_outside():
    law = margin_law.margin_law(two_axes(), svm.token_svm(two_axes()))
    law = replace(law, constant=np.array([3.0]))
    norms = np.array([[5.0, 1e6]])
    chord = 2 * np.sin(np.arcsin(5.0 / norms) / 2)
    with np.errstate(invalid="raise"):
        np.testing.assert_allclose(law.direction_error(norms, np.array([4.0])), chord)
    np.testing.assert_allclose(law.direction_error(np.array([3.0])), [np.sqrt(2)])


def with_head(seed=0):
    """Near-orthogonal tokens, whose head SVM all samples carry."""
    data = tokens.gaussian_tokens([seed], n=4, T=3, d=60)
    return data, svm.head_svm(data)


def test_joint_slopes_are_head_dual_times_score_gap():
    data, head = with_head()
    slopes = np.exp(margin_slopes.joint_slopes(data, head))
    for i in range(4):
        others = [t for t in range(3) if t != data.opt[0, i]]
        for k, t in enumerate(others):
            gap = data.y[0, i] * (data.X[0, i, data.opt[0, i]] - data.X[0, i, t]) @ head.W[0]
            np.testing.assert_allclose(slopes[0, i, k], head.duals[0, i] * gap, rtol=1e-9)


def test_a_sample_that_carries_nothing_in_the_head_is_refused():
    X = [[[1.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]]  # the second has margin 3
    data = attention.token_set(X, [1.0, 1.0], z=[[1.0], [2.0]], u=[1.0, 0.0])
    with pytest.raises(margin_slopes.PremiseFails, match="whole head.*1 of 2 samples") as refused:
        margin_slopes.joint_slopes(data, svm.head_svm(data))
    assert refused.value.amount == 0.0


def test_tokens_that_outscore_the_selected_one_pull_nothing():
    data, head = with_head()
    selected = (data.opt + 1) % 3
    slopes = margin_slopes.joint_slopes(data, head, selected)
    plain = margin_slopes.saturated_slopes(data, selected)
    opt_among = coordinates.others(selected, 3) == data.opt[..., None]
    assert np.isnan(slopes[opt_among]).all() and np.isnan(plain[opt_among]).all()


def test_copies_share_the_dual_of_their_merged_pair():
    """The merged pair, with the sum of the kappa, obeys the law; and so do its copies."""
    merged = tokens.gaussian_tokens([0], n=3, T=3, d=60)
    twins = twins_of(merged)
    slopes = margin_slopes.saturated_slopes(merged)
    slopes[..., 0] += np.log(2.0)
    solution = svm.token_svm(merged)
    law = margin_law.margin_law(merged, solution, log_slopes=slopes)
    copies = margin_law.margin_law(twins, svm.token_svm(twins))
    for name in ("constant", "norm", "slowest", "fastest", "excess"):
        np.testing.assert_allclose(getattr(copies, name), getattr(law, name), rtol=1e-8)
    np.testing.assert_allclose(copies.duals[..., [0, 2]].sum(-1), law.duals[..., 0], rtol=1e-8)
    history = dynamics.train(twins, dynamics.ngd(0.5), 100_000, [100_000])
    margins = history.margins[0, 0]  # (n, T): the copies are last
    np.testing.assert_allclose(margins[:, 0], margins[:, 2], rtol=1e-9)
    assert np.ptp(margins - copies.offsets[0]) < 1e-6
    alone = margin_law.margin_law(merged, solution)
    assert np.ptp(margins[:, :2] - alone.offsets[0]) > 0.1  # with one kappa it would not
