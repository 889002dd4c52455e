"""lib.batch on a small repository: else a failed run leaves figures, or pages are not run again."""

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import matplotlib as mpl
import nbformat
import papermill
import psutil
import pytest
from nbclient.exceptions import CellTimeoutError

from lib import files, provenance
from lib.batch import run as batch
from lib.companion import record

NOTEBOOK = """# %% [markdown]
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
saved = run.save(
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
    "03_hangs": "import time\n\ntime.sleep(7200)",
}
PATIENCE = 1200  # seconds that a test waits at most for what a busy machine takes long to do
REDIRECTIONS = {"FIGURES_DIR", "RUNS_DIR", "NOTEBOOKS_DIR", "DATA_DIR", "PYTHONPATH"}
# A copy of lib/ may keep its bytecode: many processes import it, and compile it once.
REDIRECTIONS |= {"PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in REDIRECTIONS}

if not shutil.which("git"):
    pytest.skip("needs git", allow_module_level=True)


class Repository:
    """A committed copy of lib/ with the three notebooks."""

    def __init__(self, root):
        self.root, self.notebooks = root, root / "notebooks"
        self.demo, self.runs = root / "figures" / "demo", root / "runs" / "demo"
        self.marker = self.runs / "01_good.json"
        unread = shutil.ignore_patterns("__pycache__")
        shutil.copytree(files.ROOT / "lib", root / "lib", ignore=unread)
        for name, text in {
            **{f"notebooks/{k}.py": NOTEBOOK.format(name=k, last=v) for k, v in LAST.items()},
            "notebooks/renamed.toml": '"07_old" = ["01_good", "02_bad"]\n',
            "notebooks/scales.toml": '["01_good".desk]\nseeds = 20\n',
            # A parser that jsonschema builds where it is installed: half of what a worker or kernel
            # takes to start, for a kind of address that no notebook has.
            "rfc3987_syntax.py": "raise ImportError\n",
            ".gitignore": "runs/\n__pycache__/\n*.ipynb\n",
        }.items():
            files.write(root / name, text.encode())
        self.git("init", "--quiet")
        self.commit()

    def start(self, *arguments, module="lib.batch", **folders):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.root,
            env=ENVIRONMENT | folders,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A test session in the background may ignore Ctrl-C, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def inside(self, *arguments):
        """The command in this process, on this repository: no Dask, no kernel."""
        text = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, mpl.rc_context():
            patch.chdir(self.root)
            patch.delenv("DATA_DIR", raising=False)
            patch.setattr(signal, "signal", lambda *_: None)
            for name in ("figures", "runs", "notebooks"):
                patch.setenv(f"{name.upper()}_DIR", str(self.root / name))
            for module in (files, provenance):
                patch.setattr(module, "ROOT", self.root)
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                try:
                    status = batch.main(list(arguments))
                except SystemExit as end:
                    status = end.code
        output = text.getvalue()
        return SimpleNamespace(status=status, output=output, lines=output.splitlines())

    def why(self, *arguments):
        done = self.inside("01_good", "--dry-run", *arguments)
        assert done.status == 0, done.output
        return done.lines[0].removeprefix("run  01_good: ") if len(done.lines) > 1 else None

    def git(self, *arguments):
        who = "-c user.name=test -c user.email=test@localhost -c commit.gpgsign=false".split()
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self, **changes):
        """Commit all, the record of 01_good with `changes`."""
        path = self.demo / "01_good.json"
        true = path.read_bytes() if changes else b""
        if changes:
            path.write_text(json.dumps(json.loads(true) | changes))
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "all")
        if changes:
            path.write_bytes(true)

    def files(self, *folders):
        paths = [path for folder in folders for path in sorted((self.root / folder).rglob("*"))]
        paths = [path for path in paths if path.is_file() and path.suffix != ".lock"]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def until(condition):
    """The first true value of `condition()`."""
    for _ in range(10 * PATIENCE):
        if value := condition():
            return value
        time.sleep(0.1)
    pytest.fail(f"{condition.__name__} is still false after {PATIENCE} s")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def first(repository):
    """A batch of which one notebook hangs; another one beside it; Ctrl-C for the first."""
    before, root = repository.files("notebooks"), repository.root
    process = repository.start("01_good", "03_hangs", "--workers", "2")
    saved = lambda: repository.marker.exists() and [*root.rglob("03_hangs.json")]
    until(lambda: saved() or process.poll() is not None)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("ipykernel" in " ".join(child.cmdline()) for child in family)
    other = repository.start("--force")
    others_output = other.communicate(timeout=PATIENCE)[0]
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=PATIENCE)[0]
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert repository.files("notebooks") == before
    late = repository.start("03_hangs", "--timeout", "2").communicate(timeout=PATIENCE)[0]
    return (process.returncode, output), (other.returncode, others_output), late


@pytest.fixture
def edited(repository, first):
    """Replaces `old` in a file for one test, or the whole of it where `old` is None."""
    before = {}

    def edit(path, old, new):
        path = repository.root / path
        before.setdefault(path, path.read_bytes())
        assert old is None or old in before[path]
        path.write_bytes(new if old is None else path.read_bytes().replace(old, new))

    yield edit
    for path, content in before.items():
        path.write_bytes(content)


def test_failures_set_the_exit_status_and_the_others_finish(repository, first):
    (status, output), (others_status, others_output), late = first
    assert "a cell took longer than 2 s" in late
    assert status == 130 and others_status == 1
    *_, good, end = lines = output.splitlines()
    assert len(lines) == 5 and good.startswith("ok   01_good") and end.startswith("Interrupted;")
    *_, failed = lines = others_output.splitlines()
    assert len(lines) == 9, others_output  # and no noise of Dask
    assert [line.split()[1] for line in lines if line.startswith("ok ")] == ["01_good"]
    verdicts = {line.split()[1]: line for line in lines if line.startswith("FAIL")}
    assert "ValueError: broken on purpose" in verdicts["02_bad"]
    assert os.path.join("runs", "demo", "02_bad.ipynb") in verdicts["02_bad"]
    assert "another batch runs it" in verdicts["03_hangs"]
    assert failed in ("Failed: 02_bad, 03_hangs.", "Failed: 03_hangs, 02_bad.")
    names = ["01_good.json", "01_good.png", "01_good.svg"]
    assert sorted(path.name for path in repository.demo.iterdir()) == names
    # What failed or was stopped never counts as up to date.
    lines = ["run  02_bad: never run", "run  03_hangs: never run", "1 up to date, 2 to run"]
    assert repository.inside("--dry-run").lines == lines
    outputs = {
        name: [output for cell in executed.cells for output in cell.get("outputs", [])]
        for name in ("01_good", "02_bad")
        for executed in [nbformat.read(repository.runs / f"{name}.ipynb", 4)]
    }
    module = (repository.root / "lib" / "companion" / "record.py").resolve()  # its own library
    assert outputs["01_good"][-1].text.strip() == str(module)
    assert any(output.get("evalue") == "broken on purpose" for output in outputs["02_bad"])


def test_what_is_up_to_date_is_left_as_it_is(repository, first):
    before = repository.files("figures", "runs", "notebooks")
    done = repository.inside("01")
    about = "01_good: no committed record; 1 of 1 claims hold"
    assert done.status == 0 and done.lines == ["1 up to date, 0 to run", about]
    assert repository.why("--force") == "forced"
    assert repository.files("figures", "runs", "notebooks") == before


PAGE, PICTURE, MARKER = "notebooks/01_good.py", "figures/demo/01_good.png", "runs/demo/01_good.json"


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("lib/provenance.py", b"import json", b"import json  # edited", "lib changed: provenance"),
        ("lib/dynamics/rules.py", b"import", b"import ", ""),  # nothing that the page draws on
        (PAGE, b"as small as they get", b"smaller still", "source changed"),
        (PAGE, b"seeds = 5", b"seeds = 4", "custom parameters"),
        (PAGE, b"print(record", b"mine = print(record", "custom code"),
        (PICTURE, None, b"of another run", "figures changed: 01_good.png"),
        (MARKER, None, b"[]", f"damaged: {MARKER}"),
    ],
)
def test_whatever_a_result_depends_on_makes_it_run_again(
    repository, edited, path, old, new, reason
):
    edited(path, old, new)
    why = repository.why()
    assert why.startswith(reason) if reason else why is None


def test_old_names_and_scales_that_are_not_offered(repository, first):
    lines = repository.inside("07_old", "--dry-run", "--force").lines
    assert sorted(line.split()[1] for line in lines[:-1]) == ["01_good:", "02_bad:"]
    done = repository.inside("--scale", "desk", "--dry-run")
    skipped = [f"skip {name}: not offered at scale desk" for name in ("02_bad", "03_hangs")]
    assert done.lines == [*skipped, "run  01_good: never run", "0 up to date, 1 to run"]


def test_new_numbers_are_compared_with_the_committed_ones(repository, first):
    other = {"slope": {"value": 7.0, "tolerance": 1.5}}
    mnist = [{"name": "mnist", "source": "data_dir"}]
    try:
        for changes, status, words in (
            ({}, 0, "1 of 1 numbers reproduced"),
            (dict(numbers=other), 1, "0 of 1 numbers reproduced; slope is 5, committed 7.0 ± 1.5"),
            (dict(parameters={"seeds": 100}), 0, "parameters differ, not compared"),
            (dict(data=mnist), 0, "data differ, not compared"),
        ):
            repository.commit(**changes)
            done = repository.inside("01_good")
            assert done.status == status
            assert done.lines[1] == f"01_good: {words}; 1 of 1 claims hold"
    finally:
        repository.commit()


def test_store_writes_the_outputs_beside_the_source(repository, first):
    path = repository.notebooks / "01_good.ipynb"
    before = repository.files("notebooks")
    try:
        assert repository.inside("01_good", "--store").status == 0
        stored, content = nbformat.read(path, 4), path.read_bytes()
        assert repository.inside("01_good", "--store").status == 0
        assert path.read_bytes() == content
    finally:
        path.unlink()
    assert repository.files("notebooks") == before
    full = [bool(cell.outputs) for cell in stored.cells if cell.cell_type == "code"]
    assert full == [False, False, True, True]  # that installs, parameters, two that print


def execute(notebook, output, parameters, **options):
    """Stands for papermill: the code cells in this process."""
    names = {}
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        exec(cell.source, names)
        names |= parameters if "parameters" in cell.metadata.get("tags", []) else {}
    nbformat.write(notebook, output)


def test_a_readers_parameters_leave_figures_alone(repository, first, monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", execute)
    at_once = lambda jobs, asked: ((job, *batch._run(job, 1, asked.timeout)) for job in jobs)
    monkeypatch.setattr(batch, "_outcomes", at_once)
    before = repository.files("figures", "runs/demo", "notebooks")
    done = repository.inside("01_good", "--set", "seeds=8")
    assert done.status == 0 and "custom, not compared; 0 of 1 claims hold" in done.output
    (path,) = (repository.root / "runs" / "custom").glob("01_good-*/figures/demo/01_good.json")
    assert json.loads(path.read_text())["seeds"] == list(range(8))
    assert repository.files("figures", "runs/demo", "notebooks") == before


LOGGED = """# %% tags=["parameters"]
scale = "demo"

