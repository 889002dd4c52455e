"""Tests of samples of different lengths: a masked token must change nothing.

There are two references. One is the same set without a token, if every sample loses
one. The other is a loop over a list of arrays in plain numpy, for samples whose lengths
differ.
"""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, token_set
from tests.masked import (
    D_Z,
    DENSE,
    HIDDEN,
    MASKED,
    RUNS,
    D,
    N,
    T,
    aligned,
    shown,
    with_a_token_more,
)

RAGGED = [DENSE.X[0, 0], DENSE.X[0, 1, :2], DENSE.X[0, 2, :3]]
TEXTS = token_set(RAGGED, DENSE.y[0], u=DENSE.u[0])  # the query is the first token


def test_a_mask_that_hides_nothing_is_none_and_every_array_stays():
    mask = np.ones((RUNS, N, T), bool)
    again = token_set(DENSE.X, DENSE.y, DENSE.z, DENSE.u, mask=mask)
    assert again.mask is None
    assert again.X is DENSE.X
    np.testing.assert_array_equal(again.opt, DENSE.opt)


def test_junk_in_masked_tokens_is_ignored_whatever_it_is():
    np.testing.assert_array_equal(shown(MASKED.X[..., 0]), aligned(DENSE.X[..., 0]))
    chosen = np.take_along_axis(MASKED.X, MASKED.opt[..., None, None], 2)
    copies = np.broadcast_to(chosen, MASKED.X.shape)
    np.testing.assert_array_equal(MASKED.X[~MASKED.mask], copies[~MASKED.mask])
    assert np.isfinite(MASKED.X).all()


def test_opt_and_query_are_taken_from_the_tokens_that_are_shown():
    X = np.array([[[9.0, 9.0], [0.0, 1.0], [1.0, 0.0], [0.0, 99.0]]])
    mask = np.array([[False, True, True, False]])
    data = token_set(X, [1.0], u=[1.0, 2.0], mask=mask)
    assert data.opt.tolist() == [[1]]
    assert data.z.tolist() == [[[0.0, 1.0]]]


def test_a_list_of_arrays_is_a_padded_array_with_its_mask():
    assert TEXTS.shape == (1, N, T, D)
    np.testing.assert_array_equal(TEXTS.mask.sum(-1), [[4, 2, 3]])
    padded = np.full((N, T, D), np.nan)
    for i, sample in enumerate(RAGGED):
        padded[i, : len(sample)] = sample
    mask = ~np.isnan(padded[..., 0])
    again = token_set(padded, DENSE.y[0], u=DENSE.u[0], mask=mask)
    several = token_set([RAGGED, RAGGED[::-1]], DENSE.y, u=DENSE.u)
    assert several.shape == (2, N, T, D)
    for field in fields(TokenSet):
        value = getattr(TEXTS, field.name)
        np.testing.assert_array_equal(getattr(again, field.name), value)
        np.testing.assert_array_equal(getattr(several.run(0), field.name), value)


def test_the_mask_travels_by_run_pickle_replace_and_minimal():
    one = MASKED.run(1)
    np.testing.assert_array_equal(one.mask, MASKED.mask[1:])
    for copy in (pickle.loads(pickle.dumps(MASKED)), replace(MASKED)):
        np.testing.assert_array_equal(copy.mask, MASKED.mask)
        np.testing.assert_array_equal(copy.X, MASKED.X)
    small = attention.minimal(MASKED).tokens
    np.testing.assert_array_equal(small.mask, MASKED.mask)
    assert "mask (2, 3, 5)" in repr(MASKED)
    assert "mask" not in repr(DENSE)


def test_minimal_coordinates_span_no_masked_token():
    data = attention.gaussian_tokens([0, 1], n=3, T=3, d=30)
    more = with_a_token_more(data, np.array([[0, 3, 1], [2, 2, 0]]))
    small = attention.minimal(more)
    flat = small.tokens.X.reshape(2, -1, small.tokens.X.shape[-1])
    assert flat.shape[-1] == 9
    assert np.linalg.matrix_rank(flat).tolist() == [9, 9]
    W = np.random.default_rng(0).standard_normal((2, 30, 30))
    inside = attention.logits(small.tokens, small.reduce(W)[0])
    np.testing.assert_allclose(
        shown(inside, more), aligned(attention.logits(data, W)), atol=1e-12
    )


