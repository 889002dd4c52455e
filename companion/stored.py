"""Notebooks as they are committed: one kernel, no widgets, folded set-up cells."""

import re
from pathlib import Path

from lib import files

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = (
    "A widget stands here in JupyterLab and Voila; without a kernel it cannot be shown."
)
FOLDED = {"parameters", "set-up"}  # tags of cells that a reader does not need
# jupytext stores the layout of the .py under this name.
BLANK_LINES = "lines_to_next_cell"
# JupyterLab folds a cell that has this entry.
HIDDEN = {"jupyter": {"source_hidden": True}}


def without_widgets(outputs: list) -> list:
    """Replace each widget by a line of text, and leave out the bars of tqdm.

    Parameters
    ----------
    outputs : list of NotebookNode
        The outputs of a cell.

    Returns
    -------
    list of NotebookNode
        The outputs that a page without a kernel can show.
    """
    # We import this only here, because it takes three seconds and planning a batch does
    # not need it.
    from nbformat import v4

    texts = {"text/markdown": f"*{NO_WIDGET}*", "text/plain": NO_WIDGET}
    line = v4.new_output("display_data", texts)

    def is_bar(data: dict) -> bool:
        """Return whether an output is a progress bar of tqdm."""
        # The text ends with a rate such as "it/s" or "steps/s". tqdm writes "s/it" if
        # an iteration takes longer than a second.
        is_rate = re.search(r"(/s|s/ ?\w+)\]$", data.get("text/plain", ""))
        return WIDGET in data and is_rate is not None

    kept = [output for output in outputs if not is_bar(output.get("data", {}))]
    return [line if WIDGET in output.get("data", {}) else output for output in kept]


def store(executed: Path, target: Path) -> None:
    """Write an executed notebook without the parts that only its run needed.

    Cells keep their tags and their outputs, without widgets. Cells of `FOLDED` are
    hidden.

    Parameters
    ----------
    executed : Path
        The notebook that papermill wrote.
    target : Path
        The `.ipynb` beside the page's `.py`.

    Raises
    ------
    OSError
        If a file cannot be read or written. The message has the path.
    ValueError
        If `executed` is not JSON, or jupytext.toml beside the target is not TOML.
    nbformat.ValidationError
        If the result is not a notebook.
    """
    # We import this only here, because it takes three seconds and planning a batch does
    # not need it.
    import nbformat

    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    # jupytext would add this entry when it reads the pair. We add it here so that a
    # sync changes nothing.
    notebook.metadata["jupytext"] = files.read_table(target.parent / "jupytext.toml")
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
        tags = cell.metadata.get("tags", [])
        kept = {"tags": tags, BLANK_LINES: cell.metadata.get(BLANK_LINES)}
        cell.metadata = {name: value for name, value in kept.items() if value}
        if FOLDED & {*tags}:
            cell.metadata |= HIDDEN
        if cell.cell_type == "code":
            cell.outputs = without_widgets(cell.outputs)
    nbformat.validate(notebook)
    files.write(target, (nbformat.writes(notebook) + "\n").encode())
