"""lib.companion.pictures: another style or place is seen, rounding is not."""

import io

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from lib import files
from lib.companion import pictures, plots


def drawn(moved=0.0, at=0.5, **first):
    """A figure like those of the pages as PNG; `first` is the look of one line of its six."""
    with mpl.rc_context():  # the style of the project stays in here
        return _png(*plots.panels(1, 3), moved, at, first)


def _png(figure, axes, moved, at, first):
    t, noise = np.logspace(0, 3, 100), np.random.default_rng(0)
    for panel, axis in enumerate(axes):
        runs = np.exp(0.1 * np.random.default_rng(1).normal(size=(5, 100))) / np.sqrt(t)
        runs = runs * (1 + moved * noise.normal(size=runs.shape))
        look = {"colour": "#0072B2"} | (first if panel == 0 else {})
        plots.band(axis, t, runs, "NGD", **look)
        plots.band(axis, t, runs**2, "Polyak")
        axis.set(xscale="log", yscale="log")
    axes[0].set_title("Loss", x=at)
    plots.legend(figure, axes[0])
    plots.caption(figure, "n = 20, T = 10, d = 300; 5 seeds, bands from smallest to largest")
    png = io.BytesIO()
    figure.draw_without_rendering()
    figure.savefig(png, format="png")
    return png.getvalue()


@pytest.fixture(scope="module")
def before():
    return drawn()


@pytest.mark.parametrize(
    "change",
    [
        dict(colour="#CC79A7"),
        dict(colour="#56B4E9"),
        dict(linewidth=2.8),
        dict(linewidth=0.7),
        dict(linestyle="--"),
        dict(marker="o"),
        dict(at=0.6),
        dict(moved=0.3),
    ],
    ids=repr,
)
def test_another_style_or_place_is_another_picture(before, change):
    after = drawn(**change)
    assert not pictures.same(after, before) and not pictures.same(before, after)


@pytest.mark.parametrize("moved", [1e-6, 1e-2])
def test_what_rounding_moves_is_the_same_picture(before, moved):
    assert pictures.same(drawn(moved), before)


def test_pictures_of_two_sizes_differ(before):
    blank = io.BytesIO()
    Figure(figsize=(1, 1)).savefig(blank, format="png")
    assert not pictures.same(blank.getvalue(), before)


def test_a_rule_of_ones_own_has_a_colour_of_its_own():
    figure, own = Figure(), "a rule that nobody knows"
    axis = figure.subplots()
    for rule in ("NGD", own):
        plots.band(axis, [1, 2], [[1, 2], [2, 3]], rule)
    known, new = (line.get_color() for line in axis.lines)
    try:
        assert known == plots.COLOURS["NGD"] and new == plots.COLOURS[own]
        assert list(plots.COLOURS.values()).count(new) == 1
    finally:
        del plots.COLOURS[own]


def test_no_drawing_passes_over_the_spare_colours():
    sources = [
        *files.ROOT.glob("lib/**/*.py"),
        *files.ROOT.glob("papers/**/*.py"),
        *files.ROOT.glob("notebooks/*.py"),
    ]
    passing = [path.name for path in sources if "COLOURS.get(" in path.read_text("utf-8")]
    assert passing == []
