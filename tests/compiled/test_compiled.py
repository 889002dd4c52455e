"""Tests of the cache of compiled functions.

A failure means that old code runs after an edit, or that a damaged file ends a program.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import files
from lib.compiled import cache

LOOP = """
import lib.compiled
import numba
from lib.loops import rule

@numba.njit(cache=True)
def run(x):
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
CACHED = "from lib.loops import loop; print(loop.run(1.0), sum(loop.run.stats.cache_hits.values()))"


@pytest.fixture
def loops(tmp_path):
    """Make a package with a loop and a rule; return a function that runs code, and its
    folder.
    """
    folder = tmp_path / "lib" / "loops"
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        files.ROOT / "lib" / "compiled", tmp_path / "lib" / "compiled", ignore=left
    )
    folder.mkdir()
    (folder / "loop.py").write_text(LOOP)
    (folder / "rule.py").write_text(RULE)
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }

    def run(code):
        command = [sys.executable, "-c", code]
        return tuple(
            map(float, subprocess.check_output(command, cwd=tmp_path, env=env).split())
        )

    return run, folder


def test_a_function_is_kept_and_a_change_in_another_file_is_seen(loops):
    run, folder = loops
    assert run(CACHED) == (2.0, 0)  # compiled
    assert run(CACHED) == (2.0, 1)  # kept
    (folder / "rule.py").write_text(RULE.replace("1.0", "7.0"))
    assert run(CACHED) == (8.0, 0)


def test_a_class_of_another_name_is_compiled_anew(loops):
    run, folder = loops
    text = LOOP.replace("x + rule", "x.size + rule").replace("import numba\n", PAIR, 1)
    for name in ("Pair", "Couple"):
        (folder / "loop.py").write_text(text.replace("Pair", name))
        assert run(CACHED.replace("run(1.0)", f"run(loop.{name}(1.0))")) == (2.0, 0)


DAMAGE = """
import importlib, sys
from pathlib import Path
from lib.loops import loop

damaged_forms = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "junk": lambda content: b"not what this file holds" * 20,
    "another pickle": lambda content: b"\\x80\\x04K\\x07.",  # the number 7
}
loop.run(1.0)
for ending in ("nbi", "nbc"):
    for form, damaged in damaged_forms.items():
        (path,) = Path(sys.argv[1]).rglob(f"loop.run-*.{ending}")
        path.write_bytes(damaged(path.read_bytes()))
        results = []
        for _ in range(2):  # the first compiles anew and mends the file, the second finds it
            importlib.reload(loop)
            results += [loop.run(1.0), sum(loop.run.stats.cache_hits.values())]
        print(ending, form, *results, sep=";")
"""


def test_a_damaged_file_is_compiled_anew_and_mended(loops, tmp_path):
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", DAMAGE, str(tmp_path / "cache")]
    printed = subprocess.check_output(
        command, cwd=tmp_path, env=env, text=True
    ).splitlines()
    found = {tuple(line.split(";")[:2]): line.split(";")[2:] for line in printed}
    assert len(found) == 8
    for form, results in found.items():
        assert results == ["2.0", "0", "2.0", "1"], form


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_folder_in_place_of_a_file_is_one_sentence_until_it_is_removed(
    loops, tmp_path, ending
):
    run, _ = loops
    assert run(CACHED) == (2.0, 0)
    (path,) = (tmp_path / "cache").rglob(f"loop.run-*.{ending}")
    path.unlink()
    path.mkdir()
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CACHED],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "2.0 0\n"
    assert done.stderr == (
        f"{path} cannot be written (Is a directory): its function is compiled again "
        f"in every process; remove {path.parent}\n"
    )
    assert not list(path.parent.glob("*.tmp.*"))
    path.rmdir()
    assert run(CACHED) == (2.0, 0)
    assert run(CACHED) == (2.0, 1)


def test_two_processes_may_compile_at_once(loops, tmp_path):
    env = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", CACHED]
    how = dict(cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    both = [subprocess.Popen(command, **how) for _ in range(2)]
    found = [process.communicate()[0].split()[0] for process in both]
    assert found == ["2.0", "2.0"]


@pytest.mark.parametrize(
    "use",
    [
        "from lib.loops.size import SIZE",
        "from lib.loops.size import SIZE as number",
        "from lib.loops import size",
        "import lib.loops.size",
        "from lib.loops.between import SIZE",
        "from lib.sizes import SIZE",
    ],
)
def test_the_hash_sees_what_a_compiled_function_imports(tmp_path, use):
    (tmp_path / "lib" / "loops").mkdir(parents=True)
    (tmp_path / "lib" / "sizes").mkdir()
    files_by_name = {
        "loops/loop.py": f"import numba\n{use}\nrun = numba.njit(lambda x: x)",
        "loops/size.py": "SIZE = 1",
        "loops/between.py": "from lib.loops.size import SIZE",
        "sizes/__init__.py": "from lib.loops.size import SIZE",
        "loops/words.py": "import numba",
    }
    for name, content in files_by_name.items():
        (tmp_path / "lib" / name).write_text(content)
    first = cache.kernels_hash(tmp_path)
    (tmp_path / "lib" / "loops" / "words.py").write_text("import numpy")
    assert cache.kernels_hash(tmp_path) == first
    (tmp_path / "lib" / "loops" / "size.py").write_text("SIZE = 2")
    assert cache.kernels_hash(tmp_path) != first


def test_the_hash_sees_a_renamed_file(tmp_path):
    (tmp_path / "lib").mkdir()
    loop = tmp_path / "lib" / "loop.py"
    loop.write_text(LOOP)
    first = cache.kernels_hash(tmp_path)
    loop.rename(tmp_path / "lib" / "moved.py")
    assert cache.kernels_hash(tmp_path) != first


@pytest.mark.parametrize(
    "name",
    ["dynamics/rules.py", "compiled/status.py", "dynamics/in_coordinates/codes.py"],
)
def test_the_hash_sees_a_change_of_a_formula_or_constant(tmp_path, name):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(files.ROOT / "lib", tmp_path / "lib", ignore=ignored)
    first = cache.kernels_hash(tmp_path)
    with open(tmp_path / "lib" / name, "a") as file:
        file.write("MORE = 1\n")
    assert cache.kernels_hash(tmp_path) != first


def test_a_cache_that_no_folder_takes_goes_to_a_temporary_one_and_says_so_once(
    tmp_path,
):
    library = tmp_path / "lib"
    shutil.copytree(
        files.ROOT / "lib", library, ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "blocked").write_text("no folder")  # a file in its way: also root fails
    (tmp_path / "temporary").mkdir()
    places = {
        "HOME": "blocked/home",
        "XDG_CACHE_HOME": "blocked/cache",
        "TMPDIR": "temporary",
    }
    env = {
        name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"
    }
    env |= {name: str(tmp_path / value) for name, value in places.items()} | {
        "PYTHONPATH": ""
    }
    show = (
        "import numba; from lib.dynamics import kernel; print(numba.config.CACHE_DIR)\n"
    )
    text = (
        show
        + "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, show],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "temporary/numba-" in first
    assert second == first  # the second process finds the first's folder
    (line,) = done.stderr.splitlines()
    assert (
        line.startswith("no folder takes numba's cache")
        and "NUMBA_CACHE_DIR names" in line
    )
    assert list((tmp_path / "temporary").iterdir()) == []  # and nothing stays behind


def test_the_folder_of_this_process_is_named_by_the_hash():
    folder = cache.use_folder()
    assert folder.name == cache.kernels_hash()
    assert Path(os.environ["NUMBA_CACHE_DIR"]) == folder
