"""The numbered statements of paper B (2603.01514) and the words of their claims."""

from pathlib import Path

from papers.stated import Stated

PAPER = Stated("B", Path(__file__).with_suffix(".toml"))
STATEMENTS = PAPER.statements
