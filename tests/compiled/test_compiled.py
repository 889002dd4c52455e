"""A compiled function is compiled anew when what it calls in another file has changed; its cache
finds a place.
"""

import os
import shutil
import subprocess
import sys

import pytest

from lib import files
from lib.compiled import cache

NORM = """
from lib.attention import tokens
from lib.dynamics import gradient_descent as dynamics, rules
history = dynamics.train(tokens.class_mean_tokens(0, n=2, T=2, d=8), rules.gd(0.1), 1, [0, 1])
print(history.norm[0, -1])
"""


def test_a_changed_rule_is_not_answered_from_the_cache(tmp_path):
    shutil.copytree(
        files.ROOT / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}

    def norm():
        return float(
            subprocess.check_output([sys.executable, "-c", NORM], cwd=tmp_path, env=env, text=True)
        )

    before, rules = norm(), tmp_path / "lib" / "dynamics" / "rules.py"
    formula = "log_eta = log_size - shrink\n"
    assert rules.read_text().count(formula) == 1
    rules.write_text(rules.read_text().replace(formula, "log_eta = log_size - shrink + LOG_2\n"))
    assert abs(norm() / before - 2.0) < 1e-12


def test_stamp_depends_on_the_folder_of_the_caller():
    stamps = [
        cache.stamp(str(files.ROOT / "lib" / room / "any.py"))
        for room in ("compiled", "dynamics", "mirror")
    ]
    assert len(set(stamps)) == 3


@pytest.mark.parametrize("given", [False, True], ids=["no folder given", "a folder given"])
def test_a_cache_that_no_folder_takes_goes_to_a_temporary_one_and_says_so_once(tmp_path, given):
    library = tmp_path / "lib"
    shutil.copytree(files.ROOT / "lib", library, ignore=shutil.ignore_patterns("__pycache__"))
    for room in ("compiled", "dynamics"):  # a file where numba makes its folder: also root fails
        (library / room / "__pycache__").write_text("in the way")
    (tmp_path / "blocked").write_text("no folder")
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    blocked = {"HOME": "blocked/home", "XDG_CACHE_HOME": "blocked/cache"}
    env |= {name: str(tmp_path / value) for name, value in blocked.items()}
    env |= {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    if given:
        env["NUMBA_CACHE_DIR"] = str(tmp_path / "blocked" / "given")
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
    assert cache.find_place.__wrapped__() is None
    assert cache.numba.config.CACHE_DIR == str(tmp_path) and capsys.readouterr().err == ""
