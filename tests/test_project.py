"""The files that install and describe the project agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = PROJECT["dependencies"] + sum(PROJECT["optional-dependencies"].values(), [])


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower().replace("_", "-")


@pytest.mark.parametrize("requirement", DEPENDENCIES)
def test_lock_pins_every_dependency(requirement):
    pinned = {name_of(line) for line in LOCK.splitlines() if re.match(r"[A-Za-z0-9._-]+==", line)}
    assert name_of(requirement) in pinned, "run: make lock"


def test_lock_leaves_the_companions_of_torch_to_torch():
    assert "torch==2.13.0\n" in LOCK
    assert not re.search(r"^(nvidia-|triton|cuda-)", LOCK, re.MULTILINE)
    assert "://" not in LOCK  # no registry's address


def test_conda_environment_reads_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [part for part in environment["dependencies"] if isinstance(part, dict)]
    assert pip["pip"] == ["-r requirements.txt", "-e ."]
    assert PROJECT["requires-python"] == ">=3.11" and "python=3.11" in environment["dependencies"]


def test_citation_names_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["license"] == PROJECT["license"]
    assert citation["version"] == PROJECT["version"]
    urls = {reference["url"] for reference in citation["references"]}
    assert urls == {f"https://arxiv.org/abs/{number}" for number in ("2402.05738", "2603.01514", "2410.14581")}
