"""What a picture draws, in few numbers: enough to tell whether a rerun draws something else."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PathCollection

TOLERANCE = 0.02  # of a panel's width or height
_CLOCK = re.compile(r"second", re.IGNORECASE)


def summary(figure) -> list[str]:
    """For each panel the mean place "x,y" of every line, band, bar and image, in axes coordinates.

    A panel whose labels speak of seconds is left out: a clock never shows the same twice. An image
    gives the mean of its cells, as a share of its colour scale.
    """
    panels = [axes for axes in figure.axes if not _CLOCK.search(_words(axes))]
    return [
        " ".join(
            "{:.4f},{:.4f}".format(*_place(axes, artist))
            for artist in [*axes.lines, *axes.collections, *axes.patches, *axes.images]
        )
        for axes in panels
    ]


def same(one: Sequence[str], other: Sequence[str] | None) -> bool:
    """Whether two summaries have the same panels and lines, none moved by over `TOLERANCE`."""
    if other is None or len(one) != len(other):
        return False
    pairs = [(_numbers(panel), _numbers(before)) for panel, before in zip(one, other)]
    return all(
        len(now) == len(before) and np.allclose(now, before, rtol=0, atol=TOLERANCE)
        for now, before in pairs
    )


def _numbers(panel: str) -> list[float]:
    return [float(word) for word in re.split("[ ,]", panel) if word]


def _words(axes) -> str:
    titles = [axes.get_title(loc=place) for place in ("left", "center", "right")]
    return " ".join([*titles, axes.get_xlabel(), axes.get_ylabel()])


def _place(axes, artist) -> tuple[float, float]:
    if hasattr(artist, "get_array") and artist.get_array() is not None:
        share = np.ma.masked_invalid(artist.norm(artist.get_array())).mean()
        return (float(np.ma.filled(share, 0.0)),) * 2
    if isinstance(artist, PathCollection):  # a scatter: its paths are the marks, not the places
        points = artist.get_offset_transform().transform(np.ma.filled(artist.get_offsets(), np.nan))
    else:
        points = artist.get_transform().transform(_points(artist))  # (points, 2), in pixels
    points = axes.transAxes.inverted().transform(points)
    points = points[np.isfinite(points).all(axis=1)].clip(-1, 2)  # one far outside tells nothing
    return tuple(points.mean(axis=0)) if len(points) else (0.0, 0.0)


def _points(artist) -> np.ndarray:
    if hasattr(artist, "get_xydata"):
        return np.asarray(artist.get_xydata(), float)
    if hasattr(artist, "get_paths"):
        return np.concatenate([path.vertices for path in artist.get_paths()] or [np.empty((0, 2))])
    return np.asarray(artist.get_path().vertices, float)
