"""lib.batch on a small repository of its own: what runs, what is skipped, what failures leave."""

import contextlib
import dataclasses
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import jupytext
import nbformat
import papermill
import psutil
import pytest

from lib import files, import_closure, provenance
from lib.batch import command, compare, kernel, plan, publish, staleness
from lib.batch import job as jobs
from lib.companion import colab_cell, parameters
from lib.data import images, texts

NOTEBOOK = """# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
#     language: python
# ---

# %% [markdown]
# # A notebook as small as they get

# %% tags=["parameters"]
scale = "demo"
seeds = 5
n, step = 20, 1e-3

# %%
from matplotlib.figure import Figure

from lib.companion import claims
from lib.companion import record

run = record.start("{name}", "A", globals())
figure = Figure(figsize=(1, 1))
axes = figure.subplots()
axes.plot([0, seeds])
axes.set_axis_off()  # letters take as long as all the rest of the cell
run.save(
    figure, "{name}", "Figure 2", "A line.",
    claims=[claims.at_most("few", "seeds are few", "ours", seeds, 6)],
    numbers=dict(slope=record.Number(seeds, tolerance=0.5)),
    data=[dict(name="line", source="synthetic")],
)
figure

# %%
{last}
"""
LAST = {
    "01_good": "print(record.__file__)",
    "02_bad": 'raise ValueError("broken on purpose")',
    "03_hangs": """
import time
from pathlib import Path

print("asleep", flush=True)
end = time.monotonic() + 300
while time.monotonic() < end and not Path("wake").exists():
    time.sleep(0.1)
raise RuntimeError("woken")
""",
}
FIGURES = ["01_good.json", "01_good.pdf", "01_good.png"]
REDIRECTIONS = {"FIGURES_DIR", "RUNS_DIR", "NOTEBOOKS_DIR", "DATA_DIR", "PYTHONPATH"}
# A copy of lib/ may keep its bytecode: many processes import it, and compile it once.
REDIRECTIONS |= {"PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in REDIRECTIONS}


class Repository:
    """A copy of lib/ with three notebooks, under git where there is git."""

    def __init__(self, root):
        self.root, self.notebooks = root, root / "notebooks"
        self.demo, self.runs = root / "figures" / "demo", root / "runs" / "demo"
        shutil.copytree(
            files.ROOT / "lib", root / "lib", ignore=shutil.ignore_patterns("__pycache__")
        )
        self.notebooks.mkdir()
        for name, last in LAST.items():
            text = NOTEBOOK.format(name=name, last=last)
            (self.notebooks / f"{name}.py").write_text(text, encoding="utf-8")
        # A parser that jsonschema builds where it is installed: half of what a worker or kernel
        # takes to start, for a kind of address that no notebook has.
        (root / "rfc3987_syntax.py").write_text("raise ImportError\n")
        (self.notebooks / "renamed.toml").write_text('"07_old" = ["01_good", "02_bad"]\n')
        (self.notebooks / "scales.toml").write_text('["01_good".desk]\nseeds = 20\n')
        if shutil.which("git"):
            self.git("init", "--quiet")

    def start(self, *arguments, **settings):
        return subprocess.Popen(
            [sys.executable, "-m", "lib.batch", *arguments],
            cwd=self.root,
            env=ENVIRONMENT | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A test session in the background may ignore Ctrl-C, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def batch(self, *arguments, **settings):
        process = self.start(*arguments, **settings)
        output, _ = process.communicate(timeout=120)
        return SimpleNamespace(status=process.returncode, output=output, lines=output.splitlines())

    def inside(self, *arguments):
        """The command in this process, on this repository, for what runs no notebook."""
        said, sigterm = io.StringIO(), signal.getsignal(signal.SIGTERM)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.delenv("DATA_DIR", raising=False)
            for name in ("figures", "runs", "notebooks"):
                patch.setenv(f"{name.upper()}_DIR", str(self.root / name))
            for module in (files, import_closure, provenance):
                patch.setattr(module, "ROOT", self.root)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                try:
                    status = command.main(list(arguments))
                except SystemExit as end:
                    status = end.code
        signal.signal(signal.SIGTERM, sigterm)
        output = said.getvalue()
        return SimpleNamespace(status=status, output=output, lines=output.splitlines())

    def why(self, *arguments):
        done = self.inside("01_good", "--dry-run", *arguments)
        assert done.status == 0, done.output
        return done.lines[0].removeprefix("run  01_good: ") if len(done.lines) > 1 else None

    def outputs(self, name):
        executed = nbformat.read(self.runs / f"{name}.ipynb", 4)
        return [output for cell in executed.cells for output in cell.get("outputs", [])]

    def git(self, *arguments):
        who = [
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@localhost",
            "-c",
            "commit.gpgsign=false",
        ]
        run = dict(cwd=self.root, check=True, capture_output=True, text=True)
        return subprocess.run(["git", *who, *arguments], **run).stdout

    def commit_record(self, **changes):
        """Commit the record of 01_good with `changes`; the true one stays in the working tree."""
        path = self.demo / "01_good.json"
        true = path.read_bytes()
        path.write_text(json.dumps(json.loads(true) | changes))
        self.git("add", "figures")
        self.git("commit", "--quiet", "--allow-empty", "-m", "record")
        path.write_bytes(true)

    def files(self, *folders):
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), path.stat().st_mtime_ns)
            for folder in folders
            for path in sorted((self.root / folder).rglob("*"))
            if path.is_file()
        }


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def first(repository):
    """The first batch: one notebook succeeds, one raises, one takes too long."""
    before = repository.files("notebooks")
    done = repository.batch("--timeout", "12")
    done.notebooks_untouched = repository.files("notebooks") == before
    return done


