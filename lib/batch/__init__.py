"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

In: names of notebooks and a scale. Out: figures, records, executed copies, and what did not
reproduce. Open `command` first: plan, execute, publish, compare, each handing on one value.
"""

from lib.batch.command import main

__all__ = ["main"]
