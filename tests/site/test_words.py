"""What readers read: findings with the record's numbers, formulas, pictures in words, the table of REPRODUCING.md."""

import json

import pytest
from matplotlib.figure import Figure

from lib import files
from lib.companion import figure_text, ledger
from lib.companion.claims import at_most
from lib.site import mathml, readme_table, reproducing_table

ROWS = """
| figure | notebook | command | minutes | what you should see |
|---|---|---|---|---|
| [`one`](figures/demo/one.png) Figure 1, demo | [01](x) | `make figures ARGS=01` | 0.3 | off by 1.2 % (`gap`), then -3.40 (`low`), in [a table](t.md); 4/5 claims hold |
| [`two`](figures/desk/two.png) Figure 2, desk | [01](x) | the same | | nothing (`gone`) |
"""  # noqa: E501


def record(**numbers):
    return {
        "numbers": {name: {"value": value, "tolerance": 0.01} for name, value in numbers.items()}
    }


def test_finding_shows_the_numbers_of_the_record_and_not_the_readmes():
    one, _ = readme_table.read(ROWS)
    assert (one.scale, one.slug, one.names) == ("demo", "one", ["gap", "low"])
    assert one.sentence(record(gap=0.0344, low=-7.126)) == "off by 3.4 %, then -7.13, in a table"
    assert (
        one.sentence(record(gap=None)) == "off by no value of gap, then no value of low, in a table"
    )


def test_finding_without_a_command_has_the_last_ones():
    _, two = readme_table.read(ROWS)
    assert (two.command, two.minutes, two.scale) == ("`make figures ARGS=01`", "0.3", "desk")


def test_readme_has_a_finding_for_every_row_that_names_a_figure():
    lines = (files.ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| [`")]
    assert len(readme_table.read()) == len(rows) > 0


@pytest.mark.parametrize(
    ("value", "tolerance", "words"),
    [
        (0.0243129, 1e-3, "0.0243 ± 0.001"),
        (5163.2, 51.6, "5163 ± 52"),
        (123, 0, "123 exactly"),
        (None, 1, "no value"),
    ],
)
def test_expected_values_are_as_exact_as_their_tolerance(value, tolerance, words):
    assert reproducing_table.expected(value, tolerance) == words


def test_reproducing_says_what_the_records_say():
    text = (files.ROOT / "REPRODUCING.md").read_text(encoding="utf-8")
    assert reproducing_table.renewed(text) == text, "run `python -m lib.reproducing`"
    for finding in readme_table.read():
        path = files.ROOT / "figures" / finding.scale / f"{finding.slug}.json"
        held = json.loads(path.read_text(encoding="utf-8"))["claims"]
        line = next(
            line
            for line in text.splitlines()
            if f"figures/{finding.scale}/{finding.slug}.png" in line
        )
        assert f"| {sum(c['holds'] for c in held)} of {len(held)} |" in line


def test_table_has_its_marked_place():
    with pytest.raises(ValueError, match="is missing"):
        reproducing_table.renewed("no marks")


@pytest.mark.parametrize("formula", [r"\nosuch{x}", "{{"])
def test_a_formula_that_cannot_be_read_stays_as_tex(formula):
    assert mathml.mathml(formula) == f"<code>{formula}</code>"


def test_formulas_become_mathml_in_text_and_tables():
    text = mathml.html("The $W_{mm}$ of\n\n$$\\arg\\min_W \\|W\\|$$\n\n| a |\n|---|\n| $x < y$ |")
    assert (
        text.count("<math") == 3
        and 'display="block"' in text
        and "$" not in text
        and "\\" not in text
    )
    assert "<mo>arg</mo>" in text and "&lt;" in text.replace("&#x0003C;", "&lt;")


def test_picture_in_words():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 2], label=r"$t^{-1/2}$")
    left.set(title=r"Loss, $\log_{10}\|W\|$", xlabel="$t$", yscale="log")
    right.imshow([[0, 1]])
    right.set(title="share", xlabel="d")
    figure.colorbar(right.images[0])
    figure.legend(*left.get_legend_handles_labels())
    assert figure_text.describe(figure) == (
        "2 panels: Loss, log_10‖W‖ against t (logarithmic in y); coloured cells of share against d. "
        "Lines and marks: t^-1/2."
    )
    assert figure_text.describe(Figure()) == "0 panels."


def test_committed_ledgers_have_the_claims_of_their_records():
    for path in (files.ROOT / "figures").glob("*/*.md"):
        rows = [
            row
            for row in ledger.read(path.read_text(encoding="utf-8"))
            if row["holds"] != "not checked"
        ]
        claims = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["claims"]
        assert [row["holds"] == "yes" for row in rows].count(True) == sum(
            claim["holds"] for claim in claims
        )
        assert len(rows) == len(claims) > 0
