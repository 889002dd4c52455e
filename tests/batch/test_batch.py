"""Tests of companion.batch on a small repository.

A failure means that a rerun changes committed files, or accepts damaged ones.
"""

import contextlib
import copy
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace

import matplotlib as mpl
import nbformat
import papermill
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError

from companion import pages, record, sources
from companion.batch import job as jobs
from companion.batch import reference, work
from companion.batch import run as batch
from lib import files, interrupt, provenance

NOTEBOOK = """# %% [markdown]
# # A notebook as small as they get

# %% tags=["parameters"]
scale = "demo"
seeds = 5
n, step = 20, 1e-3
things = [1, 2]

# %%
from matplotlib.figure import Figure

from companion import claims
from companion import record

run = record.start("{name}", "A", globals())
figure = Figure(figsize=(1, 1))
axes = figure.subplots()
axes.plot([0, seeds])
axes.set_axis_off()  # letters take as long as all the rest of the cell
run.keep(
    figure, "{name}", "A line.",
    claims=[claims.at_most("few", "seeds are few", "ours", seeds, 6)],
    numbers=dict(slope=seeds),
)
figure

# %%
{last}
"""
LAST = {
    "01_good": "print(record.__file__)",
    "02_bad": 'raise ValueError("broken on purpose")',
    "03_hangs": "import time\n\ntime.sleep(7200)",
    "04_writes": 'open("pages.toml", "a")',
}
FACTS = """[{name}.records.{name}]
figure = "Figure 2"
data = [{{ name = "line", rows = "n" }}]
within = {{ slope = 0.5 }}
"""
# This runs in every process of a batch. It stops whatever opens, replaces or removes a
# tracked file.
GUARD = """import os, sys

with open(os.environ["TRACKED"]) as stream:
    tracked = set(stream.read().splitlines())
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard(event, arguments):
    if event == "open" and not arguments[2] & writing:
        return
    if event not in ("open", "os.rename", "os.remove", "os.truncate", "os.link", "os.symlink"):
        return
    for path in arguments[:2]:
        if isinstance(path, (str, bytes, os.PathLike)):
            if os.path.realpath(os.fsdecode(path)) in tracked:
                raise PermissionError(13, "this file is tracked", os.fsdecode(path))


sys.addaudithook(guard)
"""
PATIENCE = 1200  # longest wait in seconds; a busy machine may be slow
REDIRECTIONS = {
    "FIGURES_DIR",
    "RUNS_DIR",
    "NOTEBOOKS_DIR",
    "DATA_DIR",
    "PYTHONPATH",
    record.TOLD,
}
# The copied packages keep their bytecode, so that the many processes that import them
# compile them once.
REDIRECTIONS |= {"PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in REDIRECTIONS
}

if not shutil.which("git"):
    pytest.skip("needs git", allow_module_level=True)


class Repository:
    """A committed copy of lib/ and companion/ with the notebooks of `LAST`."""

    def __init__(self, root):
        self.root = root
        self.notebooks = root / "notebooks"
        self.reference = root / "figures" / "demo"
        self.runs = root / "runs" / "figures" / "demo"
        self.results = self.runs / "01_good"
        unread = shutil.ignore_patterns("__pycache__")
        for package in ("lib", "companion"):
            shutil.copytree(files.ROOT / package, root / package, ignore=unread)
        for name, text in {
            **{
                f"notebooks/{k}.py": NOTEBOOK.format(name=k, last=v)
                for k, v in LAST.items()
            },
            "notebooks/pages.toml": "\n".join(
                [
                    *(FACTS.format(name=name) for name in LAST),
                    "[01_good.scales.desk]\nseeds = 20\n",
                ]
            ),
            # jsonschema builds this parser if it is installed. That takes half of the
            # time in which a worker or kernel starts, for a kind of address that no
            # notebook has.
            "rfc3987_syntax.py": "raise ImportError\n",
            ".gitignore": "runs/\n__pycache__/\n",
        }.items():
            files.write(root / name, text.encode())
        self.git("init", "--quiet")
        self.commit()

    def guarded(self, place):
        """Return the environment in which every write to a tracked file is stopped."""
        files.write(place / "sitecustomize.py", GUARD.encode())
        names = self.git("ls-files").split()
        tracked = [os.path.realpath(self.root / name) for name in names]
        files.write(place / "tracked", "\n".join(tracked).encode())
        return {"PYTHONPATH": str(place), "TRACKED": str(place / "tracked")}

    def start(self, *arguments, module="companion.batch", **environment):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.root,
            env=ENVIRONMENT | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A test session in the background may ignore Ctrl-C, and children inherit
            # that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def inside(self, *arguments):
        """Run the command in this process on this repository, without Dask and
        kernels.
        """
        text = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, mpl.rc_context():
            patch.chdir(self.root)
            patch.delenv("DATA_DIR", raising=False)
            patch.setattr(signal, "signal", lambda *_: None)
            for name in ("figures", "runs", "notebooks"):
                patch.setenv(f"{name.upper()}_DIR", str(self.root / name))
            for module in (files, provenance, sources):
                patch.setattr(module, "ROOT", self.root)
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                try:
                    status = batch.main(list(arguments))
                except SystemExit as end:
                    status = end.code
        output = text.getvalue()
        assert "Traceback" not in output, output
        return SimpleNamespace(status=status, output=output, lines=output.splitlines())

    def why(self, *arguments):
        done = self.inside("01_good", "--dry-run", *arguments)
        assert done.status == 0, done.output
        if len(done.lines) > 1:
            return done.lines[0].removeprefix("run  01_good: ")
        return None

    def git(self, *arguments):
        who = "-c user.name=test -c user.email=test@localhost -c commit.gpgsign=false".split()
        command = ["git", *who, *arguments]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def commit(self):
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "all")

    def changed(self):
        """Return the files that differ from the last commit."""
        return sorted(
            line[3:] for line in self.git("status", "--porcelain", "-uall").splitlines()
        )

    def files(self, *folders):
        paths = [
            path
            for folder in folders
            for path in sorted((self.root / folder).rglob("*"))
        ]
        paths = [path for path in paths if path.is_file() and path.suffix != ".lock"]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def until(condition):
    """Wait for the first true value of `condition()`, and return it."""
    for _ in range(10 * PATIENCE):
        if value := condition():
            return value
        time.sleep(0.1)
    pytest.fail(f"{condition.__name__} is still false after {PATIENCE} s")


