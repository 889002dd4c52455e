"""figures/index.toml and what is made from it: sentences, the tables of README, REPRODUCING."""

import re

import pytest

from lib import files
from lib.companion.record import SCALES, read
from lib.site import figures
from lib.training.studies import STUDIES

INDEX = figures.index(figures.FIGURES)
ENTRIES = [entry for _, entries in INDEX for entry in entries]
# What may carry a digit though it is no measured number: names of statements, sets and exponents.
NAMES = (
    r"((Lemmas?|Theorems?|Algorithm|Figure) [\d-]+( and [\d-]+)?"
    r"|CIFAR-10|`cifar10`|float64|arXiv \d{4}\.\d{5}(, \d{4}\.\d{5})*|p = [\d., and]+)"
)


def record(claims=(), parameters=(), **numbers):
    rows = {name: {"value": value, "tolerance": 0.01} for name, value in numbers.items()}
    return {"numbers": rows, "parameters": dict(parameters), "claims": list(claims)}


CLAIM = {"id": "rate of $a$", "measured": 2.5, "holds": False}
RECORD = record(
    [CLAIM], {"steps": 5000, "n": 1}, gap=0.0344, low=-7.126, low_angle=1.0, n=2, gone=None
)


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("off by {gap:.1%}, then {low:.2f}, $W_{mm}$", "off by 3.4 %, then -7.13, $W_{mm}$"),
        ("after {steps:,}, at {rate of $a$:.0f}", "after 5,000, at 2"),
        ("{claims_that_hold:d} of {claims:d}", "0 of 1"),
        ("ends at {gone:.1f} and {other:.1f}", "ends at no value of gone and no value of other"),
        ("at {low_angle:.1f°}", "at 60.0°"),  # unit vectors of distance 1
        ("{n:d}", "2"),  # a number before a parameter of the same name
        ("like $t^{{{low:.2f}}}$ or $t^{{1/2}}$", "like $t^{-7.13}$ or $t^{1/2}$"),
    ],
)
def test_a_sentence_has_the_numbers_of_the_record(sentence, words):
    assert figures.filled(sentence, RECORD) == words


def test_every_figure_and_notebook_has_its_entry_at_its_largest_scale_and_a_title():
    largest = {}
    for scale in SCALES:
        largest |= {path.stem: scale for path in (files.ROOT / "figures" / scale).glob("*.json")}
    assert {entry.slug: entry.scale for entry in ENTRIES} == largest
    titles = {entry.title for entry in ENTRIES}
    assert len(ENTRIES) == len(largest) == len(titles) and all(titles)
    named = [notebook.name for notebook, _ in INDEX]
    assert named == sorted(path.stem for path in (files.ROOT / "notebooks").glob("[0-9]*.py"))


def saved(entry):
    return read(figures.FIGURES / entry.scale / f"{entry.slug}.json")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_an_entry_agrees_with_its_record(entry):
    held = saved(entry)
    made_by = held["notebook"]  # a record keeps the name that its notebook had
    now = files.read_table(files.ROOT / "notebooks" / "renamed.toml")
    assert entry.notebook.name in now.get(made_by, [made_by])
    assert held["paper"] in entry.notebook.paper
    real = any(row["source"] in ("data_dir", "data", "hub") for row in held["data"])
    assert real <= entry.notebook.real_data and entry.scale in entry.notebook.minutes
    # Where the data have not decided there is no number to quote; everywhere else there is one.
    assert figures.FIELD.search(entry.sentence) or entry.sentence.startswith("**undecided**")
    assert "no value" not in figures.filled(entry.sentence, held)
    failing = [claim["id"] for claim in held["claims"] if not claim["holds"]]
    words = r"\*\*[^*]*(not|fails|only|alone)\b[^*]*\*\*"
    assert bool(failing) == bool(re.search(words, entry.sentence)), failing
    if entry.trains:
        hours = rf"`python -m lib.training {entry.trains}`, \d+\.\d processor hours"
        assert re.fullmatch(hours, figures._hours(entry, held)) and entry.trains in STUDIES
        assert "DATA_DIR" not in entry.command


def typed(text):
    """The first digit of a sentence that is no quoted number, formula or name."""
    return re.search(
        r"\d", re.sub(NAMES, "", re.sub(r"\$[^$]*\$", "", figures.FIELD.sub("", text)))
    )


def test_no_measured_number_is_typed_by_hand():
    for entry in ENTRIES:
        assert not typed(entry.sentence + entry.finding + entry.failure), entry.slug
    assert typed("Lemma 5 holds in 19 draws")
    assert not typed("Lemmas 4 and 12-30, p = 1.5, 2 and 3, CIFAR-10")


@pytest.mark.parametrize("name", figures.FILES)
def test_the_tables_say_what_the_records_say(name):
    text = (files.ROOT / name).read_text(encoding="utf-8")
    assert figures.MARKED.search(text)
    assert figures.renewed(text) == text, "run `python -m lib.site tables`"
