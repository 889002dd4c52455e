"""Tests of Ctrl-C in a command.

A failure means that a user sees a traceback, or that processes go on without it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import files, interrupt

# The first import of numpy waits, as a slow disk would let it.
SLOW = """import sys, time
from pathlib import Path


class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            Path({mark!r}).touch()
            time.sleep(600)


sys.meta_path.insert(0, Slow())
"""
CONSOLE = Path(sys.executable).with_name(interrupt.CONSOLE_COMMAND)
COMMANDS = [
    ["-m", "companion.batch"],
    ["-m", "companion.tables"],
    ["-m", "lib.training"],
    ["-m", "papers.falsify"],
    ["docs/build.py"],
    pytest.param(
        [str(CONSOLE), "00"],
        marks=pytest.mark.skipif(
            not CONSOLE.exists(), reason="the project is not installed"
        ),
        id=interrupt.CONSOLE_COMMAND,
    ),
]


def waited_for(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("it never came")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_sentence_from_the_first_import_on(words, number, tmp_path):
    mark = tmp_path / "waits"
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(mark=str(mark)))
    path = os.pathsep.join([str(tmp_path), str(files.ROOT)])
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=files.ROOT,
        env=os.environ | {"PYTHONPATH": path, "RUNS_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    waited_for(lambda: mark.exists() or process.poll() is not None)
    process.send_signal(number)
    output = process.communicate(timeout=600)[0]
    assert (process.returncode, output) == (interrupt.STATUS, f"{interrupt.SENTENCE}\n")


FORKS = """import os, signal, subprocess, sys, time
from lib import interrupt
interrupt.end_in_a_sentence()
child = subprocess.Popen(["sleep", "600"])
if os.fork():
    print(child.pid, flush=True)
time.sleep(600)
"""


def test_processes_below_end_with_the_command_and_only_the_command_speaks():
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=files.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    child = int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=600)[0] == f"{interrupt.SENTENCE}\n"
    assert process.returncode == 130
    waited_for(lambda: not os.path.exists(f"/proc/{child}"))


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("python -m companion.batch 00", True),
        ("python -X dev -W error -m papers.falsify A", True),
        ("python -Im lib", False),
        ("python -m pytest -m lib", False),
        ("python -m library.batch", False),
        ("python .venv/bin/attention-dynamics 00", True),
        ("python .venv/bin/attention-dynamics.exe 00", True),
        ("python attention.py 00", False),
        ("python script.py -m companion.batch", False),
        ("python -c pass -m companion.batch", False),
        ("python -m", False),
        ("python", False),
    ],
)
def test_only_the_projects_own_commands_are_meant(words, own):
    assert interrupt.is_own_command(words.split()) == own


ENDLESS = """import lib, signal, sys
# What starts the tests in the background may have told its children to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
data = lib.two_examples()
rules = {"span": lib.NGD(0.1), "mirror": lib.MirrorDescent(3.0), "coordinates": lib.Adam(1e-9)}
rule = rules[sys.argv[1]]
lib.train(data, rule, 1)
try:
    print("trains", flush=True)
    lib.train(data, rule, 10**12, record=[10**12])
except KeyboardInterrupt:
    print(lib.train(data, rule, 1).status[0])
"""


@pytest.mark.parametrize("rule", ["span", "mirror", "coordinates"])
def test_an_interrupt_ends_a_compiled_loop_and_the_next_one_trains(rule):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, rule],
        cwd=files.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout.readline() == "trains\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=600)[0] == "completed\n"


COUNTS = """import itertools
from lib import interrupt
from lib.networks.text import Vocabulary
interrupt.end_in_a_sentence()

def endless():
    print("counts", flush=True)
    yield from itertools.repeat("A good film, a bad film.")

Vocabulary.of(endless(), 6)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_counting_of_words(number):
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTS],
        cwd=files.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout.readline() == "counts\n"
    process.send_signal(number)
    try:
        output = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert (process.returncode, output) == (interrupt.STATUS, f"{interrupt.SENTENCE}\n")


FORKED = """import lib, multiprocessing
data = lib.two_examples()

def norm(steps):
    return float(lib.train(data, {"a": lib.NGD(0.1), "b": lib.GD(0.1)}, steps)["a"].norm[0, -1])

here = norm(100)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(norm, [100] * 4) == [here] * 4)
"""


def test_a_process_that_has_trained_can_fork():
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(
        command, cwd=files.ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "True\n", done.stderr


COMPILES = """import time
from lib import interrupt
interrupt.end_in_a_sentence()
from lib.compiled import cache
print(cache.use_folder(), flush=True)
time.sleep(600)
"""


def test_a_temporary_folder_of_compiled_code_ends_with_its_process(tmp_path):
    (tmp_path / "blocked").write_text("a file where the user's cache would be")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {name: word for name, word in os.environ.items() if "CACHE" not in name}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "blocked"), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILES],
        cwd=files.ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline().startswith(str(temporary))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == interrupt.STATUS
    assert list(temporary.iterdir()) == []