# Tests of a batch with all its processes.


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def first(repository, tmp_path_factory):
    """Run a batch in which one notebook hangs, and another batch, and interrupt the
    first.
    """
    guard = repository.guarded(tmp_path_factory.mktemp("guard"))
    process = repository.start("01_good", "03_hangs", "--workers", "2", **guard)
    hanging = repository.root / "runs" / "work" / "demo" / "03_hangs"

    def saved():
        return repository.results.exists() and (hanging / "03_hangs.json").exists()

    until(lambda: saved() or process.poll() is not None)
    family = psutil.Process(process.pid).children(recursive=True)
    commands = [child.cmdline() for child in family]
    kernels = [words for words in commands if "ipykernel_launcher" in words]
    assert kernels
    sockets = [
        s
        for one in [psutil.Process(process.pid), *family]
        for s in one.net_connections()
    ]
    heard = {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
    other = repository.start("--force", **guard)
    others_output = other.communicate(timeout=PATIENCE)[0]
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=PATIENCE)[0]
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    late = repository.start("03_hangs", "--timeout", "2", **guard).communicate(
        timeout=PATIENCE
    )[0]
    return SimpleNamespace(
        status=process.returncode,
        output=output,
        others_status=other.returncode,
        others_output=others_output,
        late=late,
        heard=heard,
        connections=[words[words.index("-f") + 1] for words in kernels],
        changed=repository.changed(),
    )


# The import of a package waits in a worker, as a busy machine would let it.
WAITING = """import os, sys, time
from pathlib import Path


class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "distributed" and "--multiprocessing-fork" in sys.orig_argv:
            Path(os.environ["WAITS"]).touch()
            time.sleep(7200)


sys.meta_path.insert(0, Waiting())
"""


def test_ctrl_c_while_the_workers_start_is_one_sentence(repository, tmp_path):
    files.write(tmp_path / "sitecustomize.py", WAITING.encode())
    waits = tmp_path / "waits"
    told = {"PYTHONPATH": str(tmp_path), "WAITS": str(waits)}
    told["RUNS_DIR"] = str(tmp_path / "runs")
    process = repository.start("01_good", **told)
    until(lambda: waits.exists() or process.poll() is not None)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == interrupt.STATUS
    first, second, *rest = output.splitlines()
    assert first.startswith("run  01_good: ") and second == "0 up to date, 1 to run"
    assert rest == [interrupt.SENTENCE]
    assert family and psutil.wait_procs(family, timeout=PATIENCE)[1] == []


@pytest.mark.parametrize("refuses", [True, False], ids=["another owner", "no git"])
def test_where_git_names_no_commit_the_reference_stays(
    repository, monkeypatch, tmp_path, refuses
):
    if refuses:
        # As git answers in a clone of another owner.
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        remedy = "a clone of another owner needs an entry safe.directory"
    else:
        repository = copy.copy(repository)
        repository.root = shutil.copytree(
            repository.root, tmp_path / "archive", ignore=shutil.ignore_patterns(".git")
        )
        remedy = "this is no git repository; clone it"
    before = repository.files("figures")
    done = repository.inside("01_good", "--update")
    assert done.status == 2
    assert done.lines[-1].endswith(remedy)
    assert "--update copies figures of committed code only: " in done.lines[-1]
    assert repository.files("figures") == before


def test_a_batch_leaves_what_is_committed_as_it_is(repository, first, tmp_path):
    assert first.changed == []
    # The guard was active: in the kernel it has stopped a page that writes to a table.
    assert "FAIL 04_writes" in first.others_output
    assert "PermissionError: [Errno 13] this file is tracked" in first.others_output
    # It was also active in the process of the command, which may write if it is told
    # to.
    head = repository.git("rev-parse", "HEAD").strip()
    for end in record.ENDS:
        files.write(repository.reference / f"01_good{end}", b"another\n")
    repository.commit()
    guard = repository.guarded(tmp_path)
    update = repository.start("01_good", "--update", **guard)
    output = update.communicate(timeout=PATIENCE)[0]
    assert (
        update.returncode == 1 and "this file is tracked: " in output.splitlines()[-1]
    )
    assert repository.changed() == []
    repository.git("reset", "--quiet", "--hard", head)


def test_nothing_listens_beyond_this_machine(first):
    assert first.heard <= {"127.0.0.1", "::1"}


def test_a_killed_kernel_leaves_its_connection_file_in_the_folder_of_its_run(
    repository, first
):
    work = os.path.join(repository.root, "runs", "work", "demo", "")
    assert all(path.startswith(work) for path in first.connections), first.connections


