"""lib.companion.record: layout, bad input, equal bytes for equal figures, no half-written file."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from lib import files, provenance
from lib.companion import claims, colab_cell, pictures, record


@pytest.fixture(autouse=True)
def figures(tmp_path, monkeypatch):
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "figures"))
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "figures"


def picture():
    figure = Figure(figsize=(2, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1, 2], label=r"$\alpha_{opt}$")
    ax.set(xlabel="iteration", ylabel="margin")
    ax.legend()
    return figure


def line():
    """A drawing without letters, for tests that ask nothing of the picture: it is quick."""
    figure = Figure(figsize=(1, 1))
    ax = figure.subplots()
    ax.plot([0, 1, 2])
    ax.set_axis_off()
    return figure


def save(slug="fastrates_fig2", figure=None, **changes):
    parameters = {"seeds": np.int64(3)}
    run = record.Run(
        notebook="01_x", paper="A", scale="demo", parameters=parameters, seeds=range(3)
    )
    given = dict(
        number="Figure 2",
        caption="Ours: 3 seeds.",
        claims=[claims.at_most("lemma", "loss falls", "paper A, Lemma 5", float("nan"), 1.0)],
        numbers={
            "error": record.Number(np.float64(0.021), 0.002),
            "lost": record.Number(None, 0.0),
        },
        data=[{"name": "example1", "source": "synthetic", "rows": np.int64(20)}],
    )
    return run.save(figure or line(), slug, **given | changes)


def test_run_takes_the_names_of_its_parameters_cell(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path))
    cell = '# %% tags=["parameters"]\nscale = "demo"\nseeds, n = 5, 20\n\n# %%\nm = 1\n'
    (tmp_path / "01_x.py").write_text(cell)
    run = record.start("01_x", "A", {"scale": "desk", "seeds": 3, "n": 7, "m": 1})
    assert run.parameters == {"scale": "desk", "seeds": 3, "n": 7}
    assert (run.scale, list(run.seeds)) == ("desk", [0, 1, 2])
    with pytest.raises(ValueError, match="run the parameters cell first: there is no seeds, n"):
        record.start("01_x", "A", {"scale": "desk"})


def test_record_has_the_layout_of_every_figure(figures):
    path = save(figure=picture())
    assert path == figures / "demo" / "fastrates_fig2.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert list(saved) == [
        "schema",
        "slug",
        "paper",
        "figure",
        "caption",
        "words",
        "notebook",
        "scale",
        "parameters",
        "seeds",
        "data",
        "claims",
        "numbers",
        "provenance",
    ]
    assert (saved["schema"], saved["figure"], saved["seeds"]) == (1, "Figure 2", [0, 1, 2])
    assert saved["parameters"] == {"seeds": 3}
    assert saved["words"] == ["iteration", "margin", r"$\alpha_{opt}$"]
    assert saved["numbers"] == {
        "error": {"value": 0.021, "tolerance": 0.002},
        "lost": {"value": None, "tolerance": 0.0},
    }
    assert saved["claims"][0]["measured"] is None and saved["claims"][0]["holds"] is False
    made = saved["provenance"]
    assert set(made) == {
        "commit",
        "fingerprint",
        "versions",
        "device",
        "dtype",
        "threads",
        "seconds",
        "peak_memory_mb",
        "date",
    }
    assert made["versions"]["numpy"] == np.__version__
    assert made["seconds"] >= 0


def hashes(path):
    return [
        hashlib.sha256(path.with_suffix(end).read_bytes()).hexdigest() for end in (".png", ".pdf")
    ]


def test_same_figure_gives_the_same_bytes_twice():
    figure = picture()
    first = hashes(save(figure=figure))
    assert [hashes(save(slug=name, figure=figure)) == first for name in ("a", "b")] == [False] * 2
    for again in (figure, picture()):
        save().unlink()  # else the figure would be kept as it is
        assert hashes(save(figure=again)) == first


def test_same_figure_gives_the_same_bytes_in_another_process(tmp_path):
    code = "import test_record as t; print(t.hashes(t.save(figure=t.picture())))"
    place = {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), str(files.ROOT)])}
    expected = str(hashes(save(figure=picture())))
    for seed in ("1", "2"):
        env = os.environ | place | {"PYTHONHASHSEED": seed}
        done = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
        assert done.strip() == expected


def test_picture_carries_slug_commit_and_fingerprint():
    from PIL import Image

    path = save()
    with Image.open(path.with_suffix(".png")) as image:
        stamp = json.loads(image.info["Description"])
    made = json.loads(path.read_text(encoding="utf-8"))["provenance"]
    assert stamp == {key: made[key] for key in ("commit", "fingerprint")} | {
        "slug": "fastrates_fig2"
    }


def test_failure_while_writing_leaves_the_old_files_whole(figures, monkeypatch):
    old = {p.name: p.read_bytes() for p in (save().parent).iterdir()}

    def no_space(source, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        save(caption="another")
    assert {p.name: p.read_bytes() for p in (figures / "demo").iterdir()} == old


def test_record_comes_last(monkeypatch):
    order = []
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda source, target: (order.append(target), replace(source, target))
    )
    save()
    ends = [path.suffix for path in order if getattr(path, "stem", "") == "fastrates_fig2"]
    assert ends[-3:] == [".png", ".pdf", ".json"]


def stamped(path):
    return {end: path.with_suffix(end).read_bytes() for end in (".png", ".pdf", ".json")}


def at_another_commit(monkeypatch):
    said = {"rev-parse": "0123456789ab\n", "status": ""}
    monkeypatch.setattr(provenance, "git", lambda *arguments: said[arguments[0]])


def test_what_is_reproduced_stays_and_how_the_run_went_is_in_runs(monkeypatch, tmp_path):
    path = save()
    before = stamped(path)
    at_another_commit(monkeypatch)
    number = record.Number(0.0225, 0.002)  # within the tolerance of 0.021
    assert save(numbers={"error": number, "lost": record.Number(None, 0.0)}) == path
    assert stamped(path) == before
    latest = json.loads((tmp_path / "runs/latest/demo/fastrates_fig2.json").read_text())
    assert latest["provenance"]["commit"] == "0123456789ab"
    assert latest["numbers"]["error"]["value"] == 0.0225


def moved(by):
    figure = line()
    (drawn,) = figure.axes[0].lines
    drawn.set_ydata(np.asarray(drawn.get_ydata()) + by)
    return figure


LOST = record.Number(None, 0.0)


def remarked(why):
    """The claim of `save`, which fails, with a remark."""
    lost = claims.at_most("lemma", "loss falls", "paper A, Lemma 5", float("nan"), 1.0)
    return claims.remarked(lost, why)


@pytest.mark.parametrize(
    "changes",
    [
        dict(numbers={"error": record.Number(0.0235, 0.002), "lost": LOST}),
        dict(numbers={"error": record.Number(0.021, 0.02), "lost": LOST}),
        dict(numbers={"error": record.Number(0.021, 0.002)}),
        dict(claims=[claims.at_most("lemma", "loss falls", "paper A, Lemma 5", 0.5, 1.0)]),
        dict(claims=[claims.at_most("lemma", "loss falls", "paper A, Lemma 5", float("nan"), 2.0)]),
        dict(claims=[remarked("another reason")]),
        dict(data=[{"name": "example1", "source": "synthetic", "rows": 30}]),
        dict(caption="Ours: 3 seeds of our own."),
        dict(figure=moved(0.5)),
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
    assert json.loads(after[".json"])["provenance"]["commit"] == "0123456789ab"


def test_the_numbers_of_a_remark_may_move():
    before = stamped(save(claims=[remarked("the offset still moves by 0.31")]))
    assert stamped(save(claims=[remarked("the offset still moves by 0.32")])) == before


def test_a_drawing_that_hardly_moves_stays():
    path = save()
    before = stamped(path)
    save(figure=moved(1e-3))
    assert stamped(path) == before


def titled(text):
    figure = line()
    figure.axes[0].set_axis_on()
    figure.axes[0].set(title=text, xticks=[], yticks=[])
    return figure


def test_a_number_in_a_title_may_move_where_the_picture_hardly_does(monkeypatch):
    before = stamped(save(figure=titled("$r^{-1.48}$")))
    monkeypatch.setattr(pictures, "same", lambda one, other: True)
    assert stamped(save(figure=titled("$r^{-1.46}$"))) == before
    assert stamped(save(figure=titled("$s^{-1.48}$"))) != before


def test_the_picture_of_a_smoke_run_stays_while_its_numbers_do():
    data = [{"name": "digits", "source": "demo"}]
    before = stamped(save(data=data))
    assert stamped(save(data=data, figure=moved(0.5))) == before


@pytest.mark.parametrize("left", [0, 30, 300])
def test_a_damaged_picture_is_drawn_anew(left):
    path = save()
    before = stamped(path)
    path.with_suffix(".png").write_bytes(before[".png"][:left])
    save()
    assert path.with_suffix(".png").read_bytes() == before[".png"]


@pytest.mark.parametrize("key", ["numbers", "claims", "data", "parameters", "seeds"])
@pytest.mark.parametrize("odd", [None, 3, "", [3], {"final": 3}, [{"id": 1}]], ids=repr)
def test_a_record_of_odd_parts_is_written_anew(key, odd):
    path = save()
    true = path.read_text()
    path.write_text(json.dumps(json.loads(true) | {key: odd}))
    assert json.loads(save().read_text())[key] == json.loads(true)[key]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_damaged_or_missing_files_are_written_anew(text):
    path = save()
    path.write_text(text)
    assert json.loads(save().read_text())["slug"] == "fastrates_fig2"
    path.with_suffix(".pdf").unlink()
    assert save().with_suffix(".pdf").exists()


CELL = '# %% tags=["parameters"]\nscale = "demo"\nseeds = 5\nn, rates = 20, (1, 2)\n\n# %%\nm = 1\n'
OWN = {"scale": "demo", "seeds": 5, "n": 20, "rates": [1, 2]}


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path / "notebooks"))
    (tmp_path / "notebooks" / "01_x.py").write_text(CELL)
    (tmp_path / "notebooks" / "scales.toml").write_text('["01_x".desk]\nseeds = 20\n')


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({}, "figures/demo"),
        ({"scale": "desk", "seeds": 20}, "figures/desk"),
        ({"seeds": 3}, "runs/custom/01_x-*/figures/demo"),
        ({"scale": "desk"}, "runs/custom/01_x-*/figures/desk"),
    ],
)
def test_own_parameters_never_touch_the_figures(given, folder, notebooks, tmp_path, capsys):
    run = record.start("01_x", "A", OWN | given)
    path = run.save(line(), "one", "Figure 2", "A line.")
    assert list(tmp_path.glob(f"{folder}/one.json")) == [path]
    assert len(list(tmp_path.rglob("one.png"))) == 1
    said = capsys.readouterr().out
    assert (str(path.parent) in said) == ("custom" in folder), said
    run = record.start("01_x", "A", OWN)  # back to the scale's own
    assert run.save(line(), "one", "Figure 2", "A line.").parent == tmp_path / "figures" / "demo"


def one(run):
    """Save a figure: the path, the parameters and the seeds of its record."""
    path = run.save(line(), "one", "Figure 2", "A line.")
    saved = json.loads(path.read_text(encoding="utf-8"))
    return path, saved["parameters"], saved["seeds"]


@pytest.mark.parametrize(
    ("given", "later", "scale"),
    [
        ({}, {"seeds": 3}, "demo"),
        ({"seeds": 3}, {"seeds": 5}, "demo"),  # who knows with which the figure was made
        ({}, {"scale": "desk", "seeds": 20}, "desk"),
        ({}, {"rates": [1, 2, 3]}, "demo"),
    ],
    ids=["edited", "edited back", "scale", "list"],
)
def test_parameters_edited_after_the_start_never_touch_the_figures(
    given, later, scale, notebooks, figures, capsys
):
    variables = OWN | {"rates": [1, 2]} | given
    run = record.start("01_x", "A", variables)
    for name, value in later.items():
        if name == "rates":
            variables["rates"][:] = value  # in place
        variables[name] = value
    path, values, seeds = one(run)
    assert values == variables and seeds == list(range(variables["seeds"]))
    assert path.match(f"runs/custom/01_x-*/figures/{scale}/one.json") and not figures.exists()
    assert not (figures.parent / "runs" / "latest").exists()
    said = capsys.readouterr().out
    assert "Changed since record.start: " in said and all(name in said for name in later)


@pytest.fixture
def committed(notebooks, tmp_path, monkeypatch):
    """The notebook as its last commit has it: CELL."""
    shown = {("show", "HEAD:./notebooks/01_x.py"): CELL}
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "git", lambda *arguments: shown.get(arguments))
    return tmp_path / "notebooks" / "01_x.py"


def test_what_jupyterlab_saved_into_the_paired_file_is_a_readers_own(committed, figures, capsys):
    committed.write_text(CELL.replace("seeds = 5", "seeds = 3"))
    path, found, _ = one(record.start("01_x", "A", OWN | {"seeds": 3}))
    assert found["seeds"] == 3 and "(seeds = 3); saved in" in capsys.readouterr().out
    assert path.match("runs/custom/01_x-*/figures/demo/one.json") and not figures.exists()
    assert one(record.start("01_x", "A", OWN))[0] == figures / "demo" / "one.json"


@pytest.mark.parametrize("own", ["m = 2", "m = 1\n\n# %%\nrules['mine'] = 1"])
def test_code_that_nobody_committed_never_touches_the_figures(own, committed, figures):
    committed.write_text(CELL.replace("m = 1", own))
    assert one(record.start("01_x", "A", OWN))[0].match("runs/custom/01_x-*/figures/demo/one.json")
    assert not figures.exists()
    committed.write_text(CELL.replace("m = 1", "m = 1  # a comment"))
    assert one(record.start("01_x", "A", OWN))[0] == figures / "demo" / "one.json"


@pytest.mark.parametrize("own", ["m = 2", "rules['mine'] = 1", "get_ipython().system('ls')"])
def test_a_cell_that_ran_and_is_not_the_pages_never_touches_the_figures(own, committed, figures):
    # What papermill, IPython and the installing cell put between the cells of the page is no one's.
    ran = ["", "# Parameters\nseeds = 5\n", colab_cell.CELL, "m = 1\n", "m  =  1"]
    variables = OWN | {"In": ran}
    run = record.start("01_x", "A", variables)
    assert one(run)[0] == figures / "demo" / "one.json"
    ran.append(own)
    assert one(run)[0].match("runs/custom/01_x-*/figures/demo/one.json")


def test_two_runs_of_one_process_save_each_in_its_own_folder(notebooks, figures, capsys):
    first = record.start("01_x", "A", OWN | {"seeds": 3})
    second = record.start("01_x", "A", OWN)
    path, _, seeds = one(first)
    assert path.match("runs/custom/01_x-*/figures/demo/one.json") and seeds == [0, 1, 2]
    assert str(path.parent) in capsys.readouterr().out and not figures.exists()
    assert one(second)[0] == figures / "demo" / "one.json" and capsys.readouterr().out == ""
    assert one(first)[0] == path


def test_a_parameter_deleted_after_the_start_is_named(notebooks):
    variables = dict(OWN)
    run = record.start("01_x", "A", variables)
    del variables["n"]
    with pytest.raises(ValueError, match="there is no n$"):
        one(run)


def test_without_the_notebooks_source_it_says_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTEBOOKS_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="01_x.py, .*; set NOTEBOOKS_DIR to the folder"):
        record.start("01_x", "A", OWN)


def test_works_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert json.loads(save().read_text(encoding="utf-8"))["provenance"]["commit"] is None


@pytest.mark.parametrize("slug", ["", "Figure 2", "../escape", "fig-2", "fig.2"])
def test_bad_slug(slug, figures):
    with pytest.raises(ValueError, match="slug"):
        save(slug)
    assert not figures.exists()


def test_unknown_scale_names_the_known_ones():
    with pytest.raises(ValueError, match="'huge': choose one of demo, desk"):
        record.Run(notebook="01_x", paper="A", scale="huge", parameters={})


@pytest.mark.parametrize(
    "number",
    [
        record.Number(float("nan"), 1.0),
        record.Number(float("inf"), 1.0),
        record.Number(1.0, float("nan")),
        record.Number(1.0, -1.0),
        3.0,
    ],
)
def test_bad_number_is_named(number, figures):
    with pytest.raises(ValueError, match="'error'"):
        save(numbers={"error": number})
    assert not figures.exists()


@pytest.mark.parametrize(
    "row", [{"name": "mnist"}, {"source": "hub"}, {"name": "mnist", "source": "a disk"}]
)
def test_data_need_name_and_source(row):
    with pytest.raises(ValueError, match="name and a source"):
        save(data=[row])


def numbers(**values):
    return {
        "numbers": {
            name: dict(value=v, tolerance=tolerance) for name, (v, tolerance) in values.items()
        }
    }


@pytest.mark.parametrize(
    ("new", "reproduced"), [(1.0, True), (1.1, True), (0.89, False), (None, False)]
)
def test_compare_uses_the_committed_tolerance(new, reproduced):
    old = numbers(slope=(1.0, 0.1 + 1e-12))
    differences = record.compare(numbers(slope=(new, 99.0)), old)
    words = f"slope is {new}, committed 1.0 ± {0.1 + 1e-12}"
    assert differences == ([] if reproduced else [words])


def test_compare_names_a_number_that_is_gone_and_accepts_one_without_value():
    lost = (None, 0.0)
    gone = record.compare(numbers(), numbers(slope=(1.0, 0.1), lost=lost))
    assert [words.split()[0] for words in gone] == ["slope", "lost"]
    assert record.compare(numbers(lost=lost, more=(1.0, 0.0)), numbers(lost=lost)) == []


@pytest.mark.parametrize(
    ("caption", "setting", "wrong"),
    [
        ("our setting, n=4, d=400, 3 seeds", {}, "n = 4, the setting 6"),
        ("our setting, n=4, d=400, 3 seeds", {"n": 4}, None),
        ("our setting, n=6; long: n=20", {}, None),
        ("40 seeds", {}, "40 seeds, the record 3"),
        ("40 seeds", {"seeds": 40}, None),
        ("tokens, seeds [1, 3, 5]", {}, "seed [1, 3, 5], the record 3"),
        ("tokens, seeds [1, 3, 5]", {"seeds": [1, 3, 5]}, None),
        ("seed 0 on the left", {"seeds": [0]}, None),
        ("bands of 2 of 3 seeds; seed 0 dotted", {}, None),
    ],
)
def test_a_caption_that_its_setting_contradicts_is_said(caption, setting, wrong, capsys):
    run = record.Run(notebook="01_x", paper="A", scale="demo", parameters={"n": 6}, seeds=range(3))
    saved = json.loads(run.save(line(), "one", "Figure 2", caption, setting=setting).read_text())
    assert len(saved["seeds"]) == (40 if setting.get("seeds") == 40 else len(saved["seeds"]))
    assert saved["parameters"] == {"n": 6} and saved.get("setting", {}).get("n") == setting.get("n")
    said = capsys.readouterr().out
    assert (wrong in said and "save(setting=...)" in said) if wrong else not said
