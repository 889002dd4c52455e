"""Tests of l_p mirror descent against plain numpy.

A failure means another map or another step, which would be another algorithm.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import attention, dynamics, mirror, svm
from lib.attention import token_sets, tokens
from lib.compiled import exponentials
from lib.dynamics import MirrorDescent, mirror_descent
from lib.mirror import geometry
from lib.mirror.kernel import NEGLIGIBLE_RISE

SEEDS = range(3)
DATA = tokens.unit_tokens(SEEDS, n=3, T=4, d=4)
START = mirror.gaussian_start(DATA, SEEDS)
EXPONENTS = [1.05, 1.3, 1.5, 1.75, 2, 3, 5, 10]
entries = st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-6)
few = st.floats(-4, 4).filter(lambda x: x == 0 or abs(x) > 1e-4)
exponents = st.floats(1.05, 10)
any_time = settings(deadline=None, max_examples=60)  # the first call compiles


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("normalised", [True, False])
def test_kernel_equals_its_twin(p, head, normalised):
    loss = "logistic" if normalised else "exponential"
    rule = MirrorDescent(p, 0.05, normalised=normalised)
    start = START.copy()
    if p < 2:  # where entries of zero are trained
        start[2] = 0
    run = dynamics.train(DATA, rule, 40, np.arange(41), start, head=head, loss=loss)
    raw = twin(DATA, rule, 40, start, head, loss)
    found = run.W.reshape(raw.path.shape)
    np.testing.assert_allclose(found, raw.path, rtol=1e-9, atol=1e-12)
    if p < 2:  # for p near 1 the moves from zero are far below any absolute tolerance
        np.testing.assert_allclose(found[2], raw.path[2], rtol=1e-8)
        assert found[2, -1].all()
    np.testing.assert_allclose(run.u, raw.head, rtol=1e-9, atol=1e-12)
    logs = np.stack([run.log_gap, run.log_own_gradient, run.log_own_gradient_head], -1)
    np.testing.assert_allclose(logs, raw.logs, rtol=1e-9, atol=1e-9)
    before = raw.losses[:, :-1]
    after = raw.losses[:, 1:]
    rises = after > before + NEGLIGIBLE_RISE * np.maximum(1.0, before)
    first = np.where(rises.any(1), rises.argmax(1) + 1, -1)
    np.testing.assert_array_equal(run.loss_rise, first)
    assert (run.status == "completed").all() and (run.ended == 40).all()
    zero = ~start.any((1, 2))  # has no direction
    assert (np.isnan(run.divergence(0 * start + 1, p)[:, 0]) == zero).all()


@pytest.mark.parametrize("p", [1.05, 10])
def test_extreme_exponents_at_a_long_horizon(p):
    found = dynamics.train(DATA, MirrorDescent(p), 3000, start=START, loss="logistic")
    assert (found.status == "completed").all() and np.isfinite(found.W).all()
    grown = found.own_norm ** (p - 1) / (
        found.own_norm[:, :1] ** (p - 1) + 0.1 * found.iterations
    )
    assert grown.max() <= 1 + 1e-12  # Lemma 4
    assert (found.own_norm[:, -1] > found.own_norm[:, 0]).all()
    assert (found.own_norm[:, -1].max() > 1e30) == (p < 2)


@any_time
@given(st.lists(entries, min_size=1, max_size=30), st.floats(1 / 9, 21))
def test_power_is_accurate(x, exponent):
    x = np.array(x)
    out = np.empty_like(x)
    work = np.empty_like(x)
    top = exponentials.power(x, exponent, work, out)
    expected = np.abs(x) ** exponent
    scale = 1 + exponent * np.abs(np.log(np.where(x == 0, 1, np.abs(x))))
    assert (np.abs(out - expected) <= 8e-16 * scale * expected).all()
    assert (
        top == -np.inf
        if not x.any()
        else np.isclose(np.exp(top), expected.max(), rtol=1e-12)
    )


@any_time
@given(st.lists(st.tuples(entries, entries), min_size=1, max_size=12), exponents)
def test_divergence_of_directions_and_the_map_back(pairs, p):
    W, V = np.array(pairs).T
    back = from_mirror(geometry.to_mirror(W, p), p)
    np.testing.assert_allclose(back, W, rtol=1e-12)
    if W.any() and V.any():
        expected = geometry.bregman(V / geometry.norm(V, p), W / geometry.norm(W, p), p)
        np.testing.assert_allclose(
            geometry.directional_bregman(W, V, p), expected, atol=1e-13
        )


@any_time
@given(st.lists(st.tuples(few, few, few), min_size=1, max_size=9), exponents)
def test_law_of_cosines(abc, p):
    """Tests paper C, Lemma 26, and Lemma 23, in which c is one step from b: ∇ψ(b) -
    ∇ψ(c) = η ∇L(b).
    """
    a, b, c = np.array(abc).T

    def D(first, second):
        return geometry.bregman(first, second, p)

    turned = (geometry.to_mirror(b, p) - geometry.to_mirror(c, p)) @ (a - c)
    scale = (1 + np.abs([a, b, c]).max() ** p) * len(a) * p
    assert abs(D(a, c) + D(c, b) - turned - D(a, b)) <= 1e-12 * scale


def test_step_size_too_large_is_reported_with_its_iteration():
    rules = dict(
        mild=MirrorDescent(3, 3000.0, normalised=False),
        wild=MirrorDescent(1.05, 1e20, normalised=False),
    )
    found = dynamics.train(DATA, rules, 100, np.arange(101), START, loss="logistic")
    assert (found["wild"].status == "diverged").all() and (
        found["wild"].ended <= 5
    ).all()
    risen = found["mild"]
    assert (risen.status == "completed").all() and (risen.loss_rise > 0).any()
    for run, at in enumerate(risen.loss_rise):
        steps = np.diff(risen.log_gap[run])
        assert at == -1 or (steps[at - 1] > 0 and (steps[: at - 1] <= 1e-9).all())
    # (runs, 11)
    finite = np.isfinite(twin(DATA, rules["wild"], 10, START).path).all(-1)
    np.testing.assert_array_equal(finite.sum(1), found["wild"].ended)


def test_a_run_without_gradient_stalls():
    # W has no effect
    still = token_sets.TokenSet(DATA.X, DATA.y, DATA.z, 0 * DATA.u, DATA.opt)
    found = dynamics.train(still, MirrorDescent(3), 10, start=START)
    assert (found.status == "stalled").all() and (found.ended == 0).all()


# The middle of three points
LINE = token_sets.token_set([[[-1.0], [0.0], [1.0]]], [1], opt=[1])
REFUSED = [
    ("step_size = 0", lambda: MirrorDescent(2, 0)),
    (
        "start has shape",
        lambda: dynamics.train(DATA, MirrorDescent(2), 5, None, START[:, :2]),
    ),
    ("head must be", lambda: dynamics.train(DATA, MirrorDescent(2), 5, head="free")),
    ("loss must be", lambda: dynamics.train(DATA, MirrorDescent(2), 5, loss="sigmoid")),
    ("ascend", lambda: dynamics.train(DATA, MirrorDescent(2), 5, record=[3, 1])),
    (
        "finite and not zero",
        lambda: geometry.directional_bregman(START[0], 0 * START[0], 2),
    ),
    (
        "sample 0 of run 0 has two equal",
        lambda: mirror.selected_tokens(DATA, 0 * START),
    ),
    ("Select another token", lambda: svm.token_svm(LINE, norm=3)),
    *(
        ("must be above 1 and finite", lambda use=use, p=p: use(p))
        for p in (1, 0.5, 0, np.inf, np.nan, -2)
        for use in (
            MirrorDescent,
            geometry.dual_exponent,
            lambda p: geometry.to_mirror(START, p),
            lambda p: geometry.bregman(START, START, p),
        )
    ),
]


@pytest.mark.parametrize("message, make", REFUSED)
def test_bad_input_is_refused(message, make):
    with pytest.raises(ValueError, match=message):
        make()


def test_selected_tokens_have_the_largest_softmax_weight():
    weights = attention.weights(DATA, START)
    chosen = mirror.selected_tokens(DATA, START)
    at = np.take_along_axis(weights, chosen[..., None], -1)[..., 0]
    np.testing.assert_array_equal(at, weights.max(-1))


@pytest.mark.parametrize("q", [1.5, 2.0, 3.0])
def test_a_history_measures_divergence_with_any_exponent(q):
    history = dynamics.train(
        DATA, MirrorDescent(2.0), 20, [0, 20], START, loss="logistic"
    )
    target = svm.token_svm(DATA, norm=2.0).W
    found = history.divergence(target, q)
    for run in range(len(START)):
        w = history.W[run, -1].ravel()
        v = target[run].ravel()
        w = w / (np.abs(w) ** q).sum() ** (1 / q)
        v = v / (np.abs(v) ** q).sum() ** (1 / q)
        slope = np.sign(w) * np.abs(w) ** (q - 1)  # slope of psi = sum |w|^q / q
        bregman = ((np.abs(v) ** q - np.abs(w) ** q) / q - slope * (v - w)).sum()
        np.testing.assert_allclose(found[run, -1], bregman, rtol=1e-9)


def from_mirror(U, p):
    """Invert the mirror map: W = |U|^{1/(p-1)} sgn(U), infinite beyond float64."""
    return np.sign(U) * np.abs(U) ** (1 / (p - 1))


def twin(data, rule, steps, start, head="fixed", loss="logistic"):
    """Return path, head, logs (runs, steps + 1, ...) and losses (runs, steps + 1) of a
    rule.
    """
    joint = head == "joint"
    runs = len(start)
    p = rule.p
    records = []
    problem = mirror_descent.rows(data, loss, joint)
    q = geometry.dual_exponent(p)
    W = start.reshape(runs, -1)
    v = data.u
    U = geometry.to_mirror(W, p)
    V = geometry.to_mirror(v, p)
    with np.errstate(all="ignore"):
        for _ in range(steps + 1):
            margins = np.einsum("rmj,rj->rm", problem.A, W).reshape(runs, problem.n, -1)
            scores = np.einsum("rmj,rj->rm", problem.signed, v).reshape(
                runs, problem.n, -1
            )
            at = attention.slopes(
                np.concatenate([0 * margins[..., :1], -margins], -1), scores, loss
            )
            down = np.einsum(
                "rm,rmj->rj", -at.pull[..., 1:].reshape(runs, -1), problem.A
            )
            down_v = (
                np.einsum("rm,rmj->rj", at.push.reshape(runs, -1), problem.signed)
                * joint
            )
            size = geometry.norm(down, q)
            size_v = geometry.norm(down_v, q)
            gap = at.log_loss if joint else at.log_gap
            logs = gap, at.log_scale + np.log(size), at.log_push_scale + np.log(size_v)
            records.append((W, v, np.stack(logs, -1), np.exp(at.log_loss)))
            step = rule.step_size * (
                1 / size if rule.normalised else np.exp(at.log_scale)
            )
            step_v = rule.step_size * (
                1 / size_v if rule.normalised else np.exp(at.log_push_scale)
            )
            U = U + step[:, None] * down
            V = V + step_v[:, None] * down_v if joint else V
            W = from_mirror(U, p)
            v = from_mirror(V, p)
    path, heads, logs, losses = (
        np.stack(part, 1) for part in zip(*records, strict=True)
    )
    return SimpleNamespace(path=path, head=heads, logs=logs, losses=losses)