def test_failures_set_the_exit_status_and_the_others_finish(repository, first):
    assert "a cell took longer than 2 s" in first.late
    assert first.status == 130 and first.others_status == 1
    *_, good, end = lines = first.output.splitlines()
    assert (
        len(lines) == 5
        and good.startswith("ok   01_good")
        and end.startswith("Interrupted;")
    )
    *_, failed = lines = first.others_output.splitlines()
    assert len(lines) == 12, first.others_output  # and no noise of Dask
    assert [line.split()[1] for line in lines if line.startswith("ok ")] == ["01_good"]
    verdicts = {line.split()[1]: line for line in lines if line.startswith("FAIL")}
    assert "ValueError: broken on purpose" in verdicts["02_bad"]
    assert os.path.join("runs", "work", "demo", "02_bad") in verdicts["02_bad"]
    assert "another batch runs it" in verdicts["03_hangs"]
    assert (
        sorted(failed.removeprefix("Failed: ").rstrip(".").split(", "))
        == list(LAST)[1:]
    )
    names = [
        "01_good.ipynb",
        "01_good.json",
        "01_good.png",
        "kernel.log",
        record.MARKER,
    ]
    assert sorted(path.name for path in repository.results.iterdir()) == names
    assert not repository.reference.exists()
    # What failed or was stopped never counts as up to date.
    lines = [f"run  {name}: never run" for name in list(LAST)[1:]]
    assert repository.inside("--dry-run").lines == [*lines, "1 up to date, 3 to run"]
    failing = repository.root / "runs" / "work" / "demo" / "02_bad"
    outputs = {}
    for path in (repository.results / "01_good.ipynb", failing / "02_bad.ipynb"):
        cells = nbformat.read(path, 4).cells
        outputs[path.stem] = [
            output for cell in cells for output in cell.get("outputs", [])
        ]
    module = (repository.root / "companion" / "record.py").resolve()  # its own
    assert outputs["01_good"][-1].text.strip() == str(module)
    assert any(
        output.get("evalue") == "broken on purpose" for output in outputs["02_bad"]
    )


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
    """Start a Dask scheduler, two workers and a batch on pages of its own."""
    for name in ("01_long", "02_short"):
        files.write(tmp_path / f"{name}.py", LOGGED.format(name=name).encode())
    folders = {f"{name}_DIR": str(tmp_path / name) for name in ("FIGURES", "RUNS")}

    def start(*words, **more):
        return repository.start(*words, **more, **folders, NOTEBOOKS_DIR=str(tmp_path))

    place = tmp_path / "scheduler.json"
    local = ("--host", "127.0.0.1", "--no-dashboard")
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
        """Return (name, kernel, worker) of each line of the log that begins with
        `word`.
        """
        log = tmp_path / "log"
        if log.exists():
            rows = [line.split() for line in log.read_text().splitlines()]
        else:
            rows = []
        return [row[1:] for row in rows if row[0] == word and name in row[1]]

    ((_, kernel, parent),) = until(lambda: logged("start", "long"))
    (victim,) = [worker for worker in workers if worker.pid == int(parent)]
    os.kill(victim.pid, signal.SIGKILL)
    # its kernel ends too, so that it cannot finish at the same time as its successor
    until(lambda: not psutil.pid_exists(int(kernel)))
    until(lambda: len(logged("start", "long")) == 2)
    (tmp_path / "go").touch()
    words = batch.communicate(timeout=PATIENCE)[0]
    names = ["01_long", "02_short"]
    assert batch.returncode == 0, words
    assert [words.count(f"ok   {name}") for name in names] == [1, 1], words
    assert sorted(row[0] for row in logged("end")) == names
    assert sorted(row[0] for row in logged("start")) == ["01_long", *names]
    results = (tmp_path / "RUNS" / "figures" / "demo").iterdir()
    assert sorted(path.name for path in results) == names


# Tests without Dask and kernels.


def execute(notebook, output, parameters, **options):
    """Run the code cells in this process, in place of papermill."""
    names = {}
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        exec(cell.source, names)
        names |= parameters if "parameters" in cell.metadata.get("tags", []) else {}
    nbformat.write(notebook, output)


@pytest.fixture
def at_once(monkeypatch):
    """Run pages in this process, one after the other."""
    monkeypatch.setattr(papermill, "execute_notebook", execute)

    def run_all(todo, asked):
        return ((job, work.run(job, 1, asked.timeout)) for job in todo)

    monkeypatch.setattr(work, "outcomes", run_all)


