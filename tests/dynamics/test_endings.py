"""A run that is not finite is never "completed"; records are in order, whatever their type."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics, mirror
from lib.ambient import factored, optimisers, training
from lib.attention import tokens

DATA = tokens.unit_tokens([0, 1], n=3, T=4, d=6)
ENGINES = {
    "dynamics": lambda data, **more: dynamics.train(data, dynamics.ngd(0.1), 250, **more),
    "ambient": lambda data, **more: training.train(data, optimisers.adam(0.1), 250, **more),
    "mirror": lambda data, **more: mirror.train(data, mirror.MirrorRule(3), 250, **more),
}


@pytest.fixture(autouse=True)
def no_raw_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_start_whose_square_overflows_is_refused(engine):
    with pytest.raises(ValueError, match="square"):
        engine(DATA, start=np.full((2, 6, 6), 1e155))


def test_a_start_in_minimal_coordinates_too():
    problem = attention.minimal(DATA)
    huge = replace(dynamics.zero_start(problem), outside=np.full(2, 1e155))
    with pytest.raises(ValueError, match="square"):
        dynamics.train(problem, dynamics.ngd(0.1), 1, start=huge)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int16])
def test_records_of_any_whole_type(engine, kind):
    at = [0, 10, 250 if kind is not np.int16 else 200]
    found, plain = (engine(DATA, record=record) for record in (np.array(at, kind), at))
    assert found.iterations.tolist() == at
    assert (found.status == "completed").all() and np.isfinite(found.log_gap).all()
    np.testing.assert_array_equal(found.log_gap, plain.log_gap)
    with pytest.raises(ValueError, match="ascend"):
        engine(DATA, record=np.array(at[::-1], kind))


def test_factors_take_records_in_order_only():
    K, Q = factored.small_start(DATA, [0, 1], 2)
    with pytest.raises(ValueError, match="ascend"):
        factored.train(DATA, {"": optimisers.adam(0.1)}, K, Q, np.array([9, 3], np.uint8))


@pytest.mark.parametrize("head", ["fixed", "joint"])
def test_a_norm_that_overflows_ends_the_run(head):
    """Steps of 1e200 are floats, their squares are not."""
    history = dynamics.train(
        DATA, dynamics.gd(1e200), 3, range(4), head=head, targets={"V": np.ones((2, 6, 6))}
    )
    assert (history.status == "diverged").all() and (history.ended == 1).all()
    for name in ("norm", "log_gap", "log_miss", "log_step"):
        assert np.isfinite(getattr(history, name)[:, 0]).all()
        assert np.isnan(getattr(history, name)[:, 1:]).all()
    assert np.isnan(history.direction_error["V"][:, 1:]).all()
    assert np.isnan(history.weights(1)).all()


def test_polyak_without_a_way_to_its_goal_ends_as_diverged():
    """Two samples whose opt tokens cannot both win from zero: L - L* stays, the steps grow."""
    q, d_1, d_2 = np.array([[0, 0, 0, 1], [3, 0, 0.001, 0], [-1, 0.5, 0.1, 0]])
    data = attention.token_set([[q, q + d_1], [q, q + d_2]], [1.0, 1.0], u=10 * np.eye(4)[2])
    histories = dynamics.train(
        data,
        {"Polyak": dynamics.polyak(), "NGD": dynamics.ngd(0.02)},
        100_000,
        targets={"V": np.ones((1, 4, 4)) @ np.diag([0.0, 0, 0, 1])},
    )
    assert histories["NGD"].status.tolist() == ["completed"]
    polyak = histories["Polyak"]
    assert polyak.status.tolist() == ["diverged"] and polyak.ended[0] < 100_000
    written = polyak.iterations <= polyak.ended[0]
    assert np.isfinite(polyak.norm[0, written]).all() and np.isnan(polyak.norm[0, ~written]).all()
    assert polyak.log_gap[0, written].min() > -30


RULES = {
    "Adam": optimisers.adam(0.1),
    "sign": optimisers.steepest(np.inf, 0.1),
    "polar": optimisers.steepest("spectral", 0.1),
    "GD": optimisers.steepest(2, 0.1, normalised=False),
    "SOAP": optimisers.soap(0.1),
    "Shampoo": optimisers.shampoo(0.1),
    "natural": optimisers.natural(0.1, 0.1),
}


def test_optimisers_on_tokens_of_unequal_scale_complete_finite_or_not_at_all():
    ended = []
    for seed in range(12):
        draw, wide = np.random.default_rng(seed), 8.0 * seed  # decades to either side
        sizes = 10.0 ** draw.uniform(-wide, wide, (1, 3, 1, 1))
        data = tokens.unit_tokens([seed], n=3, T=3, d=4)
        data = replace(
            data, X=data.X * sizes, z=data.z * 10.0 ** draw.uniform(-wide, wide, (1, 3, 1))
        )
        for path in training.train(data, RULES, 20, record=range(21)).values():
            finite = np.isfinite(path.W).all((2, 3)) & (path.log_gap < np.inf)
            assert (finite | (path.iterations >= path.ended)).all()
            assert path.status[0] != "completed" or finite.all()
            ended.append(path.status[0])
    assert {"completed", "diverged"} <= set(ended)
