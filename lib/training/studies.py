"""The papers' real-data studies, by name. Their settings are in studies.toml."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lib import files
from lib.training.problem import Problem
from lib.training.problems import Pictures, Reviews, Sentences
from lib.training.study import Study

PROBLEMS: dict[str, type[Problem]] = {
    "pictures": Pictures,
    "sentences": Sentences,
    "reviews": Reviews,
}
TABLES = files.read_table(Path(__file__).with_suffix(".toml"))
# The settings that all smoke tests share.
SMOKE = {"seeds": 2, "evaluations": 4, "window": 20, "extensions": 0, "clock": 5}


def _study(name: str, row: dict[str, Any]) -> Study:
    """Return the Study that a table of studies.toml describes."""
    fields = {field: value for field, value in row.items() if field != "problem"}
    return Study(name=name, problem=PROBLEMS[row["problem"]], **fields)


# Smoke tests on stand-in data, which take seconds. They say nothing about the papers.
DEMO = {name: _study(name, SMOKE | row) for name, row in TABLES["demo"].items()}
STUDIES = {name: _study(name, row) for name, row in TABLES.items() if name != "demo"}
STUDIES["digits"] = replace(DEMO["mnist"], name="digits")  # needs no data
