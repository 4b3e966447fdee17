"""Run the notebooks from top to bottom; those about the cluster against one service.

They take minutes on real weights: `make notebooks` runs them.
"""

import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from db.core.database import Database
from db.experiments import gold_sets
from db.server import embedded, migrate
from db.workspace import directory, keys
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord, digest, in_order, plain
from switchboard import AsyncClient
from tests.acceptance.conftest import free_port
from tests.acceptance.running import RunningService
from tests.file_server import FileServer

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 180  # of processor time: a bound against a notebook that has become work for a cluster, not a figure
PATIENCE = 900
ALONE = {"01_one_call"}  # the others need a service
SAMPLES = ROOT / "serve_app/demo/samples"
WEEKS = 4


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


async def run(path: Path) -> str:
    """Return the output of the notebook in a clean kernel; a cell that raises fails the test."""
    notebook = read(path)
    notebook.cells.append(nbformat.v4.new_code_cell("import time; print(time.process_time())"))
    folder = {"metadata": {"path": str(path.parent)}}  # where JupyterLab starts it
    client = NotebookClient(notebook, timeout=PATIENCE, resources=folder)
    try:
        await client.async_execute()
    finally:
        if "NOTEBOOKS_TO" in os.environ:  # to look at the plots
            folder = Path(os.environ["NOTEBOOKS_TO"])
            folder.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, folder / path.name)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert float(outputs[-1].text) < SECONDS
    secret = os.environ.get("SWITCHBOARD_API_KEY")
    assert secret is None or secret not in nbformat.writes(notebook)
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in ALONE], ids=lambda path: path.stem)
async def test_a_notebook_runs_in_minutes_of_processor_time(path):
    await run(path)


