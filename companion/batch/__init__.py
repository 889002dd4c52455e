"""Run notebooks without a browser: `python -m companion.batch`, or `make figures`.

Open `run` first, which is the command. `job` plans which pages to run, `work` runs
them, and `reference` compares figures with the committed ones and copies them.
"""

from companion.batch.run import main as main
