import asyncio
from pathlib import Path

from db.core.database import Database
from db.workspace import directory, keys
from pipeline.fetch.handed_in import make_private
from serve_app.cli.run import demo
from serve_app.demo.samples import load_samples
from tests.integration.db.intake.test_submit_over_http import served


async def test_a_second_demo_uses_the_same_workspace_with_a_new_key(database: Database, postgres_url: str) -> None:
    first_id, first_key = await demo._prepare_workspace(postgres_url)
    second_id, second_key = await demo._prepare_workspace(postgres_url)
    assert first_id == second_id
    assert [workspace.name for workspace in await directory.list_workspaces(database)] == ["Demo"]
    assert len(await directory.list_teams(database)) == 1
    assert {member.name for member in await directory.list_members(database)} == demo.MEMBERS
    assert len(await directory.list_members(database)) == len(demo.MEMBERS)
    assert len(await directory.list_contacts(database)) == len(demo.CONTACTS)
    assert await keys.find(database, first_key) is None
    sender = await keys.find(database, second_key)
    assert sender is not None and sender.workspace_id == first_id


async def test_a_second_demo_starts_new_jobs_for_the_same_calls(postgres_url: str, tmp_path: Path) -> None:
    samples = load_samples()
    folder = make_private(tmp_path / "handed-in")
    with served(postgres_url) as base:
        runs = []
        for _ in range(2):
            _, key = await demo._prepare_workspace(postgres_url)
            runs.append(await asyncio.to_thread(demo._submit, samples, folder, f"{base}/submit", key))
    first, second = runs
    assert [call.call_id for call in first] == [call.call_id for call in second]
    assert [call.statuses for call in first] == [call.statuses for call in second]
    assert not {call.job_id for call in first} & {call.job_id for call in second}
