"""One registry of looks, told apart in grey and by colour-blind readers, and used everywhere."""

import ast
import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib import files
from lib.companion import plots
from papers import pieces

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def lab(colour, sight):
    linear = np.array(to_rgb(colour))
    linear = np.where(linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92)
    x, y, z = TO_XYZ @ (np.array(SIGHT[sight]) @ linear).clip(0, 1) / [0.9505, 1, 1.089]
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("table", plots.TABLES)
def test_two_of_one_table_are_told_apart_by_everybody(table):
    """By colour in every kind of sight, or by dash and by marker; synonyms share one look."""
    looks = set(plots.TABLES[table].values())
    for one, two in itertools.combinations(looks, 2):
        near = min(np.linalg.norm(lab(one.colour, s) - lab(two.colour, s)) for s in SIGHT)
        other = one.dash != two.dash and one.marker != two.marker
        assert near >= 20 or other, (table, one, two, near)


def test_a_rule_has_one_look_in_every_table():
    names = [name for table, row in plots.TABLES.items() for name in row if table != "spare"]
    assert len(plots.LOOKS) == len(names) - len(plots.SERIES)


DRAWING = [
    path
    for folder in ("lib", "papers", "notebooks")
    for path in (files.ROOT / folder).rglob("*.py")
    if path.name != "plots.py" and "site" not in path.parts
]
KEYS = set(
    "color colour c ec fc mec mfc edgecolor facecolor markeredgecolor markerfacecolor".split()
)


@pytest.mark.parametrize("path", DRAWING, ids=lambda path: path.stem)
def test_no_colour_is_written_outside_the_registry(path):
    text = path.read_text(encoding="utf-8")
    if "plot" not in text:
        return
    assert not re.findall(r"#[0-9A-Fa-f]{6}\b", text)
    nodes = list(ast.walk(ast.parse(text)))
    given = [(n.arg, n.value) for n in nodes if isinstance(n, ast.keyword)]
    for node in (n for n in nodes if isinstance(n, ast.Dict)):
        given += [(getattr(k, "value", ""), v) for k, v in zip(node.keys, node.values)]
    values = [
        value.value for key, value in given if key in KEYS and isinstance(value, ast.Constant)
    ]
    assert set(values) <= {"none", None}


def test_an_unknown_name_has_a_look_of_its_own_keeps_it_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(plots, "GIVEN", {})
    mine, yours = plots.look("mine"), plots.look("yours")
    said = capsys.readouterr().out
    assert mine == plots.look("mine") != yours and "mine has no look" in said
    assert not capsys.readouterr().out
    known = set(plots.LOOKS.values())
    assert mine not in known and yours not in known


@pytest.mark.parametrize(
    "runs, words", [(1, ""), (5, "thin lines: runs"), (9, "bands: range"), (20, "middle 90 %")]
)
def test_a_band_names_itself_in_the_caption(runs, words):
    figure, (axis,) = plots.panels(1, 1)
    plots.band(axis, [1, 2, 3], np.arange(3.0 * runs).reshape(runs, 3), "NGD")
    plots.caption(figure, "n = 3")
    assert figure.get_supxlabel().endswith(words) and figure.get_supxlabel().startswith("n = 3")
    assert len(axis.lines) == (1 + runs if 1 < runs <= plots.FEW else 1)


def test_a_forest_shows_intervals_verdicts_arrows_and_an_empty_row():
    axis, nan = Figure().subplots(), float("nan")
    bars = [
        pieces.Bar("a", 1.0, 0.5, 1.5, "reproduced", (0.8, 1.25)),
        None,
        pieces.Bar("b", 3.0, 0.5, np.inf, "undecided"),
        pieces.Bar("c", nan, nan, nan, "undecided", look="Adam", words="no run"),
        pieces.Bar("d", 1.0, 0.9, 1.1, points=[0.9, 1.1], hollow=[True, False]),
    ]
    pieces.forest(axis, bars, (0.0, 2.0), 1.0)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b", "c", "d"]
    words = [text.get_text() for text in axis.texts]
    assert words == ["reproduced", "undecided (3)", "no run", ""]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert faces.count("none") == 1
    assert [line.get_marker() for line in axis.lines].count(">") == 1
