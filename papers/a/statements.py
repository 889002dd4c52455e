"""The numbered statements of paper A (2402.05738) and the words of their claims."""

from pathlib import Path

from papers.stated import Stated

PAPER = Stated("A", Path(__file__).with_suffix(".toml"))
STATEMENTS = PAPER.statements
