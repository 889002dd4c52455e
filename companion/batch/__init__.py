"""Run notebooks without a browser: `python -m companion.batch`, also by `make figures`.

Open `run` first, which is the command. `job` plans, `work` runs pages, and `reference`
compares and copies figures.
"""

from companion.batch.run import main as main