@pytest.fixture
def edited(repository, first):
    """Edit files of the repository for one test."""
    originals = {}

    def edit(path, old, new):
        text = (repository.root / path).read_text(encoding="utf-8")
        assert old in text
        originals.setdefault(path, text)
        (repository.root / path).write_text(text.replace(old, new), encoding="utf-8")

    yield edit
    for path, text in originals.items():
        (repository.root / path).write_text(text, encoding="utf-8")


def test_failures_set_the_exit_status_and_the_others_finish(first):
    assert first.status == 1
    assert any(line.startswith("ok   01_good") for line in first.lines)
    (bad,) = [line for line in first.lines if line.startswith("FAIL 02_bad")]
    assert (
        "ValueError: broken on purpose" in bad
        and os.path.join("runs", "demo", "02_bad.ipynb") in bad
    )
    (hung,) = [line for line in first.lines if line.startswith("FAIL 03_hangs")]
    assert "longer than 12 s" in hung
    (summary,) = [line for line in first.lines if line.startswith("Failed:")]
    assert "02_bad" in summary and "03_hangs" in summary and "01_good" not in summary


def test_output_is_free_of_noise(first):
    assert len(first.lines) == 9, first.output
    assert not any(
        word in first.output for word in ("IPKernelApp", "Traceback", "distributed", "Warning")
    )


def test_failing_notebook_leaves_its_executed_copy(repository, first):
    outputs = repository.outputs("02_bad")
    assert any(o.output_type == "error" and o.evalue == "broken on purpose" for o in outputs)


def test_only_a_success_reaches_figures(repository, first):
    assert sorted(path.name for path in repository.demo.iterdir()) == FIGURES


def test_execution_changes_nothing_under_notebooks(first):
    assert first.notebooks_untouched


def test_kernel_uses_the_library_of_its_own_repository(repository, first):
    module = (repository.root / "lib" / "companion" / "record.py").resolve()
    assert repository.outputs("01_good")[-1].text.strip() == str(module)


def test_failed_and_timed_out_runs_never_count_as_up_to_date(repository, first):
    done = repository.inside("--dry-run")
    assert done.lines == [
        "run  02_bad: never run",
        "run  03_hangs: never run",
        "1 up to date, 2 to run",
    ]


def test_second_run_does_nothing(repository, first):
    before = repository.files("figures", "runs", "notebooks")
    done = repository.batch("01")
    assert done.status == 0 and done.lines[0] == "1 up to date, 0 to run"
    assert repository.files("figures", "runs", "notebooks") == before


def test_an_old_name_runs_what_holds_its_subject_now_and_says_so(repository):
    lines = repository.inside("07_old", "--dry-run", "--force").lines
    assert lines[0] == "07_old is now 01_good and 02_bad"
    to_run = sorted(line.split()[1].rstrip(":") for line in lines[1:-1])  # the longest comes first
    assert to_run == ["01_good", "02_bad"]
    assert lines[-1] == "0 up to date, 2 to run"


def test_dry_run_runs_nothing(repository, first):
    before = repository.files("figures", "runs", "notebooks")
    assert repository.why("--force") == "forced"
    assert repository.files("figures", "runs", "notebooks") == before


