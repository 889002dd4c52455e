"""The first code cell of every stored notebook, which installs the project, as on Colab.

It acts where only the notebook is at hand. It stands in the .ipynb alone, since a .py comes with
the project. `python -m lib.companion.colab_cell` puts the present cell into every stored notebook;
the batch runner's --store does the same for those that it writes.
"""

import sys
import tomllib

import nbformat

from lib import files
from lib.companion.record import INSTALLS

TAG = "install"
CELL = (
    f"{INSTALLS}, as on Colab, which opens this file alone.\n"
    + """\
import importlib.util

if importlib.util.find_spec("lib") is None:
    repository = "ADDRESS"
    if not repository:
        raise ImportError(
            "Write the address of the project's git repository into this cell and run it again."
        )
    %pip install --quiet "attention-dynamics @ git+{repository}"
    %env FIGURES_DIR=figures
    %env RUNS_DIR=runs"""
)


def address() -> str:
    """The repository's address in pyproject.toml, [project.urls]; empty if there is none."""
    path = files.ROOT / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"] if path.exists() else {}
    return project.get("urls", {}).get("repository", "")


def installs(cell) -> bool:
    """Whether `cell` is the installing cell, with its tag or without it."""
    first_line = CELL.partition("\n")[0]
    return TAG in cell.metadata.get("tags", []) or cell.source.startswith(first_line)


def installing(cells: list) -> list:
    """The cells of a notebook with the installing cell, once, behind its title.

    Ids are given by place, since a tool that merges notebooks hands ids on to other cells.
    """
    first = nbformat.v4.new_code_cell(
        CELL.replace("ADDRESS", address()), id=TAG, metadata={"tags": [TAG]}
    )
    own = [cell for cell in cells if not installs(cell)]
    for place, cell in enumerate(own):
        cell.id = f"cell-{place:02d}"
    place = 1 if own and own[0].cell_type == "markdown" else 0
    return [*own[:place], first, *own[place:]]


def main() -> int:
    """The command `python -m lib.companion.colab_cell`."""
    for path in sorted(files.folder("notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = installing(notebook.cells)
        files.write(path, (nbformat.writes(notebook) + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
