"""The notebooks run from top to bottom, here as on anybody's machine."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 180  # of processor time: a bound against a notebook that has become work for a cluster, not a figure
PATIENCE = 900


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output_and_asks_a_question(path):
    notebook = read(path)
    assert notebook.cells[0].source.splitlines()[0].endswith("?")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
async def test_a_notebook_runs_in_minutes_of_processor_time(path):
    notebook = read(path)
    notebook.cells.append(nbformat.v4.new_code_cell("import time; print(time.process_time())"))
    client = NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(ROOT)}})
    await client.async_execute()  # a cell that raises fails the test
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert float(outputs[-1].text) < SECONDS
