"""Tests of the committed copies of pages.

A failure means that `make notebooks` changes files that nobody edited.
"""

import nbformat
import pytest

from companion import stored


def test_a_copy_has_one_kernel_numbered_cells_and_no_trace_of_its_run(tmp_path):
    widget = nbformat.v4.new_output("display_data", {stored.WIDGET: {}})
    cells = [
        nbformat.v4.new_markdown_cell("# Title", metadata={"lines_to_next_cell": 2}),
        nbformat.v4.new_code_cell("scale = 1", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(
            "scale", outputs=[widget], metadata={"papermill": {"duration": 1.5}}
        ),
    ]
    executed = tmp_path / "executed.ipynb"
    target = tmp_path / "01.ipynb"
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"papermill": {}})
    nbformat.write(notebook, executed)
    stored.store(executed, target)
    content = target.read_bytes()
    copy = nbformat.read(target, 4)
    assert copy.metadata["kernelspec"] == stored.KERNEL
    assert "papermill" not in copy.metadata
    assert [cell.id for cell in copy.cells] == ["cell-00", "cell-01", "cell-02"]
    assert [cell.source for cell in copy.cells] == [cell.source for cell in cells]
    assert [cell.metadata for cell in copy.cells] == [
        {"lines_to_next_cell": 2},
        {"tags": ["parameters"]} | stored.HIDDEN,
        {},
    ]
    (output,) = copy.cells[2].outputs
    assert output["data"]["text/plain"] == stored.NO_WIDGET
    stored.store(target, target)
    assert target.read_bytes() == content


@pytest.mark.parametrize("rate", ["? steps/s", "3.00it/s", "2.00s/it", "2.00s/ steps"])
def test_bars_of_tqdm_are_left_out(rate):
    data = {stored.WIDGET: {}, "text/plain": f"training: 0 steps [00:00, {rate}]"}
    bar = nbformat.v4.new_output("display_data", data)
    assert stored.without_widgets([bar]) == []