def test_touching_lib_reruns_and_says_which_modules(repository, edited):
    edited("lib/companion/claims.py", "import math", "import math  # edited")
    edited("lib/provenance.py", "import json", "import json  # edited")
    edited("lib/dynamics/rules.py", "import", "import ")  # nothing that the notebook draws on
    assert repository.why() == "lib changed: companion/claims.py, provenance.py"


def test_a_kept_result_that_changed_is_named(tmp_path):
    kept = {"figures/desk/mnist.npz": "1", "figures/desk/vit.npz": "1"}
    parts = {"source": "1", "lib": {}, "parameters": {}}
    job = SimpleNamespace(parts=parts | {"kept": kept}, scale="demo", figures=tmp_path)
    marker = parts | {"kept": dict(kept), "data": [], "figures": {}}
    assert staleness._changes(job, marker) == []
    kept["figures/desk/vit.npz"] = "2"
    assert staleness._changes(job, marker) == ["kept results changed: figures/desk/vit.npz"]
    del marker["kept"]  # a marker from before kept results counted
    (words,) = staleness._changes(job, marker)
    assert words == "kept results changed: figures/desk/mnist.npz, figures/desk/vit.npz"


def test_changed_source_and_parameter_are_named(repository, edited):
    edited("notebooks/01_good.py", "as small as they get", "smaller still")
    assert repository.why() == "source changed"
    edited("notebooks/01_good.py", "seeds = 5", "seeds = 20")
    assert repository.why() == "source changed; parameters changed: seeds 5 -> 20"


def test_missing_or_foreign_figure_is_named(repository, first):
    path = repository.demo / "01_good.png"
    content = path.read_bytes()
    path.unlink()
    assert repository.why() == "figure missing: 01_good.png"
    path.write_bytes(content + b" ")
    assert repository.why() == "figure changed: 01_good.png"
    path.write_bytes(content)
    assert repository.why() is None


DIGITS = dict(name="digits", source="demo", revision="1", instead_of="mnist")
PAIRS = dict(name="demo pairs", source="demo", revision="1", instead_of="multi_nli")


@pytest.mark.parametrize(
    ("used", "now", "words"),
    [
        (DIGITS, DIGITS, []),
        (
            DIGITS,
            dict(name="mnist", source="data_dir", revision="2"),
            ["data changed: mnist (demo -> data_dir)"],
        ),
        (
            dict(name="mnist", source="hub", revision="1"),
            dict(name="mnist", source="hub", revision="2"),
            ["data changed: mnist"],
        ),
        (PAIRS, PAIRS, []),
        (
            PAIRS,
            dict(name="multi_nli", source="data_dir", revision="2"),
            ["data changed: multi_nli (demo -> data_dir)"],
        ),
    ],
)
def test_changed_data_are_named(monkeypatch, used, now, words):
    monkeypatch.setattr(texts if used is PAIRS else images, "identity", lambda name, demo: now)
    assert (
        staleness._data_changes([used, {"name": "line", "source": "synthetic"}], demo=True) == words
    )


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_committed_numbers_are_compared_by_their_own_tolerance(repository, first):
    repository.commit_record()
    done = repository.inside("01_good")
    assert done.status == 0
    assert done.lines[-1] == "01_good: 1 of 1 numbers reproduced; held 1 of 1 claims"

    repository.commit_record(numbers={"slope": {"value": 7.0, "tolerance": 1.5}})
    done = repository.inside("01_good")
    assert done.status == 1
    assert (
        "01_good: 0 of 1 numbers reproduced; slope is 5, committed 7.0 ± 1.5; held" in done.output
    )
    assert "Numbers or claims that are not reproduced: 01_good." in done.lines

    repository.commit_record(parameters={"seeds": 100})
    done = repository.inside("01_good")
    assert done.status == 0 and "parameters differ, not compared" in done.output

    repository.commit_record(data=[{"name": "mnist", "source": "data_dir"}])
    done = repository.inside("01_good")
    assert done.status == 0 and "data differ, not compared" in done.output


def test_new_figure_has_no_committed_record(first):
    assert "01_good: no committed record; held 1 of 1 claims" in first.lines


@pytest.fixture(scope="module")
def own(repository, first):
    """Two notebooks with a parameter of one's own, the longer first, and minutes for one alone."""
    short = repository.demo / "02_bad.json"
    short.write_text(json.dumps({"notebook": "02_bad", "provenance": {"seconds": 0.0}}))
    before = repository.files("figures", "runs/demo", "notebooks")
    one_at_a_time = ("--workers", "1", "--minutes", "0.001")
    done = repository.batch("01_good", "02_bad", "--set", "seeds=8", *one_at_a_time)
    done.figures_untouched = repository.files("figures", "runs/demo", "notebooks") == before
    short.unlink()
    return done


