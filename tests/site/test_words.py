"""Pictures in words, and the ledger as a table."""

import json

from matplotlib.figure import Figure

from lib import files
from lib.companion import figure_text, ledger
from lib.companion.claims import at_most


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


def test_ledger_reads_what_it_writes():
    claim = at_most("x", "largest |a| | b", "paper A, Lemma 5", 2.0, 1.0)
    rows = [
        ledger.Row("Lemma 5", "one", 3, claim),
        *ledger.rows("Lemma 5", "two", None, claim, remark="why"),
    ]
    rows.append(ledger.unchecked("Remark 2", "a definition"))
    read = ledger.read(ledger.markdown(rows, "Paper A"))
    assert [(row["statement"], row["setting"], row["holds"], row["remark"]) for row in read] == [
        ("Lemma 5", "one", "NO", ""), ("Lemma 5", "two", "NO", "why"), ("Remark 2", "", "not checked", "a definition"),
    ]  # fmt: skip
    assert read[0]["measured quantity"] == "largest |a| | b" and read[0]["seeds"] == "3"
    assert read[1]["says"] == ledger.STATEMENTS["Lemma 5"][1]
    assert ledger.read("no table") == []


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
