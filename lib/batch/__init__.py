"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls; open `run`."""

from lib.batch.run import main as main
