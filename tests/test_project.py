"""The files that install and describe the project agree with each other."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from lib.site import figures

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = PROJECT["dependencies"] + sum(PROJECT["optional-dependencies"].values(), [])


LIBRARY, PAPERS = (sorted((ROOT / name).rglob("*.py")) for name in ("lib", "papers"))
CODE = LIBRARY + PAPERS
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


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


def test_citation_has_what_its_format_requires():
    """What the Citation File Format 1.2.0 requires of a file, a person or entity, a reference."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert all(isinstance(citation[name], str) and citation[name] for name in ("message", "title"))
    assert citation["type"] in ("software", "dataset")
    assert all(isinstance(word, str) for word in citation["keywords"])
    for part in (citation, *citation["references"]):
        assert part["authors"] and all(
            "name" in a or {"family-names", "given-names"} <= a.keys() for a in part["authors"]
        )
    for reference in citation["references"]:
        assert reference["type"] == "article" and reference["title"]
        assert isinstance(reference["year"], int) and reference["url"].startswith("https://")
        assert reference["scope"] in ("reproduced", "related work")


def references(scope):
    """{arXiv number: title} of the references of a scope."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    chosen = [r for r in citation["references"] if r["scope"] == scope]
    return {r["url"].removeprefix("https://arxiv.org/abs/"): r["title"] for r in chosen}


def test_citation_is_of_this_project_and_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == PROJECT["license"] and citation["version"] == PROJECT["version"]
    assert references("reproduced") == {n: title for title, n in figures.PAPERS.values()}


NUMBER = re.compile(r"(?<![\d.])\d{4}\.\d{5}(?![\d.])")  # of arXiv


def test_what_the_pages_beyond_the_papers_cite_is_in_the_citation_file_and_the_other_way_round():
    texts = [p for p in (ROOT / "notebooks").glob("4*.py")] + list(
        (ROOT / "notebooks").glob("*.md")
    )
    texts += [ROOT / "papers/beyond/atlas_rules.py"]
    named = {n for path in texts for n in NUMBER.findall(path.read_text("utf-8"))}
    assert set(references("related work")) - named == set()
    assert named - set(references("related work")) <= {n for _, n in figures.PAPERS.values()}


def test_each_commit_that_a_protocol_names_is_in_the_history():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no whole history here")
    pattern = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b")
    named = {
        (path.name, commit)
        for path in (ROOT / "notebooks").glob("*.md")
        for commit in pattern.findall(path.read_text("utf-8"))
    }
    assert ("bends_protocol.md", "46dc51e") in named
    lost = [one for one in named if git("merge-base", "--is-ancestor", one[1], "HEAD").returncode]
    assert lost == []


def records():
    """The record classes of lib/ and papers/ with over five fields, by name: how many they have."""
    classes = [node for path in CODE for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    fields = {
        node.name: sum(isinstance(line, ast.AnnAssign) for line in node.body)
        for node in classes
        if isinstance(node, ast.ClassDef)
    }
    return {name: count for name, count in fields.items() if count > 5}


def positional(source, long_records):
    """Lines of a source that make one of these records from over five values without names."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [(getattr(call.func, "attr", getattr(call.func, "id", "")), call) for call in calls]
    return [call.lineno for name, call in named if name in long_records and len(call.args) > 5]


def test_long_records_are_made_by_name():
    long_records = records()
    assert "History" in long_records and "Regression" not in long_records
    assert positional("x = a.History(1, 2, 3, 4, 5, 6)", long_records) == [1]
    found = {path: positional(path.read_text("utf-8"), long_records) for path in CODE + NOTEBOOKS}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


# The weight of lib/ and papers/ as they stand: most lines, most files. Each may only be lowered.
MOST = {"lib": (11_897, 97), "papers": (16_159, 120), "together": (28_056, 217)}


@pytest.mark.parametrize("name", MOST)
def test_the_code_does_not_grow(name):
    paths = {"lib": LIBRARY, "papers": PAPERS, "together": CODE}[name]
    most_lines, most_files = MOST[name]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in paths) <= most_lines
    assert len(paths) <= most_files


@pytest.mark.parametrize("mark", ["fmt: skip", "fmt: off"])
def test_no_line_is_kept_from_the_formatter(mark):
    assert [str(path) for path in CODE if mark in path.read_text("utf-8")] == []
