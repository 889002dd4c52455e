"""The statements of paper C (2410.14581) and the words of their claims."""

from pathlib import Path

from papers.stated import Stated

PAPER = Stated("C", Path(__file__).with_suffix(".toml"))
STATEMENTS = PAPER.statements
