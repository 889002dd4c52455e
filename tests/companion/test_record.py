"""Tests of companion.record.

A failure means that a page run by hand overwrites a figure, or that a number changes
unnoticed.
"""

import errno
import json
import math
import os
import subprocess
import sys
from functools import partial
from itertools import starmap
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from companion import claims, record
from lib import files


@pytest.fixture(autouse=True)
def figures(tmp_path, monkeypatch):
    monkeypatch.setenv(record.TOLD, str(tmp_path / "told"))
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path))
    (tmp_path / "01_x.py").write_text(
        '# %% tags=["parameters"]\nscale = "demo"\nseeds, n = 3, 6\n'
    )
    return tmp_path / "told"


def picture():
    figure = Figure(figsize=(2, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1, 2], label=r"$\alpha_{opt}$")
    ax.set(xlabel="iteration", ylabel="margin")
    ax.legend()
    return figure


def line(by=0.0, title=""):
    """Draw a figure without letters except `title`, which is fast."""
    figure = Figure(figsize=(1, 1))
    ax = figure.subplots()
    ax.plot([by, 1 + by, 2 + by])
    ax.set(xlim=(-0.1, 2.1), ylim=(-0.1, 2.1), xticks=[], yticks=[], title=title)
    return figure


NAN = float("nan")
CLAIM = partial(claims.at_most, "lemma", "loss falls", "paper A, Lemma 5")
FAILS = CLAIM(NAN, 1.0)
LOST = record.Number(None, 0.0)


def save(slug="fastrates_fig2", figure=None, **changes):
    run = record.Run("01_x", "A", {"scale": "demo", "seeds": 3, "n": np.int64(6)})
    given = dict(
        number="Figure 2",
        caption="Ours: 3 seeds.",
        claims=[FAILS],
        numbers={"error": record.Number(np.float64(0.021), 0.002), "lost": LOST},
        data=[{"name": "example1", "source": "synthetic", "rows": np.int64(20)}],
    )
    run.save(figure or line(), slug, **given | changes)
    return Path(os.environ[record.TOLD], f"{slug}.json")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_record_has_the_layout_of_every_figure_and_its_picture_names_the_run(figures):
    path = save(figure=picture())
    assert path == figures / "fastrates_fig2.json"
    assert sorted(made.suffix for made in figures.iterdir()) == [".json", ".png"]
    saved = read(path)
    assert record.read(path) == saved
    made = saved.pop("provenance")
    assert saved.pop("lines") == []
    (box,) = saved.pop("panels")
    assert 0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1
    about = dict(
        schema=1, slug="fastrates_fig2", paper="A", figure="Figure 2", notebook="01_x"
    )
    about |= dict(
        caption="Ours: 3 seeds.", words=["iteration", "margin", r"$\alpha_{opt}$"]
    )
    about |= dict(
        scale="demo", parameters={"scale": "demo", "seeds": 3, "n": 6}, seeds=[0, 1, 2]
    )
    about["data"] = [{"name": "example1", "source": "synthetic", "rows": 20}]
    numbers = {"error": {"value": 0.021, "tolerance": 0.002}}
    numbers["lost"] = {"value": None, "tolerance": 0.0}
    assert saved == about | dict(claims=[FAILS.as_dict()], numbers=numbers)
    keys = (
        "commit fingerprint versions device dtype threads seconds peak_memory_mb date"
    )
    assert (
        set(made) == set(keys.split()) and made["versions"]["numpy"] == np.__version__
    )
    with Image.open(path.with_suffix(".png")) as image:
        stamp = json.loads(image.info["Description"])
    assert stamp == {
        key: (saved | made)[key] for key in ("slug", "commit", "fingerprint")
    }


def test_the_record_says_which_kinds_of_line_its_figure_has():
    figure = Figure(figsize=(1, 1))
    axes = figure.subplots()
    for dash, kinds in (
        ("-", []),
        ("--", ["dashed"]),
        ((0, (1, 3)), ["dashed", "dotted"]),
    ):
        axes.plot([0, 1], linestyle=dash)
        assert read(save(figure=figure))["lines"] == kinds


def hashes(path):
    return files.sha256(path.with_suffix(".png").read_bytes())


