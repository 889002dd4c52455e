"""Tests of the wrong worlds.

They are as wrong as they say, and the ledgers' rows fail in them. Otherwise a ledger
would claim a power that it does not have.
"""

import importlib
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from companion import claims, ledger
from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules
from papers import falsify, wrong_worlds
from papers.a import fixed_head, joint_training
from papers.stated import Stated
from papers.wrong_worlds import FAMILIES, PATCHES, World, inside, worlds
from tests.papers.wrong_laws import caught, caught_after

PROBLEM = coordinates.minimal(tokens.gaussian_tokens([0, 1], n=3, T=3, d=60))
SOLUTION = svm.token_svm(PROBLEM.tokens)


def at_most_one(name, value):
    return claims.at_most(name, name, "paper A", value, 1.0)


def test_claims_that_hold_in_the_true_world_and_fail_in_a_wrong_one_catch_it():
    def judge(things):
        return [
            at_most_one("sum", sum(things)),
            at_most_one("first", things[0]),
        ]

    changes = {"doubled": lambda value: 2 * value, "true": lambda value: value}
    assert caught_after([0.7, -0.4], judge, changes) == {
        "doubled": ["first"],
        "true": [],
    }
    assert caught_after([1.4, -0.8], judge, changes) == {"doubled": ["sum"], "true": []}


@pytest.mark.parametrize("size", [0.01, 0.05, 0.3])
def test_a_rotated_target_is_off_by_its_direction_error(size):
    true = SOLUTION.W
    wrong = World("target rotated", size).target(SOLUTION).W

    def length(W):
        return np.linalg.norm(W.reshape(2, -1), axis=1)

    np.testing.assert_allclose(length(wrong), length(true))
    np.testing.assert_allclose(length(wrong - true), size * length(true))


def test_norm_step_label_and_exponent_are_off_as_said():
    off = World("norm off", -0.05).target(SOLUTION)
    np.testing.assert_allclose(off.norm, 0.95 * SOLUTION.norm)
    assert World("step off", 0.05).rule(rules.NGD(0.2)).step_size == pytest.approx(0.21)
    without_half = World("step off", 1.0).rule(rules.Polyak())
    assert without_half.log_step(0, 0.0, 0.0) == pytest.approx(0.0)
    assert rules.Polyak().log_step(0, 0.0, 0.0) == pytest.approx(-np.log(2))
    turned = World("label turned", 1.0).tokens(PROBLEM.tokens)
    np.testing.assert_array_equal(turned.y, PROBLEM.tokens.y * [-1, 1, 1])
    history = dynamics.train(PROBLEM, rules.NGD(0.05), 100, [1, 10, 100])
    wrong = World("exponent off", 0.1).history(history)
    np.testing.assert_allclose(
        wrong.norm / history.norm, [[0.01**0.1, 0.1**0.1, 1]] * 2
    )


def test_inner_products_are_raised_by_one_vector_that_all_tokens_share():
    X = PROBLEM.tokens.X
    raised = World("inner products raised", 0.05).tokens(PROBLEM.tokens).X
    size = np.linalg.norm(X, axis=-1)
    added = (raised - X) / (np.sqrt(0.05) * size[..., None])
    np.testing.assert_allclose(
        added, np.broadcast_to(added[:1, :1, :1], X.shape), atol=1e-12
    )
    assert np.linalg.norm(added[0, 0, 0]) == pytest.approx(1)
    across = X @ added[0, 0, 0]
    gained = (raised[:, 0, 0] * raised[:, 1, 1]).sum(-1) - (
        X[:, 0, 0] * X[:, 1, 1]
    ).sum(-1)
    mixed = across[:, 0, 0] * size[:, 1, 1] + across[:, 1, 1] * size[:, 0, 0]
    expected = 0.05 * size[:, 0, 0] * size[:, 1, 1] + np.sqrt(0.05) * mixed
    np.testing.assert_allclose(gained, expected)


@pytest.mark.parametrize("size, holds", [(0.0, True), (0.01, False), (-0.01, False)])
def test_steps_one_per_cent_off_turn_rows_red(size, holds):
    """NGD is judged by the norm and the weights it reaches, Eq. 13 by the slope of its
    loss.
    """
    rule = World("step off", size).rule
    history = dynamics.train(PROBLEM, rule(rules.NGD(0.05)), 3000)
    data = coordinates.minimal(tokens.two_token_gaussian([0, 1], n=4, d=100))
    ends = {"W_mm": svm.token_svm(data.tokens)}, {"u_mm": svm.head_svm(data.tokens)}
    more = dict(zip(("targets", "head_targets"), ends, strict=True), head="joint")
    joint = dynamics.train(data, rule(rules.NGD(0.3, decay=2 / 3)), 5000, **more)
    assert fixed_head.lemma7(history, 0.05).holds == holds
    growth = fixed_head.margin_growth(history, "NGD", 0.05 / SOLUTION.norm, 1000)
    slope = joint_training.eq13(joint, data.tokens, ends[1]["u_mm"], 0.3, 500)[1]
    assert growth.holds == slope.holds == holds


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="moon"):
        World("moon", 0.1)
    assert {world.family for family in FAMILIES for world in worlds(family)} == set(
        FAMILIES
    )


