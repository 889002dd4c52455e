"""A batch on a Dask cluster of separate processes, of which one dies in the middle.

Nothing is lost or done twice.
"""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lib import files

NOTEBOOK = """# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
#     language: python
# ---

# %% tags=["parameters"]
scale = "demo"
name = "{name}"

# %%
import os
import time
from pathlib import Path

from matplotlib.figure import Figure

from lib.companion import record


def log(word):
    with open(os.environ["LOG"], "a") as stream:
        stream.write(f"{{word}} {{name}} {{os.getpid()}} {{os.getppid()}}\\n")


run = record.Run(notebook=name, paper="A", scale=scale, parameters=dict(name=name))
log("start")
while name == "01_long" and not Path(os.environ["GO"]).exists():
    time.sleep(0.1)
figure = Figure(figsize=(1, 1))
run.save(figure, name, "Figure 2", "A line.")
log("end")
"""
NAMES = ["01_long", "02_short", "03_short"]


PATIENCE = 1200  # seconds that the test waits at most for what a busy machine takes long to do


def until(condition):
    """The first true value of `condition()`."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    pytest.fail(f"{condition.__name__} is still false after {PATIENCE} s")


class Cluster:
    """Three notebooks, and processes of their own for a scheduler, workers and a batch."""

    def __init__(self, root):
        self.root, self.log, self.go, self.processes = root, root / "log", root / "go", []
        # A parser that takes a second of each process's start, for addresses that nobody has here.
        (root / "rfc3987_syntax.py").write_text("raise ImportError\n")
        for name in NAMES:
            files.write(root / "notebooks" / f"{name}.py", NOTEBOOK.format(name=name).encode())
        folders = {f"{name.upper()}_DIR": root / name for name in ("figures", "runs", "notebooks")}
        more = {"LOG": self.log, "GO": self.go, "PYTHONPATH": files.ROOT, **folders}
        self.environment = os.environ | {name: str(value) for name, value in more.items()}

    def start(self, *arguments):
        with open(self.root / f"output{len(self.processes)}", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.root,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def output(self, process):
        return (self.root / f"output{self.processes.index(process)}").read_text(encoding="utf-8")

    def logged(self, word):
        """(name, kernel, worker) of each line of the log that begins with `word`."""
        rows = [line.split() for line in self.log.read_text().splitlines()]
        return [(name, int(kernel), int(worker)) for w, name, kernel, worker in rows if w == word]

    def stop(self):
        for process in self.processes:
            family = [psutil.Process(process.pid)] if process.poll() is None else []
            for member in [*(c for p in family for c in p.children(recursive=True)), *family]:
                member.kill()
            process.wait(timeout=PATIENCE)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    made.log.touch()
    yield made
    made.stop()


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process as POSIX does")
def test_nothing_is_lost_or_done_twice_when_a_worker_dies(cluster):
    place = cluster.root / "scheduler.json"
    local = ("--host", "127.0.0.1", "--no-dashboard")
    cluster.start("dask", "scheduler", *local, "--port", "0", "--scheduler-file", str(place))
    until(place.exists)
    address = json.loads(until(place.read_text))["address"]
    single = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny")
    workers = [cluster.start("dask", "worker", address, *local, *single) for _ in range(2)]
    batch = cluster.start("lib.batch", "--scheduler", address)

    def long_one_runs():
        return [row for row in cluster.logged("start") if row[0] == "01_long"]

    ((_, kernel, parent),) = until(long_one_runs)
    (victim,) = [worker for worker in workers if worker.pid == parent]
    os.kill(victim.pid, signal.SIGKILL)
    # its kernel ends too, and so cannot finish beside its successor
    until(lambda: not psutil.pid_exists(kernel))
    until(lambda: len(long_one_runs()) == 2)
    cluster.go.touch()
    assert batch.wait(timeout=PATIENCE) == 0, cluster.output(batch)

    words = cluster.output(batch)
    assert [words.count(f"ok   {name}") for name in NAMES] == [1, 1, 1], words
    assert sorted(name for name, _, _ in cluster.logged("end")) == NAMES
    assert sorted(name for name, _, _ in cluster.logged("start")) == ["01_long", *NAMES]
    for folder in ("figures", "runs"):  # records and markers
        made = (cluster.root / folder / "demo").glob("*.json")
        assert sorted(path.stem for path in made) == NAMES