@pytest.fixture(scope="module")
def real_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Start a service with real weights and a PostgreSQL, which may fetch from this machine."""
    folder = tmp_path_factory.mktemp("service")
    url = embedded.start(folder / "state")
    migrate.migrate(url)
    service = RunningService(url, folder, free_port())
    service.extra = {
        "SWITCHBOARD_ASR__MODEL": "base",
        "SWITCHBOARD_DIARIZATION__PIPELINE": "segmentation-3.0+campplus",
        "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "30",
        "SWITCHBOARD_API__RUN_MODELS": "whisper-tiny.en,whisper-base",
        **{name: value for name, value in os.environ.items() if name == "SWITCHBOARD_CHECKPOINTS"},
    }
    try:
        service.start()
        yield service
        assert service.stop() == 0, (folder / "up.log").read_text()[-3000:]
    finally:
        embedded.stop(folder / "state")


@pytest.fixture(scope="module")
async def access(real_service: RunningService) -> AsyncIterator[dict[str, str]]:
    """Return the environment of a notebook: the service, its Ray, and the key of a team with two members."""
    async with await Database.open(real_service.database_url) as database:
        workspace = await directory.create_workspace(database, "acme", default_country="US")
        team = await directory.create_team(database, workspace.workspace_id, "Service desk")
        scopes = ["submit", "read", "edit"]
        _, secret = await keys.create(database, workspace.workspace_id, team.team_id, scopes, "notebook")
        for name in ("Anna Berg", "Jon Lindqvist"):
            await directory.add_member(database, workspace.workspace_id, name, team_id=team.team_id)
    variables = {
        "SWITCHBOARD_URL": real_service.submit_url.removesuffix("/submit"),
        "SWITCHBOARD_API_KEY": secret,
        "SWITCHBOARD_DATA_DIR": str(real_service.folder),
        "RAY_ADDRESS": real_service.ready["rayAddress"],
    }
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("RAY_")]:  # those are for the tests' own Ray
            patched.delenv(name)
        for name, value in variables.items():
            patched.setenv(name, value)
        yield variables


@pytest.fixture(scope="module")
async def calls(access: dict[str, str]) -> dict[str, str]:
    """Samples as the calls of two people in four weeks; what is recognized once is not recognized again.

    Returns the call of the latest week, by the sample's name.
    """
    async with AsyncClient() as client:
        people = [member.user_id async for member in client.members()]
        with FileServer() as files:
            urls = {
                name: [files.add(SAMPLES / name / file) for file in recordings]
                for name, recordings in (
                    ("04_two_files", ("rep.flac", "customer.flac")),
                    ("06_lieferung_de", ("call.flac",)),
                    ("07_interview", ("call.flac",)),
                    ("08_invoice", ("call.flac",)),
                    ("09_repair", ("call.flac",)),
                )
            }
            latest: dict[str, str] = {}
            ended = []
            for week in range(WEEKS):
                sent = []
                for at, (name, (first, *others)) in enumerate(urls.items()):
                    promised = await client.submit(
                        from_number=f"+1202555014{at}",
                        to_number="+12025550100",
                        start_time=datetime.now(UTC) - timedelta(days=7 * week, hours=at),
                        user_id=people[(week + at) % len(people)],
                        recording_url=first,
                        recording_url2=others[0] if others else None,
                    )
                    sent.append(promised.call_id)
                    latest.setdefault(name, str(promised.call_id))
                ended += [record.call.status async for record in client.as_ended(sent, timeout=PATIENCE)]
    assert ended == ["completed"] * WEEKS * len(urls)
    return latest


@pytest.fixture
async def gold_set(real_service: RunningService, calls: dict[str, str]) -> str:
    """Create a gold set of the latest calls; return a key that may run it."""
    truths = {}
    for name, call_id in calls.items():
        sample = json.loads((SAMPLES / name / "expected.json").read_text())
        apart = sample["layout"] in ("stereo", "two_files")
        turns = [
            TrueTurn(
                segment["speaker"],
                segment["start"],
                segment["end"],
                tuple(TrueWord(word["text"], word["start"], word["end"]) for word in segment["words"]),
                {"rep": 0, "customer": 1}[segment["speaker"]] if apart else None,
            )
            for segment in sample["segments"]
        ]
        truths[UUID(call_id)] = TrueCall(call_id, in_order(turns), sample["language"], sample["duration"])
    gold = {call_id: plain(call) for call_id, call in truths.items()}
    async with await Database.open(real_service.database_url) as database:
        (workspace,) = await directory.list_workspaces(database)
        home = workspace.workspace_id
        await gold_sets.add_version(database, home, "returns", "jsonl", digest(list(truths.values())), gold)
        _, secret = await keys.create(database, home, None, ["read", "admin"], "lab")
    return secret


@pytest.mark.slow
async def test_the_notebook_on_the_cluster_runs_against_a_service(access):
    printed = await run(ROOT / "notebooks/02_calls_on_the_cluster.ipynb")
    assert printed.count(": completed, ") == 4
    assert "invoice" in printed


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)  # where it comes first, it waits for the calls of all notebooks as well
async def test_two_checkpoints_are_compared_as_runs_of_a_service(gold_set, monkeypatch):
    monkeypatch.setenv("SWITCHBOARD_API_KEY", gold_set)
    printed = await run(ROOT / "notebooks/03_two_checkpoints.ipynb")
    assert printed.count("5 of 5 calls done, 0 failed") == 2
    assert re.search(r"Words wrong in 5 calls \(returns@1\): (returns-base is better by|no difference shown)", printed)
    assert "/console/calls/" in printed


@pytest.mark.slow
async def test_a_step_is_written_tried_on_stored_calls_and_shipped(calls):
    printed = await run(ROOT / "notebooks/04_an_analysis_step.ipynb")
    assert "opening      version 1 ({'seconds':" in printed
    assert '"pipeline.analysis.rules.opening:OpeningStep",' in printed
    assert not (ROOT / "pipeline/analysis/rules/opening.py").exists()


@pytest.mark.slow
async def test_recordings_of_a_bucket_are_recognized_beside_the_service_and_resumed(access, tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_OUTPUT", tmp_path.as_uri())
    printed = await run(ROOT / "notebooks/05_recordings_of_a_bucket.ipynb")
    assert "interrupted" in printed
    rows = pd.read_parquet(tmp_path)
    assert sorted(rows["path"]) == sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*.flac"))
    assert set(rows["status"]) == {"completed"}
    assert "hale" in rows.set_index("path")["text"]["04_two_files/customer.flac"].lower()


@pytest.mark.slow
async def test_tone_and_talk_of_many_calls_are_compared_no_further_than_they_carry(calls):
    printed = await run(ROOT / "notebooks/06_tone_and_talk.ipynb")
    assert re.search(r"\d+ calls with known parties in \d+ weeks", printed)
    assert "tone by week: fewer than two groups have 5 calls" in printed
