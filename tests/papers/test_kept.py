"""Tests of runs that are kept one by one.

A failure means that old or damaged runs are used as runs of the present code.
"""

import pytest

from lib import dynamics
from lib.attention import tokens
from papers.atlas import kept_paths

RULES = {
    "sign, batches": dynamics.Signum(0.01, batch_size=2),
    "polar": dynamics.SteepestDescent("spectral", 0.01),
}
TIMES = [1, 10, 60]


DATA = tokens.unit_tokens(range(3), n=4, T=4, d=5)


def test_runs_kept_one_by_one_are_those_of_one_call_and_only_what_is_lost_is_trained(
    tmp_path, monkeypatch
):
    at_once = dynamics.train(DATA, RULES, 60, record=TIMES)

    def assert_kept():
        paths = kept_paths.train_kept(DATA, RULES, 60, TIMES, tmp_path)
        assert list(paths) == list(at_once)
        for name in RULES:
            assert paths[name] == at_once[name]

    for _ in ("trained", "read"):
        assert_kept()
    assert len(list(tmp_path.iterdir())) == 6
    lost, broken, empty, *_ = sorted(tmp_path.iterdir())
    lost.unlink()
    broken.write_bytes(broken.read_bytes()[:500])
    empty.write_bytes(b"")
    real = kept_paths.train
    trained = []
    monkeypatch.setattr(
        kept_paths, "train", lambda *a, **k: trained.extend(a[0].X) or real(*a, **k)
    )
    assert_kept()
    assert len(trained) == 3


class Scaled(dynamics.Rule):
    """A plain class, whose `repr` does not show its settings."""

    def __init__(self, step_size):
        self.step_size = step_size

    def direction(self, gradient, state):
        return -self.step_size * gradient


@pytest.mark.parametrize(
    "make",
    [
        Scaled,
        lambda size: dynamics.Custom(lambda t, gap, norm: size / norm),
    ],
    ids=["own class", "own function"],
)
def test_rules_whose_name_does_not_tell_their_steps_are_trained_every_time(
    tmp_path, make
):
    for size in (0.1, 5.0):
        at_once = dynamics.train(DATA, make(size), 60, record=TIMES)
        kept = kept_paths.train_kept(DATA, {"": make(size)}, 60, TIMES, tmp_path)[""]
        assert (kept.W == at_once.W).all()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("changed", ["rule", "steps", "record", "tokens", "code"])
def test_what_is_kept_serves_nothing_else(tmp_path, monkeypatch, changed):
    given = dict(tokens=DATA, rules={"": RULES["polar"]}, steps=60, record=TIMES)
    kept_paths.train_kept(**given, folder=tmp_path)
    before = set(tmp_path.iterdir())
    other = {
        "rule": {"rules": {"": dynamics.SteepestDescent("spectral", 0.02)}},
        "steps": {"steps": 61, "record": [1, 10, 61]},
        "record": {"record": [1, 20, 60]},
        "tokens": {"tokens": tokens.unit_tokens(range(3, 6), n=4, T=4, d=5)},
    }
    if changed == "code":
        monkeypatch.setattr(kept_paths, "_code", lambda: "another loop")
    kept_paths.train_kept(**given | other.get(changed, {}), folder=tmp_path)
    assert len(set(tmp_path.iterdir()) - before) == 3