def test_logits_scores_weights_and_gradients_are_those_without_the_token():
    W = np.random.default_rng(3).standard_normal((RUNS, D, D_Z))
    for measure, argument in (
        (attention.logits, W),
        (attention.scores, DENSE.u),
        (attention.weights, W),
    ):
        of_masked = measure(MASKED, argument)
        np.testing.assert_allclose(
            shown(of_masked), aligned(measure(DENSE, argument)), rtol=1e-13
        )
        nothing = 0.0 if measure is attention.weights else -np.inf
        assert (of_masked[~MASKED.mask] == nothing).all()
    for loss in attention.LOSSES:
        for ours, wanted in zip(
            attention.gradients(MASKED, W, DENSE.u, loss),
            attention.gradients(DENSE, W, DENSE.u, loss),
            strict=True,
        ):
            np.testing.assert_allclose(ours, wanted, rtol=1e-11, atol=1e-14)


RULES = {
    "GD": dynamics.GD(0.3),
    "NGD": dynamics.NGD(0.05, decay=0.5),
    "momentum": dynamics.NGD(0.02, momentum=0.5),
    "Polyak": dynamics.Polyak(),
}
START = np.random.default_rng(5).standard_normal((RUNS, D, D_Z)) / 3
WIDE = np.random.default_rng(8).standard_normal((1, D, D)) / 3
SHARED = (
    "log_gap log_gradient log_gradient_head log_step log_step_head norm head_norm "
    "direction_error alignment descent head_direction_error head_alignment"
).split()


def path(data, head, loss, product, steps=12):
    V = {"V": np.random.default_rng(6).standard_normal((RUNS, D, D_Z))}
    v = {"v": np.random.default_rng(7).standard_normal((RUNS, D))}
    return dynamics.train(
        data,
        RULES,
        steps,
        [0, 1, 5, steps],
        START,
        targets=V,
        head=head,
        head_targets=v if head == "joint" else None,
        loss=loss,
        product=product,
    )


@pytest.mark.parametrize("product", ["gram", "factored"])
@pytest.mark.parametrize("loss", attention.LOSSES)
@pytest.mark.parametrize("head", ["fixed", "joint"])
def test_training_is_that_without_the_token(head, loss, product):
    wanted = path(DENSE, head, loss, product)
    for name, ours in path(MASKED, head, loss, product).items():
        for field in SHARED:
            a, b = getattr(ours, field), getattr(wanted[name], field)
            a, b = (
                (a, b) if isinstance(a, np.ndarray) else ([*a.values()], [*b.values()])
            )
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12, err_msg=field)
        np.testing.assert_array_equal(ours.status, wanted[name].status)
        np.testing.assert_allclose(ours.log_miss, wanted[name].log_miss, atol=1e-11)
        for field in ("margins", "score_gaps"):
            a, b = getattr(ours, field), getattr(wanted[name], field)
            np.testing.assert_allclose(shown(a), aligned(b), atol=1e-11)
            hidden = coordinates.hidden_pairs(MASKED, MASKED.opt)[:, None]
            assert np.isnan(a[np.broadcast_to(hidden, a.shape)]).all()


SLOPE = {"exponential": lambda f: np.exp(-f), "logistic": lambda f: 1 / (1 + np.exp(f))}


def plain(samples, y, z, u, W, loss):
    """Train W and u by 30 steps of joint gradient descent, sample by sample."""
    eta = 0.3
    for _ in range(30):
        grad_W = np.zeros_like(W)
        grad_u = np.zeros_like(u)
        for X, label, query in zip(samples, y, z, strict=True):
            p = np.exp(X @ W @ query)
            p = p / p.sum()
            gamma = label * (X @ u)
            f = p @ gamma
            slope = SLOPE[loss](f) / len(y)
            grad_W -= slope * np.outer(X.T @ (p * (gamma - f)), query)
            grad_u -= slope * label * (X.T @ p)
        W = W - eta * grad_W
        u = u - eta * grad_u
    return W, u


