"""Tests of imports.

The core must work without any extra, theory must load nothing heavy, and the layers
must hold. Otherwise `pip install` of the core breaks, or a first import takes seconds.
"""

import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT_EXTRAS = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not of the core", name=name)

sys.meta_path.insert(0, Refusing())
"""
TRAINING = """
from lib import attention, dynamics, svm
from papers.law import margin_law
data = attention.class_mean_tokens([0], n=20, T=10, d=300, signal=3.0, noise=0.1)
problem = attention.minimal(data)
solution = svm.token_svm(problem.tokens)
targets = {"W_mm": solution.W}
history = dynamics.train(problem, dynamics.NGD(0.025), 20_000, [0, 20_000], targets=targets)
law = margin_law.margin_law(problem.tokens, solution)
expected = law.direction_error(history.norm[:, -1])
print(float(history.direction_error["W_mm"][0, -1] / expected[0]), float(solution.gap[0]))
"""


def of_the_core():
    """Return the distributions that the core requires, and what they require."""
    left = list(PROJECT["dependencies"])
    found = {"attention-dynamics"}
    while left:
        name = re.match(r"[\w-]+", left.pop()).group().lower()
        if name not in found:
            found.add(name)
            # a requirement of another system or Python
            with suppress(PackageNotFoundError):
                left += [
                    text for text in requires(name) or [] if "extra ==" not in text
                ]
    return found


def modules_beside_the_core():
    """Return the importable modules that an installation of the core alone lacks."""
    core = of_the_core()
    modules = packages_distributions().items()

    def spelled(names):
        return {name.lower().replace("_", "-") for name in names}

    return sorted(module for module, names in modules if not spelled(names) & core)


def run(code, **settings):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **settings)


def test_the_core_alone_trains_solves_and_checks_the_law():
    blocked = modules_beside_the_core()
    assert {
        "torch",
        "cvxpy",
        "papermill",
        "IPython",
        "jinja2",
        "pytest",
        "pandas",
    } <= set(blocked)
    assert not {"numpy", "PIL", "llvmlite"} & set(blocked)
    done = run(WITHOUT_EXTRAS.format(blocked=blocked) + TRAINING)
    assert done.returncode == 0, done.stderr
    ratio, gap = map(float, done.stdout.split())
    assert abs(ratio - 1) < 1e-4 and gap < 1e-9


COMMANDS = [
    "from companion import command; command.main()",
    "import runpy; runpy.run_module('companion.batch', run_name='__main__')",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_names_the_extra_that_pages_need(command):
    blocked = modules_beside_the_core()
    done = run(WITHOUT_EXTRAS.format(blocked=blocked) + command)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "attention-dynamics[notebooks]" in done.stderr


def test_layers_hold():
    done = run(
        "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Theory packages, and what each may import. torch alone takes a second, the style of
# pictures two.
ROOMS = "attention compiled dynamics mirror svm regression data data.images data.texts"
THEORY = [
    *(f"lib.{room}" for room in ROOMS.split()),
    "lib.dynamics.in_coordinates.training",
]
HEAVY = set("torch transformers cvxpy matplotlib pandas seaborn IPython".split())
HEAVY |= set("datasets pyarrow sklearn PIL huggingface_hub".split())


def test_theory_loads_nothing_heavy():
    """Each heavy library is imported by the function that needs it, never by a theory
    package.
    """
    done = run(
        f"import sys, {', '.join(THEORY)}; print(*({HEAVY} & sys.modules.keys()))"
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