SOLVER = wrong_worlds.Patch("lib.svm.token_svm", wrong_worlds.result(World.target))


@pytest.fixture
def of_the_solver(monkeypatch):
    """Worlds of paper A that replace the solver, or nothing at all."""
    patches = {"norm off": (SOLVER,), "label turned": ()}
    monkeypatch.setitem(PATCHES, "A", patches)


def section():
    """Return two rows about the norm: one within 10 %, and one that no small world
    breaks.
    """
    ratio = (svm.token_svm(PROBLEM.tokens).norm / SOLUTION.norm).max()
    tight = claims.close("tight", "ratio", "paper A", ratio, 1.0, 0.1)
    loose = claims.close("loose", "ratio", "paper A", ratio, 1.0, 0.9)
    yield from ledger.rows("Theorem 1", "ours", 2, tight, loose, fails_if=("norm off",))


def test_the_smallest_world_that_a_row_catches(of_the_solver):
    assert falsify._power(section, "A") == {
        "tight (ours)": {"catches": ["norm off, +30 %"], "small": False, "holds": True},
        "loose (ours)": {"catches": [], "small": False, "holds": True},
    }


def untouched():
    fixed = at_most_one("fixed", 0.5)
    return ledger.rows("Theorem 1", "ours", 2, fixed, fails_if=("label turned",))


def in_the_true_world_alone():
    """No row where the solver's norm is another."""
    if np.array_equal(svm.token_svm(PROBLEM.tokens).norm, SOLUTION.norm):
        return section()
    return []


@pytest.mark.parametrize(
    "rows, named",
    [
        (untouched, "^fixed .*'label turned' does not apply"),
        (in_the_true_world_alone, r"^tight .*norm off, \+1 %"),
    ],
)
def test_a_world_that_does_not_apply_or_lacks_a_row_is_named(
    rows, named, of_the_solver
):
    with pytest.raises(ValueError, match=named):
        falsify._power(rows, "A")


@pytest.mark.parametrize(
    "ledger, family", [(paper, name) for paper in PATCHES for name in PATCHES[paper]]
)
def test_a_wrong_world_replaces_every_name_that_it_lists_and_leaves_none(
    ledger, family
):
    """Else a name that moved would leave a row without its world, or a world stay."""
    patches = PATCHES[ledger][family]
    before = [getattr(*patch.place) for patch in patches]
    with pytest.raises(KeyboardInterrupt), inside(worlds(family)[0], ledger):
        for patch, original in zip(patches, before, strict=True):
            assert getattr(*patch.place) is not original, patch.name
        raise KeyboardInterrupt
    for patch, original in zip(patches, before, strict=True):
        assert getattr(*patch.place) is original, patch.name


def test_a_ledger_has_a_world_for_every_family_that_its_rows_name():
    for paper in "ABC":
        module = importlib.import_module(f"papers.{paper.lower()}.statements")
        named = {row[3] for row in module.PAPER._rows.values()}
        families = {name for each in named for name in each.split(", ") if name}
        assert families == PATCHES[paper].keys()
    with pytest.raises(ValueError, match="'p off'.*'A' has no such world"):
        with inside(World("p off", 0.1), "A"):
            pass


def test_what_a_ledger_keeps_is_measured_in_the_true_world():
    """Else a row would read, after a wrong world, what was trained in it."""
    rows = importlib.import_module("papers.c.ledger_rows")
    sizes = rows.Sizes(seeds=2, n=3, T=3, d=4, find_steps=300)
    rows._selections.cache_clear()
    with inside(World("step off", 1.0), "C"):
        inner = rows._selections(sizes, 3.0)
    assert rows._selections(sizes, 3.0) is inner
    rows._selections.cache_clear()
    outer = rows._selections(sizes, 3.0)
    np.testing.assert_array_equal(outer.tokens.opt, inner.tokens.opt)
    np.testing.assert_array_equal(outer.solution.W, inner.solution.W)


def test_what_trains_otherwise_is_measured_afresh():
    rows = importlib.import_module("papers.a.ledger_rows")
    sizes = rows.Sizes(seeds=1, n=3, T=3, d=30, verified_d=40, steps=50)
    true = rows._trained(sizes, "class means", "small")["NGD"]
    with inside(World("step off", 0.05), "A"):
        wrong = rows._trained(sizes, "class means", "small")["NGD"]
    np.testing.assert_allclose(wrong.log_step - true.log_step, 0, atol=0.2)
    assert (wrong.log_step - true.log_step)[0, 0] == pytest.approx(np.log(1.05))
    again = rows._trained(sizes, "class means", "small")["NGD"]
    assert again is true


def smallest(row):
    """Return, by family, the index of the smallest world that the row detects."""
    order = [str(world) for family in FAMILIES for world in worlds(family)]
    return {world.rpartition(",")[0]: order.index(world) for world in row["catches"]}