# %%
import os
import time

def log(word):
    with open("log", "a") as stream:
        stream.write(f"{{word}} {name} {{os.getpid()}} {{os.getppid()}}\\n")

log("start")
while "{name}" == "01_long" and not os.path.exists("go"):
    time.sleep(0.1)
log("end")
"""


@pytest.fixture
def cluster(repository, first, tmp_path):
    """The processes of a Dask scheduler, of two workers and of a batch on pages of its own."""
    for name in ("01_long", "02_short"):
        files.write(tmp_path / f"{name}.py", LOGGED.format(name=name).encode())
    folders = {f"{name}_DIR": str(tmp_path / name) for name in ("FIGURES", "RUNS")}
    start = lambda *words, **more: repository.start(
        *words, **more, **folders, NOTEBOOKS_DIR=str(tmp_path)
    )
    place, local = tmp_path / "scheduler.json", ("--host", "127.0.0.1", "--no-dashboard")
    port = ("--port", "0", "--scheduler-file", str(place))
    processes = [start("scheduler", *local, *port, module="dask")]
    address = json.loads(until(lambda: place.exists() and place.read_text()))["address"]
    single = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny")
    for _ in range(2):
        processes.append(start("worker", address, *local, *single, module="dask"))
    processes.append(start("--scheduler", address))
    yield processes
    for process in processes:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate(timeout=PATIENCE)


def test_nothing_is_lost_or_done_twice_when_a_worker_dies(cluster, tmp_path):
    _, *workers, batch = cluster

    def logged(word, name=""):
        """(name, kernel, worker) of each line of the log that begins so."""
        log = tmp_path / "log"
        rows = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [row[1:] for row in rows if row[0] == word and name in row[1]]

    ((_, kernel, parent),) = until(lambda: logged("start", "long"))
    (victim,) = [worker for worker in workers if worker.pid == int(parent)]
    os.kill(victim.pid, signal.SIGKILL)
    # its kernel ends too, and so cannot finish beside its successor
    until(lambda: not psutil.pid_exists(int(kernel)))
    until(lambda: len(logged("start", "long")) == 2)
    (tmp_path / "go").touch()
    words, names = batch.communicate(timeout=PATIENCE)[0], ["01_long", "02_short"]
    assert batch.returncode == 0, words
    assert [words.count(f"ok   {name}") for name in names] == [1, 1], words
    assert sorted(row[0] for row in logged("end")) == names
    assert sorted(row[0] for row in logged("start")) == ["01_long", *names]
    markers = (tmp_path / "RUNS" / "demo").glob("*.json")
    assert sorted(path.stem for path in markers) == names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["09_none"], ["'09_none'", "01_good, 02_bad, 03_hangs"]),
        (["07"], ["'07'", "07_old"]),
        (["0"], ["'0'", "01_good, 02_bad"]),
        (["--scale", "huge"], ["'huge'"]),
        (["--set", "sed=7"], ["01_good", "sed", "scale, seeds, n, step"]),
        (["--set", "seeds=many"], ["seeds", "'many'"]),
        (["--set", "seeds"], ["'seeds'", "parameter=value"]),
        (["--set", "scale=desk"], ["--scale"]),
        (["02_bad", "--scale", "desk"], ["02_bad", "desk", "scales.toml"]),
        (["--workers", "0"], ["--workers"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--store", "--scale", "desk"], ["--store"]),
        (["--force", "--scheduler", "nowhere"], ["at nowhere"]),
    ],
)
def test_bad_usage_is_one_sentence_and_runs_nothing(repository, first, arguments, words):
    before = repository.files("figures", "runs")
    done = repository.inside(*arguments)
    assert repository.files("figures", "runs") == before
    assert done.status == 2 and "Traceback" not in done.output, done.output
    assert [word for word in words if word not in done.output] == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("scales.toml", b"[", "scales.toml"),
        ("renamed.toml", b"[", "renamed.toml"),
        ("01_good.py", b"caf\xe9", "01_good: 'utf-8'"),
        ("01_good.py", b'# %% tags=["parameters"]\nseeds = 1\n', "scale"),
        ("01_good.py", b'# %% tags=["parameters"]\nscale = min(1, 2)\n', "min"),
        ("01_good.py", b"# %%\nscale = 1\n", "parameters"),
    ],
)
def test_a_table_or_page_that_cannot_be_read_is_one_sentence(repository, edited, name, text, words):
    edited(f"notebooks/{name}", None, text)
    done = repository.inside("01_good", "--dry-run", "--scale", "desk")
    assert done.status == 2 and words in done.output and "Traceback" not in done.output


KNOWN = {"n": 20, "rate": 0.5, "on": True, "rates": (1, 2), "cap": None, "name": "a"}
KINDS = [f"rate={value}" for value in ("nan", "1e400", "1j", "None", "[]", "{1}", "true")]


@pytest.mark.parametrize("text", [*KINDS, "n='3'", "n=true", "n=2.5", "on=1", "rates=[a]"])
def test_a_setting_of_another_kind_is_refused_before_it_runs(text):
    key, value = batch._setting(text)
    with pytest.raises(ValueError, match=f"^{key} is "):
        record._check_kinds({key: value}, KNOWN)


def test_a_setting_is_a_literal_or_a_word():
    texts = {"n": "2", "rate": "1e-3", "on": "true", "rates": "[1, 2]", "cap": "1.0", "name": "b"}
    values = dict(batch._setting(f"{key}={text}") for key, text in texts.items())
    assert values == {"n": 2, "rate": 1e-3, "on": True, "rates": [1, 2], "cap": 1.0, "name": "b"}
    record._check_kinds(values, KNOWN)


# One run and its end, without a kernel.

SAVED = {
    "notebook": "01_good",
    "provenance": {},
    "parameters": {},
    "data": [],
    "claims": [{"id": "lemma", "holds": True}],
    "numbers": {"loss": {"value": 1.0, "tolerance": 0.1}},
}


@pytest.fixture
def job(tmp_path):
    """A run at desk scale."""
    return batch._Job(
        notebook="01_good",
        scale="desk",
        page=NOTEBOOK.format(name="01_good", last="pass"),
        overrides={},
        parts={},
        changes={},
        home=tmp_path / "runs" / "desk" / "01_good",
        figures=tmp_path / "figures" / "desk",
        folders={"RUNS_DIR": str(tmp_path / "runs"), "NOTEBOOKS_DIR": str(tmp_path)},
    )


@pytest.mark.parametrize(
    ("outcomes", "error"),
    [
        ([RuntimeError("Kernel died before replying to kernel_info"), None], None),  # once more
        ([ValueError("broken\nand more")], "ValueError: broken"),
        ([CellTimeoutError("late")], "a cell took longer than 2 s"),
    ],
)
def test_a_run_begins_anew(job, monkeypatch, outcomes, error):
    """An earlier run's files are gone, whatever comes of it."""

    def execute(notebook, output, execution_timeout, **options):
        assert execution_timeout == 2
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    files.write(job.home / "old.png", b"of an earlier run")
    files.write(job.marker, b"{}")
    assert batch._run(job, threads=1, timeout=2)[1] == error
    assert not outcomes and not (job.home / "old.png").exists()
    assert job.marker.exists() == (error is None)


