"""What is due goes, and nothing else: by kind, team and workspace, with holds, crashes and work in progress."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from typer.testing import CliRunner

from db.core.database import Reader
from db.events import endpoints, upkeep
from db.experiments import runs
from db.records import erase as erasing_targets
from db.records import erasures, file_deletions, ledger, retention, views
from db.records.erase import CallHeld
from db.records.erasures import ErasureKind, Target
from db.records.retention import RetentionKind
from db.workspace import access_log, directory, keys, legal_holds
from db.workspace.legal_holds import HoldKind, OnHold
from pipeline.options import ProcessOptions
from pipeline.runtime.workers import LocalWorkers
from pipeline.speakers.profile import Voices
from serve_app.cli import app
from serve_app.conductor.erasure import RetentionLoop
from serve_app.conductor.loop import ConductorLoop
from serve_app.conductor.options import ErasureOptions, ProcessingOptions
from tests.attacks import test_erase as erasing
from tests.attacks.test_erase import MARKER, erased, places_of, plant, stored
from tests.finished import START, finished
from tests.integration.db.voices import test_voiceprints as voices
from tests.paths import ROOT
from tests.postgres import World, new_world
from tests.reading_api import Api
from tests.support.console_site import browser, signed_in
from tests.tuned import tuned

KINDS = list(RetentionKind)
WORDS = (RetentionKind.RECORDINGS, RetentionKind.TRANSCRIPTS)


async def period(world: World, kind: RetentionKind, days: int | None = 30, team: UUID | None = None) -> None:
    await retention.set_period(world.database, world.workspace_id, kind, days, team)


async def age(world: World, days: int, *call_ids: UUID) -> None:
    await world.execute(
        "UPDATE calls SET created_at = now() - make_interval(days => :days) WHERE call_id = ANY (:calls)",
        days=days,
        calls=list(call_ids),
    )


async def old_call(world: World, days: int = 31, **fields: Any) -> UUID:
    call_id = await finished(world, **fields)
    await age(world, days, call_id)
    return call_id


async def expire(world: World, batch: int = 50, window: int = 1000) -> int:
    """Run one pass over all calls for every kind with a period; return how many calls lost content."""
    await world.execute("DELETE FROM retention_passes")
    calls = 0
    async with asyncio.timeout(60):
        while (deleted := await retention.expire(world.database, Voices(), batch, window, 0.0, 3600.0)) is not None:
            calls += deleted
    return calls


async def record(world: World, call_id: UUID) -> views.CallRecord:
    call_record = await views.show_call(world.database, call_id)
    assert call_record is not None
    return call_record


async def entries(world: World) -> list[ledger.Entry]:
    async with world.database.transaction(world.workspace_id) as connection:
        chain = await ledger.entries(connection, world.workspace_id)
    ledger.verify_chain(chain)
    return chain


async def hold(world: World, kind: HoldKind, subject: object, reason: str = "Case 12") -> legal_holds.LegalHold:
    return await legal_holds.create(world.database, world.workspace_id, kind, str(subject), reason)


async def count(world: World, table: str, call_id: UUID) -> int:
    (row,) = await world.rows(
        f"SELECT count(*) AS n FROM {table} t JOIN calls c ON c.id = t.call_pk WHERE c.call_id = :call", call=call_id
    )
    return int(row["n"])


# --- Each kind ---

LEFT = {  # tables in which a planted marker of the talk may remain, as no kind or another kind has them
    RetentionKind.RECORDINGS: {"recordings", "unredacted_recordings", "waveforms"},
    RetentionKind.VOICEPRINTS: {"voiceprints", "voiceprint_events"},
    RetentionKind.SUBMISSIONS: {"submissions"},
}
METADATA = {"calls", "call_keys", "jobs", "contacts", "reads"}


async def planted(world: World) -> UUID:
    call_id = await finished(world)
    (row,) = await world.rows("SELECT id FROM calls WHERE call_id = :call", call=call_id)
    await plant(world, row["id"], call_id)
    await world.execute("UPDATE run_calls SET state = 'done'")
    await world.execute("UPDATE calls SET from_number = '1', to_number = '2', from_e164 = NULL, to_e164 = NULL")
    await age(world, 31, call_id)
    return call_id


@pytest.mark.parametrize("kinds", [[RetentionKind.TRANSCRIPTS], [*LEFT, RetentionKind.TRANSCRIPTS]])
async def test_nothing_that_quotes_the_talk_remains(world: World, kinds: list[RetentionKind]) -> None:
    call_id = await planted(world)
    before = set(await places_of(world, MARKER))
    for kind in kinds:
        await period(world, kind)
    assert await expire(world) == len(kinds)
    may_remain = METADATA.union(*(tables for kind, tables in LEFT.items() if kind not in kinds))
    assert set(await places_of(world, MARKER)) == before & may_remain
    await world.execute("DELETE FROM call_keys")  # the planted one opens nothing
    assert (await record(world, call_id)).content_expired
    assert sorted(entry.what for entry in await entries(world)) == sorted(kinds)
    assert {entry.who for entry in await entries(world)} == {"retention"}


async def test_a_call_whose_recording_expired_is_readable(world: World, tmp_path: Path) -> None:
    path = await stored(world, tmp_path)
    await complete(world)
    await world.execute(
        "INSERT INTO waveforms (call_pk, job_id, channels, seconds, peaks) SELECT id, job_id, 1, 1, 'x' FROM calls"
    )
    await period(world, RetentionKind.RECORDINGS)
    assert await expire(world) == 0 and path.exists()
    await age(world, 31, world.call_id)
    assert await expire(world) == 1
    assert await expire(world) == 0
    call_record = await record(world, world.call_id)
    assert call_record.recordings == () and call_record.recordings_expired
    assert call_record.transcript is not None and not call_record.content_expired
    assert await world.rows("SELECT * FROM waveforms") == []
    (entry,) = await entries(world)
    assert (entry.kind, entry.what, entry.counts) == ("retention", "recordings", {"recordings": 1, "waveforms": 1})
    assert await erasing.loop(world).delete_due() == 1
    assert not path.exists() and await file_deletions.waiting(world.database) == 0


async def complete(world: World) -> None:
    """Complete the world's call by hand."""
    from db.records.complete import complete as complete_call
    from tests.finished import findings, transcript

    lease = await world.claim_one()
    talk = transcript(("rep", "Good morning."), ("customer", "Hello."))
    assert await complete_call(world.database, lease, talk, findings(), None, []) is None