def test_own_parameters_leave_figures_alone(repository, own):
    assert "01_good: custom, not compared; held 0 of 1 claims, not few" in own.lines
    assert own.figures_untouched
    (copy,) = (repository.root / "runs" / "custom").glob("01_good-*/01_good.ipynb")
    folder = copy.parent
    assert json.loads((folder / "figures" / "demo" / "01_good.json").read_text())["seeds"] == list(
        range(8)
    )


def test_minutes_start_the_first_and_leave_the_rest(repository, own):
    assert own.status == 3, own.output  # neither failed nor differing
    (started,) = [line for line in own.lines if line.startswith(("ok ", "FAIL"))]
    assert started.startswith("ok   01_good")
    assert own.lines[-1] == "The minutes are used up; left for next time: 02_bad."
    refused = repository.inside("01_good", "--minutes", "0")
    assert refused.status == 2 and "minutes must be above 0" in refused.output


def test_the_longest_notebook_starts_first_and_one_never_run_before_it(monkeypatch, tmp_path):
    names = ("00_attention_by_hand", "10_fixed_decoder", "11_long_horizon")
    for slug, notebook, seconds in (("a", 0, 5.0), ("b", 2, 1.0), ("c", 2, 50.0), ("d", 2, 2.0)):
        record = {"notebook": names[notebook], "provenance": {"seconds": seconds}}
        files.write(tmp_path / "demo" / f"{slug}.json", json.dumps(record).encode())
    past = plan._past_seconds([SimpleNamespace(figures_folder=tmp_path, scale="demo")])
    assert past == {names[0]: 5.0, names[2]: 50.0}
    monkeypatch.setattr(plan, "_past_seconds", lambda jobs: past)
    todo = plan.plan(names, "demo", {}, force=True, store=False).todo
    assert [job.notebook for job in todo] == [names[1], names[2], names[0]]


def test_store_writes_the_outputs_beside_the_source(repository, first):
    path = repository.notebooks / "01_good.ipynb"
    assert repository.inside("01_good", "--store").status in (0, 1)
    stored = nbformat.read(path, 4)
    assert [c.id for c in stored.cells] == ["cell-00", "install", "cell-01", "cell-02", "cell-03"]
    stored.cells = [cell for cell in stored.cells if not colab_cell.installs(cell)]
    source = jupytext.read(repository.notebooks / "01_good.py")
    assert [(c.cell_type, c.source, c.metadata) for c in stored.cells] == [
        (c.cell_type, c.source, c.metadata) for c in source.cells
    ]
    assert stored.metadata.kernelspec.name == "python3" and "papermill" not in stored.metadata
    assert [bool(c.outputs) for c in stored.cells if c.cell_type == "code"] == [False, True, True]
    content = path.read_bytes()
    assert repository.inside("01_good", "--store").status in (0, 1)
    assert path.read_bytes() == content
    assert sorted(p.name for p in repository.notebooks.glob("*.ipynb")) == ["01_good.ipynb"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["09_none"], ["'09_none' is not a notebook", "01_good, 02_bad, 03_hangs"]),
        (["07"], ["'07' is not a notebook any more: 07_old is now 01_good and 02_bad"]),
        (["0"], ["'0' fits more than one notebook"]),
        (["--scale", "huge"], ["invalid choice: 'huge'"]),
        (
            ["--set", "sed=7"],
            ["01_good", "there is no parameter sed; there are scale, seeds, n, step"],
        ),
        (["--set", "seeds=many"], ["seeds is a whole number such as 5, not 'many'"]),
        (["--set", "seeds=5.0"], ["seeds is a whole number such as 5, not 5.0"]),
        (["--set", "seeds"], ["'seeds' is not of the form parameter=value"]),
        (["--set", "scale=desk"], ["--scale"]),
        (["02_bad", "--scale", "desk"], ["02_bad: no section for scale desk in scales.toml"]),
        (["--workers", "0"], ["--workers must be at least 1"]),
        (["--timeout", "-1"], ["--timeout must be positive"]),
        (["--timeout", "nan"], ["--timeout must be positive and finite"]),
        (["--store", "--scale", "desk"], ["--store keeps the demo scale"]),
        (["--notebooks", "nowhere"], ["there is no notebook in", "--notebooks DIR"]),
    ],
)
def test_usage_error_is_one_sentence_and_runs_nothing(repository, first, arguments, words):
    status, output = refused(repository, repository.inside, arguments)
    assert status == 2 and "Traceback" not in output, output
    assert all(word in output for word in words), output


