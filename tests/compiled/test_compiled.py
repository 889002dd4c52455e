"""The cache of compiled functions: else old code runs after an edit, or an import fails."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lib import files
from lib.compiled import apart, cache

TEXTS = {
    path: path.read_text(encoding="utf-8")
    for package in ("lib", "papers")
    for path in (files.ROOT / package).rglob("*.py")
}
HOME = Path(cache.__file__).parent
LOOP = """
import numba
from lib.compiled.cache import stamp
from lib.loops import rule
SOURCES = stamp(__file__)

@numba.njit(cache=True)
def run(x, sources=SOURCES):
    return x + rule.step()
"""
RULE = """
import numba

@numba.njit
def step():
    return 1.0
"""

PAIR = """
import numba
from typing import NamedTuple

class Pair(NamedTuple):
    size: float
"""


CACHED = "from lib.loops import loop; print(loop.run(1.0), *loop.run.stats.cache_hits.values())"
APART = """
import os, subprocess, sys
from lib.compiled import apart
from lib.loops import loop
if sys.argv[1:] == ["no interpreter"]:
    sys.executable = "missing"
started, real = [], subprocess.run
subprocess.run = lambda *a, **k: (started.append(1), real(*a, **k))
found = [apart.call(loop.run, 1.0) for _ in range(2)]
hits, misses = loop.run.stats.cache_hits, loop.run.stats.cache_misses
print(*found, len(started), sum(hits.values()), sum(misses.values()))
"""


@pytest.fixture
def loops(tmp_path):
    """A room of its own with a loop and a rule: the numbers that code prints there, its folder."""
    folder = tmp_path / "lib" / "loops"
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(files.ROOT / "lib" / "compiled", tmp_path / "lib" / "compiled", ignore=left)
    folder.mkdir()
    (folder / "loop.py").write_text(LOOP)
    (folder / "rule.py").write_text(RULE)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(code, *words):
        command = [sys.executable, "-c", code, *words]
        return tuple(map(float, subprocess.check_output(command, cwd=tmp_path, env=env).split()))

    return run, folder


def test_a_class_of_another_name_is_compiled_anew(loops):
    run, folder = loops
    text = LOOP.replace("x + rule", "x.size + rule").replace("import numba\n", PAIR, 1)
    for name, expected in (("Pair", (2.0,)), ("Couple", (2.0,))):
        (folder / "loop.py").write_text(text.replace("Pair", name))
        assert run(CACHED.replace("run(1.0)", f"run(loop.{name}(1.0))")) == expected


def test_another_process_compiles_and_the_cache_hands_over(loops):
    run, folder = loops
    assert run(APART) == (2.0, 2.0, 1, 1, 0)  # one process started, one hit, nothing compiled here
    assert run(APART) == (2.0, 2.0, 0, 1, 0)  # and none where the cache has it
    (folder / "rule.py").write_text(RULE.replace("1.0", "7.0"))
    assert run(APART) == (8.0, 8.0, 0, 0, 1)  # a stale entry: compiled here


def test_what_the_cache_has_of_another_module_is_no_entry(tmp_path):
    stats = SimpleNamespace(cache_path=tmp_path)
    function = SimpleNamespace(__module__="lib.room.loop", __name__="run", stats=stats)
    for module in ("other_loop.run", "loop.runs", "loop.run"):
        (tmp_path / f"{module}-7.nbi").touch()
        assert apart._kept(function) is (module == "loop.run")


def test_where_no_other_process_can_compile_the_call_does(loops):
    assert loops[0](APART, "no interpreter") == (2.0, 2.0, 1, 0, 1)


def imported(path):
    """The files of `lib` and `papers` that a file imports, the cache apart."""
    homes = {}
    for node in ast.parse(TEXTS[path]).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith(("lib", "papers")):
            home = files.ROOT / node.module.replace(".", "/")
            homes |= {home / f"{name.name}.py": home.with_suffix(".py") for name in node.names}
    modules = {file if file in TEXTS else home for file, home in homes.items()}
    return modules - {HOME / "cache.py"}


def test_every_kept_function_is_stamped_by_all_that_it_can_call():
    kept = {path for path, text in TEXTS.items() if "cache=True" in text and path.parent != HOME}
    assert {path.parent.name for path in kept} >= {"engine", "dynamics", "regression"}
    for path in kept:
        if not any("njit" in TEXTS.get(file, "") for file in imported(path)):
            continue  # numba itself sees changes in the file of a function
        assert "SOURCES = stamp(__file__)" in TEXTS[path].splitlines(), path
        functions = [n for n in ast.parse(TEXTS[path]).body if isinstance(n, ast.FunctionDef)]
        for f in functions:
            if "cache=True" in "".join(map(ast.unparse, f.decorator_list)):
                assert ast.unparse(f.args).endswith("sources=SOURCES"), path
        for used in path.parent.glob("*.py"):
            if "njit" in TEXTS[used]:
                assert {file.parent for file in imported(used)} <= {HOME, path.parent}, used


def test_a_cache_that_no_folder_takes_goes_to_a_temporary_one_and_says_so_once(tmp_path):
    library = tmp_path / "lib"
    shutil.copytree(files.ROOT / "lib", library, ignore=shutil.ignore_patterns("__pycache__"))
    for room in ("compiled", "dynamics"):  # a file where numba makes its folder: also root fails
        (library / room / "__pycache__").write_text("in the way")
    (tmp_path / "blocked").write_text("no folder")
    (tmp_path / "temporary").mkdir()
    places = {"HOME": "blocked/home", "XDG_CACHE_HOME": "blocked/cache", "TMPDIR": "temporary"}
    places |= {"PYTHONPATH": ""}
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env |= {name: str(tmp_path / value) for name, value in places.items()}
    show = "import numba; from lib.dynamics import kernel; print(numba.config.CACHE_DIR)\n"
    text = show + "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])\n"
    done = subprocess.run(
        [sys.executable, "-c", text, show], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    places = done.stdout.splitlines()
    assert len(places) == 2 and "temporary/numba-" in places[0]
    assert len(set(places)) == 1  # the second process finds the first's folder
    (line,) = done.stderr.splitlines()
    assert line.startswith("no folder takes numba's cache") and "NUMBA_CACHE_DIR names" in line
    assert list((tmp_path / "temporary").iterdir()) == []  # and nothing stays behind


def test_a_cache_with_a_place_of_its_own_is_left_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cache.numba.config, "CACHE_DIR", str(tmp_path))
    assert cache.find_place.__wrapped__() is None and capsys.readouterr().err == ""
