"""Tests of narrow pictures: panels lie below each other, as large as they were
drawn.
"""

import os

import numpy as np
import pytest
from PIL import Image

from companion import plots, thumbs
from lib import files


def drawn(tmp_path, columns):
    figure, axes = plots.panels(1, columns)
    for axis in axes:
        axis.plot([1, 2], [1, 2], color=plots.BLACK)
    figure.draw_without_rendering()
    path = tmp_path / "one.png"
    figure.savefig(path)
    return path, plots.boxes(figure)


def test_panels_are_stacked_and_keep_their_size(tmp_path):
    path, places = drawn(tmp_path, 2)
    saved = {"slug": "one", "panels": places} | dict(
        claims=[], parameters={}, numbers={}
    )
    out = tmp_path / "thumbs" / "one.png"
    assert thumbs.make(saved, path, out)
    with Image.open(path) as whole, Image.open(out) as narrow:
        assert narrow.width == int(thumbs.WIDE * thumbs.DOTS_AN_INCH)
        heights = [(bottom - top) * whole.height for _, top, _, bottom in places]
        assert narrow.height >= sum(heights)
        dark = np.asarray(narrow.convert("L")) < 100
    halves = np.array_split(dark, 2)
    assert all(half.any() for half in halves)


def test_a_panel_that_is_too_wide_is_scaled_to_the_width(tmp_path):
    path, places = drawn(tmp_path, 1)
    with Image.open(path) as whole:
        page = thumbs.stacked(whole.convert("RGB"), places, ("It falls", ""))
        assert page.width < whole.width
        assert page.height < whole.height
    dark = np.asarray(page.convert("L")) < 100
    columns = np.flatnonzero(dark.any(axis=0))
    assert columns[-1] - columns[0] > 0.9 * page.width


def test_a_record_without_panels_has_no_narrow_picture(tmp_path):
    path, _ = drawn(tmp_path, 1)
    assert not thumbs.make({"slug": "one"}, path, tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()


def test_a_picture_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    path, places = drawn(tmp_path, 1)
    saved = dict(slug="one", panels=places, claims=[], parameters={}, numbers={})
    out = tmp_path / "thumbs" / "one.png"
    files.write(out, b"old")

    def interrupted(stream):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thumbs.make(saved, path, out)
    assert [each.name for each in out.parent.iterdir()] == ["one.png"]
    assert out.read_bytes() == b"old"


def test_the_command_takes_no_names_and_says_what_it_cannot_read(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    for words, status in ((["--help"], 0), (["one"], 2)):
        with pytest.raises(SystemExit) as end:
            thumbs.main(words)
        assert end.value.code == status
    capsys.readouterr()
    files.write(tmp_path / "figures" / "index.toml", b"junk")
    assert thumbs.main([]) == 1
    said = capsys.readouterr().err
    assert said.startswith("companion.thumbs: ") and said.count("\n") == 1