async def test_another_recording_is_not_expired(world: World, tmp_path: Path) -> None:
    await stored(world, tmp_path)
    await complete(world)
    await age(world, 31, world.call_id)
    for kind in WORDS:
        await period(world, kind)
    assert await expire(world) == 2
    await world.submit(recording_url=erasing.URL + "?another")
    call_record = await record(world, world.call_id)
    assert call_record.call.state == "transcribing"
    assert not call_record.recordings_expired and not call_record.content_expired


async def test_changed_data_of_expired_content_is_not_analyzed(world: World) -> None:
    call_id = world.call_id = await old_call(world)
    await period(world, RetentionKind.TRANSCRIPTS)
    await expire(world)
    assert (await world.submit(outgoing=True)).decision == "merged"
    assert (await record(world, call_id)).call.outgoing is True
    assert [kind for kind, _ in await world.jobs()] == ["process"]


async def test_an_analysis_without_a_recording_says_why(world: World, tmp_path: Path) -> None:
    await stored(world, tmp_path)
    await complete(world)
    await age(world, 31, world.call_id)
    await period(world, RetentionKind.RECORDINGS)
    await expire(world)
    assert (await world.submit(outgoing=True)).decision == "merged"
    options = ProcessOptions(storage=tmp_path.as_uri())
    conductor = ConductorLoop(
        world.database, LocalWorkers(None, None), tuned(ProcessingOptions, lease_seconds=1.5), options
    )
    await conductor.start()
    try:
        async with asyncio.timeout(30):
            while not (await world.row())["analysis_warnings"]:
                await asyncio.sleep(0.1)
    finally:
        await conductor.stop()
    call_record = await record(world, world.call_id)
    assert "no longer stored" in str(call_record.warnings) and call_record.transcript is not None
    assert call_record.jobs[-1].error is not None and call_record.jobs[-1].error.code == "recording_gone"


