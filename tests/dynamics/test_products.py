"""Tests of the two forms of a product with a Gram matrix.

A failure means that results depend on which form the size of the data selects.
"""

import numpy as np
import pytest

from lib import attention, dynamics, memory, svm
from lib.attention import coordinates
from lib.dynamics import reduced

RULES = {
    "GD": dynamics.GD(0.5),
    "NGD": dynamics.NGD(0.3, momentum=0.5),
    "own": dynamics.Custom(lambda t, gap, norm: 0.2 / norm),  # runs in plain numpy
}
MEASURED = ("norm", "head_norm", "log_gap", "log_gradient", "log_gradient_head")


def with_equal_tokens():
    """Return two runs in whose samples two tokens other than opt are equal."""
    data = attention.unit_tokens([0, 1], n=7, T=5, d=6)
    X = data.X.copy()
    for r, i in np.ndindex(data.y.shape):
        first, second, *_ = np.delete(np.arange(5), data.opt[r, i])
        X[r, i, second] = X[r, i, first]
    return attention.token_set(X, data.y, data.z, data.u, data.opt)


@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("name", RULES)
def test_both_forms_take_the_same_steps(name, loss, head):
    data = with_equal_tokens()
    targets = {"V": np.ones((2, 6, 6))}

    def run(product):
        start = np.random.default_rng(0).standard_normal((2, 6, 6))
        more = dict(targets=targets, head=head, loss=loss, product=product)
        return dynamics.train(data, RULES[name], 60, [1, 7, 60], start, **more)

    formed, factored = run("gram"), run("factored")
    for field in MEASURED:
        np.testing.assert_allclose(
            getattr(factored, field), getattr(formed, field), rtol=1e-11, err_msg=field
        )
    for field in ("direction_error", "descent"):
        pair = (getattr(run, field)["V"] for run in (factored, formed))
        np.testing.assert_allclose(*pair, rtol=1e-9, err_msg=field)
    np.testing.assert_allclose(factored.margins, formed.margins, atol=1e-11)
    np.testing.assert_allclose(factored.weights(-1), formed.weights(-1), atol=1e-11)
    # Equal tokens keep equal margins and scores, to the bit.
    same = coordinates.first_equal(coordinates.differences(data, data.opt))[:, None]
    for values in (factored.margins, factored.score_gaps):
        assert np.array_equal(values, np.take_along_axis(values, same, 3))


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((61, 30, 24), id="a block of 40 samples, and one of 21"),
        pytest.param((270, 3, 130), id="too many entries to multiply by blocks"),
    ],
)
def test_one_pass_over_many_tokens_takes_the_steps_of_the_matrix(sizes, loss):
    n, T, d = sizes
    data = attention.unit_tokens([0, 1], n=n, T=T, d=d)
    rules = {"GD": dynamics.GD(0.5), "NGD": dynamics.NGD(0.3, momentum=0.5)}

    def run(product):
        return dynamics.train(data, rules, 40, [1, 2, 40], loss=loss, product=product)

    formed, factored = run("gram"), run("factored")
    for name in rules:
        for field in ("norm", "log_gap", "log_gradient"):
            ours, expected = (getattr(end[name], field) for end in (factored, formed))
            np.testing.assert_allclose(ours, expected, rtol=1e-11, err_msg=field)
        margins = (end[name].margins for end in (factored, formed))
        np.testing.assert_allclose(*margins, atol=1e-11)
        weights = (end[name].weights(-1) for end in (factored, formed))
        np.testing.assert_allclose(*weights, atol=1e-11)


def test_both_forms_agree_if_one_step_changes_the_gradient_by_many_digits():
    data = attention.class_mean_tokens([0], n=6, T=4, d=40)
    formed, factored = (
        dynamics.train(data, dynamics.NGD(500.0), 3, product=form)
        for form in reduced.FORMS
    )
    assert formed.log_gradient[0, 1] < formed.log_gradient[0, 0] - 100
    for field in ("norm", "log_gap", "log_gradient"):
        ours, expected = (getattr(end, field) for end in (factored, formed))
        np.testing.assert_allclose(ours, expected, rtol=1e-11, err_msg=field)


def test_both_forms_agree_where_no_float_reaches():
    problem = attention.minimal(attention.class_mean_tokens([0], n=6, T=4, d=40))
    targets = {"W_mm": svm.token_svm(problem)}
    ends = [
        dynamics.train(
            problem,
            dynamics.NGD(0.5),
            450_000,
            [450_000],
            targets=targets,
            product=form,
        )
        for form in reduced.FORMS
    ]
    assert ends[0].log_gap.max() < -100_000
    for field in ("norm", "log_gap", "log_gradient"):
        np.testing.assert_allclose(*(getattr(end, field) for end in ends), rtol=1e-10)
    errors = [end.direction_error["W_mm"] for end in ends]
    np.testing.assert_allclose(*errors, rtol=1e-6)


def test_many_tokens_are_trained_without_a_matrix_of_their_pairs():
    data = attention.unit_tokens([0], n=300, T=20, d=8)
    start = np.zeros((1, 8, 8))
    problem = reduced.reduce(attention.minimal(data).tokens, start, "joint", "logistic")
    assert not problem.K.formed and not problem.G.formed
    assert problem.K.matrix.size == problem.G.matrix.size == 0
    small = attention.minimal(attention.class_mean_tokens([0])).tokens
    start = np.zeros((1, small.shape[3], small.z.shape[2]))
    assert reduced.reduce(small, start, "joint", "logistic").K.formed


def test_an_unknown_form_is_named():
    data = attention.two_examples()
    with pytest.raises(ValueError, match="product = 'dense'; it must be gram or"):
        dynamics.train(data, dynamics.GD(1.0), 1, product="dense")


def test_what_would_not_fit_is_refused_with_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e5)
    data = attention.unit_tokens([0], n=20, T=10, d=8)
    with pytest.raises(MemoryError, match="Gram matrix of 180 pairs .* 0.0 GB"):
        dynamics.train(data, dynamics.NGD(0.1), 5, product="gram")
    with pytest.raises(MemoryError, match="recording 51 iterations .* give record="):
        dynamics.train(data, dynamics.NGD(0.1), 50, range(51), product="factored")
    run = dynamics.train(data, dynamics.NGD(0.1), 50, [50], product="factored")
    assert run.status[0] == "completed"


OWN_LAWS = {  # a rule of the compiled loop, and its law in plain numpy
    "GD": (dynamics.GD(0.5), lambda t, gap, norm: 0.5 + 0 * norm),
    "NGD, one norm": (dynamics.NGD(0.3, joint=True), lambda t, gap, norm: 0.3 / norm),
    "Polyak": (
        dynamics.Polyak(max_step=2.0),
        lambda t, gap, norm: np.minimum(gap / (2 * norm**2), 2),
    ),
}


@pytest.mark.parametrize("product", reduced.FORMS)
@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("name", OWN_LAWS)
def test_a_law_in_numpy_takes_the_steps_of_the_compiled_rule(name, head, product):
    data = with_equal_tokens()
    compiled, law = OWN_LAWS[name]
    runs = [
        dynamics.train(data, rule, 40, [0, 1, 40], head=head, product=product)
        for rule in (compiled, dynamics.Custom(law))
    ]
    for field in (*MEASURED, "log_step", "log_step_head"):
        pair = (getattr(run, field) for run in runs)
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-12, err_msg=field)
    assert (runs[0].head_norm[:, -1] > runs[0].head_norm[:, 0]).all() == (
        head == "joint"
    )
