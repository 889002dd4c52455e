"""Pictures of records: another style or place is seen, rounding is not."""

import io

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from lib.companion import plots, record


def drawn(moved=0.0, at=0.5, **look):
    """A figure like those of the pages as PNG; `look` is that of one line of its six."""
    t, noise = np.logspace(0, 3, 100), np.random.default_rng(0)
    png = io.BytesIO()
    with mpl.rc_context():  # the style of the project stays in here
        figure, axes = plots.panels(1, 3)
        for panel, axis in enumerate(axes):
            runs = np.exp(0.1 * np.random.default_rng(1).normal(size=(8, 100))) / np.sqrt(t)
            runs = runs * (1 + moved * noise.normal(size=runs.shape))
            plots.band(axis, t, runs, "NGD", **({} if panel else look))
            plots.band(axis, t, runs**2, "Polyak")
            axis.set(xscale="log", yscale="log")
        axes[0].set_title("Loss", x=at)
        plots.legend(figure, axes[0])
        plots.caption(figure, "n = 20, T = 10, d = 300; 8 seeds")
        figure.draw_without_rendering()
        figure.savefig(png, format="png")
    return png.getvalue()


@pytest.fixture(scope="module")
def before():
    return drawn()


CHANGES = [
    dict(color="#CC79A7"),
    dict(color="#56B4E9"),
    dict(linewidth=2.8),
    dict(linewidth=0.7),
    dict(linestyle="--"),
    dict(marker="o"),
    dict(at=0.6),
    dict(moved=0.3),
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_another_style_or_place_is_another_picture(before, change):
    after = drawn(**change)
    assert not record._same_picture(after, before) and not record._same_picture(before, after)


def test_what_rounding_moves_is_the__same_picture_and_another_size_is_not(before):
    assert all(record._same_picture(drawn(moved), before) for moved in (1e-6, 1e-2))
    blank = io.BytesIO()
    Figure(figsize=(1, 1)).savefig(blank, format="png")
    assert not record._same_picture(blank.getvalue(), before)
