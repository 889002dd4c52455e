"""Tests of the files that install and describe the project.

A failure means that an installation fails, or fails without a reason.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from companion.tables import figures

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEPENDENCIES = list(dict.fromkeys(PROJECT["dependencies"] + sum(EXTRAS.values(), [])))


LIBRARY, PAPERS = (sorted((ROOT / name).rglob("*.py")) for name in ("lib", "papers"))
CODE = LIBRARY + PAPERS


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower().replace("_", "-")


def test_lock_pins_every_dependency():
    pinned = {
        name_of(line)
        for line in LOCK.splitlines()
        if re.match(r"[A-Za-z0-9._-]+==", line)
    }
    assert {*map(name_of, DEPENDENCIES)} <= pinned, "run: make lock"
    # and leaves the companions of torch to torch
    assert "torch==2.13.0\n" in LOCK
    assert not re.search(r"^(nvidia-|triton|cuda-)", LOCK, re.MULTILINE)
    assert "://" not in LOCK  # no registry's address


def test_workflow_container_and_conda_do_what_the_readme_says():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert (
        job["strategy"]["matrix"]["python"][0] == "3.11"
        and len(job["strategy"]["matrix"]) == 1
    )
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["make test", "make figures site"]
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert (
        container["image"] == "python:3.11"
        and container["postCreateCommand"] == "make setup"
    )
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [part for part in environment["dependencies"] if isinstance(part, dict)]
    assert pip["pip"] == ["-r requirements.txt", "-e ."]
    assert (
        PROJECT["requires-python"] == ">=3.11"
        and "python=3.11" in environment["dependencies"]
    )


def references(scope):
    """Return {arXiv number: title} of the references of a scope."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    chosen = [r for r in citation["references"] if r["scope"] == scope]
    return {r["url"].removeprefix("https://arxiv.org/abs/"): r["title"] for r in chosen}


def test_citation_is_of_this_project_and_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (
        citation["license"] == PROJECT["license"]
        and citation["version"] == PROJECT["version"]
    )
    assert references("reproduced") == {
        n: title for title, n in figures.PAPERS.values()
    }


NUMBER = re.compile(r"(?<![\d.])\d{4}\.\d{5}(?![\d.])")  # arXiv numbers


def test_what_the_pages_beyond_the_papers_cite_is_in_the_citation_file_and_the_other_way_round():
    texts = [p for p in (ROOT / "notebooks").glob("4*.py")] + list(
        (ROOT / "notebooks").glob("*.md")
    )
    texts += [ROOT / "papers/atlas/atlas_rules.py"]
    named = {n for path in texts for n in NUMBER.findall(path.read_text("utf-8"))}
    assert set(references("related work")) - named == set()
    assert named - set(references("related work")) <= {
        n for _, n in figures.PAPERS.values()
    }


@pytest.mark.parametrize("asked", [["check"], ["format", "--check"]])
def test_ruff_finds_nothing(asked):
    command = [sys.executable, "-m", "ruff", *asked, "--no-cache", str(ROOT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_line_is_kept_from_the_formatter():
    assert [
        str(p) for p in CODE if re.search("fmt: (skip|off)", p.read_text("utf-8"))
    ] == []


OLD = """#!/bin/sh
exec {python} -c 'import sys; sys.version_info = (3, 10, 13); exec(sys.argv[2])' "$@"
"""

FAILING = """#!/bin/sh
case "$*" in *--version) exit 0;; esac
echo "$*" >&2; exit 1
"""
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def clone(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def setup(clone, *settings, **environment):
    command = ["make", "--no-print-directory", "setup", *settings]
    where = {"cwd": clone, "env": os.environ | environment}
    done = subprocess.run(command, capture_output=True, text=True, **where)
    assert done.returncode and not (clone / ".venv/.installed").exists()
    said = (done.stdout + done.stderr).splitlines()
    return [line for line in said if not line.startswith(("make", "Installing"))]


@needs_make
def test_an_old_python_is_refused(clone):
    old = clone / "python3"
    old.write_text(OLD.format(python=sys.executable))
    old.chmod(0o755)
    (sentence,) = setup(clone, f"PYTHON={old}")
    assert sentence == "Python 3.11 or newer is needed; name one with make PYTHON=..."
    assert not (clone / ".venv").exists()


@needs_make
def test_without_uv_and_without_packages_the_log_is_named(clone):
    pip = clone / ".venv/bin/python"
    pip.parent.mkdir(parents=True)
    pip.write_text(FAILING)
    pip.chmod(0o755)
    said = setup(clone, "UV=false", f"PYTHON={sys.executable}")
    assert said[0] == "uv did not install the lock; pip does."
    assert len(said) == 2 and ".venv/install.log" in said[1]
    assert "-r requirements.txt" in (clone / ".venv/install.log").read_text()


@needs_make
@pytest.mark.parametrize(
    "given", ["a folder/below", "~/data", "/data", "", "/Übung 数据~ [1]/of #2"]
)
def test_make_hands_on_the_folder_of_data_as_it_is(clone, given):
    """A name with a space is one name, and a ~ is the reader's home."""
    python = clone / "python"
    python.write_text('#!/bin/sh\necho "[$DATA_DIR] $*"\n')
    python.chmod(0o755)
    command = [
        "make",
        "--no-print-directory",
        "--old-file=setup",
        "figures",
        f"PY={python}",
    ]
    for words, more in (([f"DATA_DIR={given}"], {}), ([], {"DATA_DIR": given})):
        run = dict(cwd=clone, env=os.environ | more, capture_output=True, text=True)
        done = subprocess.run([*command, *words, "UPDATE=1", "ARGS=00"], **run)
        assert (
            done.stdout == f"[{given}] -m companion.batch --scale demo --update 00\n"
        ), done.stderr


@needs_make
@pytest.mark.parametrize(
    ("given", "updates"),
    [("1", True), ("yes", True), ("", False), ("0", False), ("no", False)],
)
def test_make_updates_only_if_it_is_told_to(clone, given, updates):
    words = ["figures", "PY=echo", f"UPDATE={given}", "--old-file=setup"]
    command = ["make", "--no-print-directory", *words]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert ("--update" in done.stdout) == updates, done.stderr