def test_same_figure_gives_the_same_bytes_twice_and_in_another_process(tmp_path):
    matplotlib.rcdefaults()  # as the other process has them, whatever was drawn before
    figure = picture()
    first = hashes(save(figure=figure))
    assert hashes(save(slug="a", figure=figure)) != first
    for again in (figure, picture()):
        assert hashes(save(figure=again)) == first
    code = "from tests.companion.test_record import *; print(hashes(save(figure=picture())))"
    place = {record.TOLD: str(tmp_path / "other"), "PYTHONPATH": str(files.ROOT)}
    run = dict(
        env=os.environ | place | {"PYTHONHASHSEED": "1"}, text=True, cwd=files.ROOT
    )
    assert subprocess.check_output([sys.executable, "-c", code], **run).strip() == first


def test_a_page_run_by_hand_is_checked_and_writes_nothing(
    figures, monkeypatch, tmp_path, capsys
):
    monkeypatch.delenv(record.TOLD)
    run = record.Run("01_x", "A", {"scale": "demo", "seeds": 3, "n": 6})
    before = sorted(tmp_path.rglob("*"))
    assert run.save(line(), "one", "Figure 2", "A line.", claims=[FAILS]) is None
    for slug, numbers in (("Figure 2", {}), ("one", {"error": 3.0})):
        with pytest.raises(ValueError, match="slug|error"):
            run.save(line(), slug, "Figure 2", "A line.", numbers=numbers)
    assert sorted(tmp_path.rglob("*")) == before and capsys.readouterr().out == ""


def test_a_full_disk_is_named_with_the_file(figures, monkeypatch):
    def full(stream):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match="No space left on device: '.*fastrates_fig2.png'"
    ):
        save()
    assert list(figures.iterdir()) == []


CELL = '# %% tags=["parameters"]\nscale = "demo"\nseeds = 5\nn, rates = 20, (1, 2)\n\n# %%\nm = 1\n'
USUAL = {"scale": "demo", "seeds": 5, "n": 20, "rates": [1, 2]}


@pytest.fixture
def notebook(tmp_path):
    """Write a notebook with the cell CELL."""
    (tmp_path / "01_x.py").write_text(CELL)


def saved(run):
    run.save(line(), "one", "Figure 2", "A line.")
    return Path(os.environ[record.TOLD], "one.json")


def test_a_run_tells_its_parameters_as_they_are_when_it_saves(notebook):
    variables = USUAL | {"rates": [1, 2]}
    run = record.start("01_x", "A", variables)
    variables["rates"][:] = [3]  # in place
    variables["seeds"] = 7
    stored = read(saved(run))
    assert stored["parameters"] == variables and stored["seeds"] == list(range(7))


def test_a_run_that_cannot_be_started_names_what_it_lacks(notebook):
    for page, variables, error, words in (
        ("01_x", {"scale": "demo", "seeds": 3}, ValueError, "n, rates"),
        *(
            ("01_x", USUAL | {"seeds": k}, ValueError, "seeds = ")
            for k in (0, 2.5, True)
        ),
        ("01_x", USUAL | {"scale": "huge"}, ValueError, "'huge'"),
        ("02_y", USUAL, FileNotFoundError, "02_y.py"),
    ):
        with pytest.raises(error, match=words):
            record.start(page, "A", variables)
    variables = dict(USUAL)
    run = record.start("01_x", "A", variables)
    del variables["n"]
    with pytest.raises(ValueError, match="n$"):
        saved(run)


def test_works_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert read(save())["provenance"]["commit"] is None


PAIRS = (NAN, 1.0), (math.inf, 1.0), (1.0, NAN), (1.0, -1.0)
NO_NUMBERS = [*starmap(record.Number, PAIRS), 3.0]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(
            (dict(slug=slug), "slug")
            for slug in ("", "Figure 2", "../escape", "fig-2", "fig.2")
        ),
        *((dict(numbers={"error": number}), "'error'") for number in NO_NUMBERS),
        (dict(data=[{"name": "mnist"}]), "source"),
        (dict(data=[{"source": "hub"}]), "name"),
        (dict(data=[{"name": "mnist", "source": "a disk"}]), "a disk"),
    ],
)
def test_a_bad_part_is_named_and_nothing_written(given, name, figures):
    with pytest.raises(ValueError, match=name):
        save(**given)
    assert not figures.exists()