def test_a_scheduler_that_does_not_answer_is_one_sentence_and_runs_nothing(repository, first):
    asked = ["01_good", "--force", "--scheduler", "nowhere"]
    status, output = refused(repository, repository.batch, asked)
    assert status == 2 and "Traceback" not in output, output
    assert "no Dask scheduler answers at nowhere" in output


def refused(repository, batch, arguments):
    """Status and output of a call that must leave every file as it was."""
    before = repository.files("figures", "runs")
    done = batch(*arguments)
    assert repository.files("figures", "runs") == before
    return done.status, done.output


def test_batch_skips_what_a_scale_does_not_offer(repository, first):
    done = repository.inside("--scale", "desk", "--dry-run")
    assert done.lines == [
        "skip 02_bad: not offered at scale desk",
        "skip 03_hangs: not offered at scale desk",
        "run  01_good: never run",
        "0 up to date, 1 to run",
    ]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_batch_keeps_what_is_finished_and_nothing_else(repository, first, sent):
    process = repository.start("01_good", "03_hangs", "--force")
    output = []
    for line in process.stdout:
        output.append(line)
        if line.startswith("ok   01_good"):
            break
    asleep = "03_hangs/run-*/figures/demo/03_hangs.json"
    for _ in range(300):
        if list(repository.runs.glob(asleep)):
            break
        time.sleep(0.1)
    assert list(repository.runs.glob(asleep)), "the second notebook never got as far as its figure"
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("ipykernel" in " ".join(child.cmdline()) for child in family)
    os.killpg(process.pid, sent)
    rest = process.communicate(timeout=60)[0]
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert rest.splitlines() == [
            "Interrupted; what is finished stays, the rest runs next time."
        ]
    assert sorted(path.name for path in repository.demo.iterdir()) == FIGURES
    done = repository.inside("01_good", "03_hangs", "--dry-run")
    assert done.lines == ["run  03_hangs: never run", "1 up to date, 1 to run"]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes only there")
def test_a_path_that_the_c_locale_cannot_write_is_one_sentence(tmp_path):
    place = tmp_path / "größe"
    place.mkdir()
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = ENVIRONMENT | plain | {"RUNS_DIR": str(place), "PYTHONPATH": str(files.ROOT)}
    command = [sys.executable, "-m", "lib.batch", "01", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 2 and done.stdout == b""
    assert done.stderr.count(b"\n") == 1 and b"set PYTHONUTF8=1" in done.stderr


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    return jobs.Job("01_good", "demo", {}, NOTEBOOK.format(name="01_good", last="pass"), {})


def test_job_keeps_its_folders_on_a_worker_with_other_settings(job, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "elsewhere"))
    assert pickle.loads(pickle.dumps(job)).home == tmp_path / "demo" / "01_good"


def attempts(monkeypatch, *outcomes):
    """Let papermill's next calls raise or return these outcomes; the list of calls made."""
    calls = []

    def execute(notebook, output, **options):
        outcome = outcomes[len(calls)]
        calls.append(options)
        if isinstance(outcome, Exception):
            raise outcome

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    return calls


def test_kernel_that_does_not_start_gets_one_more_try(job, monkeypatch):
    calls = attempts(monkeypatch, RuntimeError("Kernel died before replying to kernel_info"), None)
    assert kernel.run(job, threads=1, timeout=None).error is None
    assert len(calls) == 2


def test_notebook_that_raised_gets_no_second_try(job, monkeypatch):
    calls = attempts(monkeypatch, ValueError("broken\nand more"), None)
    assert kernel.run(job, threads=1, timeout=None).error == "ValueError: broken"
    assert len(calls) == 1


def test_run_removes_the_marker_before_it_starts(job, monkeypatch):
    job.marker.parent.mkdir(parents=True)
    job.marker.write_text("{}")
    attempts(monkeypatch, ValueError("broken"))
    kernel.run(job, threads=1, timeout=None)
    assert not job.marker.exists()


@pytest.mark.parametrize("changes", [{}, {"seeds": 3}], ids=["figure", "own parameters"])
def test_run_starts_from_an_empty_folder(job, monkeypatch, changes):
    job = dataclasses.replace(job, changes=changes)
    old = job.home / "figures" / "demo" / "old.png"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"of an earlier run")
    attempts(monkeypatch, None)
    assert kernel.run(job, threads=1, timeout=None).error is None
    assert not old.exists()


