"""figures/index.toml and what is made from it: sentences, the tables of README, REPRODUCING."""

import json
import re

import pytest

from lib import files
from lib.companion.claims import held as in_words
from lib.companion.record import SCALES, names_now
from lib.site import figure_index, tables
from lib.training.studies import STUDIES

INDEX = figure_index.read(tables.FIGURES)
ENTRIES = figure_index.entries(tables.FIGURES)
SENTENCES = [
    (entry.slug, text)
    for entry in ENTRIES
    for text in (entry.sentence, entry.finding, entry.failure)
    if text
]
# What may carry a digit though it is no measured number: names of statements, sets and exponents.
NAMES = (
    r"((Lemmas?|Theorems?|Algorithm|Figure) [\d-]+( and [\d-]+)?"
    r"|CIFAR-10|`cifar10`|float64|arXiv \d{4}\.\d{5}(, \d{4}\.\d{5})*|p = [\d., and]+)"
)


def record(claims=(), parameters=(), **numbers):
    rows = {name: {"value": value, "tolerance": 0.01} for name, value in numbers.items()}
    return {"numbers": rows, "parameters": dict(parameters), "claims": list(claims)}


def index(folder, monkeypatch, text):
    monkeypatch.setattr(tables, "FIGURES", folder)
    (folder / "index.toml").write_text(text, encoding="utf-8")


def test_a_sentence_has_the_numbers_of_the_record():
    claim = {"id": "rate of $a$", "measured": 2.5, "holds": False}
    held = record([claim], {"steps": 5000}, gap=0.0344, low=-7.126)
    text = "off by {gap:.1%}, then {low:.2f} after {steps:,}, at {rate of $a$:.0f}, $W_{mm}$"
    assert figure_index.filled(text, held) == "off by 3.4 %, then -7.13 after 5,000, at 2, $W_{mm}$"
    assert figure_index.filled("{claims_that_hold:d} of {claims:d}", held) == "0 of 1"


def test_a_number_that_the_record_lacks_is_named():
    text = figure_index.filled("ends at {gap:.1f} and {low:.1f}", record(gap=None))
    assert text == "ends at no value of gap and no value of low"


def test_a_number_is_taken_before_a_parameter_of_the_same_name():
    assert figure_index.filled("{n:d}", record(parameters={"n": 1}, n=2)) == "2"


@pytest.mark.parametrize(
    ("scale", "real", "command"),
    [
        ("demo", True, "make figures ARGS=06"),
        ("desk", True, "make figures SCALE=desk ARGS=06 DATA_DIR=..."),
        ("desk", False, "make figures SCALE=desk ARGS=06"),
    ],
)
def test_the_command_follows_from_notebook_and_scale(scale, real, command):
    assert figure_index.Notebook("06_x", "A", "?", {}, real).command(scale) == command


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[01_x]\npaper = "A"\nquestion = "?"\n', "minutes"),
        ('[01_x]\npaper = "A"\nquestion = "?"\nminutes = {}\ncolour = 1\n', "colour"),
        ('[01_x]\npaper = 1\nquestion = "?"\nminutes = {}\n', "paper is no text"),
        ('[01_x]\npaper = "A"\nquestion = "?"\nminutes = 1\n', "minutes is no table"),
        ("01_x = 3\n\n[01_x]", "cannot be read"),
    ],
)
def test_a_bad_index_names_the_notebook_and_what_is_wrong(tmp_path, monkeypatch, text, said):
    index(tmp_path, monkeypatch, text)
    with pytest.raises(ValueError, match=rf"index.toml.*{said}"):
        figure_index.read(tmp_path)


def test_no_index_means_no_entries(tmp_path):
    assert figure_index.read(tmp_path) == []


def test_a_table_says_which_number_its_record_lacks(tmp_path, monkeypatch):
    text = (
        '[01_x]\npaper = "A"\nquestion = "?"\nminutes = {demo = 1}\n[[01_x.figure]]\nslug = "one"\n'
    )
    index(tmp_path, monkeypatch, text + 'scale = "demo"\nsentence = "ends at {gone:.1f}"\n')
    with pytest.raises(FileNotFoundError, match="one.json.*make figures ARGS=01"):
        tables.table("figures")
    path = tmp_path / "demo" / "one.json"
    files.write(path, b"[]")
    with pytest.raises(ValueError, match="figures/demo/one.json is damaged: it holds no JSON"):
        tables.table("figures")
    whole = {"schema": 1, "notebook": "01_x", "data": [], "provenance": {}}
    files.write(path, json.dumps(whole | record(gap=1)).encode())
    with pytest.raises(ValueError, match="one quotes gone"):
        tables.table("figures")


