"""Tests of the exact engine against plain d x d training.

A failure means another path, or another number in a history.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics, mirror, svm
from lib.attention import coordinates, losses, tokens
from lib.dynamics import rules
from lib.dynamics.in_coordinates import factored
from tests.attention.test_attention import DEGENERATE

FIXED = {
    "gd": rules.GD(0.8),
    "gd, decay": rules.GD(0.8, decay=0.5),
    "ngd": rules.NGD(0.1),
    "ngd, capped": rules.NGD(0.1, max_step=5.0),
    "momentum": rules.NGD(0.05, momentum=0.9),
    "polyak": rules.Polyak(),
    "polyak, capped": rules.Polyak(20.0),
}
JOINT = {
    "gd": rules.GD(0.3),
    "ngd separate": rules.NGD(0.1),
    "ngd separate, decay": rules.NGD(0.1, decay=2 / 3),
    "ngd joint": rules.NGD(0.1, joint=True),
    "momentum": rules.NGD(0.05, momentum=0.9),
    "polyak": rules.Polyak(),
}
CASES = [("fixed", name) for name in FIXED] + [("joint", name) for name in JOINT]
DATA = tokens.unit_tokens(0)


def problem(head):
    if head == "fixed":
        make = tokens.gaussian_tokens
    else:
        make = tokens.two_token_gaussian
    data = make([0, 1, 2], n=4, T=3, d=20)
    start = 0.1 * np.random.default_rng(5).standard_normal((3, 20, 20))
    return data, start, (FIXED if head == "fixed" else JOINT)


def compared(W, target):
    """Return direction error and alignment of matrices (runs, d, d)."""
    W, target = (M / np.linalg.norm(M, axis=(1, 2), keepdims=True) for M in (W, target))
    return np.linalg.norm(W - target, axis=(1, 2)), (W * target).sum((1, 2))


def step(rule, W, gradient, loss_gap, t, buffer=0.0):
    """Take one step of `rule` in plain arithmetic; return W_{t+1} and the momentum
    buffer m_t.
    """
    norm = np.linalg.norm(gradient.reshape(len(gradient), -1), axis=1)  # (runs,)
    moving = norm > 0
    log_norm, log_gap = (
        np.log(np.where(moving, value, 1.0)) for value in (norm, loss_gap)
    )
    # 0/0 = 0: no gradient, no step
    eta = np.where(moving, np.exp(rule.log_step(t, log_gap, log_norm)), 0.0)
    buffer = (
        rule.momentum * buffer + eta.reshape(-1, *[1] * (gradient.ndim - 1)) * gradient
    )
    return W - buffer, buffer


def ambient(data, rule, start, head="fixed", loss="exponential", steps=30):
    """Train in plain d x d arithmetic through `attention.gradients` and plain steps."""
    W = start
    u = data.u
    buffer = 0.0
    buffer_u = 0.0
    path = []
    for t in range(steps):
        path.append((W, u))
        value, grad_W, grad_u = attention.gradients(data, W, u, loss)
        if head == "fixed":
            logits = attention.logits(data, W)
            scores = attention.scores(data, u)
            gap = np.exp(attention.slopes(logits, scores, loss).log_gap)
            W, buffer = step(rule, W, grad_W, gap, t, buffer)
        elif isinstance(rule, rules.NGD) and not rule.joint:
            W, buffer = step(rule, W, grad_W, value, t, buffer)
            u, buffer_u = step(rule, u, grad_u, value, t, buffer_u)
        else:
            both = np.concatenate([W.reshape(len(W), -1), u], 1)
            gradient = np.concatenate([grad_W.reshape(len(W), -1), grad_u], 1)
            both, buffer = step(rule, both, gradient, value, t, buffer)
            W, u = both[:, : W[0].size].reshape(W.shape), both[:, W[0].size :]
    return [*path, (W, u)]


@pytest.mark.parametrize("loss", attention.LOSSES)
@pytest.mark.parametrize("head, name", CASES)
def test_every_number_of_a_history_equals_plain_ambient_training(head, name, loss):
    data, start, known = problem(head)
    space = coordinates.minimal(data)
    target = svm.token_svm(data).W
    rule = known[name]
    more = dict(head=head, loss=loss, targets={"mm": space.reduce(target)[0]})
    history = dynamics.train(space, rule, 40, range(41), start, **more)
    inside, _ = space.reduce(start)
    places = data.opt[..., None], coordinates.others(data.opt, 3)
    path = ambient(data, rule, start, head, loss, 40)
    for t, (W, u) in enumerate(path):
        ours = start - space.expand(inside) + space.expand(history.weights(t))
        np.testing.assert_allclose(ours, W, atol=1e-12 * np.abs(W).max())
        np.testing.assert_allclose(
            history.norm[:, t], np.linalg.norm(W, axis=(1, 2)), rtol=1e-12
        )
        opt, others = (
            np.take_along_axis(attention.scores(data, u), k, 2) for k in places
        )
        np.testing.assert_allclose(history.score_gaps[:, t], opt - others, atol=1e-12)
        missing = np.take_along_axis(attention.weights(data, W), places[1], 2).sum(-1)
        np.testing.assert_allclose(np.exp(history.log_miss[:, t]), missing, rtol=1e-10)
        np.testing.assert_allclose(
            history.opt_score[:, t], 1 - missing.mean(-1), rtol=1e-12
        )
        error, cosine = compared(W, target)
        np.testing.assert_allclose(
            history.direction_error["mm"][:, t], error, rtol=1e-11
        )
        np.testing.assert_allclose(history.alignment["mm"][:, t], cosine, rtol=1e-11)
        value, gradient, _ = attention.gradients(data, W, u, loss)
        if (norm := np.linalg.norm(gradient, axis=(1, 2))).all():  # not at u = 0
            np.testing.assert_allclose(
                np.exp(history.log_gradient[:, t]), norm, rtol=1e-10
            )
            downhill = compared(-gradient, target)[1]
            np.testing.assert_allclose(
                history.descent["mm"][:, t], downhill, rtol=1e-11
            )
            if t < 40 and rule.momentum == 0:
                moved = np.linalg.norm(path[t + 1][0] - W, axis=(1, 2))
                eta = np.exp(history.log_step[:, t])
                np.testing.assert_allclose(eta * norm, moved, rtol=1e-9, atol=1e-14)
        # opt tokens score 1
        if head == "fixed":
            best = np.exp(losses.log_loss(1.0, loss))
        else:
            best = 0.0
        gap = np.exp(history.log_gap[:, t])
        np.testing.assert_allclose(gap, value - best, rtol=1e-9, atol=1e-15)
        if head == "joint":
            ours = np.einsum("rdk,rk->rd", space.token_basis, history.head(t))
            np.testing.assert_allclose(
                ours, u, atol=1e-12 * max(np.abs(u).max(), 1e-12)
            )
            size = np.linalg.norm(u, axis=1)
            np.testing.assert_allclose(history.head_norm[:, t], size, rtol=1e-12)


def flipped():
    """Return a sample whose minimal coordinates have the shape of its own, with other
    signs.
    """
    X = [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]]
    return attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.5])


@pytest.mark.parametrize(
    "data",
    [
        flipped(),
        tokens.unit_tokens([0, 1], n=12, T=8, d=10),
        tokens.unit_tokens(0, n=3, T=3, d=20),
    ],
)
def test_targets_are_in_the_coordinates_of_what_is_trained(data):
    """In the first two data sets the shapes coincide; in the first the basis is -1
    times the identity.
    """
    inner = attention.minimal(data)
    solution = svm.token_svm(data)
    small = svm.token_svm(inner.tokens)
    inside = svm.token_svm(inner), small, small.W, inner.reduce(solution.W)[0]
    given = [(data, solution.W), (data, solution), (inner.tokens, small.W)]
    given += [(inner, target) for target in inside]
    errors = []
    descents = []
    for trained, target in given:
        history = dynamics.train(
            trained, rules.NGD(0.1), 300, [1, 30, 300], targets={"mm": target}
        )
        errors.append(history.direction_error["mm"])
        descents.append(history.descent["mm"])
    np.testing.assert_allclose(errors, errors[:1] * len(errors), rtol=1e-9)
    np.testing.assert_allclose(descents, descents[:1] * len(descents), rtol=1e-9)
    W = ambient(data, rules.NGD(0.1), 0 * solution.W)[-1][0]
    np.testing.assert_allclose(errors[0][:, 1], compared(W, solution.W)[0], rtol=1e-9)


def test_targets_outside_the_span_and_of_the_head():
    data = tokens.two_token_gaussian([0, 1], n=3, d=12)
    V = np.random.default_rng(0).standard_normal((2, 12, 12))
    v = np.ones((2, 12))
    ngd = rules.NGD(0.1, decay=2 / 3)
    of_head = {"v": v, "mm": svm.head_svm(data)}
    history = dynamics.train(
        data, ngd, 30, [1, 30], targets={"V": V}, head="joint", head_targets=of_head
    )
    inner = attention.minimal(data)
    of_head = {"mm": svm.head_svm(inner)}
    again = dynamics.train(inner, ngd, 30, [1, 30], head="joint", head_targets=of_head)
    W = inner.expand(history.weights(1))
    u = history.head(1)
    u = np.einsum("rk,rdk->rd", u, inner.token_basis)

    def cosine(a, b):
        return (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)

    for run in range(2):
        of_W = cosine(W[run], V[run])
        of_u = cosine(u[run], v[run])
        assert history.alignment["V"][run, 1] == pytest.approx(of_W, rel=1e-10)
        assert history.direction_error["V"][run, 1] ** 2 == pytest.approx(
            2 - 2 * of_W, rel=1e-10
        )
        assert history.head_alignment["v"][run, 1] == pytest.approx(of_u, rel=1e-10)
    for name in ("head_alignment", "head_direction_error"):
        first, second = (getattr(result, name)["mm"] for result in (history, again))
        np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.mark.parametrize(
    "log_length, status", [(599.0, "completed"), (601.0, "diverged")]
)
def test_the_longest_step_is_that_of_the_documentation(log_length, status):
    data = tokens.unit_tokens(0, n=3, T=3, d=5)
    own = rules.Custom(
        lambda t, log_gap, log_norm: log_length - log_norm, logarithmic=True
    )
    both = dynamics.train(
        data, {"own": own, "ngd": rules.NGD(math.exp(log_length))}, 1, [0, 1]
    )
    for history in both.values():
        assert history.status.tolist() == [status]
        assert np.isfinite(history.norm[0, 1]) == (status == "completed")
        np.testing.assert_allclose(history.margins, both["ngd"].margins, rtol=1e-10)


def test_zero_gradient_is_reported_as_stalled():
    # the head is zero, so that W has no gradient
    data = tokens.two_token_gaussian(0, n=3, d=12)
    history = dynamics.train(data, rules.NGD(0.1), 10, range(11))
    assert history.status.tolist() == ["stalled"] and history.ended.tolist() == [0]
    assert np.isnan(history.norm[0, 1:]).all()


def test_gaussian_start_has_the_law_of_independent_entries():
    data = tokens.gaussian_tokens(range(200), n=3, T=2, d=12)
    space = coordinates.minimal(data)
    start = dynamics.gaussian_start(space, 0.5, range(200))
    squares = (start.inside**2).sum((1, 2)) + start.outside**2
    assert abs(squares.mean() / (0.25 * 144) - 1) < 0.03  # E ||W_0||^2 = std^2 d^2
    assert abs(start.inside.std() / 0.5 - 1) < 0.05


@pytest.mark.parametrize("std", [-0.1, np.nan, np.inf])
def test_a_gaussian_start_needs_a_standard_deviation(std):
    space = coordinates.minimal(tokens.unit_tokens(0))
    with pytest.raises(ValueError, match=f"std = {std}; it must be finite, zero or"):
        dynamics.gaussian_start(space, std, [0])


def test_starts_need_a_minimal():
    data = tokens.unit_tokens(0)
    for draw in (
        lambda: dynamics.zero_start(data),
        lambda: dynamics.gaussian_start(data, 0.1, [0]),
    ):
        with pytest.raises(TypeError, match="problem = TokenSet; it must be a Minimal"):
            draw()


SPACE = coordinates.minimal(DATA)
STARTS = {
    "dynamics": lambda seeds: dynamics.gaussian_start(SPACE, 0.1, seeds).inside,
    "mirror": lambda seeds: mirror.gaussian_start(DATA, seeds),
    "factors": lambda seeds: factored.small_start(DATA, seeds, 2)[0],
    "tokens": lambda seeds: tokens.unit_tokens(seeds).X,
}


@pytest.mark.parametrize("name", STARTS)
def test_a_single_seed_is_a_list_of_one_and_no_seed_is_named(name):
    np.testing.assert_array_equal(STARTS[name](7), STARTS[name]([7]))
    with pytest.raises(ValueError, match="seeds is empty"):
        STARTS[name]([])
    with pytest.raises(ValueError, match="seeds = {0: 1}; it must be a number or"):
        STARTS[name]({0: 1})


def test_a_start_with_a_negative_norm_is_refused():
    data = tokens.unit_tokens(0)
    start = dynamics.zero_start(coordinates.minimal(data))
    start = replace(start, outside=np.array([-3.0]))
    with pytest.raises(ValueError, match="outside = -3; a norm must be zero or above"):
        dynamics.train(data, dynamics.NGD(0.1), 5, start=start)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", DEGENERATE)
def test_gaussian_start_moves_with_the_tokens_not_with_rounding(kind, seed):
    data = DEGENERATE[kind](seed)

    def start_logits(given):  # the part of W_0 that training sees
        space = coordinates.minimal(given)
        W_0 = dynamics.gaussian_start(space, 1.0, [seed]).inside
        return attention.logits(space.tokens, W_0)

    nudge = np.random.default_rng(seed).uniform(-1e-15, 1e-15, (2, *data.X.shape))
    moved = replace(data, X=data.X * (1 + nudge[0]), z=data.z * (1 + nudge[1, :, :, 0]))
    expected = start_logits(data)
    np.testing.assert_allclose(
        start_logits(moved), expected, atol=1e-12 * np.abs(expected).max()
    )


def test_log_spaced_covers_start_and_end():
    times = dynamics.log_spaced(1000, 50)
    assert times[0] == 0 and times[1] == 1 and times[-1] == 1000
    assert (np.diff(times) > 0).all()
    assert dynamics.log_spaced(0).tolist() == [0]
    whole = dynamics.log_spaced(1e3, 50.0)
    assert whole.dtype == times.dtype and whole.tolist() == times.tolist()
    late = dynamics.log_spaced(10**6, 61)  # ten a decade
    np.testing.assert_allclose(late[-21:-11] * 10, late[-11:-1], rtol=1e-3)


@pytest.mark.parametrize(
    "steps, count, message",
    [(-5, 100, "steps = -5"), ("10", 100, "steps = '10'"), (10, 0, "count = 0")],
)
def test_log_spaced_names_what_is_no_whole_number(steps, count, message):
    with pytest.raises(ValueError, match=message):
        dynamics.log_spaced(steps, count)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(steps=-1), "steps = -1"),
        (dict(record=[3, 1]), "ascend"),
        (dict(record=[0, 11]), "0 ... 10"),
        (dict(record=[0.5]), "whole numbers"),
        (dict(head="free"), "head must be"),
        (dict(loss="hinge"), "loss must be"),
        (dict(start=np.zeros((1, 3, 3))), "start has shape"),
        (dict(start=np.full((1, 10, 10), np.nan)), "all finite"),
        (dict(targets={"V": np.zeros((1, 2, 2))}), "target 'V' has shape"),
        (
            dict(targets={"V": np.zeros((1, 10, 6))}),
            "target 'V' has shape",
        ),  # minimal coordinates
        (dict(targets={"V": np.zeros((1, 10, 10))}), "not zero"),
        (dict(targets={"V": svm.token_svm(tokens.unit_tokens(1))}), "other tokens"),
        (
            dict(targets={"V": svm.token_svm(attention.minimal(DATA))}),
            "other coordinates",
        ),
        (
            dict(start=np.eye(10)[None], targets={"V": np.ones((1, 10, 10))}),
            "both leave the span",
        ),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        dynamics.train(DATA, **{"rules": rules.NGD(0.1), "steps": 10, **options})


@pytest.mark.parametrize(
    "make, options",
    [
        *((rules.GD, dict(step_size=size)) for size in (0.0, -1.0, np.nan, np.inf)),
        *((rules.NGD, dict(step_size=0.1, max_step=cap)) for cap in (0.0, np.nan)),
        (rules.NGD, dict(step_size=0.1, momentum=1.0)),
        (rules.NGD, dict(step_size=0.1, decay=-0.5)),
        (rules.Polyak, dict(max_step=-1.0)),
    ],
)
def test_impossible_settings_are_refused_by_name(make, options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]} = .*must be"):
        make(**options)


def test_joint_training_counts_the_part_of_the_head_off_the_tokens_span():
    # Two tokens e_1, e_2 in three dimensions, and a head that leans mostly on e_3.
    X = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    start = np.array([1.0, 0.0, 10.0])
    tokens = attention.token_set(X, np.array([1.0]), u=start)
    target = np.array([[1.0, 0.0, 0.0]])
    steps = 5
    how = {"head": "joint", "head_targets": {"e_1": target}, "record": range(steps + 1)}
    run = dynamics.train(tokens, rules.GD(0.5), steps, **how)

    # The same in full coordinates, by the closed-form gradient.
    W = np.zeros((1, 3, 3))
    u = start[None]
    for t in range(steps + 1):
        norm = np.linalg.norm(u)
        unit = u[0] / norm
        assert run.head_norm[0, t] == pytest.approx(norm, rel=1e-12)
        error = np.linalg.norm(unit - target[0])
        assert run.head_direction_error["e_1"][0, t] == pytest.approx(error, rel=1e-9)
        assert run.head_alignment["e_1"][0, t] == pytest.approx(unit[0], rel=1e-9)
        _, grad_W, grad_u = attention.gradients(tokens, W, u)
        W = W - 0.5 * grad_W
        u = u - 0.5 * grad_u

    leaving = {"e_3": np.array([[0.0, 0.0, 1.0]])}
    with pytest.raises(
        ValueError, match="head target 'e_3' and u_0 both leave the span"
    ):
        dynamics.train(tokens, rules.GD(0.5), steps, head="joint", head_targets=leaving)
