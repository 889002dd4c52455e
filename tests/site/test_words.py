"""Pictures in words, and the ledger as a table."""

import json

import pytest
from matplotlib.figure import Figure

from lib import files
from lib.companion import figure_text


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
        "2 panels: Loss, log_10‖W‖ against t (logarithmic in y); coloured cells of share against "
        "d. "
        "Lines and marks: t^-1/2."
    )
    assert figure_text.describe(Figure()) == "0 panels."


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (r"$\eta_t\propto t^{-1/2}$", "η_t ∝ t^-1/2"),
        (r"$k\sigma^2/2$", "kσ^2/2"),
        (r"$(1-\eta\lambda_{min})^{2t}$", "(1-ηλ_min)^2t"),
        (r"$\sqrt{2D_\psi}$", "√2D_ψ"),
        (r"$\|W_0\| = 10\,\|W_{mm}\|$", "‖W_0‖ = 10 ‖W_mm‖"),
        (r"$\beta_m/\sum\beta$", "β_m/Σβ"),
        (r"$\frac{1}{2}\foo x\bar y$", "1/2 foo x bar y"),
        (r"$p\leq2$", "p ≤ 2"),
    ],
)
def test_a_formula_in_words_has_no_glued_commands(formula, words):
    assert figure_text.plain(formula) == words


def test_ledgers_name_statements_of_their_paper():
    """Every claim of a committed ledger is a row of a statement that its record holds."""
    for path in (files.ROOT / "figures").glob("*/*_ledger.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        if statements := record.get("statements"):
            assert {claim["number"] for claim in record["claims"]} <= set(statements)
            assert all(statement["says"] or statement["why"] for statement in statements.values())
