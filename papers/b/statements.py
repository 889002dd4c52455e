"""The numbered statements of paper B (2603.01514) and the words of their claims."""

from pathlib import Path

from papers.stated import Stated

PAPER = Stated("B", Path(__file__).with_suffix(".toml"))
STATEMENTS = PAPER.statements
# What a failing claim means, for the picture of all statements.
PLAIN = {
    "theorem4": "With one point and the signal 0.2, the bias of the gradient should"
    " fall like 1/n. Up to n = 200 it falls more slowly: Assumption 3 holds there only"
    " with c = 1. The number is the power of n.",
}