def staged(job, **changes):
    """The job after a run that saved the record SAVED with `changes`."""
    for end in (".png", ".svg", ".json"):
        content = json.dumps(SAVED | changes).encode()
        files.write(job.home / "figures" / job.scale / f"one{end}", content)
    return job


def test_a_publish_that_fails_leaves_what_was_there_and_the_next_one_succeeds(job):
    staged(job)
    files.write(job.figures / "one.png", b"old")
    (job.figures / "one.json").mkdir()  # so that nothing can take its place
    with pytest.raises(IsADirectoryError):
        batch._publish(job)
    assert (job.figures / "one.png").read_bytes() == b"old" and not job.marker.exists()
    assert sorted(path.name for path in job.figures.iterdir()) == ["one.json", "one.png"]
    (job.figures / "one.json").rmdir()
    assert batch._publish(job) == ""
    assert record.read(job.figures / "one.json") == SAVED and job.marker.exists()


@pytest.mark.parametrize("scale, source", [("desk", "demo"), ("desk", "hub"), ("demo", "demo")])
def test_embedded_data_never_take_the_place_of_real_ones(job, scale, source):
    data = [{"name": "digits", "source": source}, {"name": "line", "source": "synthetic"}]
    job, stays = staged(replace(job, scale=scale), data=data), (scale, source) == ("desk", "demo")
    assert ("embedded data" in batch._publish(job)) == stays
    assert job.figures.exists() != stays and job.marker.exists() != stays


def test_real_data_in_another_place_are_seen(job):
    asked = argparse.Namespace(force=False, store=False)
    for source, reason in (("demo", "places changed"), ("synthetic", "")):
        data = [{"name": "digits", "source": source}]
        marker = {"places": ["elsewhere"], "data": data, "figures": {}}
        files.write(job.marker, json.dumps(marker).encode())
        job.parts["places"] = [None]
        assert batch._reason(job, asked) == reason


def test_a_claim_that_held_and_fails_is_not_reproduced_and_a_redrawn_figure_says_so():
    failed = SAVED | {"claims": [{"id": "lemma", "holds": False}]}
    assert batch._reproduced(failed, failed)[1]  # a finding stays a finding
    text, same = batch._reproduced(failed, SAVED)
    assert not same and text.endswith("lemma held before")
    kept = SAVED | {"data": [{"name": "mnist", "source": "kept"}]}
    assert batch._reproduced(kept, kept) == ("redrawn from kept curves: 1 of 1", True)


def test_a_place_that_takes_no_run_is_named(job, tmp_path):
    (tmp_path / "runs").touch()
    assert str(tmp_path / "runs") in batch._run(job, threads=1, timeout=None)[1]
