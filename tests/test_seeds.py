"""Every random draw has a stream of its own: by seed, by role, by place."""

import re

import numpy as np
import pytest

from lib import files, seeds


def first(generator):
    return generator.integers(2**63)


def test_streams_differ_by_seed_role_and_place_and_come_again():
    def draws():
        plain = {(s, r): first(seeds.stream(s, r)) for s in range(3) for r in seeds.ROLES}
        placed = {
            (s, r, *place): first(seeds.stream_at(s, r, *place))
            for s in range(3)
            for r in seeds.ROLES
            for place in ((0, 1), (1, 0), (1, 1), (0, 2**40))
        }
        return plain | placed

    found = draws()
    assert len(set(found.values())) == len(found) == 15 * len(seeds.ROLES)
    assert draws() == found


def test_one_role_stands_for_one_stream_of_numpy():
    child = np.random.SeedSequence(5).spawn(len(seeds.ROLES))[seeds.ROLES.index("labels")]
    assert first(seeds.stream(5, "labels")) == first(np.random.default_rng(child))


@pytest.mark.parametrize("role", ["", "Data", "datum"])
def test_an_unknown_role_is_named(role):
    for draw in (seeds.stream, seeds.stream_at):
        with pytest.raises(ValueError, match=f"not '{role}'"):
            draw(0, role)


def test_no_generator_is_made_elsewhere():
    made = re.compile(
        r"default_rng|SeedSequence|np\.random\.(?!Generator)|RandomState|import random"
    )
    found = {
        path.relative_to(files.ROOT).as_posix()
        for package in ("lib", "papers")
        for path in (files.ROOT / package).rglob("*.py")
        if made.search(path.read_text(encoding="utf-8"))
    }
    # the loop turns its own role's key and the step into the integer that torch asks for
    assert found == {"lib/seeds.py", "lib/training/loop.py"}


def test_no_role_of_a_training_is_drawn_twice():
    used = [
        (match, path.name)
        for path in (files.ROOT / "lib" / "training").rglob("*.py")
        for match in re.findall(r"stream(?:_at)?\([^\"]*\"(\w+)\"", path.read_text("utf-8"))
    ]
    roles = [role for role, _ in used]
    assert sorted(set(roles)) == ["batches", "buckets", "crops", "dropout", "start", "subset"]
    assert len(roles) == len(set(roles)), used
