"""Tests that README and similar documents are true.

A failure means that a first command, a path or a piece of code does not work.
"""

import importlib
import re
import runpy
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from companion import plots
from lib import files

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "REPRODUCING.md",
    "data/README.md",
    "lib/README.md",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAYERS = PROJECT["tool"]["importlinter"]["contracts"]


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def section(text, heading):
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def gone(name):
    """Return what a document names that does not exist."""
    text = page(name)
    folder = (ROOT / name).parent
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        if not (folder / target).exists():
            yield target
    modules = [
        name.replace(".", "/")
        for name in re.findall(r"-m ((?:lib|papers)[\w.]*)", text)
    ]
    for path in (
        re.findall(r"`((?:lib|papers|tests|notebooks|figures)/[\w./-]+)`", text)
        + modules
    ):
        made_up = re.search(r"NN|name|paper_x|papers/x|paper_d", path)
        if (
            not made_up
            and not (ROOT / path).exists()
            and not (ROOT / f"{path}.py").exists()
        ):
            yield path
    for target in re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE):
        if not re.search(rf"^{target}:", page("Makefile"), re.MULTILINE):
            yield f"make {target}"
    rooms = "|".join(path.parent.name for path in (ROOT / "lib").glob("*/__init__.py"))
    shown = re.findall(rf"`({rooms})\.(\w+)(?:\([^`]*\))?`", text)
    for room, attribute in [
        (f"lib/{room}", attribute) for room, attribute in shown
    ] + re.findall(
        r"\| `((?:lib|papers)/[\w/]+)\.py`, `(\w+)`",
        text,  # where to find what
    ):
        module = importlib.import_module(room.replace("/", "."))
        if (
            not hasattr(module, attribute)
            and not (ROOT / room / f"{attribute}.py").exists()
        ):
            yield f"{room}.{attribute}"


@pytest.mark.parametrize("name", PAGES)
def test_what_a_document_names_is_there(name):
    assert list(gone(name)) == []


def test_the_options_of_commands_exist(monkeypatch, capsys):
    for command in set(
        re.findall(
            r"python -m ((?:lib|companion|papers)(?:\.\w+)+)", "".join(map(page, PAGES))
        )
    ):
        monkeypatch.setattr(sys, "argv", [command, "--help"])
        monkeypatch.delitem(sys.modules, f"{command}.__main__", raising=False)
        if not hasattr(sys.modules.get(command), "__path__"):  # a module is run anew
            monkeypatch.delitem(sys.modules, command, raising=False)
        with pytest.raises(SystemExit) as end:
            runpy.run_module(command, run_name="__main__", alter_sys=True)
        assert (
            end.value.code == 0
            and f"usage: python -m {command}" in capsys.readouterr().out
        )


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)


def run_block(block, names):
    exec(compile(block, "README.md", "exec"), names)


def hide_other_extras(patch, block):
    """Make a package unimportable unless the README has `uv run` install its extra for
    this block.
    """
    before = page("README.md").partition(block)[0]
    command = re.findall(r"`(uv run [^`]*python)`", before)[-1]
    extras = PROJECT["project"]["optional-dependencies"]
    for extra, package in (("norms", "cvxpy"), ("networks", "torch")):
        assert any(each.startswith(package) for each in extras[extra])
        if f"--extra {extra} " not in command:
            patch.setitem(sys.modules, package, None)


def test_the_first_rule_of_the_readme_gives_the_cosines_it_names(capsys, monkeypatch):
    own_rule = python_blocks("README.md")[0]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    hide_other_extras(monkeypatch, own_rule)
    run_block(own_rule, {})
    normalised = "lambda G: G / np.linalg.norm(G), 0.1"
    run_block(own_rule.replace("lambda G: np.sign(G), 0.01", normalised), {})
    printed = re.findall(r"cosine with W_mm: ([\d.]+)", capsys.readouterr().out)
    said = re.findall(r"it prints (0\.\d+)", page("README.md"), re.IGNORECASE)
    assert len(printed) == len(said) == 2
    for value, words in zip(printed, said, strict=True):
        places = len(words) - 2
        assert round(float(value), places) == float(words)


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch):
    _, own_step, own_optimiser = python_blocks("README.md")
    (law,) = python_blocks("lib/README.md")
    printed = []
    names = {"print": lambda *words: printed.append(words)}
    with monkeypatch.context() as patch:
        hide_other_extras(patch, own_step)
        run_block(own_step, names)
    assert len(printed[0]) == 1  # a sign of life, before the imports
    shares = {(name, norm): float(share) for name, norm, share in printed[1:]}
    own = {"mine": "frobenius", "Muon": "spectral", "sign": np.inf}
    assert len(shares) == 9
    for name, norm in own.items():
        largest = max(share for (other, _), share in shares.items() if other == name)
        assert shares[name, norm] == largest
    said = re.findall(r"norm \((0\.\d\d)\)|infty\$ \((0\.\d\d)\)", page("README.md"))
    assert [float("".join(words)) for words in said] == [
        shares[name, norm] for name, norm in own.items()
    ]
    run_block(law, names)
    (remaining,), (_, outside), (by_C,), (measured, predicted), (longest,) = printed[
        -5:
    ]
    assert (remaining < 0.01).all()
    assert (outside > 1).sum() == 3  # data sets with pairs off the support
    assert 0.265 < 1 - (by_C / measured).min() < 0.275  # "up to 27 % too small"
    np.testing.assert_allclose(measured, predicted, rtol=1e-6)
    assert (longest > 0.5).all()
    shorter = own_optimiser.replace("rates, rules", "rates, horizon=20, rules")
    assert shorter != own_optimiser
    monkeypatch.chdir(tmp_path)
    # removes looks that other tests in this process gave
    monkeypatch.setattr(plots, "GIVEN", {})
    hide_other_extras(monkeypatch, own_optimiser)
    run_block(shorter, {})
    assert (tmp_path / "mine.png").stat().st_size > 10_000
    assert plots.look("mine") == plots.SPARE[0]


def test_the_readme_shows_a_picture_in_every_row():
    rows = re.findall(r"^\| <a href.*$", page("README.md"), re.MULTILINE)
    assert len(rows) == 10
    for row in rows:
        (shown,) = re.findall(r'<img src="([^"]+)" width="210" alt="([^"]+)">', row)
        picture, words = shown
        assert (ROOT / picture).exists()
        assert len(words) > 20


def test_the_readme_counts_the_lines_of_minimal():
    (lines,) = re.findall(
        r"minimal.py +# the whole subject in (\d+) lines", page("README.md")
    )
    assert int(lines) == len(page("notebooks/minimal.py").splitlines())


def test_the_picture_of_the_layers_is_the_contract_and_the_map_has_every_room_once():
    (layers,) = [c["layers"] for c in LAYERS if c["name"] == "layers"]
    stated = [
        [name.removeprefix("lib.") for name in layer.split(" | ")] for layer in layers
    ]
    (picture,) = re.findall(r"```\n(papers .*?)```", page("lib/README.md"), re.DOTALL)
    drawn = [
        re.split(r"\s{3,}", line)[0].split(" | ")
        for line in picture.strip().splitlines()
    ]
    assert drawn == stated
    lib = files.ROOT / "lib"
    packages = {path.parent.name for path in lib.glob("*/__init__.py")}
    leaves = {path.stem for path in lib.glob("*.py")} - {"__init__"}
    listed = re.findall(
        r"^\| `(\w+)` \|", section(page("lib/README.md"), "The rooms"), re.MULTILINE
    )
    assert sorted(listed) == sorted(packages | leaves)