@pytest.mark.parametrize("loss", SLOPE)
@pytest.mark.parametrize("product", ["gram", "factored"])
def test_joint_training_on_a_list_of_arrays_is_the_loop_over_the_list(loss, product):
    y, u = DENSE.y[0], DENSE.u[0]
    W, v = plain(RAGGED, y, TEXTS.z[0], u, WIDE[0], loss)
    small = attention.minimal(TEXTS)
    history = dynamics.train(
        TEXTS,
        dynamics.GD(0.3),
        30,
        start=WIDE,
        head="joint",
        loss=loss,
        product=product,
    )
    inside = small.reduce(W[None])[0]
    np.testing.assert_allclose(history.weights(-1), inside, atol=1e-12)
    np.testing.assert_allclose(
        history.head(-1)[0], v @ small.token_basis[0], atol=1e-12
    )


def test_a_sample_of_one_token_has_no_margin_and_no_pull():
    samples = [RAGGED[0], RAGGED[1], RAGGED[2][:1]]
    data = token_set(samples, DENSE.y[0], u=DENSE.u[0])
    W, v = plain(samples, DENSE.y[0], data.z[0], DENSE.u[0], WIDE[0], "logistic")
    small = attention.minimal(data)
    history = dynamics.train(
        data, dynamics.GD(0.3), 30, start=WIDE, head="joint", loss="logistic"
    )
    np.testing.assert_allclose(
        history.weights(-1), small.reduce(W[None])[0], atol=1e-12
    )
    np.testing.assert_allclose(
        history.head(-1)[0], v @ small.token_basis[0], atol=1e-12
    )
    assert (history.log_miss[..., 2] == -np.inf).all()
    assert np.isnan(history.margins[..., 2, :]).all()
    solved = svm.token_svm(data)
    without = token_set(samples[:2], DENSE.y[0, :2], u=DENSE.u[0])
    np.testing.assert_allclose(solved.W, svm.token_svm(without).W, atol=1e-9)
    assert not solved.duals[0, 2].any()


def test_normalised_steps_stay_exact_where_weights_underflow():
    data = attention.gaussian_tokens([0, 1], n=N, T=T, d=30)
    more = with_a_token_more(data)
    rule = dynamics.NGD(0.5)
    wanted = dynamics.train(data, rule, 5000, [5000])
    ours = dynamics.train(more, rule, 5000, [5000])
    assert np.nanmax(ours.margins) > 750
    np.testing.assert_allclose(ours.log_gap, wanted.log_gap, rtol=1e-10)
    np.testing.assert_allclose(ours.norm, wanted.norm, rtol=1e-10)


@pytest.mark.parametrize("norm", ["frobenius", 3.0, 1.0, "nuclear", "spectral"])
def test_the_token_svm_is_that_without_the_token(norm):
    wanted = svm.token_svm(DENSE, norm=norm)
    ours = svm.token_svm(MASKED, norm=norm)
    tolerance = 1e-9 if norm == "frobenius" else 1e-6
    np.testing.assert_allclose(ours.norm, wanted.norm, rtol=tolerance)
    hidden = coordinates.hidden_pairs(MASKED, MASKED.opt)
    assert np.isnan(ours.margins[hidden]).all()
    assert not ours.duals[hidden].any() and not ours.support[hidden].any()
    assert (ours.violation <= ours.accuracy).all()
    assert (ours.gap <= ours.accuracy).all()
    if norm in ("frobenius", 3.0):  # in the other norms W need not be unique
        np.testing.assert_allclose(ours.W, wanted.W, atol=10 * tolerance)
        np.testing.assert_allclose(
            shown(ours.margins), aligned(wanted.margins), rtol=10 * tolerance
        )
        np.testing.assert_allclose(
            shown(ours.duals), aligned(wanted.duals), rtol=1e-5, atol=1e-6
        )


