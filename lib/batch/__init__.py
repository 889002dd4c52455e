"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

In: names of notebooks and a scale. Out: figures, records, executed copies, and what did not
reproduce. Open `runner` first: plan, execute, publish, compare.
"""

from lib.batch.runner import main

__all__ = ["main"]
