"""Tests of pictures.

A failure means that two rules look alike, that words overlap, or that a changed picture
passes.
"""

import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from companion import ledger, plots
from lib import files
from papers import pieces
from papers.b import figures as paper_b

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
    linear = np.where(
        linear > 0.04045, ((linear + 0.055) / 1.055) ** 2.4, linear / 12.92
    )
    x, y, z = TO_XYZ @ (np.array(SIGHT[sight]) @ linear).clip(0, 1) / [0.9505, 1, 1.089]
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("table", plots.TABLES)
def test_two_of_one_table_are_told_apart_by_everybody(table):
    """Two looks differ in colour for every kind of vision, or in dash and marker.

    Synonyms have one look.
    """
    looks = set(plots.TABLES[table].values())
    for one, two in itertools.combinations(looks, 2):
        near = min(
            np.linalg.norm(lab(one.colour, s) - lab(two.colour, s)) for s in SIGHT
        )
        other = one.dash != two.dash and one.marker != two.marker
        assert near >= 20 or other, (table, one, two, near)


def test_a_rule_has_one_look_in_every_table():
    names = [
        name for table, row in plots.TABLES.items() for name in row if table != "spare"
    ]
    assert len(plots.LOOKS) == len(names) - len(plots.SERIES)


def test_no_colour_is_written_outside_the_registry():
    keys = r"(?:color|colour|c|ec|fc|mec|mfc|(?:marker)?(?:edge|face)color)"
    given = re.compile(
        rf"""(?:\b{keys}=|["']{keys}["']: )["'](?!none["'])|#[0-9A-Fa-f]{{6}}\b"""
    )
    every = [
        p
        for n in ("lib", "companion", "papers", "notebooks")
        for p in (files.ROOT / n).rglob("*.py")
    ]
    drawing = [p for p in every if p.name != "plots.py" and "site" not in p.parts]
    assert given.search('ax.plot(x, color="red")') and given.search("dict(mec='#fff')")
    assert not given.search('ax.plot(x, mfc="none")')
    assert [str(p) for p in drawing if given.search(p.read_text("utf-8"))] == []


def test_an_unknown_name_has_a_look_of_its_own_keeps_it_and_says_if_none_is_left(
    monkeypatch, capsys
):
    monkeypatch.setattr(plots, "GIVEN", {})
    mine = plots.look("mine")
    yours = plots.look("yours")
    assert mine == plots.look("mine") != yours
    assert not capsys.readouterr().out
    for k in range(len(plots.SPARE) - 2):
        plots.look(f"other {k}")
    assert not capsys.readouterr().out
    plots.look("one too many")
    assert "one too many is drawn like another line" in capsys.readouterr().out
    known = set(plots.LOOKS.values())
    assert mine not in known and yours not in known


@pytest.mark.parametrize(
    "runs, words",
    [(1, ""), (5, "dots: where runs end"), (9, "bands: range"), (20, "middle 90 %")],
)
def test_a_band_names_itself_in_the_caption(runs, words):
    figure, (axis,) = plots.panels(1, 1)
    plots.band(axis, [1, 2, 3], np.arange(3.0 * runs).reshape(runs, 3), "NGD")
    plots.caption(figure, "n = 3")
    assert figure.get_supxlabel().endswith(words) and figure.get_supxlabel().startswith(
        "n = 3"
    )
    assert len(axis.lines) == (2 if 1 < runs <= plots.FEW else 1)


def test_a_forest_shows_intervals_verdicts_arrows_and_an_empty_row():
    axis = Figure().subplots()
    nan = float("nan")
    bars = [
        pieces.Bar("a", 1.0, 0.5, 1.5, "reproduced", (0.8, 1.25)),
        None,
        pieces.Bar("b", 3.0, 0.5, np.inf, "undecided"),
        pieces.Bar("c", nan, nan, nan, "undecided", look="Adam", words="no run"),
        pieces.Bar("d", 1.0, 0.9, 1.1, points=[0.9, 1.1], hollow=[True, False]),
    ]
    pieces.forest(axis, bars, (0.0, 2.0), 1.0)
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "a",
        "b",
        "c",
        "d",
    ]
    words = [text.get_text() for text in axis.texts]
    assert words == ["reproduced", "undecided (3)", "no run", ""]
    faces = [
        line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"
    ]
    assert faces.count("none") == 1
    assert [line.get_marker() for line in axis.lines].count(">") == 1