def test_another_selection_and_the_head_svm_see_no_masked_token():
    selected = (DENSE.opt + 1) % T
    in_masked = selected + (selected >= HIDDEN)
    ours = svm.token_svm(MASKED, in_masked)
    wanted = svm.token_svm(DENSE, selected)
    np.testing.assert_allclose(ours.W, wanted.W, atol=1e-9)
    np.testing.assert_array_equal(
        shown(ours.support, selected=in_masked), aligned(wanted.support)
    )
    heads = svm.head_svm(MASKED, in_masked), svm.head_svm(DENSE, selected)
    np.testing.assert_allclose(heads[0].W, heads[1].W, atol=1e-9)


def test_a_certificate_of_infeasibility_is_zero_on_masked_tokens():
    X = np.array([[np.eye(2)[0], np.eye(2)[1], [5.0, 5.0]]] * 2)
    mask = np.array([[True, True, False]] * 2)
    data = token_set(X, [1, 1], z=np.ones((2, 1)), opt=[0, 1], mask=mask)
    with pytest.raises(svm.Infeasible) as refused:
        svm.token_svm(data)
    np.testing.assert_allclose(refused.value.certificate, [[0.5, 0.0], [0.5, 0.0]])
    assert svm.feasible(data) is None
    both = svm.feasible(MASKED)
    np.testing.assert_array_equal(both.mask, MASKED.mask)


def test_a_solution_without_the_mask_is_no_target_of_a_set_with_one():
    plain_set = replace(MASKED, mask=None)
    solution = replace(svm.token_svm(MASKED), tokens=plain_set)
    with pytest.raises(ValueError, match="solves other tokens"):
        dynamics.train(MASKED, dynamics.GD(0.1), 1, targets={"W_mm": solution})
    dynamics.train(MASKED, dynamics.GD(0.1), 1, targets={"W_mm": svm.token_svm(MASKED)})


FEW = [np.ones((3, 2)), np.ones((1, 2))]
MASK = np.ones((N, T), bool)
NOT_OPT = MASK.copy()
NOT_OPT[1, 2] = False
NONE_LEFT = MASK.copy()
NONE_LEFT[2] = False
ALONE = np.arange(T) < np.ones((N, 1))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(mask=NONE_LEFT), "mask hides every token of sample 2 of run 0"),
        (
            dict(mask=NOT_OPT, opt=[0, 2, 0]),
            "mask hides token 2 of sample 1 of run 0, its opt token",
        ),
        (dict(mask=ALONE), "mask leaves one token in every sample of run 0"),
        (dict(mask=MASK.astype(int)), "mask holds int64 values; it needs booleans"),
        (dict(mask=MASK[:2]), r"mask has shape \(1, 2, 4\); it needs \(1, 3, 4\)"),
        (dict(mask=[[True], [True, False]]), "mask holds sequences of different"),
        (dict(X=RAGGED, mask=MASK), "mask comes with samples of different lengths"),
        (
            dict(X=[np.ones((3, 2)), np.ones((2, 3)), np.ones((2, 2))]),
            "sample 1 of run 0 has tokens of dimension 3; it needs 2",
        ),
        (
            dict(X=[np.ones((3, 2)), np.ones(2), np.ones((2, 2))]),
            r"X: sample 1 of run 0 has shape \(2,\); it needs \(T_i, d\)",
        ),
        (
            dict(X=[np.ones((3, 2)), np.ones((0, 2)), np.ones((2, 2))]),
            r"X: sample 1 of run 0 has shape \(0, 2\)",
        ),
        (dict(X=[FEW, FEW[:1]]), "X has 1 samples in run 1 and 2 in run 0"),
        (dict(X=np.array(RAGGED, dtype=object)), "X is an array of objects"),
        (dict(X=[1, [2, 3]]), "X holds sequences of different lengths"),
    ],
)
def test_bad_input_is_named(change, message):
    plain_input = {"X": DENSE.X[0], "y": DENSE.y[0], "u": DENSE.u[0]}
    with pytest.raises(ValueError, match=message):
        token_set(**{**plain_input, **change})


def test_a_masked_selection_is_named():
    with pytest.raises(ValueError, match="of sample 0 of run 0, which is masked"):
        svm.token_svm(MASKED, HIDDEN)
