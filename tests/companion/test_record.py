"""lib.companion.record: else a reader's run overwrites a figure, or a number drifts unseen."""

import json
import math
import os
import subprocess
import sys
from functools import partial
from itertools import starmap

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from lib import files, provenance
from lib.companion import claims, record


@pytest.fixture(autouse=True)
def figures(tmp_path, monkeypatch):
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "figures"))
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path))
    (tmp_path / "01_x.py").write_text('# %% tags=["parameters"]\nscale = "demo"\nseeds, n = 3, 6\n')
    return tmp_path / "figures"


def picture():
    figure = Figure(figsize=(2, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1, 2], label=r"$\alpha_{opt}$")
    ax.set(xlabel="iteration", ylabel="margin")
    ax.legend()
    return figure


def line(by=0.0, title=""):
    """A drawing without letters but `title`: it is quick."""
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
    return run.save(figure or line(), slug, **given | changes)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_record_has_the_layout_of_every_figure_and_its_picture_names_the_run(figures):
    path = save(figure=picture())
    assert path == figures / "demo" / "fastrates_fig2.json"
    saved = read(path)
    made = saved.pop("provenance")
    about = dict(schema=1, slug="fastrates_fig2", paper="A", figure="Figure 2", notebook="01_x")
    about |= dict(caption="Ours: 3 seeds.", words=["iteration", "margin", r"$\alpha_{opt}$"])
    about |= dict(scale="demo", parameters={"scale": "demo", "seeds": 3, "n": 6}, seeds=[0, 1, 2])
    about["data"] = [{"name": "example1", "source": "synthetic", "rows": 20}]
    numbers = {"error": {"value": 0.021, "tolerance": 0.002}}
    numbers["lost"] = {"value": None, "tolerance": 0.0}
    assert saved == about | dict(claims=[FAILS.as_dict()], numbers=numbers)
    keys = "commit fingerprint versions device dtype threads seconds peak_memory_mb date"
    assert set(made) == set(keys.split()) and made["versions"]["numpy"] == np.__version__
    with Image.open(path.with_suffix(".png")) as image:
        stamp = json.loads(image.info["Description"])
    assert stamp == {key: (saved | made)[key] for key in ("slug", "commit", "fingerprint")}
    assert ">margin</text>" in path.with_suffix(".svg").read_text("utf-8")  # text as text


def hashes(path):
    return [files.sha256(path.with_suffix(end).read_bytes()) for end in (".png", ".svg")]


def test_same_figure_gives_the_same_bytes_twice_and_in_another_process(tmp_path):
    matplotlib.rcdefaults()  # as the other process has them, whatever was drawn before
    figure = picture()
    first = hashes(save(figure=figure))
    assert hashes(save(slug="a", figure=figure)) != first
    for again in (figure, picture()):
        save().unlink()  # else the figure would be kept as it is
        assert hashes(save(figure=again)) == first
    code = "from tests.companion.test_record import *; print(*hashes(save(figure=picture())))"
    place = {"FIGURES_DIR": str(tmp_path / "other"), "PYTHONPATH": str(files.ROOT)}
    run = dict(env=os.environ | place | {"PYTHONHASHSEED": "1"}, text=True, cwd=files.ROOT)
    assert subprocess.check_output([sys.executable, "-c", code], **run).split() == first


