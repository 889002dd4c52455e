"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

Open `run` first: the command. `job` plans, `work` runs, `reference` compares and
copies.
"""

from lib.batch.run import main as main
