"""Stored notebooks: one kernel, no widgets, and a first code cell that installs the
project where only the .ipynb is at hand, as on Colab.
"""

from pathlib import Path

import nbformat

from lib import files

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = (
    "A widget stands here in JupyterLab and Voila; without a kernel it cannot be shown."
)
TAG = "install"
FOLDED = {
    TAG,
    "parameters",
    "set-up",
}  # tags of cells that no reader needs: JupyterLab folds them
HIDDEN = {"jupyter": {"source_hidden": True}}
CELL = """\
# Only where the project is not installed, as on Colab, which opens this file alone.
import importlib.util

if importlib.util.find_spec("lib") is None:
    repository = "ADDRESS"
    if not repository:
        raise ImportError(
            "Write the address of the project's git repository into this cell and run it again."
        )
    %pip install --quiet "attention-dynamics[networks,norms,notebooks] @ git+{repository}"
    %env FIGURES_DIR=figures
    %env RUNS_DIR=runs"""


def without_widgets(outputs: list) -> list:
    """Outputs as they can be kept: a line in place of a widget; no tqdm bar."""
    texts = {"text/markdown": f"*{NO_WIDGET}*", "text/plain": NO_WIDGET}
    line = nbformat.v4.new_output("display_data", texts)

    def is_bar(data):
        return WIDGET in data and data.get("text/plain", "").endswith("it/s]")

    kept = [output for output in outputs if not is_bar(output.get("data", {}))]
    return [line if WIDGET in output.get("data", {}) else output for output in kept]


def _installs(cell) -> bool:
    return TAG in cell.metadata.get("tags", []) or cell.source.startswith(
        CELL.partition("\n")[0]
    )


def _installing(cells: list) -> list:
    """The cells of a notebook with the installing cell, once, behind its title."""
    project = files.read_table(files.ROOT / "pyproject.toml").get("project", {})
    text = CELL.replace("ADDRESS", project.get("urls", {}).get("repository", ""))
    first = nbformat.v4.new_code_cell(text, id=TAG, metadata={"tags": [TAG]} | HIDDEN)
    cells = [cell for cell in cells if not _installs(cell)]
    for place, cell in enumerate(cells):
        cell.id = f"cell-{place:02d}"
    if cells and cells[0].cell_type == "markdown":
        place = 1
    else:
        place = 0
    return [*cells[:place], first, *cells[place:]]


def store(executed: Path, target: Path) -> None:
    """Write the executed notebook without what its run needed, with the installing
    cell.
    """
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = {"tags": tags} if tags else {}
        cell.metadata |= HIDDEN if FOLDED & {*tags} else {}
        if cell.cell_type == "code":
            cell.outputs = without_widgets(cell.outputs)
    notebook.cells = _installing(notebook.cells)
    nbformat.validate(notebook)
    files.write(target, (nbformat.writes(notebook) + "\n").encode())