def test_failure_while_writing_leaves_the_old_files_whole_and_the_record_comes_last(
    figures, monkeypatch
):
    order, move = [], os.replace
    note = lambda source, target: (order.append(target.suffix), move(source, target))
    monkeypatch.setattr(os, "replace", note)
    old = stamped(save())
    assert order[-3:] == [".png", ".svg", ".json"]

    def no_space(source, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        save(caption="another")
    assert stamped(figures / "demo" / "fastrates_fig2.json") == old
    assert len(list((figures / "demo").iterdir())) == 3


def stamped(path):
    return {end: path.with_suffix(end).read_bytes() for end in (".png", ".svg", ".json")}


def at_another_commit(monkeypatch):
    answers = {"rev-parse": "0123456789ab\n", "status": ""}
    monkeypatch.setattr(provenance, "git", lambda *arguments: answers[arguments[0]])


def test_what_is_reproduced_stays_and_how_the_run_went_is_in_runs(monkeypatch, tmp_path):
    path = save()
    before = stamped(path)
    at_another_commit(monkeypatch)
    number = record.Number(0.0225, 0.002)  # within the tolerance of 0.021
    assert save(numbers={"error": number, "lost": LOST}, figure=line(1e-3)) == path
    assert stamped(path) == before
    latest = read(tmp_path / "runs/latest/demo/fastrates_fig2.json")
    assert latest["provenance"]["commit"] == "0123456789ab"
    assert latest["numbers"]["error"]["value"] == 0.0225


@pytest.mark.parametrize(
    "changes",
    [
        dict(numbers={"error": record.Number(0.0235, 0.002), "lost": LOST}),
        dict(numbers={"error": record.Number(0.021, 0.02), "lost": LOST}),
        dict(numbers={"error": record.Number(0.021, 0.002)}),
        dict(claims=[CLAIM(0.5, 1.0)]),
        dict(claims=[CLAIM(NAN, 2.0)]),
        dict(claims=[claims.remarked(FAILS, "another reason")]),
        dict(data=[{"name": "example1", "source": "synthetic", "rows": 30}]),
        dict(caption="Ours: 3 seeds of our own."),
        dict(statements={"Lemma 5": {"topic": "weights", "says": "another text", "why": ""}}),
        dict(figure=line(0.5)),
    ],
)
def test_what_is_not_reproduced_is_written_anew(changes, monkeypatch):
    path = save()
    before = stamped(path)
    at_another_commit(monkeypatch)
    save(**changes)
    after = stamped(path)
    # The picture carries the commit: it follows its record.
    assert after[".json"] != before[".json"] and after[".png"] != before[".png"]
    assert read(path)["provenance"]["commit"] == "0123456789ab"


def test_numbers_in_words_may_move_and_so_may_the_picture_of_a_smoke_run(monkeypatch):
    remark = "the offset still moves by {}".format
    before = stamped(save(claims=[claims.remarked(FAILS, remark(0.31))]))
    assert stamped(save(claims=[claims.remarked(FAILS, remark(0.32))])) == before
    smoke = [{"name": "digits", "source": "demo"}]
    before = stamped(save(data=smoke))
    assert stamped(save(data=smoke, figure=line(0.5))) == before
    monkeypatch.setattr(record, "_same_picture", lambda one, other: True)
    before = stamped(save(figure=line(title="$r^{-1.48}$")))
    assert stamped(save(figure=line(title="$r^{-1.46}$"))) == before
    assert stamped(save(figure=line(title="$s^{-1.48}$"))) != before


def test_a_missing_picture_is_written_anew_and_a_damaged_record_named():
    path = save()
    path.with_suffix(".svg").unlink()
    assert save().with_suffix(".svg").exists()
    for text in ("", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=path.name):
            save()


CELL = '# %% tags=["parameters"]\nscale = "demo"\nseeds = 5\nn, rates = 20, (1, 2)\n\n# %%\nm = 1\n'
USUAL = {"scale": "demo", "seeds": 5, "n": 20, "rates": [1, 2]}
CUSTOM = "runs/custom/01_x-*/figures/{}/one.json".format


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """The notebook as its last commit has it: CELL."""
    path = tmp_path / "notebooks" / "01_x.py"
    path.parent.mkdir()
    path.write_text(CELL)
    (path.parent / "scales.toml").write_text('["01_x".desk]\nseeds = 20\n')
    shown = {("show", "HEAD:./notebooks/01_x.py"): CELL}
    monkeypatch.setenv("NOTEBOOKS_DIR", str(path.parent))
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "git", lambda *arguments: shown.get(arguments))
    return path


def saved(run):
    return run.save(line(), "one", "Figure 2", "A line.")


# Parameters at the start of a run, those changed later, the page edited, and where the figure lies.
EDITED = [
    ({}, {}, (), "figures/demo/one.json"),
    ({"scale": "desk", "seeds": 20}, {}, (), "figures/desk/one.json"),
    ({"seeds": 3}, {}, (), CUSTOM("demo")),
    ({"scale": "desk"}, {}, (), CUSTOM("desk")),
    ({}, {"seeds": 3}, (), CUSTOM("demo")),
    ({"seeds": 3}, {"seeds": 5}, (), CUSTOM("demo")),  # who knows with which the figure was made
    ({}, {"scale": "desk", "seeds": 20}, (), CUSTOM("desk")),
    ({}, {"rates": [1, 2, 3]}, (), CUSTOM("demo")),
    ({}, {}, ("m = 1", "m = 2"), CUSTOM("demo")),
    ({}, {}, ("m = 1", "m = 1\n\n# %%\nrules['mine'] = 1"), CUSTOM("demo")),
    ({"seeds": 3}, {}, ("seeds = 5", "seeds = 3"), CUSTOM("demo")),  # as JupyterLab pairs it
    ({}, {}, ("m = 1", "m  =  1  # a\n\n# %% [markdown]\n# words"), "figures/demo/one.json"),
]