UNCOMPARED = "Nothing was compared with the committed figures"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Make a repository whose page 01_good has run and is its own reference."""
    small = Repository(tmp_path_factory.mktemp("small"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(papermill, "execute_notebook", execute)
        patch.setattr(
            work, "outcomes", lambda t, a: ((job, work.run(job, 1, None)) for job in t)
        )
        done = small.inside("01_good")
        assert (
            "01_good: no reference yet; --update adds it; 1 of 1 claims hold"
            in done.lines[-2]
        )
        assert done.lines[-1] == f"{UNCOMPARED}: 01_good."
        assert done.status == 0 and small.changed() == []
        done = small.inside("01_good", "--update")
    assert done.status == 0 and done.lines[0] == "1 up to date, 0 to run"
    assert small.changed() == ["figures/demo/01_good.json", "figures/demo/01_good.png"]
    small.commit()
    return small


@pytest.fixture
def edited(small):
    """Replace `old` in a file for one test, or the whole file if `old` is None.

    After the test, figures, pages and runs are restored.
    """
    runs = small.root / "runs"
    kept = small.root.with_name(f"{small.root.name}-runs")
    shutil.copytree(runs, kept)
    head = small.git("rev-parse", "HEAD").strip()

    def edit(path, old, new):
        path = small.root / path
        assert old is None or old in path.read_bytes()
        path.write_bytes(new if old is None else path.read_bytes().replace(old, new))

    yield edit
    small.git("reset", "--quiet", "--hard", head)
    small.git("clean", "--quiet", "-fd")
    files.remove(runs)
    kept.rename(runs)


PAGE = "notebooks/01_good.py"
PICTURE = "runs/figures/demo/01_good/01_good.png"
MINE = "runs/figures/demo/01_good/01_good.json"
MARKER = f"runs/figures/demo/01_good/{record.MARKER}"
RECORD = "figures/demo/01_good.json"
SHOWN = "figures/demo/01_good.png"
SAME = "01_good: reproduced, 1 numbers and 1 claims; 1 of 1 claims hold; yours: "


def test_a_second_run_changes_nothing(small):
    before = small.files("figures", "runs", "notebooks")
    done = small.inside("01")
    assert done.status == 0
    assert done.lines == ["1 up to date, 0 to run", SAME + PICTURE]
    assert small.why("--force") == "forced"
    assert (
        small.files("figures", "runs", "notebooks") == before and small.changed() == []
    )


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        (
            "lib/provenance.py",
            b"import json",
            b"import json  # edited",
            "lib changed: provenance",
        ),
        (
            "lib/dynamics/rules.py",
            b"import",
            b"import ",
            "",
        ),  # the page does not depend on this file
        (PAGE, b"as small as they get", b"smaller still", "source changed"),
        (PAGE, b"seeds = 5", b"seeds = 4", "source changed; parameters changed: seeds"),
        (PAGE, b"[1, 2]", b"[1, 3]", "source changed; parameters changed: things"),
        ("notebooks/pages.toml", b"0.5", b"0.6", "record changed: 01_good"),
        (MARKER, b'"lib": {', b'"lib": 7, "other": {', "lib changed"),
        (MARKER, b'"parameters": {', b'"parameters": [], "other": {', "other changed"),
        (PICTURE, None, b"of another run", "results changed: 01_good.png"),
        (MINE, None, b"", "results changed: 01_good.json"),
    ],
)
def test_whatever_a_result_depends_on_makes_it_run_again(
    small, edited, path, old, new, reason
):
    edited(path, old, new)
    why = small.why()
    assert reason in why if reason else why is None


MARKERS = [
    b"",
    b"junk",
    b"[]",
    b"{}",
    b"5",
    b'{"inputs": 5}',
    b'{"files": [1]}',
    b"\xff",
]
MARKERS += [
    b'{"inputs": {}, "data": 5, "files": {}}',
    b'{"inputs": {}, "data": [1], "files": {}}',
]
MARKERS += [b'{"inputs": {}, "data": [], "files": {}}']
MARKERS += [
    b'{"inputs": {}, "data": [], "files": {"a.json": 5}}',
    b"<<<<<<< HEAD\n",
    b"[" * 9999,
]


@pytest.mark.parametrize("content", MARKERS)
def test_a_damaged_marker_makes_the_page_run_again(small, edited, at_once, content):
    edited(MARKER, None, content)
    assert small.why() == f"damaged: {MARKER}"


@pytest.mark.parametrize("name", [MARKER, MINE, PICTURE, os.path.dirname(MARKER)])
def test_what_is_damaged_in_runs_is_healed_by_the_next_run(
    small, edited, at_once, name
):
    """The damage is a folder in the place of a file, and a file in the place of the
    folder.
    """
    path = small.root / name
    folder = path.is_dir()
    files.remove(path)
    if folder:
        path.touch()
    else:
        path.mkdir()
    done = small.inside("01_good")
    assert done.status == 0 and done.lines[-1] == SAME + PICTURE
    assert small.why() is None and small.changed() == []


def test_a_file_that_may_not_be_read_is_named_or_healed(
    small, edited, at_once, monkeypatch
):
    """root may read all files, so that the error of the system is simulated."""
    read_text = type(small.root).read_text
    forbidden = []

    def refusing(path, *arguments, **more):
        if path in forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **more)

    monkeypatch.setattr(type(small.root), "read_text", refusing)
    forbidden[:] = [small.root / MARKER]
    assert small.why() == f"damaged: {MARKER}"
    for name in (PAGE, "notebooks/pages.toml", RECORD):
        forbidden[:] = [small.root / name]
        done = small.inside("01_good")
        assert done.status == (1 if name == RECORD else 2)
        assert (
            f"{small.root / name}" in done.output and "Permission denied" in done.output
        )


def test_a_scale_that_is_not_offered_is_skipped(small):
    done = small.inside("--scale", "desk", "--dry-run")
    skipped = [f"skip {name}: not offered at scale desk" for name in list(LAST)[1:]]
    assert done.lines == [*skipped, "run  01_good: never run", "0 up to date, 1 to run"]


# The reference.


def rewritten(small, edited, **changes):
    """Rewrite the reference with `changes`."""
    saved = json.loads((small.root / RECORD).read_text()) | changes
    edited(RECORD, None, json.dumps(saved).encode())
    return saved


CLAIM = {"id": "few", "statement": "seeds are few", "source": "ours", "measured": 5.0}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, 0, "reproduced, 1 numbers and 1 claims"),
        (
            dict(numbers={"slope": {"value": 7.0, "tolerance": 1.5}}),
            1,
            "not reproduced: slope is 5, reference 7.0 ± 1.5",
        ),
        (dict(numbers={}), 1, "not reproduced: slope is not in the reference"),
        (dict(claims=[]), 1, "not reproduced: claim few is not in the reference"),
        (
            dict(claims=[CLAIM | {"bound": "≤ 6", "holds": False}]),
            1,
            "not reproduced: few did not hold before",
        ),
        (
            dict(claims=[CLAIM | {"bound": "≤ 7", "holds": True}]),
            1,
            "not reproduced: few is held to ≤ 6, reference ≤ 7",
        ),
        (
            dict(
                claims=[CLAIM | {"bound": "≤ 6", "holds": True, "verdict": "undecided"}]
            ),
            1,
            "not reproduced: few is without verdict, reference undecided",
        ),
        (
            dict(parameters={"scale": "demo"}),
            0,
            "not compared, seeds is 5, reference None",
        ),
        (
            dict(data=[{"name": "mnist", "source": "data_dir"}]),
            0,
            "not compared, the data differ",
        ),
    ],
)
def test_a_run_is_compared_with_the_reference(small, edited, changes, status, words):
    rewritten(small, edited, **changes)
    done = small.inside("01_good")
    assert done.status == status
    assert done.lines[1].startswith(f"01_good: {words}")
    skipped = words.startswith("not compared")
    assert (done.lines[-1] == f"{UNCOMPARED}: 01_good.") == skipped


INDEX = b"""[[01_good.figure]]
slug = "01_good"
title = "A line"
scale = "demo"
"""


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"", b"", 1),
        (b'"demo"', b'"desk"', 1),  # a larger scale is committed, too
        (b'slug = "01_good"', b'slug = "02_bad"', 0),  # it is not committed yet
    ],
)
def test_a_missing_reference_is_named_and_fails_if_the_index_lists_it(
    small, edited, at_once, old, new, status
):
    files.write(small.root / "figures" / "index.toml", INDEX.replace(old, new))
    small.commit()
    assert small.inside("01_good").status == 0
    (small.root / RECORD).unlink()
    done = small.inside("01_good")
    assert done.status == status
    if status:
        assert done.lines[-1].startswith(
            "Figures whose committed record is missing: 01_good; "
        )
    else:
        assert done.lines[-1] == f"{UNCOMPARED}: 01_good."
    done = small.inside("01_good", "--set", "seeds=8")
    assert done.status == 0 and done.lines[-1] == f"{UNCOMPARED}: 01_good."
    small.git("commit", "--quiet", "-am", "lost")
    done = small.inside("01_good", "--update")
    assert done.status == 0
    assert done.lines[-1] == f"01_good: copied to {small.reference}"


def test_a_batch_without_figures_says_that_it_compared_nothing(small, edited, at_once):
    edited(PAGE, b"run.keep(", b"(lambda *_, **more: None)(")
    done = small.inside("01_good")
    assert done.status == 0
    assert done.lines[-1] == "No figure was saved, so nothing was compared."


NUMBER = {"value": 5, "tolerance": 0.5}
DAMAGED = [
    b"",
    b"{",
    b"{}",
    b"[]",
    b"junk",
    b"\xff\xfe",
    b"<<<<<<< HEAD\n{}\n=======\n>>>>>>> x\n",
]
DAMAGED += [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"]
DAMAGED += [
    dict(numbers=5),
    dict(numbers=[]),
    dict(numbers={"slope": {}}),
    dict(numbers={"slope": 5}),
    dict(numbers={"slope": NUMBER | {"value": "5"}}),
    dict(numbers={"slope": NUMBER | {"value": True}}),
    dict(numbers={"slope": NUMBER | {"tolerance": None}}),
    dict(numbers={"slope": NUMBER | {"tolerance": -1}}),
    dict(claims=[{}]),
    dict(claims=[5]),
    dict(claims={}),
    dict(claims=[CLAIM | {"bound": 6, "holds": True}]),
    dict(claims=[CLAIM | {"bound": "≤ 6", "holds": "yes"}]),
    dict(data=[5]),
    dict(data=[{}]),
    dict(data=[{"name": "line", "source": "a disk"}]),
    dict(provenance=[]),
    dict(parameters=None),
    dict(notebook=5),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_reference_is_named_and_never_blessed(small, edited, content):
    if isinstance(content, bytes):
        edited(RECORD, None, content)
    else:
        rewritten(small, edited, **content)
    for _ in range(2):
        done = small.inside("01_good")
        assert done.status == 1 and done.lines[0] == "1 up to date, 0 to run"
        assert (
            f"the reference is of no use: {small.root / RECORD} is damaged: "
            in done.lines[1]
        )
        assert done.lines[-1] == "Numbers or claims that are not reproduced: 01_good."


def cut(small):
    return (small.root / SHOWN).read_bytes()[:-100]


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"version https://git-lfs", cut, None]
)
def test_a_damaged_picture_is_named_and_never_blessed(small, edited, content):
    path = small.root / SHOWN
    if content is None:
        path.unlink()
    else:
        edited(SHOWN, None, content(small) if callable(content) else content)
    for _ in range(2):
        done = small.inside("01_good")
        assert done.status == 1
        assert f"the reference is of no use: {path} cannot be read: " in done.lines[1]


def test_a_folder_in_the_place_of_a_reference_is_named(small, edited):
    for name in (RECORD, SHOWN):
        (small.root / name).unlink()
        (small.root / name).mkdir()
        done = small.inside("01_good")
        assert done.status == 1
        assert f"{small.root / name} cannot be read: Is a directory" in done.lines[1]
        done = small.inside("01_good", "--update")
        assert done.status == 2 and "--update copied nothing" in done.output
        (small.root / name).rmdir()
        small.git("checkout", "--quiet", name)


def test_a_picture_of_another_run_is_named(small, edited):
    saved = json.loads((small.root / RECORD).read_text())
    changed = saved["provenance"] | {"fingerprint": "0123456789abcdef"}
    rewritten(small, edited, provenance=changed)
    done = small.inside("01_good")
    assert (
        done.status == 1
        and f"{small.root / SHOWN} is the picture of another" in done.output
    )


# Accepting.


def test_update_copies_what_is_new_and_nothing_else(small, edited, at_once):
    assert (
        small.inside("01_good", "--update").lines[-1] == "--update had nothing to copy"
    )
    assert small.changed() == []
    edited(PAGE, b"seeds = 5", b"seeds = 4")
    small.commit()
    done = small.inside("01_good")
    assert done.status == 0 and "not compared, seeds is 4, reference 5; " in done.output
    assert small.changed() == []
    done = small.inside("01_good", "--update")
    assert done.status == 0, done.output
    assert done.lines[-1] == f"01_good: copied to {small.reference}"
    assert small.changed() == [RECORD, SHOWN]
    assert (small.root / RECORD).read_bytes() == (small.root / MINE).read_bytes()
    # What is there already is no reason to refuse it.
    assert small.inside("01_good", "--update").status == 0
    small.commit()
    assert "reproduced, 1 numbers" in small.inside("01_good").output


def test_update_copies_a_figure_whose_code_is_another_though_its_numbers_are_not(
    small, edited, at_once
):
    edited(PAGE, b"figsize=(1, 1)", b"figsize=(1, 2)")
    small.commit()
    assert "reproduced, 1 numbers" in small.inside("01_good").lines[-1]
    assert small.inside("01_good", "--update").status == 0
    assert small.changed() == [RECORD, SHOWN]


def test_update_leaves_what_somebody_else_has_changed(small, edited, at_once):
    edited(PAGE, b"seeds = 5", b"seeds = 4")
    small.commit()
    for content in (b"another's work", (small.root / SHOWN).read_bytes() + b" "):
        edited(SHOWN, None, content)
        done = small.inside("01_good", "--update")
        assert done.status == 2
        assert done.lines[-1] == (
            f"--update copied nothing: nobody committed the changes of {SHOWN};"
            " commit them or take them back."
        )
        assert (
            small.changed() == [SHOWN] and (small.root / SHOWN).read_bytes() == content
        )


def test_update_takes_no_figure_of_code_that_nobody_committed(small, edited, at_once):
    edited(PAGE, b"seeds = 5", b"seeds = 4")
    done = small.inside("01_good", "--update")
    assert (
        done.status == 2
        and "--update copies figures of committed code only" in done.output
    )
    assert small.inside("01_good").status == 0  # runs, and compares
    small.commit()
    assert small.why("--update") == "it ran on code that nobody committed"
    assert small.inside("01_good", "--update").status == 0
    assert small.changed() == [RECORD, SHOWN]
    assert "dirty" not in (small.root / RECORD).read_text()


def test_update_heals_a_reference_that_was_committed_damaged(small, edited, at_once):
    edited(RECORD, None, b"<<<<<<< HEAD")
    small.commit()
    assert small.inside("01_good").status == 1
    assert small.inside("01_good", "--update").status == 0
    assert small.inside("01_good").lines[-1] == SAME + PICTURE


def test_a_page_run_by_hand_writes_nothing(small, edited, monkeypatch):
    monkeypatch.delenv(record.TOLD, raising=False)
    monkeypatch.setenv("NOTEBOOKS_DIR", str(small.notebooks))
    for name in ("figures", "runs"):
        monkeypatch.setenv(f"{name.upper()}_DIR", str(small.root / name))
    before = small.files("figures", "runs", "notebooks")
    with mpl.rc_context():
        exec(NOTEBOOK.format(name="01_good", last="pass"), {})
    assert small.files("figures", "runs", "notebooks") == before


def test_parameters_of_ones_own_have_a_folder_of_their_own(small, edited, at_once):
    before = small.files("figures", "runs/figures", "notebooks")
    done = small.inside("01_good", "--set", "seeds=8")
    assert done.status == 0
    assert (
        "parameters of your own, not compared; 0 of 1 claims hold; not: few; yours: runs/set/"
        in done.output
    )
    (path,) = (small.root / "runs" / "set" / "demo").glob("01_good-*/01_good.json")
    assert json.loads(path.read_text())["seeds"] == list(range(8))
    assert small.files("figures", "runs/figures", "notebooks") == before


def test_store_writes_the_outputs_beside_the_source(small, edited, at_once):
    path = small.notebooks / "01_good.ipynb"
    before = small.files("notebooks")
    assert small.inside("01_good", "--store").status == 0
    content = path.read_bytes()
    assert small.inside("01_good", "--store").status == 0
    assert (
        path.read_bytes() == content
        and len(nbformat.reads(content.decode(), 4).cells) == 4
    )
    path.unlink()
    assert small.files("notebooks") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["09_none"], ["'09_none'", "01_good, 02_bad, 03_hangs"]),
        (["0"], ["'0'", "01_good, 02_bad"]),
        (["--scale", "huge"], ["'huge'"]),
        (["--set", "sed=7"], ["01_good", "sed", "scale, seeds, n, step"]),
        (["--set", "seeds=many"], ["seeds", "'many'"]),
        (["--set", "seeds"], ["'seeds'", "parameter=value"]),
        (["--set", "scale=desk"], ["--scale"]),
        (["02_bad", "--scale", "desk"], ["02_bad", "desk", "pages.toml"]),
        (["--workers", "0"], ["--workers"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--workers", "2", "--scheduler", "nowhere"], ["--workers", "--scheduler"]),
        (["--store", "--scale", "desk"], ["--store"]),
        (["--update", "--set", "seeds=7"], ["--update", "--set"]),
        (["--force", "--scheduler", "nowhere"], ["at nowhere"]),
    ],
)
def test_bad_usage_is_one_sentence_and_runs_nothing(small, arguments, words):
    before = small.files("figures", "runs")
    done = small.inside(*arguments)
    assert small.files("figures", "runs") == before
    assert done.status == 2
    assert [word for word in words if word not in done.output] == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pages.toml", b"", "pages.toml is damaged"),
        ("pages.toml", b"[01_good.sca", "pages.toml"),
        ("pages.toml", b"junk", "pages.toml"),
        ("pages.toml", b"\xff", "pages.toml"),
        ("pages.toml", b"<<<<<<< HEAD\n[01_good]\n", "pages.toml"),
        ("pages.toml", b"01_good = 5", "pages.toml: 01_good is 5"),
        ("pages.toml", b"[01_good]\nroads = 1", "01_good has 'roads'"),
        ("pages.toml", b"[01_good]\nroad = 'by'", "pages.toml: 01_good.road is 'by'"),
        ("pages.toml", b"[01_good]\naim = 1", "pages.toml: 01_good.aim is 1"),
        ("pages.toml", b"[01_good]\nreading_minutes = true", "reading_minutes is True"),
        ("pages.toml", b"[01_good]\nminutes.demo = '1'", "01_good.minutes.demo is '1'"),
        ("pages.toml", b"[01_good]\nscales = 5", "pages.toml: 01_good.scales is 5"),
        ("pages.toml", b"[01_good]\nscales.desk = 5", "01_good.scales.desk is 5"),
        ("pages.toml", b"[01_good]\nrecords.a = 5", "01_good.records.a is 5"),
        ("pages.toml", b"[01_good.records.a]\nwithin = {}", "a has no figure"),
        ("pages.toml", b"[01_good.records.a]\nfigure = 5", "a.figure is 5"),
        (
            "pages.toml",
            b"[01_good.records.a]\nfigure = '5'\ndata = [1]",
            "pages.toml: 01_good.records.a.data is [1]",
        ),
        (
            "pages.toml",
            b"[01_good.records.a]\nfigure = '5'\nwithin = { b = '1' }",
            "pages.toml: 01_good.records.a.within.b is '1'",
        ),
        ("pages.toml", b"[01_good.records.01_good]", "01_good has no figure"),
        ("01_good.py", b"caf\xe9", "01_good: 'utf-8'"),
        ("01_good.py", b'# %% tags=["parameters"]\nseeds = 1\n', "scale"),
        ("01_good.py", b'# %% tags=["parameters"]\nscale = min(1, 2)\n', "min"),
        ("01_good.py", b"# %%\nscale = 1\n", "parameters"),
    ],
)
def test_a_table_or_page_that_cannot_be_read_is_one_sentence(
    small, edited, name, text, words
):
    edited(f"notebooks/{name}", None, text)
    done = small.inside("01_good", "--dry-run", "--scale", "desk")
    assert done.status == 2 and words in done.output


def test_a_place_that_takes_no_run_is_one_sentence(small, edited):
    shutil.rmtree(small.root / "runs")
    (small.root / "runs").touch()
    done = small.inside("01_good")
    assert (
        done.status == 2
        and f"{small.root / 'runs'} cannot be written into" in done.output
    )


KNOWN = {"n": 20, "rate": 0.5, "on": True, "rates": (1, 2), "cap": None, "name": "a"}
KINDS = [
    f"rate={value}" for value in ("nan", "1e400", "1j", "None", "[]", "{1}", "true")
]


@pytest.mark.parametrize(
    "text", [*KINDS, "n='3'", "n=true", "n=2.5", "on=1", "rates=[a]"]
)
def test_a_setting_of_another_kind_is_refused_before_it_runs(text):
    key, value = batch.setting(text)
    with pytest.raises(ValueError, match=f"^{key}: expected a value like "):
        pages.check_kinds({key: value}, KNOWN)


def test_a_setting_is_a_literal_or_a_word():
    texts = {
        "n": "2",
        "rate": "1e-3",
        "on": "true",
        "rates": "[1, 2]",
        "cap": "1.0",
        "name": "b",
    }
    values = dict(batch.setting(f"{key}={text}") for key, text in texts.items())
    assert values == {
        "n": 2,
        "rate": 1e-3,
        "on": True,
        "rates": [1, 2],
        "cap": 1.0,
        "name": "b",
    }
    pages.check_kinds(values, KNOWN)


# One run and its end.

SAVED = {
    "notebook": "01_good",
    "provenance": {},
    "parameters": {},
    "data": [],
    "claims": [{**CLAIM, "bound": "≤ 6", "holds": True}],
    "numbers": {"loss": {"value": 1.0, "tolerance": 0.1}},
}


@pytest.fixture
def job(tmp_path):
    """Make a run at desk scale."""
    return jobs.Job(
        notebook="01_good",
        scale="desk",
        page=NOTEBOOK.format(name="01_good", last="pass"),
        overrides={},
        settings={},
        inputs={},
        work=tmp_path / "runs" / "work" / "desk" / "01_good",
        results=tmp_path / "runs" / "figures" / "desk" / "01_good",
        reference=tmp_path / "figures" / "desk",
        folders={"RUNS_DIR": str(tmp_path / "runs"), "NOTEBOOKS_DIR": str(tmp_path)},
    )


@pytest.mark.parametrize(
    ("outcomes", "error"),
    [
        (
            [RuntimeError("Kernel died before replying to kernel_info"), None],
            None,
        ),  # once more
        ([ValueError("broken\nand more")], "ValueError: broken"),
        ([CellTimeoutError("late")], "a cell took longer than 2 s"),
        (
            [OSError(28, "No space left on device")],
            "OSError: No space left on device: {work}",
        ),
    ],
)
def test_a_run_begins_anew_and_one_that_fails_leaves_the_last_results(
    job, monkeypatch, outcomes, error
):
    def execute(notebook, output, execution_timeout, **options):
        assert execution_timeout == 2
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        files.write(job.work / job.executed, b"new")

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    files.write(job.work / "left.png", b"of a run that failed")
    files.write(job.results / "old.png", b"of an earlier run")
    said = work.run(job, threads=1, timeout=2).error
    assert said == (error and error.format(work=job.work))
    assert not outcomes and not (job.work / "left.png").exists()
    assert (job.results / "old.png").exists() == (error is not None)
    assert (job.results / job.executed).exists() == (error is None)


def test_a_limit_for_cells_may_be_a_part_of_a_second(small, edited, monkeypatch):
    """The client that runs the cells rejects a float."""

    def executing(notebook, output, parameters, execution_timeout, **options):
        client = NotebookClient(notebook, timeout=execution_timeout)
        assert client.timeout >= 1.5
        execute(notebook, output, parameters)

    def run_all(todo, asked):
        return ((job, work.run(job, 1, asked.timeout)) for job in todo)

    monkeypatch.setattr(papermill, "execute_notebook", executing)
    monkeypatch.setattr(work, "outcomes", run_all)
    done = small.inside("01_good", "--force", "--timeout", "1.5")
    assert done.status == 0, done.output


def test_a_time_out_of_the_system_is_told_without_a_limit_for_cells(job, monkeypatch):
    def execute(*given, **options):
        raise TimeoutError("the file system did not answer")

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    error = work.run(job, threads=1, timeout=None).error
    assert error == "TimeoutError: the file system did not answer"


def ended(job, **changes):
    """Return the job after a run that saved the record SAVED with `changes`."""
    files.write(job.work / job.executed, b"{}")
    for end in record.ENDS:
        files.write(job.work / f"one{end}", json.dumps(SAVED | changes).encode())
    return job


def test_a_run_with_a_record_that_is_none_is_not_published(job):
    ended(job, numbers=5)
    with pytest.raises(ValueError, match="one.json is damaged: its numbers are 5"):
        work.publish(job)
    assert not job.results.exists()


def test_a_publish_that_fails_leaves_what_was_there_and_the_next_one_succeeds(
    job, monkeypatch
):
    files.write(job.results / "one.png", b"old")
    ended(job)
    rename = os.rename

    def full(source, target):
        if source == job.work:
            raise OSError(28, "No space left on device", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        work.publish(job)
    assert [path.name for path in job.results.iterdir()] == ["one.png"]
    assert [path.name for path in job.results.parent.iterdir()] == ["01_good"]
    monkeypatch.setattr(os, "rename", rename)
    assert work.publish(job) == ""
    assert record.read(job.results / "one.json") == SAVED and not job.work.exists()
    assert jobs.marker_of(job.results).slugs == ["one"]


@pytest.mark.parametrize(
    "scale, source", [("desk", "demo"), ("desk", "hub"), ("demo", "demo")]
)
def test_embedded_data_never_take_the_place_of_real_ones(
    job, scale, source, monkeypatch
):
    monkeypatch.setattr(reference, "_check_picture", lambda *_: None)
    data = [
        {"name": "digits", "source": source},
        {"name": "line", "source": "synthetic"},
    ]
    job = ended(replace(job, scale=scale), data=data)
    work.publish(job)
    files.write(
        job.reference / "one.json", json.dumps(SAVED | {"data": real()}).encode()
    )
    stays = (scale, source) == ("desk", "demo")
    asked = Namespace(force=False, store=False, update=False)
    assert (
        jobs.reason(job, asked) == "it ran on embedded data, not on the real ones"
    ) == stays
    _, _, is_news = reference._compared(
        job, "one", SAVED | {"data": data, "provenance": {"fingerprint": "new"}}
    )
    assert is_news == (source != "demo")


def real():
    return [
        {"name": "digits", "source": "data"},
        {"name": "line", "source": "synthetic"},
    ]


def test_real_data_in_another_place_are_seen(job):
    asked = Namespace(force=False, store=False, update=False)
    for source, reason in (("hub", "places changed"), ("synthetic", "")):
        data = [{"name": "digits", "source": source}]
        files.write(job.results / job.executed, b"")
        hashes = {job.executed: files.sha256(b"")}
        marker = jobs.Marker(inputs={"places": ["elsewhere"]}, data=data, hashes=hashes)
        files.write(job.results / record.MARKER, marker.dumps())
        here = replace(job, inputs={"places": [None]})
        assert jobs.reason(here, asked) == reason


def test_a_place_of_data_is_absolute_for_the_kernel(tmp_path, monkeypatch):
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("a folder", "~/a folder", str(tmp_path / "a folder")):
        monkeypatch.setenv("DATA_DIR", given)
        assert work._data_folder() == {"DATA_DIR": tmp_path / "a folder"}
    monkeypatch.setenv("DATA_DIR", "data/of the repository")
    assert work._data_folder() == {}


def test_a_place_that_takes_no_run_is_named(job, tmp_path):
    (tmp_path / "runs").touch()
    assert str(tmp_path / "runs") in work.run(job, threads=1, timeout=None).error
