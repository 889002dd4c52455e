"""Pictures can be read: no two texts overlap, none leaves the figure, no panel is empty."""

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib.companion import ledger, plots
from papers import kept_curves, pieces, redraw
from papers.b import figures as paper_b

LEAST = 0.3  # of an axis that the data must fill
SLACK = 1.5  # points by which two boxes of letters may touch: accents and descents are empty


def texts(figure):
    """Every visible text of a drawn figure with its box, in pixels."""
    figure.draw_without_rendering()
    shown = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    boxes = {id(one): one.get_window_extent() for one in shown}
    for axis in figure.axes:  # an axis that is off, or ends before a tick, does not draw its label
        for line in (axis.xaxis, axis.yaxis):
            drawn = {id(tick.label1) for tick in line._update_ticks() if axis.axison}
            for label in line.get_ticklabels(which="both"):
                if id(label) not in drawn:
                    boxes.pop(id(label), None)
    return [(one.get_text(), boxes[id(one)]) for one in shown if id(one) in boxes]


def collisions(figure):
    """Pairs of texts whose boxes overlap by more than SLACK in both directions."""
    pixels = SLACK * figure.dpi / 72
    return [
        (one, two)
        for (one, a), (two, b) in itertools.combinations(texts(figure), 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > pixels and min(a.y1, b.y1) - max(a.y0, b.y0) > pixels
    ]


def outside(figure):
    """Texts that leave the figure by more than SLACK."""
    page, pixels = figure.bbox, SLACK * figure.dpi / 72
    return [
        word
        for word, box in texts(figure)
        if box.x0 < -pixels or box.x1 > page.x1 + pixels
        or box.y0 < -pixels or box.y1 > page.y1 + pixels
    ]  # fmt: skip


def empty(figure):
    """Titles of the panels in which nothing but lines across them is drawn."""
    across = lambda line: len(line.get_xdata()) == 2
    kept = lambda axis: [line for line in axis.lines if not across(line)]
    full = lambda axis: kept(axis) or axis.patches or axis.collections or axis.images or axis.texts
    return [axis.get_title() for axis in figure.axes if axis.get_visible() and not full(axis)]


def narrow(figure):
    """(title, "x" or "y") of panels whose points fill less than LEAST of that axis."""
    figure.draw_without_rendering()  # limits that nobody set are known from then on
    found = []
    for axis in (axis for axis in figure.axes if axis.axison and not axis.images):
        points = [line.get_xydata() for line in axis.lines if _of_data(line, axis)]
        areas = [area.get_paths() for area in axis.collections]
        points += [paths[0].vertices for paths in areas if paths]
        if points:
            place = axis.transScale + axis.transLimits
            at = place.transform(np.concatenate(points))
            spans = np.ptp(at[np.isfinite(at).all(1)].clip(0, 1), axis=0)
            thin = [name for name, span in zip("xy", spans) if span < LEAST]
            found += [(axis.get_title(), name) for name in thin]
    return found


def _of_data(line, axis):
    """Whether a line has both its places on the axes: one across the panel has one."""
    return all(line.get_transform().contains_branch_seperately(axis.transData))


def test_what_cannot_be_read_is_noticed():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.text(0.5, 0.5, "one"), left.text(0.52, 0.5, "two"), left.text(0.5, 0.9, "three")
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


@pytest.mark.parametrize("study", redraw.PICTURES)
def test_pictures_of_kept_curves(study):
    plots.set_style()
    for picture in redraw.PICTURES[study]:
        assert not unreadable(picture.draw(kept_curves.kept(study, needed=True)))


def test_pieces_and_shared_drawings():
    recorded = np.array([0, 1, 10, 100, 1000, 2000])
    falling = np.outer([1, 1.2], [4e3, 1e3, 90, 2, 0.05, 8e-3])
    excess = {"ours": falling, "random": np.maximum(falling, 0.7)}
    against = paper_b.against_sgd(recorded, excess, 0.02, "ours", "Algorithm 1, random start")
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
    pieces.strip(axis, {"a": values, "b": 2 * values}, (100, 2400), said=["a word", "2"])
    assert not unreadable(figure)
    figure, (axis,) = plots.panels(1, 1)
    axis.plot([1, 2], [1, 2])
    near = (1.5, "one", plots.BLACK), (1.5, "two\nlines", plots.GREY), (1.51, "3", plots.BLACK)
    pieces.end_labels(axis, near)
    assert not unreadable(figure)


def test_squares_of_a_ledger_hold_their_words():
    names = ["Theorem, convergence", "Assumption 1", "Lemma 12"]
    figure = ledger.draw([], dict.fromkeys(names))
    boxes = dict(texts(figure))
    (axis,) = figure.axes
    assert boxes.pop(axis.get_title()) and axis.get_title().startswith("0 of 0 rows hold")
    wide = axis.transData.transform([(0, 0), (0.92, 0)])[:, 0]
    assert max(box.width for box in boxes.values()) <= np.diff(wide)[0] + 2