@pytest.mark.parametrize(("given", "later", "edit", "folder"), EDITED)
def test_what_a_reader_changes_never_touches_the_figures(
    given, later, edit, folder, notebook, tmp_path, capsys
):
    notebook.write_text(CELL.replace(*edit) if edit else CELL)
    variables, custom = USUAL | {"rates": [1, 2]} | given, "custom" in folder
    run, usual = record.start("01_x", "A", variables), record.start("01_x", "A", USUAL)
    variables["rates"][:] = later.get("rates", [1, 2])  # in place
    variables |= later
    path, words = saved(run), capsys.readouterr().out
    assert list(tmp_path.glob(folder)) == [path] and len(list(tmp_path.rglob("one.png"))) == 1
    assert (tmp_path / "runs" / "latest").exists() != custom
    assert read(path)["parameters"] == variables
    assert read(path)["seeds"] == list(range(variables["seeds"]))
    assert (str(path.parent) in words) == custom and all(name in words for name in later)
    assert ("Changed since record.start: " in words) == bool(later)
    if not edit:
        assert saved(usual).parent == tmp_path / "figures" / "demo"  # beside it, in one process


def test_a_run_that_cannot_be_started_names_what_it_lacks(notebook):
    for page, variables, error, words in (
        ("01_x", {"scale": "demo", "seeds": 3}, ValueError, "n, rates"),
        *(("01_x", USUAL | {"seeds": k}, ValueError, "seeds = ") for k in (0, 2.5, True)),
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
        *((dict(slug=slug), "slug") for slug in ("", "Figure 2", "../escape", "fig-2", "fig.2")),
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
    rows = {name: dict(value=v, tolerance=tolerance) for name, (v, tolerance) in values.items()}
    return {"numbers": rows}


def test_compare_uses_the_committed_tolerance_and_names_what_is_gone():
    old = numbers(slope=(1.0, 0.1 + 1e-12), lost=(None, 0.0))
    for value, reproduced in ((1.0, True), (1.1, True), (0.89, False), (None, False)):
        new = numbers(slope=(value, 99.0), lost=(None, 0.0), more=(1, 0))
        words = " ".join(record.compare(new, old))
        assert words == "" if reproduced else words.startswith(f"slope is {value}, ")
    assert [words.split()[0] for words in record.compare(numbers(), old)] == ["slope", "lost"]


def test_a_setting_of_a_figures_own_is_stored_beside_the_parameters():
    stored = read(save(setting={"n": 4, "seeds": [1, 3]}))
    assert stored["parameters"]["n"] == 6 and stored["setting"] == {"n": 4}
    assert stored["seeds"] == [1, 3]


TOLD = """["01_x".one]
figure = "Figure 2"
data = [{ name = "tokens", rows = "n" }]
within = { "share_*" = "10 %", count = 0 }
"""


def test_keep_adds_what_the_table_of_records_says(tmp_path):
    (tmp_path / "records.toml").write_text(TOLD)
    run = record.Run("01_x", "A", {"scale": "demo", "seeds": 3, "n": 6})
    stored = read(run.keep(line(), "one", "about", numbers={"share_a": -2.0, "count": 7}))
    row = {"name": "tokens", "source": "synthetic", "revision": "seeds 0-2", "rows": 6}
    assert stored["figure"] == "Figure 2" and stored["data"] == [row]
    assert stored["numbers"]["share_a"] == {"value": -2.0, "tolerance": 0.2}
    assert stored["numbers"]["count"] == {"value": 7, "tolerance": 0}
    with pytest.raises(ValueError, match="no tolerance for other"):
        run.keep(line(), "one", "about", numbers={"other": 1.0})
    with pytest.raises(ValueError, match="has no .01_x.two."):
        run.keep(line(), "two", "about")
