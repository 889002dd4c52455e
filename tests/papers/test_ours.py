"""Tests of the table of our own claims.

A failure means that a claim is printed with another bound than the one it is held to.
"""

import pytest

from papers.ours import ROWS, claim


@pytest.mark.parametrize("id", [id for id in ROWS if id != "global.threshold"])
def test_the_printed_bound_is_the_one_that_is_applied(id):
    bound = ROWS[id][1]
    (sign,) = set(bound) & set("\u2264\u2265\u00b1")
    required = [float(end) for end in bound.split(sign) if end]
    places = ["word"] * 4 if "{" in ROWS[id][2].replace("_{", "") else []
    for measured in (required[0], 1e6, -1e6):
        checked = claim(id, [measured], "", *places)
        printed = [float(end) for end in checked.bound.split(sign) if end]
        assert printed == required


def test_an_expected_value_takes_the_place_of_the_tables():
    checked = claim("global.threshold", 1.5, "64", expected=1.640364)
    assert checked.holds and checked.bound == "\u2264 1.64"