async def test_voiceprints_leave_the_profile(world: World) -> None:
    ana = await voices.member(world, "Ana")
    for seed in range(3):
        await voices.call(world, voices.voice(voices.ANA, seed), ana)
    without = await erasing.centroids(world)
    call_id = await voices.call(world, voices.voice(voices.ANA, 3), ana)
    await world.execute(
        "INSERT INTO stage_results (call_pk, job_id, content_key, stage, result)"
        " SELECT id, job_id, 'k', 'diarization', '{}' FROM calls WHERE call_id = :call",
        call=call_id,
    )
    await world.execute("UPDATE calls SET state = 'completed'")
    await world.execute("UPDATE jobs SET state = 'done'")
    await age(world, 31, call_id)
    await period(world, RetentionKind.VOICEPRINTS)
    await world.execute("DELETE FROM retention_passes")
    while await retention.expire(world.database, voices.VOICES, 50, 1000, 0.0, 3600.0) is not None:
        pass
    assert await erasing.centroids(world) == without
    assert await count(world, "voiceprints", call_id) == await count(world, "stage_results", call_id) == 0


async def test_submissions_expire_and_the_call_merges_on(world: World) -> None:
    call_id = world.call_id = await old_call(world)
    await period(world, RetentionKind.SUBMISSIONS)
    assert await expire(world) == 1
    assert (await record(world, call_id)).submissions == 0
    assert (await world.submit(from_number="+4930999")).decision == "merged"
    with pytest.raises(Exception, match="append-only"):
        await world.execute("DELETE FROM submissions")


async def test_events_that_are_not_sent_stay(world: World) -> None:
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed")
    call_id = await old_call(world)
    await world.execute("UPDATE events SET at = now() - interval '31 days'")
    await period(world, RetentionKind.EVENTS)
    assert await expire(world) == 0
    await world.execute("UPDATE webhook_deliveries SET state = 'delivered'")
    await world.execute("UPDATE events SET at = now() WHERE type = 'call.completed'")
    assert await expire(world) == 1
    assert [row["type"] for row in await world.rows("SELECT type FROM events")] == ["call.completed"]
    assert (await record(world, call_id)).transcript is not None


async def test_old_reads_go_from_the_access_log(world: World) -> None:
    call_id = await old_call(world)
    reader, key_id = Reader(world.workspace_id), uuid4()
    for what in ("record", "audio"):
        await access_log.note(world.database, reader, key_id, [call_id], what)
    await world.execute("UPDATE reads SET hour = hour - interval '31 days' WHERE what = 'audio'")
    await period(world, RetentionKind.ACCESS_LOG)
    assert not await expire(world)
    assert await access_log.sweep(world.database) == 1
    assert [entry.what for entry in await access_log.list_reads(world.database, reader, call_id)] == ["record"]


async def test_whole_calls_are_erased(world: World, tmp_path: Path) -> None:
    path = await stored(world, tmp_path)
    await complete(world)
    received = world.call_id
    other = await finished(world)
    await age(world, 31, received)
    await period(world, RetentionKind.CALLS)
    assert await expire(world) == 1
    assert [row["call_id"] for row in await world.rows("SELECT call_id FROM calls")] == [other]
    assert len(await world.rows("SELECT * FROM erased_calls")) == 1
    await erasing.loop(world).delete_due()
    assert not path.exists()
    (entry,) = await entries(world)
    assert (entry.kind, entry.who) == ("call", "retention")


# --- Scope ---


async def test_a_teams_period_replaces_its_workspaces(world: World) -> None:
    elsewhere = await new_world(world.database)
    sales = [await old_call(world, days) for days in (11, 31)]
    support = [await old_call(world, days, sender=world.other_scoped) for days in (11, 31)]
    foreign = await old_call(elsewhere, 400)
    await period(world, RetentionKind.TRANSCRIPTS)
    await period(world, RetentionKind.TRANSCRIPTS, 10, world.other_team_id)
    assert await expire(world) == 3
    expired = await world.rows("SELECT call_id FROM calls WHERE content_expired = job_id")
    assert {row["call_id"] for row in expired} == {sales[1], *support}
    await period(world, RetentionKind.TRANSCRIPTS, retention.MAX_DAYS, world.team_id)
    more = await old_call(world, 500)
    assert await expire(world) == 0
    await period(world, RetentionKind.TRANSCRIPTS, None, world.team_id)
    assert await expire(world) == 1
    assert (await record(world, more)).content_expired
    assert not (await record(elsewhere, foreign)).content_expired


