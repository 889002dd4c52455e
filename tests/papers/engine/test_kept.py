"""Runs kept one by one: the same bits as one call, taken up again, never trusted when damaged."""

import numpy as np
import pytest

from lib.attention import tokens
from papers.beyond.engine import kept, optimisers, training

RULES = {
    "sign, batches": optimisers.on_batches(optimisers.signum(0.01), 2, shuffled=True),
    "polar": optimisers.steepest("spectral", 0.01),
}
TIMES = [1, 10, 60]


@pytest.fixture(scope="module")
def data():
    return tokens.unit_tokens(range(3), n=4, T=4, d=5)


@pytest.fixture(scope="module")
def at_once(data):
    return training.train(data, RULES, 60, record=TIMES)


def equal(one, other):
    fields = ("iterations", "W", "log_gap", "log_gradient", "status", "ended")
    return [
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name.startswith("log"))
        for name in fields
    ]


def test_runs_kept_one_by_one_are_those_of_one_call(data, at_once, tmp_path):
    for _ in ("trained", "read"):
        apart = kept.train(data, RULES, 60, TIMES, tmp_path)
        assert list(apart) == list(RULES)
        assert all(all(equal(apart[name], at_once[name])) for name in RULES)
    assert len(list(tmp_path.iterdir())) == 6


def test_only_what_is_missing_or_damaged_is_trained(data, at_once, tmp_path, monkeypatch):
    kept.train(data, RULES, 60, TIMES, tmp_path)
    lost, broken, empty, *_ = sorted(tmp_path.iterdir())
    lost.unlink()
    broken.write_bytes(broken.read_bytes()[:500])
    empty.write_bytes(b"")
    real, trained = training.train, []
    monkeypatch.setattr(training, "train", lambda *a, **k: trained.append(a[1]) or real(*a, **k))
    again = kept.train(data, RULES, 60, TIMES, tmp_path)
    assert len(trained) == 3
    assert all(all(equal(again[name], at_once[name])) for name in RULES)


@pytest.mark.parametrize("changed", ["rule", "steps", "record", "tokens", "code"])
def test_what_is_kept_serves_nothing_else(data, tmp_path, monkeypatch, changed):
    rule, steps, times, sets = {"": RULES["polar"]}, 60, TIMES, data
    kept.train(sets, rule, steps, times, tmp_path)
    if changed == "rule":
        rule = {"": optimisers.steepest("spectral", 0.02)}
    elif changed == "steps":
        steps, times = 61, [1, 10, 61]
    elif changed == "record":
        times = [1, 20, 60]
    elif changed == "tokens":
        sets = tokens.unit_tokens(range(3, 6), n=4, T=4, d=5)
    else:
        monkeypatch.setattr(kept, "_code", lambda: "another loop")
    before = set(tmp_path.iterdir())
    kept.train(sets, rule, steps, times, tmp_path)
    assert len(set(tmp_path.iterdir()) - before) == 3