LEAST = 0.3  # share of an axis that the data must fill
# Boxes of letters may overlap by so many points, because most of the margin is empty.
SLACK = 1.5


def texts(figure):
    """Return every visible text of a drawn figure with its box in pixels."""
    figure.draw_without_rendering()
    shown = [
        one
        for one in figure.findobj(Text)
        if one.get_visible() and one.get_text().strip()
    ]
    boxes = {id(one): one.get_window_extent() for one in shown}
    for (
        axis
    ) in figure.axes:  # a label is not drawn if its axis is off or ends before the tick
        for line in (axis.xaxis, axis.yaxis):
            drawn = {id(tick.label1) for tick in line._update_ticks() if axis.axison}
            for label in line.get_ticklabels(which="both"):
                if id(label) not in drawn:
                    boxes.pop(id(label), None)
    return [(one.get_text(), boxes[id(one)]) for one in shown if id(one) in boxes]


def collisions(figure):
    """Return pairs of texts whose boxes overlap by more than SLACK in both
    directions.
    """
    pixels = SLACK * figure.dpi / 72
    return [
        (one, two)
        for (one, a), (two, b) in itertools.combinations(texts(figure), 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > pixels
        and min(a.y1, b.y1) - max(a.y0, b.y0) > pixels
    ]


def outside(figure):
    """Return texts that leave the figure by more than SLACK."""
    page = figure.bbox
    pixels = SLACK * figure.dpi / 72
    return [
        word
        for word, box in texts(figure)
        if box.x0 < -pixels or box.x1 > page.x1 + pixels
        or box.y0 < -pixels or box.y1 > page.y1 + pixels
    ]  # fmt: skip


def empty(figure):
    """Return titles of panels in which nothing but lines across them is drawn."""

    def across(line):
        return len(line.get_xdata()) == 2

    def kept(axis):
        return [line for line in axis.lines if not across(line)]

    def full(axis):
        return (
            kept(axis) or axis.patches or axis.collections or axis.images or axis.texts
        )

    return [
        axis.get_title()
        for axis in figure.axes
        if axis.get_visible() and not full(axis)
    ]


def narrow(figure):
    """Return (title, "x" or "y") of panels whose points fill less than LEAST of that
    axis.
    """
    figure.draw_without_rendering()  # this fixes limits that were not set
    found = []
    for axis in (axis for axis in figure.axes if axis.axison and not axis.images):
        points = [line.get_xydata() for line in axis.lines if _of_data(line, axis)]
        areas = [area.get_paths() for area in axis.collections]
        points += [paths[0].vertices for paths in areas if paths]
        if points:
            place = axis.transScale + axis.transLimits
            at = place.transform(np.concatenate(points))
            spans = np.ptp(at[np.isfinite(at).all(1)].clip(0, 1), axis=0)
            thin = [
                name for name, span in zip("xy", spans, strict=False) if span < LEAST
            ]
            found += [(axis.get_title(), name) for name in thin]
    return found


def _of_data(line, axis):
    """Return whether both coordinates of a line are data; a line across the panel has
    one.
    """
    return all(line.get_transform().contains_branch_seperately(axis.transData))


def test_what_cannot_be_read_is_noticed():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    (
        left.text(0.5, 0.5, "one"),
        left.text(0.52, 0.5, "two"),
        left.text(0.5, 0.9, "three"),
    )
    figure.text(0.98, 0.5, "over the edge")
    right.axhline(0.5)
    right.set_title("nothing")
    assert collisions(figure) == [("one", "two")]
    assert outside(figure) == ["over the edge"] and empty(figure) == ["nothing"]
    crowded = Figure()
    crowded.add_subplot(title="crowded", xlim=(0, 9)).plot([1, 2, 3], [1, 2, 3])
    assert narrow(crowded) == [("crowded", "x")]


def unreadable(figure):
    return [*collisions(figure), *outside(figure), *empty(figure), *narrow(figure)]


def test_pieces_and_shared_drawings():
    recorded = np.array([0, 1, 10, 100, 1000, 2000])
    falling = np.outer([1, 1.2], [4e3, 1e3, 90, 2, 0.05, 8e-3])
    excess = {"ours": falling, "random": np.maximum(falling, 0.7)}
    against = paper_b.against_sgd(
        recorded, excess, 0.02, "ours", "Algorithm 1, random start"
    )
    assert not unreadable(against)
    figure, (axis, _) = plots.panels(1, 2)
    for k in range(9):
        axis.plot([1, 2, 3], [k, k, k], label=f"a rule, number {k}, with growing steps")
    _.plot([1, 2, 3], [1, 2, 3])
    plots.legend(figure, axis)
    words = "a setting with its sizes, seeds and precision; " * 4
    assert not unreadable(plots.caption(figure, words))
    figure, (axis,) = plots.panels(1, 1)
    values = np.geomspace(170, 1700, 10)
    pieces.strip(
        axis, {"a": values, "b": 2 * values}, (100, 2400), said=["a word", "2"]
    )
    assert not unreadable(figure)
    figure, (axis,) = plots.panels(1, 1)
    axis.plot([1, 2], [1, 2])
    near = (
        (1.5, "one", plots.BLACK),
        (1.5, "two\nlines", plots.GREY),
        (1.51, "3", plots.BLACK),
    )
    pieces.end_labels(axis, near)
    assert not unreadable(figure)


def test_squares_of_a_ledger_hold_their_words():
    names = ["Theorem, convergence", "Assumption 1", "Lemma 12"]
    nothing = ledger.Statement(topic="", says="")
    figure = ledger.draw([], dict.fromkeys(names, nothing))
    boxes = dict(texts(figure))
    axis, _ = figure.axes
    assert len(boxes) == len(names)
    wide = axis.transData.transform([(0, 0), (0.92, 0)])[:, 0]
    assert max(box.width for box in boxes.values()) <= np.diff(wide)[0] + 2


def test_points_beyond_an_end_are_an_arrow_there_with_their_value_or_number():
    _, (axis,) = plots.panels(1, 1)
    rows = {
        "inside": np.array([1.0, 2.0, 5.0]),
        "one below": np.array([0.25, 2.0, 3.0]),
        "two above": np.array([11.0, 2.0, np.inf]),
    }
    pieces.strip(axis, rows, (1.0, 10.0))
    arrows = {
        (line.get_marker(), line.get_xdata()[0], line.get_ydata()[0])
        for line in axis.lines
        if line.get_marker() in "<>"
    }
    assert arrows == {("<", 1.0, 1), (">", 10.0, 2)}
    said = [text.get_text() for text in axis.texts]
    assert said == ["0.25", "2 of 3"]
    hollow = [line for line in axis.lines if line.get_markerfacecolor() == "none"]
    points = np.concatenate([line.get_xdata() for line in hollow])
    assert sorted(points) == [1.0, 2.0, 2.0, 2.0, 3.0, 5.0]


@pytest.mark.parametrize("height", [1.5, 6.0])
def test_labels_of_one_height_are_a_line_of_text_apart(height):
    figure, (axis,) = plots.panels(1, 1, height=height)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    pieces.end_labels(
        axis, [(0.5, "a", "k"), (0.5, "b\nc", "k"), (0.9, "d", "k")], size=8
    )
    heights = {text.get_text(): text.get_position()[1] for text in axis.texts}
    panel = np.ptp(axis.get_position().intervaly) * figure.get_figheight()
    lines = 72 / 8 / 1.2 * panel * abs(heights["b\nc"] - heights["a"])
    assert lines == pytest.approx(1.5)  # half of one line and half of two
    if height > 2:
        assert heights["d"] == pytest.approx(0.9)
