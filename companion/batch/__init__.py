"""Notebooks headless: `python -m companion.batch`, also what `make figures` calls.

Open `run` first: the command. `job` plans, `work` runs, `reference` compares and
copies.
"""

from companion.batch.run import main as main
