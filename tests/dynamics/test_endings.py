"""Tests that a run with numbers that are not finite never counts as "completed".

Otherwise an overflow would be read as a finding.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics
from lib.attention import tokens
from lib.compiled.status import COMPLETED, DIVERGED
from lib.dynamics import recording
from lib.dynamics.in_coordinates import factored

DATA = tokens.unit_tokens([0, 1], n=3, T=4, d=6)
ENGINES = {
    "dynamics": lambda data, **more: dynamics.train(
        data, dynamics.NGD(0.1), 250, **more
    ),
    "ambient": lambda data, **more: dynamics.train(
        data, dynamics.Adam(0.1), 250, **more
    ),
    "mirror": lambda data, **more: dynamics.train(
        data, dynamics.MirrorDescent(3), 250, loss="logistic", **more
    ),
}


@pytest.fixture(autouse=True)
def no_raw_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def test_a_start_whose_square_overflows_is_refused():
    for engine in ENGINES.values():
        with pytest.raises(ValueError, match="fourth power"):
            engine(DATA, start=np.full((2, 6, 6), 1e155))
    problem = attention.minimal(DATA)
    huge = replace(dynamics.zero_start(problem), outside=np.full(2, 1e155))
    with pytest.raises(ValueError, match="fourth power"):
        dynamics.train(problem, dynamics.NGD(0.1), 1, start=huge)


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
    K, Q = factored.small_start(DATA, [0, 1], 2)
    with pytest.raises(ValueError, match="ascend"):
        factored.train(DATA, {"": dynamics.Adam(0.1)}, K, Q, np.array([9, 3], kind))


def test_a_norm_whose_square_overflows_is_still_known():
    """From zero the first step's direction does not depend on its length."""
    targets = {"V": np.ones((2, 6, 6))}
    start = np.zeros((2, 6, 6))
    both = dict(near=dynamics.GD(1.0), far=dynamics.GD(1e200))
    near, far = dynamics.train(
        DATA, both, 1, [0, 1], start=start, targets=targets
    ).values()
    assert (far.status == "completed").all()
    np.testing.assert_allclose(far.norm[:, 1], 1e200 * near.norm[:, 1], rtol=1e-12)
    for name in ("direction_error", "alignment"):
        a, b = (getattr(history, name)["V"][:, 1] for history in (near, far))
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_run_ends_at_its_first_record_that_is_not_finite():
    times = np.array([0, 3, 9])
    status = np.zeros(3, int)
    ended = np.array([9, 9, 3])
    finite = np.zeros((3, 3, 2))
    logs = np.full((3, 3), -np.inf)
    finite[0, 1, 1], logs[2, 2] = np.inf, np.nan  # the last had ended before
    recording.end_where_not_finite(status, ended, times, [finite], [logs])
    assert status.tolist() == [DIVERGED, COMPLETED, COMPLETED] and ended.tolist() == [
        3,
        9,
        3,
    ]
    assert np.isnan(finite[0, 1:]).all() and np.isnan(logs[0, 1:]).all()
    assert not finite[0, 0].any() and not finite[1:].any()


@pytest.mark.parametrize("head", ["fixed", "joint"])
@pytest.mark.parametrize("loss", ["exponential", "sigmoid"])  # compiled, and in numpy
def test_a_gradient_that_cancels_does_not_count_as_diverged(head, loss):
    # The two samples of a run have the same tokens but opposite labels. At W = 0, the
    # sum of their gradients is zero up to rounding.
    random = np.random.default_rng(0)
    X = random.standard_normal((20, 1, 3, 3)).repeat(2, 1)
    X -= X.mean(2, keepdims=True)
    z = random.standard_normal((20, 1, 3)).repeat(2, 1)
    y = np.tile([1, -1], (20, 1))
    data = attention.token_set(X, y, z=z, u=random.standard_normal((20, 3)))
    rules = {
        "compiled": dynamics.NGD(0.1, joint=True),
        "in numpy": dynamics.Custom(
            lambda t, log_gap, log_norm: np.log(0.1) - log_norm, logarithmic=True
        ),
    }
    for run in dynamics.train(data, rules, 5, head=head, loss=loss).values():
        assert (run.status != "diverged").all()


def test_polyak_without_a_way_to_its_goal_ends_as_diverged():
    """The opt tokens of two samples cannot both win from zero: L - L* stays, and steps
    grow.
    """
    q, d_1, d_2 = np.array([[0, 0, 0, 1], [3, 0, 0.001, 0], [-1, 0.5, 0.1, 0]])
    data = attention.token_set(
        [[q, q + d_1], [q, q + d_2]], [1.0, 1.0], u=10 * np.eye(4)[2]
    )
    named = {"Polyak": dynamics.Polyak(), "NGD": dynamics.NGD(0.02)}
    targets = {"V": np.ones((1, 4, 4)) @ np.diag([0.0, 0, 0, 1])}
    histories = dynamics.train(data, named, 100_000, targets=targets)
    assert histories["NGD"].status.tolist() == ["completed"]
    polyak = histories["Polyak"]
    assert polyak.status.tolist() == ["diverged"] and polyak.ended[0] < 100_000
    written = polyak.iterations <= polyak.ended[0]
    assert (
        np.isfinite(polyak.norm[0, written]).all()
        and np.isnan(polyak.norm[0, ~written]).all()
    )
    assert polyak.log_gap[0, written].min() > -30


RULES = {
    "Adam": dynamics.Adam(0.1),
    "sign": dynamics.SteepestDescent(np.inf, 0.1),
    "polar": dynamics.SteepestDescent("spectral", 0.1),
    "GD": dynamics.SteepestDescent(2, 0.1, normalised=False),
    "SOAP": dynamics.SOAP(0.1),
    "Shampoo": dynamics.Shampoo(0.1),
    "natural": dynamics.NaturalGradient(0.1, damping=0.1),
}


def test_optimisers_on_tokens_of_unequal_scale_complete_finite_or_not_at_all():
    ended = []
    for seed in range(12):
        # decades in either direction
        draw = np.random.default_rng(seed)
        wide = 8.0 * seed
        sizes = 10.0 ** draw.uniform(-wide, wide, (1, 3, 1, 1))
        data = tokens.unit_tokens([seed], n=3, T=3, d=4)
        z = data.z * 10.0 ** draw.uniform(-wide, wide, (1, 3, 1))
        data = replace(data, X=data.X * sizes, z=z)
        for path in dynamics.train(data, RULES, 20, record=range(21)).values():
            finite = np.isfinite(path.W).all((2, 3)) & (path.log_gap < np.inf)
            assert (finite | (path.iterations >= path.ended)).all()
            assert path.status[0] != "completed" or finite.all()
            ended.append(path.status[0])
    assert {"completed", "diverged"} <= set(ended)