@pytest.mark.parametrize(
    "paper, name",
    [
        *(("C", name) for name in ("inequalities", "gradients", "steps")),
        ("B", "assumptions"),
    ],
)
def test_rows_of_the_ledgers_catch_worlds_as_small_as_their_page_says(paper, name):
    known = json.loads(
        ledger.power_path(falsify.LEDGERS[paper]).read_text(encoding="utf-8")
    )
    section = falsify._sections(paper)[name]
    named = {row.id for row in section() if row.fails_if}
    for id, row in falsify._power(section, paper).items():
        found = smallest(row)
        assert row["holds"], id
        assert row["catches"] or id not in named, id
        # A row that is newer than the last `make falsify` is "not measured" on its
        # page.
        before = smallest(known[id]) if id in known else {}
        assert all(found[family] <= at for family, at in before.items()), id


def weak(section, paper):
    """Return the rows that do not hold, and those that none of their wrong worlds
    breaks.

    Of every family the smallest world and the last two are tried; the last two are the
    largest in both directions.
    """
    true = list(section())
    wrong = {}
    for family in dict.fromkeys(family for row in true for family in row.fails_if):
        every = worlds(family)
        for world in dict.fromkeys((every[0], *every[-2:])):
            with np.errstate(all="ignore"), inside(world, paper):
                wrong[str(world)] = [row for row in section() if family in row.fails_if]
    seen = set().union(*caught(true, wrong).values())
    failing = {row.id for row in true if not row.holds}
    return failing, {row.id for row in true} - failing - seen


SIZES = {
    "a": dict(seeds=2, n=4, T=3, d=60, verified_d=400, steps=3000, joint_n=4, joint_d=100,
              joint_steps=2000),
    "c": dict(seeds=2, n=4, T=4, d=6, find_steps=2000, rate_exponents=(1.5, 2, 3),
              rate_steps=4000, exponents=(1.3, 2, 3), steps=400, draws=30),
}  # fmt: skip
START = "plain, η = 1, from W_mm"
SLOW = {  # rows that do not hold after so few steps, and rows that no world breaks
    ("a", "worst W"): (set(), set()),
    ("a", "joint"): (set(), set()),
    ("a", "fixed head"): (set(), set()),
    ("c", "rates"): ({"lemma29.sharp.3 (from the cone D = 0.001, normalised)"}, set()),
    ("c", "cones"): (
        {
            f"{id} ({START})"
            for id in ("lemma30.3", "lemma30.sharp.2", "lemma30.sharp.3")
        },
        set(),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("paper, name", SLOW)
def test_rows_of_the_ledgers_hold_and_fail_in_worlds_that_they_name(paper, name):
    rows = importlib.import_module(f"papers.{paper}.ledger_rows")
    section = partial(rows.SECTIONS[name], rows.Sizes(**SIZES[paper]))
    assert weak(section, paper.upper()) == SLOW[paper, name]


def test_rows_keep_their_ids_at_every_size():
    """What a row detects is measured at small size and looked up by the row's id."""
    rows = importlib.import_module("papers.c.ledger_rows")
    sizes = (replace(rows.SMALL, draws=draws) for draws in (20, 30))
    made = [list(rows.SECTIONS["inequalities"](size)) for size in sizes]
    assert [row.id for row in made[0]] == [row.id for row in made[1]]


def test_the_page_of_failures_is_what_the_records_say(monkeypatch):
    written = []
    monkeypatch.setenv("FIGURES_DIR", str(ledger.ROOT / "figures"))
    monkeypatch.setattr(falsify, "write", lambda *what: written.append(what))
    falsify._write_failures()
    ((path, text),) = written
    assert path.read_bytes() == text, (
        "figures/failures.md is behind the records: make falsify"
    )


def test_nothing_is_measured_if_the_results_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "blocked").write_text("a file where the folder of figures would be")
    monkeypatch.setattr(ledger, "ROOT", tmp_path / "blocked")
    monkeypatch.setattr(falsify, "ProcessPoolExecutor", None)
    with pytest.raises(OSError, match="blocked"):
        falsify.main(["B"])


def test_a_mean_has_its_interval_and_a_remark_says_how_much_room_a_bound_leaves(
    tmp_path,
):
    path = tmp_path / "statements.toml"
    row = '["a", "≤ 1", "", "", "size", "loose; {room}"]'
    path.write_text(f'["Lemma 1"]\ntopic = "sizes"\nrows = [{row}]\n', encoding="utf-8")
    stated = Stated("A", path)
    mean = stated.mean("a", np.array([0.25, 0.75]))
    # Two standard errors, each 0.25
    assert mean.measured == 0.5 and mean.interval == (
        0.0,
        1.0,
    )
    assert stated.mean("a", np.array([0.5])).interval is None
    claim = stated.claim("a", 0.5)
    assert claim.remark == "loose; room: the bound could be 2 times as tight"
