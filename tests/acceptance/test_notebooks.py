"""The notebooks run from top to bottom, here as on anybody's machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from db import directory, embedded, keys, migrate
from db.database import Database
from tests.acceptance.conftest import free_port
from tests.acceptance.running import RunningService

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 180  # of processor time: a bound against a notebook that has become work for a cluster, not a figure
PATIENCE = 900
ON_THE_CLUSTER = "02_calls_on_the_cluster"


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


async def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, in a clean kernel; a cell that raises fails the test."""
    notebook = read(path)
    notebook.cells.append(nbformat.v4.new_code_cell("import time; print(time.process_time())"))
    client = NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(ROOT)}})
    await client.async_execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    if "NOTEBOOKS_TO" in os.environ:  # to look at the plots
        nbformat.write(notebook, Path(os.environ["NOTEBOOKS_TO"]) / path.name)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert float(outputs[-1].text) < SECONDS
    return notebook


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem != ON_THE_CLUSTER], ids=lambda path: path.stem
)
async def test_a_notebook_runs_in_minutes_of_processor_time(path):
    await run(path)


@pytest.fixture
def real_service(tmp_path: Path) -> Iterator[RunningService]:
    """A service with real weights, that fetches from this machine, with a PostgreSQL."""
    url = embedded.start(tmp_path / "state")
    migrate.migrate(url)
    service = RunningService(url, tmp_path, free_port())
    service.extra = {
        "SWITCHBOARD_ASR__MODEL": "base",
        "SWITCHBOARD_DIARIZATION__PIPELINE": "segmentation-3.0+campplus",
        "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "30",
        **{name: value for name, value in os.environ.items() if name == "SWITCHBOARD_CHECKPOINTS"},
    }
    try:
        service.start()
        yield service
        assert service.stop() == 0, (tmp_path / "up.log").read_text()[-3000:]
    finally:
        embedded.stop(tmp_path / "state")


async def test_the_notebook_on_the_cluster_runs_against_a_service(real_service, monkeypatch):
    async with await Database.open(real_service.database_url) as database:
        workspace = await directory.create_workspace(database, "acme", default_country="US")
        team = await directory.create_team(database, workspace.workspace_id, "Service desk")
        _, secret = await keys.create(database, workspace.workspace_id, team.team_id, ["submit", "read"], "notebook")
    monkeypatch.setenv("SWITCHBOARD_URL", real_service.submit_url.removesuffix("/submit"))
    monkeypatch.setenv("SWITCHBOARD_API_KEY", secret)
    notebook = await run(ROOT / "notebooks" / f"{ON_THE_CLUSTER}.ipynb")
    printed = "".join(
        output.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    assert printed.count(": completed, ") == 4
    assert "invoice" in printed and secret not in nbformat.writes(notebook)