@pytest.mark.parametrize("kind", KINDS)
async def test_work_in_progress_is_left_alone(world: World, kind: RetentionKind, tmp_path: Path) -> None:
    await period(world, kind, 1)
    await stored(world, tmp_path)
    await age(world, 400, world.call_id)
    before = await erasing.every_row_of(world, (await world.row())["id"])
    assert await expire(world) == 0
    await world.claim_one()
    assert await expire(world) == 0
    assert (await erasing.every_row_of(world, (await world.row())["id"])).keys() == before.keys()
    analyzed = await old_call(world, 400)
    await world.execute(
        "INSERT INTO jobs (call_pk, kind, state) SELECT id, 'analyze', 'queued' FROM calls WHERE call_id = :call",
        call=analyzed,
    )
    in_run = await old_call(world, 400)
    await runs.create(world.database, world.workspace_id, "again", {}, [in_run])
    assert await expire(world) == 0
    assert (await record(world, in_run)).transcript is not None


async def test_small_batches_reach_every_call(world: World) -> None:
    due = [await old_call(world) for _ in range(7)]
    fresh = await finished(world)
    await period(world, RetentionKind.TRANSCRIPTS)
    assert await expire(world, batch=2, window=3) == 7
    for call_id in due:
        assert (await record(world, call_id)).transcript is None
    assert (await record(world, fresh)).transcript is not None
    assert len(await entries(world)) >= 4


async def test_two_conductors_delete_each_call_once(world: World) -> None:
    for _ in range(8):
        await old_call(world)
    for kind in (RetentionKind.TRANSCRIPTS, RetentionKind.SUBMISSIONS):
        await period(world, kind)
    results = await asyncio.gather(*(expire_some(world) for _ in range(4)))
    assert sum(results) == 16
    assert sum(len(entry.digests) for entry in await entries(world)) == 16


async def expire_some(world: World) -> int:
    calls = 0
    for _ in range(30):
        calls += await retention.expire(world.database, Voices(), 3, 1000, 0.0, 3600.0) or 0
    return calls


async def test_submissions_in_parallel_lose_nothing_and_are_not_held_up(world: World) -> None:
    await period(world, RetentionKind.TRANSCRIPTS)
    due = [await old_call(world) for _ in range(30)]
    end = asyncio.Event()
    accepted: list[UUID] = []

    async def submit() -> None:
        while not end.is_set():
            call_id = uuid4()
            for again in (False, True):  # the second phase of a new call, and a retry for one that expires
                async with asyncio.timeout(5):
                    await world.submit(call_id=call_id, recording_url="https://s.example/a" if again else None)
            accepted.append(call_id)
            same = {"recording_url": "https://s.example/a", "start_time": START}
            await world.submit(call_id=due[len(accepted) % len(due)], **same)

    senders = [asyncio.create_task(submit()) for _ in range(4)]
    expired = await expire(world, batch=3)
    end.set()
    await asyncio.gather(*senders)
    assert expired + await expire(world, batch=3) == len(due)  # a call that a submission has locked is left for later
    assert len(accepted) > 4
    rows = await world.rows("SELECT call_id, state FROM calls WHERE call_id = ANY (:calls)", calls=accepted)
    assert {row["call_id"] for row in rows} == set(accepted) and {row["state"] for row in rows} == {"transcribing"}
    (left,) = await world.rows("SELECT count(*) AS n FROM transcripts t JOIN calls c ON c.id = t.call_pk")
    assert left["n"] == 0


async def test_the_conductor_deletes_what_is_due(world: World) -> None:
    due = [await old_call(world) for _ in range(3)]
    fresh = await finished(world)
    await period(world, RetentionKind.TRANSCRIPTS)
    loop = RetentionLoop(world.database, tuned(ErasureOptions, batch_calls=1, pause_seconds=0.0), Voices())
    await loop.start()
    try:
        async with asyncio.timeout(30):
            while any([(await record(world, call_id)).transcript for call_id in due]):
                await asyncio.sleep(0.1)
    finally:
        await loop.stop()
    assert (await record(world, fresh)).transcript is not None