def test_every_figure_and_notebook_has_its_entry_at_its_largest_scale():
    largest = {}
    for scale in SCALES:
        largest |= {path.stem: scale for path in (files.ROOT / "figures" / scale).glob("*.json")}
    assert {entry.slug: entry.scale for entry in ENTRIES} == largest
    assert len(ENTRIES) == len(largest)
    named = [notebook.name for notebook, _ in INDEX]
    assert named == sorted(path.stem for path in (files.ROOT / "notebooks").glob("*.py"))


def test_every_figure_has_a_title_of_its_own():
    titles = [entry.title for entry in ENTRIES]
    assert all(titles) and len(set(titles)) == len(titles)


def test_the_braces_of_an_exponent_are_one_pair():
    text = figure_index.filled("like $t^{{{a:.2f}}}$ or $t^{{1/2}}$, $W_{mm}$", record(a=-1.006))
    assert text == "like $t^{-1.01}$ or $t^{1/2}$, $W_{mm}$"


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.trains], ids=lambda entry: entry.slug)
def test_a_redrawn_figure_names_what_trained_its_curves(entry):
    assert re.fullmatch(
        rf"`python -m lib.training {entry.trains}`, \d+\.\d processor hours", tables.hours(entry)
    )
    assert "DATA_DIR" not in entry.command and entry.trains in STUDIES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_an_entry_agrees_with_its_record(entry):
    held = tables.record_of(entry)
    made_by = held["notebook"]  # a record keeps the name that its notebook had
    assert entry.notebook.name in names_now().get(made_by, [made_by])
    assert held["paper"] in entry.notebook.paper
    real = any(row["source"] in ("data_dir", "data", "hub") for row in held["data"])
    assert real <= entry.notebook.real_data and entry.scale in entry.notebook.minutes
    # Where the data have not decided there is no number to quote; everywhere else there is one.
    assert entry.names or entry.sentence.startswith("**undecided**")
    assert "no value" not in figure_index.filled(entry.sentence, held)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.slug)
def test_a_figure_with_a_failing_claim_says_so(entry):
    failing = [claim["id"] for claim in tables.record_of(entry)["claims"] if not claim["holds"]]
    words = r"\*\*[^*]*(not|fails|only|alone)\b[^*]*\*\*"
    assert bool(failing) == bool(re.search(words, entry.sentence)), failing


@pytest.mark.parametrize(("slug", "text"), SENTENCES)
def test_no_measured_number_is_typed_by_hand(slug, text):
    plain = re.sub(r"\$[^$]*\$", "", figure_index.FIELD.sub("", text))
    assert not re.search(r"\d", re.sub(NAMES, "", plain)), slug


def test_the_check_for_typed_numbers_sees_one():
    assert re.search(r"\d", re.sub(NAMES, "", "Lemma 5 holds in 19 draws"))
    assert not re.search(r"\d", re.sub(NAMES, "", "Lemmas 4 and 12-30, p = 1.5, 2 and 3, CIFAR-10"))


@pytest.mark.parametrize(
    ("value", "tolerance", "words"),
    [
        (0.0243129, 1e-3, "0.0243 ± 0.001"),
        (5163.2, 51.6, "5163 ± 52"),
        (123, 0, "123 exactly"),
        (None, 1, "no value"),
        (0.5, None, "0.5"),
    ],
)
def test_expected_values_are_as_exact_as_their_tolerance(value, tolerance, words):
    assert tables.expected(value, tolerance) == words


@pytest.mark.parametrize("name", tables.FILES)
def test_the_tables_say_what_the_records_say(name):
    text = (files.ROOT / name).read_text(encoding="utf-8")
    assert tables.MARKED.search(text)
    assert tables.renewed(text) == text, "run `python -m lib.site tables`"


def test_the_table_of_figures_counts_claims_and_states_tolerances():
    lines = {
        entry.slug: line for entry, line in zip(ENTRIES, tables.table("figures").splitlines()[2:])
    }
    for entry in ENTRIES:
        held = tables.record_of(entry)
        claims = held["claims"]
        assert f"| {in_words(claims)} |" in lines[entry.slug]
        for name in set(entry.names) & held["numbers"].keys():
            assert f"`{name}` {tables.expected(**held['numbers'][name])}" in lines[entry.slug]


def test_a_mark_of_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="there is no table 'nosuch'"):
        tables.renewed("<!-- nosuch, made by python -m lib.site tables -->\n<!-- end -->")
    assert tables.renewed("no marks") == "no marks"