MARKER = "runs/demo/01_good.json"


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"source": 1, "lib": 2}'])
def test_a_damaged_marker_is_named_and_mended_by_a_run(repository, first, text):
    path = repository.root / MARKER
    content = path.read_text()
    path.write_text(text)
    assert repository.why() == f"damaged: {MARKER}"
    path.write_text(content)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize("text", ["", '{"numbers": ', "[]", "\udcff"])
def test_a_damaged_committed_record_is_named(repository, first, text):
    path = repository.demo / "01_good.json"
    true = path.read_bytes()
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    repository.git("add", "figures")
    repository.git("commit", "--quiet", "--allow-empty", "-m", "record")
    path.write_bytes(true)
    done = repository.inside("01_good")
    assert done.status == 1 and "Traceback" not in done.output
    assert (
        "01_good: the committed record is damaged, not compared; held 1 of 1 claims" in done.lines
    )
    repository.commit_record()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_run_that_reproduces_everything_leaves_git_status_empty(repository, first):
    repository.commit_record()
    (repository.root / ".gitignore").write_text("runs/\n__pycache__/\n*.ipynb\n")
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "everything")
    made = json.loads((repository.root / MARKER).read_text())["made"]["01_good"]
    assert repository.batch("01_good", "--force").status == 0
    assert repository.git("status", "--porcelain") == ""
    again = json.loads((repository.root / MARKER).read_text())["made"]["01_good"]
    assert again["commit"] != made["commit"]  # how the last run went is in runs/


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_parameter_that_nobody_committed_is_a_readers_own(repository, first):
    repository.git("add", "notebooks/01_good.py")
    repository.git("commit", "--quiet", "--allow-empty", "-m", "notebook")
    path = repository.notebooks / "01_good.py"
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace("seeds = 5", "seeds = 4"), encoding="utf-8")
        assert repository.why() == "custom parameters"
        path.write_text(f"{text}\n# %%\nown = 1\n", encoding="utf-8")
        assert repository.why() == "custom code"
    finally:
        path.write_text(text, encoding="utf-8")


def test_two_batches_at_once_do_not_take_each_others_figures(repository, first):
    one, wake = repository.start("03_hangs"), repository.notebooks / "wake"
    holder = repository.root / "runs" / "locks" / "demo" / "03_hangs.holder"
    try:
        for _ in range(300):
            if holder.exists() and json.loads(holder.read_text())["process"] == one.pid:
                break
            time.sleep(0.1)
        other = repository.batch("01_good", "03_hangs", "--force", "--workers", "1")
        (refused,) = [line for line in other.lines if line.startswith("FAIL 03_hangs")]
        assert f"another batch runs it: process {one.pid} of " in refused
        assert ", since 20" in refused
        assert any(line.startswith("ok   01_good") for line in other.lines) and other.status == 1
    finally:
        wake.touch()
        output, _ = one.communicate(timeout=120)
        wake.unlink()
    (ended,) = [line for line in output.splitlines() if line.startswith("FAIL 03_hangs")]
    assert "RuntimeError: woken" in ended  # its own run came to its own end


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_a_failed_line_and_leaves_what_was_there(repository, first):
    before, marker = repository.files("figures"), repository.root / MARKER
    of_success, other = marker.read_bytes(), repository.root / "small"
    other.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", other]).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        done = repository.batch("01_good", "--force", FIGURES_DIR=str(other))
        (line,) = [line for line in done.lines if line.startswith("FAIL 01_good")]
        assert "not published, OSError" in line and "No space left" in line, line
        assert done.status == 1 and "Traceback" not in done.output
        assert not [path for path in other.rglob("*") if path.is_file()]
        assert not marker.exists()
    finally:
        subprocess.run(["umount", other], check=True)
        marker.write_bytes(of_success)
    assert repository.files("figures") == before


