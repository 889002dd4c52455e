"""Tests that every random draw has its own stream.

Otherwise a change in one part of a run changes another part.
"""

import re

import numpy as np
import pytest

from lib import files, seeds


def first(generator):
    return generator.integers(2**63)


def test_streams_differ_by_seed_role_and_place_and_come_again():
    def draws():
        pairs = [(seed, role) for seed in range(3) for role in seeds.ROLES]
        places = ((0, 1), (1, 0), (1, 1), (0, 2**40))
        placed = [seeds.stream_at(*pair, *place) for pair in pairs for place in places]
        return [
            first(each) for each in [*(seeds.stream(*pair) for pair in pairs), *placed]
        ]

    assert len(set(draws())) == 15 * len(seeds.ROLES) and draws() == draws()
    # a role is one numpy stream
    child = np.random.SeedSequence(5).spawn(len(seeds.ROLES))[
        seeds.ROLES.index("labels")
    ]
    assert first(seeds.stream(5, "labels")) == first(np.random.default_rng(child))


@pytest.mark.parametrize("role", ["", "Data", "datum"])
def test_an_unknown_role_is_named(role):
    for draw in (seeds.stream, seeds.stream_at):
        with pytest.raises(ValueError, match=f"'{role}'"):
            draw(0, role)


def sources(*packages):
    paths = [path for name in packages for path in (files.ROOT / name).rglob("*.py")]
    return {
        path.relative_to(files.ROOT).as_posix(): path.read_text("utf-8")
        for path in paths
    }


def test_no_generator_is_made_elsewhere_and_no_role_of_a_training_drawn_twice():
    makes = r"default_rng|SeedSequence|np\.random\.(?!Generator)|RandomState|import random\b"
    making = {
        name
        for name, text in sources("lib", "companion", "papers").items()
        # A reader's own data, in the example of a docstring, may come from anywhere.
        if re.search(makes, re.sub(r"(?m)^ *>>> .*", "", text))
    }
    # the loop turns its own role's key and the step into the integer that torch asks
    # for
    assert making == {"lib/seeds.py", "lib/training/loop.py"}
    draws = r"stream(?:_at)?\([^\"]*\"(\w+)\""
    roles = [
        role
        for text in sources("lib/training").values()
        for role in re.findall(draws, text)
    ]
    assert sorted(roles) == ["batches", "buckets", "crops", "dropout", "start"]
