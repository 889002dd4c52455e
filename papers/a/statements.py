"""The numbered statements of paper A (2402.05738) and the words of their claims."""

from pathlib import Path

from papers.stated import Stated

PAPER = Stated("A", Path(__file__).with_suffix(".toml"))
STATEMENTS = PAPER.statements
# What a failing claim means, for the picture of all statements.
PLAIN = {
    "assumption1.margin": "Our condition that is enough for Assumption 1 does not hold"
    " on data with class means: the dimension is too small for so many samples.",
    "lemma5.rises.GD": "On the data of Figure 5, a best token with at most half of the"
    " softmax weight should not lose weight. Under GD and under normalised GD one does,"
    " because the queries are not orthogonal enough. The number is its weight divided"
    " by that at the record before.",
}
