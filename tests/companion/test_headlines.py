"""Tests of headlines: each is short, states a result, and is true of its committed
record.
"""

import re

import pytest

from companion import headlines, plots, record
from companion.tables import figures
from lib import files

ENTRIES = [entry for _, entries in figures.index(figures.FIGURES) for entry in entries]
RECORDS = {
    entry.slug: record.read(figures.FIGURES / entry.scale / f"{entry.slug}.json")
    for entry in ENTRIES
}
RECORD = {
    "claims": [
        {"id": "rate of GD", "measured": -1.0, "holds": True},
        {"id": "p = 2/3", "measured": 0.5, "holds": False},
        {"id": "infinite", "measured": "inf", "holds": True},
    ],
    "parameters": {"seeds": 10},
    "numbers": {"end": {"value": 0.0083}, "none": {"value": None}},
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_a_headline_is_short_and_says_how_to_read_the_picture(entry):
    above = headlines.filled(entry.headline, RECORDS[entry.slug])
    assert 0 < headlines.letters(above) <= headlines.LETTERS
    assert above != entry.title
    assert entry.reading.endswith(".")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_a_headline_is_true_of_its_record(entry):
    headline = headlines.Headline(rests=entry.rests)
    assert headlines.unmet(headline, RECORDS[entry.slug]) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_a_headline_rests_on_something_that_was_measured(entry):
    assert entry.rests or headlines.FIELD.search(entry.headline)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_no_measured_number_is_typed_into_a_headline(entry):
    text = headlines.FIELD.sub("", entry.headline)
    text = re.sub(
        r"\$[^$]*\$|Figure \d|Lemma \d+|CIFAR-10|Algorithm 1|1/[t2]", "", text
    )
    assert re.search(r"\d", text) is None


@pytest.mark.parametrize(
    "condition, met",
    [
        ("rate of GD", True),
        ("not rate of GD", False),
        ("p = 2/3", False),
        ("not p = 2/3", True),
        ("end < 0.01", True),
        ("end > rate of GD", True),
        ("seeds >= 11", False),
        ("none < 1", False),
        ("unknown", False),
        ("not unknown", False),
        ("unknown < 1", False),
        ("e < 1", False),
        ("end < 1e-1", True),
        ("end > -.5", True),
        ("infinite > 1e300", True),
    ],
)
def test_a_condition_is_looked_up_in_the_record(condition, met):
    headline = headlines.Headline("It falls", rests=(condition,))
    assert (headlines.unmet(headline, RECORD) == []) is met


def test_a_run_that_does_not_bear_the_headline_gets_the_neutral_title(
    tmp_path, monkeypatch
):
    table = '[[page.figure]]\nslug = "one"\ntitle = "Error"\nheadline = "It falls to {end:.2%}"\n'
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "figures").mkdir()
    index = tmp_path / "figures" / "index.toml"
    index.write_text(table + 'rests = ["rate of GD"]\n', "utf-8")
    assert headlines.above("one", RECORD) == ("It falls to 0.83 %", "")
    index.write_text(table + 'rests = ["not rate of GD"]\n', "utf-8")
    assert headlines.above("one", RECORD) == ("Error", "")


@pytest.mark.parametrize("field", ["headline", "reading"])
def test_a_run_in_which_a_quoted_number_has_no_value_gets_the_neutral_title(
    field, tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    index = tmp_path / "figures" / "index.toml"
    index.parent.mkdir()
    table = f'[[page.figure]]\nslug = "one"\ntitle = "Error"\n{field} = '
    index.write_text(table + '"It ends at {none:.2f}"\n', "utf-8")
    assert headlines.above("one", RECORD) == ("Error", "")
    index.write_text(table + '"It ends at {nowhere:.2f}"\n', "utf-8")
    with pytest.raises(ValueError, match="quotes nowhere"):
        headlines.above("one", RECORD)


def test_a_headline_that_quotes_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="quotes none"):
        headlines.filled("it ends at {none:.2f}", RECORD)


def test_a_heading_stands_above_all_and_leaves_the_panels_their_size():
    figure, axes = plots.panels(1, 2)
    axes[0].plot([1, 2], [1, 2], label="a line")
    axes[1].plot([1, 2], [1, 2])
    plots.legend(figure, axes[0])
    figure.draw_without_rendering()
    before = [axis.get_window_extent().height for axis in axes]
    plots.heading(figure, "A first result", "How to read it.")
    plots.heading(figure, "Every rule falls on one line", "How to read it. " * 12)
    figure.draw_without_rendering()
    words = [text.get_text() for text in figure.texts]
    assert words[0] == "Every rule falls on one line" and len(words) == 2
    for axis, height in zip(axes, before, strict=True):
        assert axis.get_window_extent().height == pytest.approx(height, rel=0.02)
    lowest = min(text.get_window_extent().y0 for text in figure.texts)
    assert lowest >= figure.legends[0].get_window_extent().y1
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.texts)


def test_more_than_three_panels_need_a_reason():
    with pytest.raises(ValueError, match="4 panels; draw at most 3, or say why"):
        plots.panels(2, 2)
    assert len(plots.panels(2, 2, why="the paper's own four panels")[1]) == 4