RECORD = {
    "notebook": "01_good",
    "parameters": {},
    "data": [],
    "claims": [{"id": "lemma", "holds": True}],
    "numbers": {"loss": {"value": 1.0, "tolerance": 0.1}},
    "provenance": {},
}
ODD = (None, [], {}, "", 0, True, [1], {"loss": 1}, [{}], [None], {"loss": {"value": "1"}})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("scales.toml", "[", "scales.toml cannot be read"),
        ("scales.toml", '"01_good" = 3\n', "01_good is not a table of scales"),
        ("renamed.toml", "[", "renamed.toml cannot be read"),
        ("renamed.toml", '"07_old" = 3\n', "07_old is not a list of names"),
        ("01_good.py", "caf\u00e9", "01_good: 'utf-8' codec can't decode"),
        ("01_good.py", '# %% tags=["parameters"]\nseeds = 1\n', "there is no parameter scale"),
    ],
)
def test_a_table_or_page_that_cannot_be_read_is_one_sentence(repository, first, name, text, words):
    path = repository.notebooks / name
    before = path.read_bytes()
    try:
        path.write_bytes(text.encode("latin-1"))
        done = repository.inside("01_good", "--dry-run", "--scale", "desk")
    finally:
        path.write_bytes(before)
    assert done.status == 2 and words in done.output and "Traceback" not in done.output


def test_what_killed_publishes_left_goes_with_the_next_one(job, monkeypatch):
    kept, gone = (job.figures / f".one.png.{name}" for name in ("young", "old"))
    job.figures.mkdir(parents=True, exist_ok=True)
    for path in (kept, gone):
        path.write_bytes(b"half")
    os.utime(gone, (0, 0))
    files.remove_leftovers([job.figures / "one.png"])
    assert kept.exists() and not gone.exists()


def test_a_figure_that_redraws_kept_curves_says_so():
    same = {"numbers": {"loss": {"value": 1.0, "tolerance": 0.1}}}
    for source, words in (
        ("kept", "redrawn from kept curves: 1 of 1"),
        ("demo", "1 of 1 numbers reproduced"),
    ):
        saved = RECORD | same | {"data": [{"name": "mnist", "source": source}]}
        assert compare._reproduced(saved, saved) == (words, True)


def test_a_record_of_odd_parts_is_damaged_and_never_a_traceback():
    assert compare._read(json.dumps(RECORD).encode()) == RECORD
    seen = 0
    for key in RECORD:
        for odd in ODD:
            read = compare._read(json.dumps(RECORD | {key: odd}).encode())
            seen += read is None
            if read is not None:  # what is accepted can be compared, either way round
                assert compare._reproduced(RECORD, read) and compare._reproduced(read, RECORD)
    assert seen > 45
    for value in ("1", True, [1.0], float("nan")):
        numbers = {"loss": {"value": value, "tolerance": 0.1}}
        assert compare._read(json.dumps(RECORD | {"numbers": numbers}).encode()) is None
    claim = {"id": "lemma", "holds": "no"}  # a truth value it would pass for
    assert compare._read(json.dumps(RECORD | {"claims": [claim]}).encode()) is None
    odd = {"loss": {"value": 1.0, "tolerance": None}}
    for content in (b"\xff\xfe", b"[" * 10**5, json.dumps(RECORD | {"numbers": odd}).encode()):
        assert compare._read(content) is None


@pytest.mark.parametrize("content", [b"", b"3", b"{}", b'{"data": 3}', b"\xff", b"[" * 10**5])
def test_a_staged_record_that_is_none_fails_its_notebook_alone(job, content):
    outcome = jobs.Outcome(job, 1.0, work=job.home / "run-1")
    outcome.staged.mkdir(parents=True)
    (outcome.staged / "one.json").write_bytes(content)
    said = publish.publish(outcome).line
    assert said.startswith("FAIL 01_good  1.0 s: not published, ValueError: ")
    assert "one.json is damaged: " in said


def test_a_publish_that_fails_is_a_failed_line_and_the_next_one_succeeds(job, monkeypatch):
    monkeypatch.setenv("FIGURES_DIR", str(job.runs_folder / "figures"))
    job = dataclasses.replace(job, figures_folder=job.runs_folder / "figures")
    outcome = jobs.Outcome(job, 1.0, work=job.home / "run-1")
    outcome.staged.mkdir(parents=True)
    (outcome.staged / "one.json").write_text(json.dumps(RECORD))
    (outcome.staged / "one.png").write_bytes(b"new")
    job.figures.mkdir(parents=True)
    (job.figures / "one.png").write_bytes(b"old")
    (job.figures / "one.json").mkdir()  # so that nothing can take its place
    done = publish.publish(outcome)
    assert done.line.startswith("FAIL 01_good  1.0 s: not published, IsADirectoryError")
    assert (job.figures / "one.png").read_bytes() == b"old" and not job.marker.exists()
    (job.figures / "one.json").rmdir()
    assert publish.publish(outcome).line == "ok   01_good  1.0 s"
    assert sorted(path.name for path in job.figures.iterdir()) == ["one.json", "one.png"]
    assert (job.figures / "one.png").read_bytes() == b"new" and job.marker.exists()