def numbers(**values):
    rows = {
        name: dict(value=v, tolerance=tolerance)
        for name, (v, tolerance) in values.items()
    }
    return {"numbers": rows}


def test_compare_uses_the_committed_tolerance_and_names_what_is_gone():
    old = numbers(slope=(1.0, 0.1 + 1e-12), lost=(None, 0.0))
    for value, reproduced in ((1.0, True), (1.1, True), (0.89, False), (None, False)):
        new = numbers(slope=(value, 99.0), lost=(None, 0.0))
        words = " ".join(record.compare(new, old))
        assert words == "" if reproduced else words.startswith(f"slope is {value}, ")
    new = numbers(more=(1, 0))
    assert [words.split()[0] for words in record.compare(new, old)] == [
        "slope",
        "lost",
        "more",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        (dict(bound="≤ 1.001 of 7"), ""),  # a unit of the fourth digit
        (dict(bound="≤ 1.01 of 7"), "lemma is held to"),
        (dict(bound="≥ 1 of 7"), "lemma is held to"),
        (dict(holds=False), "lemma held before"),
        (dict(verdict="undecided"), "lemma is undecided, reference without verdict"),
        (dict(id="other"), "claim lemma is missing"),
        (
            dict(measured=3.0, statement="in other words"),
            "",
        ),  # the numbers say how much
    ],
)
def test_claims_are_compared_by_their_word(changes, words):
    claim = {"id": "lemma", "bound": "≤ 1 of 7", "holds": True}
    differences = record.compare_claims(
        {"claims": [claim | changes]}, {"claims": [claim]}
    )
    assert differences == [] if not words else differences[0].startswith(words)


def test_a_setting_of_a_figures_own_is_stored_beside_the_parameters():
    stored = read(save(setting={"n": 4, "seeds": [1, 3]}))
    assert stored["parameters"]["n"] == 6 and stored["setting"] == {"n": 4}
    assert stored["seeds"] == [1, 3]


TOLD = """[01_x.records.one]
figure = "Figure 2"
data = [{ name = "tokens", rows = "n" }]
within = { "share_*" = "10 %", count = 0 }
"""


def test_keep_adds_what_the_table_of_records_says(tmp_path):
    (tmp_path / "pages.toml").write_text(TOLD)
    run = record.Run("01_x", "A", {"scale": "demo", "seeds": 3, "n": 6})
    run.keep(line(), "one", "about", numbers={"share_a": -2.0, "count": 7})
    stored = read(tmp_path / "told" / "one.json")
    row = {"name": "tokens", "source": "synthetic", "revision": "seeds 0-2", "rows": 6}
    assert stored["figure"] == "Figure 2" and stored["data"] == [row]
    assert stored["numbers"]["share_a"] == {"value": -2.0, "tolerance": 0.2}
    assert stored["numbers"]["count"] == {"value": 7, "tolerance": 0}
    with pytest.raises(ValueError, match="no tolerance for other"):
        run.keep(line(), "one", "about", numbers={"other": 1.0})
    with pytest.raises(ValueError, match="add .01_x.records.two. to"):
        run.keep(line(), "two", "about")


def test_an_infinite_value_of_a_claim_survives_the_record():
    claim = claims.at_least(
        "lemma", "steps", "paper A, Lemma 5", math.inf, 1.0, interval=(2.0, math.inf)
    )
    (row,) = record.read(save(claims=[claim]))["claims"]
    again = claims.Claim.of(row)
    assert again.measured == math.inf and again.interval == (2.0, math.inf)


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": 1.0},
        {"interval": [1.0]},
        {"interval": [None, 1.0]},
        {"interval": ["one", 2.0]},
        {"seeds": "3"},
        {"p": "small"},
        {"measured": "nan"},
    ],
)
def test_a_claim_with_a_field_of_another_type_is_damaged(wrong):
    path = save()
    saved = read(path)
    saved["claims"][0] |= wrong
    path.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged: a claim is"):
        record.read(path)


def test_a_field_of_a_claim_that_is_null_is_a_field_without_a_value():
    path = save()
    saved = read(path)
    saved["claims"][0] |= {"interval": None, "seeds": None, "p": None}
    path.write_text(json.dumps(saved), encoding="utf-8")
    (row,) = record.read(path)["claims"]
    assert claims.shown(claims.Claim.of(row)) == "not a number"
