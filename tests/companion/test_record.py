"""lib.companion.record: the record's layout, the same bytes for the same figure, no half-written file, bad input."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from lib import files, provenance
from lib.companion import claims, record


@pytest.fixture(autouse=True)
def figures(tmp_path, monkeypatch):
    monkeypatch.setenv("FIGURES_DIR", str(tmp_path / "figures"))
    return tmp_path / "figures"


def picture():
    figure = Figure(figsize=(2, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1, 2], label=r"$\alpha_{opt}$")
    ax.set(xlabel="iteration", ylabel="margin")
    ax.legend()
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
    return run.save(figure or picture(), slug, **given | changes)


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
    path = save()
    assert path == figures / "demo" / "fastrates_fig2.json"
    saved = record.load("fastrates_fig2", scale="demo")
    assert list(saved) == [
        "schema", "slug", "paper", "figure", "caption", "alt", "notebook", "scale", "parameters", "seeds",
        "data", "claims", "numbers", "provenance",
    ]  # fmt: skip
    assert (saved["schema"], saved["figure"], saved["seeds"]) == (1, "Figure 2", [0, 1, 2])
    assert saved["parameters"] == {"seeds": 3}
    assert saved["alt"] == "One panel: margin against iteration. Lines and marks: alpha_opt."
    assert saved["numbers"] == {
        "error": {"value": 0.021, "tolerance": 0.002},
        "lost": {"value": None, "tolerance": 0.0},
    }
    assert saved["claims"][0]["measured"] is None and saved["claims"][0]["holds"] is False
    made = saved["provenance"]
    assert set(made) == {
        "commit", "fingerprint", "versions", "device", "dtype", "threads", "seconds",
        "peak_memory_mb", "date",
    }  # fmt: skip
    assert made["versions"]["numpy"] == np.__version__
    assert made["seconds"] >= 0


def test_json_is_strict():
    not_json = []
    json.loads(save().read_text(encoding="utf-8"), parse_constant=not_json.append)
    assert not_json == []


def hashes(path):
    return [
        hashlib.sha256(path.with_suffix(end).read_bytes()).hexdigest() for end in (".png", ".pdf")
    ]


def test_same_figure_gives_the_same_bytes_twice():
    figure = picture()
    assert hashes(save(figure=figure)) == hashes(save(figure=figure)) == hashes(save())


def test_same_figure_gives_the_same_bytes_in_another_process(tmp_path):
    code = "import test_record as t; print(t.hashes(t.save()))"
    place = {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), str(files.ROOT)])}
    for seed in ("1", "2"):
        env = os.environ | place | {"PYTHONHASHSEED": seed}
        done = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
        assert done.strip() == str(hashes(save()))


def test_picture_carries_slug_commit_and_fingerprint():
    from PIL import Image

    path = save()
    with Image.open(path.with_suffix(".png")) as image:
        stamp = json.loads(image.info["Description"])
    made = record.load("fastrates_fig2")["provenance"]
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
    monkeypatch.setattr(files, "write", lambda path, content: order.append(path.suffix))
    save()
    assert order == [".png", ".pdf", ".json"]


def test_works_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert json.loads(save().read_text(encoding="utf-8"))["provenance"]["commit"] is None


@pytest.mark.parametrize("slug", ["", "Figure 2", "../escape", "fig-2", "fig.2"])
def test_bad_slug(slug, figures):
    with pytest.raises(ValueError, match="slug"):
        save(slug)
    assert not figures.exists()


def test_unknown_scale_names_the_known_ones():
    with pytest.raises(ValueError, match="'huge': choose one of demo, desk, paper"):
        record.Run(notebook="01_x", paper="A", scale="huge", parameters={})


@pytest.mark.parametrize(
    "number",
    [record.Number(float("nan"), 1.0), record.Number(float("inf"), 1.0), record.Number(1.0, float("nan")),
     record.Number(1.0, -1.0), 3.0],
)  # fmt: skip
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


def test_missing_record_says_how_to_make_it():
    with pytest.raises(FileNotFoundError, match="make figures SCALE=desk"):
        record.load("fastrates_fig2", scale="desk")


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
    assert differences == (
        [] if reproduced else [record.Difference("slope", new, 1.0, 0.1 + 1e-12)]
    )


def test_compare_names_a_number_that_is_gone_and_accepts_one_without_value():
    lost = (None, 0.0)
    gone = record.compare(numbers(), numbers(slope=(1.0, 0.1), lost=lost))
    assert [difference.name for difference in gone] == ["slope", "lost"]
    assert record.compare(numbers(lost=lost, more=(1.0, 0.0)), numbers(lost=lost)) == []


def test_fingerprint_sees_parameters_and_every_module():
    one = provenance.fingerprint("01_x", {"seeds": 5})
    assert provenance.digest(one) == provenance.digest(provenance.fingerprint("01_x", {"seeds": 5}))
    assert provenance.digest(one) != provenance.digest(provenance.fingerprint("01_x", {"seeds": 6}))
    assert {"companion/claims.py", "companion/record.py"} <= one["lib"].keys()
