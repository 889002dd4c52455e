"""A compiled function is compiled anew when what it calls in another file has changed."""

import os
import shutil
import subprocess
import sys

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