@pytest.mark.parametrize(
    "door",
    [
        ["papermill", "-p", "seeds", "3", "01_good.py.ipynb", "out.ipynb"],
        ["nbconvert", "--to", "notebook", "--execute", "--output", "out.ipynb", "changed.ipynb"],
    ],
    ids=lambda door: door[0],
)
def test_own_parameters_by_other_doors_leave_figures_alone(repository, first, door, tmp_path):
    text = (repository.notebooks / "01_good.py").read_text()
    jupytext.write(jupytext.reads(text, fmt="py:percent"), tmp_path / "01_good.py.ipynb")
    changed = jupytext.reads(text.replace("seeds = 5", "seeds = 3"), fmt="py:percent")
    jupytext.write(changed, tmp_path / "changed.ipynb")
    before = repository.files("figures", "runs/demo")
    environment = ENVIRONMENT | {"PYTHONPATH": str(repository.root)}
    command = (
        [sys.executable, "-m", *door]
        if door[0] == "papermill"
        else [sys.executable, "-m", "jupyter", *door]
    )
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert repository.files("figures", "runs/demo") == before
    said = (tmp_path / "out.ipynb").read_text()
    assert "(seeds = 3); saved in" in said and "runs/custom/01_good-" in said
    (record,) = [
        path
        for path in (repository.root / "runs" / "custom").rglob("01_good.json")
        if json.loads(path.read_text())["parameters"]["seeds"] == 3
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("[1, 2]", [1, 2]),
        ("true", True),
        ("mnist", "mnist"),
        ("None", None),
        ("-2", -2),
    ],
)
def test_setting_reads_literals_and_yaml(text, value):
    assert command.setting(f"step={text}") == ("step", value)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("step = 1 / 3", "'step = 1 / 3'"),
        ("import os", "'import os'"),
        ("a, b = 1, 2, 3", "'a, b = "),
    ],
)
def test_parameters_are_literals(cell, words):
    with pytest.raises(ValueError, match="is not name = literal") as error:
        parameters.literals(f'# %% tags=["parameters"]\n{cell}\n\n# %%\npass\n')
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["rate=.nan", "rate=1e400", "rate=1j", "rate=None", "rate=[]", "rate={1}", "rate=true"]
    + ["n='3'", "n=true", "n=2.5", "n=20.0", "on=1"],
)
def test_a_setting_of_another_kind_is_refused_before_it_runs(text):
    known = {"n": 20, "rate": 0.5, "on": True, "rates": (1, 2), "cap": None}
    plan._check({"n": 2, "rate": 1, "on": False, "rates": [3], "cap": 1.0}, known)  # these may be
    key, value = command.setting(text)
    needed = {
        "n": "a whole number such as 20",
        "rate": "a number such as 0.5",
        "on": "true or false",
    }
    with pytest.raises(ValueError, match=re.escape(f"{key} is {needed[key]}, not {value!r}")):
        plan._check({key: value}, known)


def test_parameters_cell_is_found_once():
    with pytest.raises(ValueError, match="exactly one cell tagged parameters, has 0"):
        parameters.literals("# %%\nseeds = 5\n")


@pytest.mark.parametrize(
    ("scale", "source", "expected"),
    [
        ("desk", "demo", True),
        ("desk", "data_dir", False),
        ("desk", "synthetic", False),
        ("demo", "demo", False),
    ],
)
def test_embedded_data_never_take_the_place_of_real_ones(job, scale, source, expected):
    job = dataclasses.replace(job, scale=scale)
    outcome = jobs.Outcome(job, 1.0, work=job.home / "run-1")
    outcome.staged.mkdir(parents=True)
    for beside in ([], [{"name": "line", "source": "synthetic"}]):  # one such row is enough
        saved = RECORD | {"data": [{"name": "digits", "source": source}, *beside]}
        (outcome.staged / "one.json").write_text(json.dumps(saved))
        assert publish._stand_in(outcome) is expected


def test_a_claim_that_held_and_fails_is_not_reproduced():
    def record(holds):
        return {
            "parameters": {},
            "data": [],
            "numbers": {},
            "claims": [{"id": "lemma", "holds": holds}],
        }

    assert compare._reproduced(record(True), record(True)) == ("0 of 0 numbers reproduced", True)
    assert compare._reproduced(record(False), record(False))[1]  # a finding stays a finding
    assert compare._reproduced(record(False), record(True)) == (
        "0 of 0 numbers reproduced; lemma held before",
        False,
    )