KILLED = """
import asyncio, sys
from db.core.database import Database
from db.records import ledger, retention
from pipeline.speakers.profile import Voices

async def block(*_, **__):
    print("deleted", flush=True)
    await asyncio.sleep(60)

async def main():
    ledger.append = block
    async with await Database.open(sys.argv[1]) as database:
        await retention.expire(database, Voices(), 50, 1000, 0.0, 3600.0)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", [*WORDS, RetentionKind.CALLS])
async def test_a_killed_batch_has_done_nothing_and_is_resumed(
    world: World, kind: RetentionKind, tmp_path: Path
) -> None:
    path = await stored(world, tmp_path)
    await complete(world)
    await age(world, 31, world.call_id)
    await period(world, kind)
    before = await erasing.every_row_of(world, (await world.row())["id"])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, world.database.url, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"deleted\n"
    process.kill()
    await process.wait()
    assert await erasing.every_row_of(world, (await world.row())["id"]) == before
    assert await entries(world) == [] and await file_deletions.waiting(world.database) == 0
    await world.execute("UPDATE retention_passes SET next_try = now()")  # the lease of an erasure ends
    async with asyncio.timeout(20):
        while not await entries(world):
            await retention.expire(world.database, Voices(), 50, 1000, 0.0, 3600.0)
    await erasing.loop(world).delete_due()
    assert path.exists() is (kind is RetentionKind.TRANSCRIPTS)


async def test_the_status_counts_what_is_due(world: World) -> None:
    await old_call(world, 31)
    held_call = await old_call(world, 40)
    await old_call(world, 20)
    await hold(world, HoldKind.CALL, held_call)
    await period(world, RetentionKind.TRANSCRIPTS)
    await period(world, RetentionKind.TRANSCRIPTS, 10, world.other_team_id)
    of_workspace, of_team = await retention.status(world.database, world.workspace_id)
    assert (of_workspace.team_id, of_workspace.days, of_workspace.due, of_workspace.on_hold) == (None, 30, 1, 1)
    assert of_workspace.oldest is not None and of_workspace.next_due is not None
    assert (of_workspace.next_due - of_workspace.oldest).days in (49, 50)
    assert (of_team.team_id, of_team.days, of_team.due, of_team.oldest) == (world.other_team_id, 10, 0, None)


# --- Holds ---


async def held_calls(world: World) -> dict[str, UUID]:
    """Create a call for each kind of hold, and one without."""
    contact = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+493098765")
    linked = await directory.add_contact(world.database, world.workspace_id, "Bob")
    calls = {
        "call": await old_call(world),
        "number": await old_call(world, from_number="+4930111111"),
        "contact": await old_call(world, from_number="+493098765"),
        "link": await old_call(world),
        "free": await old_call(world),
    }
    await world.execute(
        "INSERT INTO call_contacts SELECT id, :contact FROM calls WHERE call_id = :call",
        contact=UUID(linked.contact_id),
        call=calls["link"],
    )
    await hold(world, HoldKind.CALL, calls["call"])
    await hold(world, HoldKind.NUMBER, "030 111111")
    await hold(world, HoldKind.CONTACT, contact.contact_id)
    await hold(world, HoldKind.CONTACT, linked.contact_id)
    return calls


async def test_held_calls_stay(world: World) -> None:
    calls = await held_calls(world)
    pks = {name: (await world.row(call_id))["id"] for name, call_id in calls.items()}
    before = {name: await erasing.every_row_of(world, pk) for name, pk in pks.items()}
    for kind in KINDS:
        await period(world, kind, 1)
    await expire(world)
    assert await world.rows("SELECT * FROM calls WHERE call_id = :call", call=calls.pop("free")) == []
    for name, call_id in calls.items():
        assert await erasing.every_row_of(world, pks[name]) == before[name]
        with pytest.raises(CallHeld, match="Case 12"):
            await erased(world, call_id)
    later = await old_call(world, from_number="+4930111111")
    with pytest.raises(CallHeld):
        await erased(world, later)
    assert await expire(world) == 0
    for held in await legal_holds.list_holds(world.database, world.workspace_id):
        await legal_holds.release(world.database, world.workspace_id, held.hold_id)
    await expire(world)
    assert await world.rows("SELECT * FROM calls") == []


async def test_a_hold_waits_for_a_batch_that_deletes(world: World) -> None:
    call_id = await old_call(world)
    await period(world, RetentionKind.TRANSCRIPTS)
    await expire(world)
    async with world.database.transaction(erasing.EVERY_WORKSPACE) as connection:
        await connection.execute(erasing.sa.text("SELECT FROM retention_passes FOR UPDATE"))
        waiting = asyncio.create_task(hold(world, HoldKind.CALL, call_id))
        await asyncio.sleep(0.5)
        assert not waiting.done()
    assert (await waiting).set_by
    assert (await record(world, call_id)).legal_holds == ("Case 12",)


async def erase(world: World, kind: ErasureKind, target: UUID) -> Mapping[str, int]:
    """Erase a team or workspace; return what was erased and left."""
    database, home = world.database, world.workspace_id
    erasure = await erasures.create(database, home, Target(kind, target))
    lease = await erasures.claim(database, erasure.erasure_id)
    assert lease is not None
    await erasing_targets.work(database, lease, Voices())
    done = await erasures.find(database, Reader(home), erasure.erasure_id)
    return done.counts if done else {}


async def test_a_team_and_a_workspace_with_a_hold_stay(world: World) -> None:
    call_id = await finished(world)
    held = await hold(world, HoldKind.CALL, call_id)
    database, home = world.database, world.workspace_id
    assert (await erase(world, ErasureKind.TEAM, world.other_team_id))["teams"] == 1
    with pytest.raises(OnHold, match="Case 12"):
        await erase(world, ErasureKind.TEAM, world.team_id)
    with pytest.raises(OnHold, match="Case 12"):
        await erase(world, ErasureKind.WORKSPACE, home)
    assert await keys.list_keys(database, home) != [] and (await record(world, call_id)).transcript is not None
    await legal_holds.release(database, home, held.hold_id)
    await erase(world, ErasureKind.WORKSPACE, home)
    assert await world.rows("SELECT * FROM calls") == []


async def test_a_hold_that_is_set_during_an_erasure_keeps_its_call_and_the_team(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id, other = await finished(world), await finished(world)
    erase_calls = erasing_targets._erase_calls

    async def hold_first(*arguments: Any) -> None:
        await hold(world, HoldKind.CALL, call_id)
        await erase_calls(*arguments)

    monkeypatch.setattr(erasing_targets, "_erase_calls", hold_first)
    counts = await erase(world, ErasureKind.TEAM, world.team_id)
    assert (counts["calls"], counts["held"], counts.get("teams")) == (1, 1, None)
    assert [row["call_id"] for row in await world.rows("SELECT call_id FROM calls")] == [call_id] != [other]


async def test_a_contact_on_hold_stays(world: World) -> None:
    contact = await directory.add_contact(world.database, world.workspace_id, "Eve", phone="+493098765")
    held = await hold(world, HoldKind.CONTACT, contact.contact_id)
    with pytest.raises(OnHold, match="Case 12"):
        await directory.remove_contact(world.database, world.workspace_id, UUID(contact.contact_id))
    await legal_holds.release(world.database, world.workspace_id, held.hold_id)
    await directory.remove_contact(world.database, world.workspace_id, UUID(contact.contact_id))


async def test_the_sweeps_leave_held_calls_alone(world: World) -> None:
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed")
    call_ids = [await finished(world) for _ in range(2)]
    await access_log.note(world.database, Reader(world.workspace_id), uuid4(), call_ids, "record")
    await world.execute("UPDATE webhook_deliveries SET state = 'delivered'")
    await world.execute("UPDATE events SET at = at - interval '400 days'")
    await world.execute(
        "UPDATE reads SET hour = hour - CASE call_id WHEN :call THEN interval '400 days' ELSE interval '401 days' END",
        call=call_ids[0],
    )
    await hold(world, HoldKind.CALL, call_ids[0])
    await upkeep.sweep(world.database, 86_400.0)
    await access_log.sweep(world.database)
    assert {row["call_id"] for row in await world.rows("SELECT call_id FROM reads")} == {call_ids[0]}
    left = "SELECT DISTINCT call_id FROM events JOIN calls ON calls.id = call_pk"
    assert [row["call_id"] for row in await world.rows(left)] == [call_ids[0]]


@pytest.mark.parametrize(
    ("kind", "subject", "reason", "problem"),
    [
        (HoldKind.CALL, "00000000-0000-4000-8000-000000000001", "x", "no such call"),
        (HoldKind.CALL, "seven", "x", "not a UUID"),
        (HoldKind.CONTACT, "00000000-0000-4000-8000-000000000001", "x", "no such contact"),
        (HoldKind.NUMBER, " ", "x", "number is empty"),
        (HoldKind.NUMBER, "+4930111111", " ", "reason is empty"),
    ],
)
async def test_holds_on_nothing_are_refused(
    world: World, kind: HoldKind, subject: str, reason: str, problem: str
) -> None:
    with pytest.raises(legal_holds.HoldRefused, match=problem):
        await hold(world, kind, subject, reason)
    assert await legal_holds.list_holds(world.database, world.workspace_id) == []


# --- Surfaces ---


async def test_the_api_sets_periods_and_holds(api: Api) -> None:
    world = api.world
    call_id = await old_call(world)
    secrets = {}
    for name, team, scopes in (("admin", None, ["admin", "read"]), ("team", world.team_id, ["admin"])):
        _, secrets[name] = await keys.create(world.database, world.workspace_id, team, scopes, name)

    def send(method: str, path: str, key: str = "admin", **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {secrets[key]}"}
        return api.client.request(method, api.base + path, json=body or None, headers=headers)

    for path in ("/retention", "/holds"):
        assert send("GET", path, "team").status_code == api.get(path).status_code == 403
    answer = send("POST", "/retention", kind="transcripts", days=30)
    periods = [{"kind": "transcripts", "teamId": None, "days": 30}]
    assert answer.json()["items"] == periods == send("GET", "/retention").json()["items"]
    for kind, days in (("calls", 0), ("calls", 36_501), ("x", 1)):
        assert send("POST", "/retention", kind=kind, days=days).status_code == 400
    assert send("POST", "/retention", kind="calls").status_code == 400
    foreign = send("POST", "/retention", kind="calls", days=3, teamId=str(uuid4()))
    assert foreign.json()["errors"][0]["pointer"] == "/teamId"
    hold_of_call = {"kind": "call", "subject": str(call_id), "reason": " Case  12 "}
    created = send("POST", "/holds", **hold_of_call)
    assert created.status_code == 201
    held = created.json()
    assert (held["reason"], held["setBy"], held["releasedAt"]) == ("Case 12", "admin", None)
    assert send("POST", "/holds", **hold_of_call).json() == held
    refused = send("DELETE", f"/calls/{call_id}")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:switchboard:problem:on-legal-hold")
    assert "Case 12" in refused.json()["detail"]
    assert send("GET", f"/calls/{call_id}").json()["legalHolds"] == ["Case 12"]
    assert send("DELETE", f"/holds/{uuid4()}").status_code == 404
    released = send("DELETE", f"/holds/{held['holdId']}").json()
    assert released["releasedBy"] == "admin" and send("DELETE", f"/holds/{held['holdId']}").json() == released
    assert send("GET", "/holds").json()["items"] == [released]
    query = "SELECT who, action, kind FROM admin_changes WHERE kind IN ('retention', 'hold') ORDER BY id"
    assert [tuple(row.values()) for row in await world.rows(query)] == [
        ("admin", "changed", "retention"),
        ("admin", "created", "hold"),
        ("admin", "released", "hold"),
    ]
    assert send("DELETE", f"/calls/{call_id}").status_code == 204
    assert send("POST", "/retention", kind="transcripts", days=None).json()["items"] == []


async def test_the_api_says_what_expired(api: Api, tmp_path: Path) -> None:
    world = api.world
    await stored(world, tmp_path)
    await complete(world)
    call_id = world.call_id
    await age(world, 31, call_id)
    await period(world, RetentionKind.RECORDINGS)
    await expire(world)
    answer = api.get(f"/calls/{call_id}/audio")
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:switchboard:problem:expired")
    assert api.get(f"/calls/{call_id}/transcript.txt").status_code == 200
    assert api.get(f"/calls/{call_id}").json()["recordingsExpired"] is True
    await period(world, RetentionKind.TRANSCRIPTS)
    await expire(world)
    for form in ("json", "txt", "srt", "vtt"):
        assert api.get(f"/calls/{call_id}/transcript.{form}").status_code == 410
    shown = api.get(f"/calls/{call_id}").json()
    assert shown["contentExpired"] is True and shown["transcript"] is None
    assert (shown["call"]["status"], shown["submissions"]) == ("completed", 1)
    assert api.ids() == [str(call_id)]
    assert api.ids(number="+49 30 1234567") == [str(call_id)]
    assert api.ids(name="4930123") == [str(call_id)]
    assert api.ids(text="Good morning") == []


async def test_the_console_says_what_expired_and_what_is_on_hold(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    await stored(world, tmp_path)
    await complete(world)
    call_id = world.call_id
    await age(world, 31, call_id)
    await hold(world, HoldKind.NUMBER, "+49301234567", "<b>Case</b> 12")
    async with browser(postgres_url, tmp_path) as site:
        await signed_in(site, world, scopes=("read", "admin"))
        page = (await site.get(f"/calls/{call_id}")).text
        assert "On legal hold: &lt;b&gt;Case&lt;/b&gt; 12" in page and 'id="player"' in page
        refused = await site.post(f"/calls/{call_id}/delete", data={"x": "1"})
        assert refused.status_code == 409 and "On legal hold" in refused.text
        (held,) = await legal_holds.list_holds(world.database, world.workspace_id)
        await legal_holds.release(world.database, world.workspace_id, held.hold_id)
        for kind, text in (
            (RetentionKind.RECORDINGS, "The recording was deleted after its retention period."),
            (RetentionKind.TRANSCRIPTS, "Transcript and analysis were deleted after their retention period."),
        ):
            await period(world, kind)
            await expire(world)
            page = (await site.get(f"/calls/{call_id}")).text
            assert text in page and 'id="player"' not in page and "On legal hold" not in page


async def test_the_commands(world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", postgres_url)
    call_id = await old_call(world)

    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments))

    assert "stored without limit" in (await run("retention", "list")).stderr
    assert (await run("retention", "set", "transcripts", "30")).exit_code == 0
    assert (await run("retention", "set", "transcripts", "400", "--team", "Support")).exit_code == 0
    for days in ("0", "-1", "36501", "x"):
        assert (await run("retention", "set", "transcripts", "--", days)).exit_code == 2
    listed = json.loads((await run("retention", "list", "--json")).stdout)
    assert [item["days"] for item in listed] == [30, 400]
    due, _ = json.loads((await run("retention", "status", "--json")).stdout)
    assert due["due"] == 1 and "Without a period" in (await run("retention", "status")).stderr
    assert (await run("holds", "create", "--reason", "x")).exit_code == 2
    held = json.loads((await run("holds", "create", "--call", str(call_id), "--reason", "Case 12", "--json")).stdout)
    refused = await run("erase", "--call", str(call_id), "--yes")
    assert refused.exit_code == 1 and "Case 12" in refused.stderr and "holds release" in refused.stderr
    for group, name in (("teams", "Sales"), ("workspaces", "Acme")):
        refused = await run(group, "delete", name, "--yes")
        assert refused.exit_code == 1 and "Case 12" in refused.stderr, refused.output
    assert "Case 12" in (await run("holds", "list")).stdout
    assert (await run("holds", "release", str(uuid4()))).exit_code == 1
    assert (await run("holds", "release", held["holdId"])).exit_code == 0
    assert (await run("erase", "--call", str(call_id), "--yes")).exit_code == 0
    assert (await run("retention", "set", "transcripts", "none")).exit_code == 0
    assert [item["days"] for item in json.loads((await run("retention", "list", "--json")).stdout)] == [400]
