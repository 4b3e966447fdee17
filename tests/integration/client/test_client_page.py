"""The examples of the page on the client, from top to bottom, against a service."""

import asyncio
import re
from datetime import date
from pathlib import Path

import pytest

from db.records.complete import complete as complete_call
from switchboard import Client
from tests.finished import TALK, findings, task, transcript
from tests.finished import work as run_work
from tests.integration.client.test_client import Desk, base, desk, new_key  # noqa: F401 (fixtures)
from tests.paths import ROOT
from tests.reading_api import store

PAGE = ROOT / "docs" / "client.md"


async def test_the_examples_run(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 10
    monkeypatch.chdir(tmp_path)
    names = {"URL": desk.base, "KEY": desk.key, "RECORDING": "https://pbx.example.com/a.wav"}
    stored = store(tmp_path)

    async def work() -> None:
        """What a Conductor does: claim the call, keep its recording, complete it."""
        while not (leases := await desk.world.claim()):
            await asyncio.sleep(0.05)
        (lease,) = leases
        await desk.world.execute(
            "INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes)"
            " SELECT id, job_id, 0, :uri, 'a', :size FROM calls WHERE call_id = :call",
            uri=stored.as_uri(),
            size=stored.stat().st_size,
            call=lease.call.call_id,
        )
        found = findings("negative", (task("Send the invoice", date(2026, 11, 4)),))
        assert await complete_call(desk.world.database, lease, transcript(*TALK), found, None, []) is None

    async def work_on_runs() -> None:
        while True:
            await run_work(desk.world, *TALK)
            await asyncio.sleep(0.1)

    names["ADMIN_KEY"] = await new_key(desk.world, "read", "admin")
    working, of_runs = asyncio.create_task(work()), asyncio.create_task(work_on_runs())
    for block in blocks:
        await asyncio.to_thread(exec, block, names)
    await working
    of_runs.cancel()
    assert len(names["unhappy"]) == len(names["frame"]) == names["table"].height == 1  # type: ignore[attr-defined]
    assert names["due"] == [("Send the invoice", "rep", date(2026, 11, 4))]
    assert [one["text"] for one in names["words"]][:2] == ["Good", "morning,"]  # type: ignore[index]
    assert names["edit"].machine == "invoice"  # type: ignore[attr-defined]
    assert names["sound"][:4] == b"RIFF"
    assert (tmp_path / "call.wav").read_bytes() == stored.read_bytes()
    assert (tmp_path / "calls.parquet").exists() and (tmp_path / "gold.ndjson").exists()
    assert isinstance(names["client"], Client)
    names["client"].close()
    names["admin"].close()  # type: ignore[attr-defined]
    names["http"].close()  # type: ignore[attr-defined]
