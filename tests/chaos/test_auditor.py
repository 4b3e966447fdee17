"""The auditor accepts a consistent store and finds each planted fault."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio

from db.intake.group_commit import GroupCommitter
from db.queue import jobs
from db.queue import stage_results as results
from db.records.complete import complete as complete_call
from db.secrets.recording_urls import UrlSealer, readable
from pipeline.domain.speech import Layout, LayoutKind, Recording, Transcript
from pipeline.domain.stage import Stage
from pipeline.errors import RecordingGone
from serve_app.intake.schemas import parse_body
from tests.chaos.auditor import Fault, Truth, audit
from tests.chaos.ledger import Attempt
from tests.chaos.stand import SECRETS_KEY
from tests.postgres import World

pytestmark = pytest.mark.slow  # these tests check the tool of `make chaos`, not the service
BASE = "http://127.0.0.1:1/recordings/"
URLS = UrlSealer([SECRETS_KEY])
SOUND = b"sound"
DIGEST = hashlib.sha256(SOUND).hexdigest()
TRANSCRIPT = Transcript("en", 1.0, 1.0, (), (), Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"), "test")
STEREO_CALL, GONE_CALL, OPEN_CALL = (UUID(int=number, version=4) for number in (1, 2, 3))


@dataclass
class ConsistentStore:
    """A workspace without faults, and the data of its sender and its recording server."""

    world: World
    folder: Path
    ledger: list[Attempt] = field(default_factory=list)
    truth: dict[str, dict[str, Any]] = field(default_factory=dict)

    def recording(self, behaviour: str = "good") -> str:
        url = f"{BASE}{len(self.truth)}.wav"
        self.truth[url] = {"behaviour": behaviour, "sha256": DIGEST, "answers": {}}
        return url

    async def submit(self, call_id: UUID, **fields: Any) -> Attempt:
        number = len(self.ledger) + 1
        body = {
            "callId": str(call_id),
            "from": f"+1202555{number:04d}",
            "to": "+12025550102",
            "startTime": f"2026-03-02T10:00:00.{number:06d}Z",
            "teamId": f"chaos {number} 1",
            **fields,
        }
        parsed = parse_body(json.dumps(body).encode(), self.world.scoped)
        grouping = GroupCommitter(self.world.database, urls=URLS)
        answer = await grouping.submit(self.world.scoped, parsed.submission, parsed.sent)
        job = None if answer.job_id is None else str(answer.job_id)
        self.ledger.append(Attempt(number, 1, "Acme", body, number, number, 202, job))
        return self.ledger[-1]

    async def work(self) -> None:
        """Process every due job to its end."""
        for lease in await self.world.claim(50):
            if self.truth[readable(URLS.open(str(lease.call.recording_url)))]["behaviour"] == "gone":
                await jobs.fail(self.world.database, lease, RecordingGone())
                continue
            if lease.job.kind == "process":
                file = self.folder / f"{lease.job.job_id}.wav"
                file.write_bytes(SOUND)
                fetched = (Recording(0, file.as_uri(), DIGEST, len(SOUND)),)
                await results.record(self.world.database, lease, Stage.FETCH, fetched)
            await complete_call(self.world.database, lease, TRANSCRIPT, (), None)

    def audit(self) -> list[Fault]:
        return audit(self.world.database.url, self.ledger, Truth(self.truth), URLS)

    def break_it(self, *statements: str) -> None:
        """Past every constraint and trigger, as a fault in the code above them would."""
        with psycopg.connect(self.world.database.url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute("SELECT set_config('switchboard.workspace', '*', false)")
            for statement in statements:
                connection.execute(statement)


@pytest_asyncio.fixture
async def store(world: World, tmp_path: Path) -> ConsistentStore:
    store = ConsistentStore(world, tmp_path)
    first, second, missing = store.recording(), store.recording(), store.recording("gone")
    await store.submit(STEREO_CALL, outgoing=True)
    await store.submit(STEREO_CALL, recordingUrl=first, duration=5)
    await store.submit(STEREO_CALL, recordingUrl=f"{first}?token=2")
    await store.submit(STEREO_CALL, recordingUrl=f"{second}?token=3")
    await store.submit(GONE_CALL, recordingUrl=missing)
    await store.submit(OPEN_CALL)
    await store.work()
    await store.submit(GONE_CALL, recordingUrl=missing)  # a failed one sent again is a new job
    await store.submit(STEREO_CALL, userId=str(uuid4()))
    await store.work()
    return store


async def test_a_consistent_store_has_no_faults(store: ConsistentStore) -> None:
    assert store.audit() == []


async def test_an_unanswered_submission_may_be_stored_or_not(store: ConsistentStore) -> None:
    """Cover a missing response, and a 503 after a commit whose connection broke."""
    unknown = [replace(store.ledger[0], status=None, job_id=None), *store.ledger[1:]]
    assert audit(store.world.database.url, unknown, Truth(store.truth), URLS) == []
    never = replace(store.ledger[0], body=store.ledger[0].body | {"teamId": "chaos 99 1"}, status=503, job_id=None)
    assert audit(store.world.database.url, [*store.ledger, never], Truth(store.truth), URLS) == []


CALL = f"(SELECT id FROM calls WHERE call_id = '{STEREO_CALL}')"
GONE = f"(SELECT id FROM calls WHERE call_id = '{GONE_CALL}')"
A_PROCESS_JOB = (
    "INSERT INTO jobs (call_pk, kind, state, team_id) SELECT {}, 'process', '{}', (SELECT id FROM teams LIMIT 1)"
)
PLANTED = {
    "a call's URL with its secret": (
        "wrong",
        f"UPDATE calls SET recording_url = split_part(recording_url, ' ', 1) || '?token=3' WHERE id = {CALL}",
    ),
    "a URL with its secret in a body": (
        "wrong",
        "UPDATE submissions SET body = jsonb_set(body, '{recordingUrl}',"
        " to_jsonb(split_part(body ->> 'recordingUrl', ' ', 1) || '?token=3'))"
        " WHERE body ->> 'recordingUrl' LIKE '%/1.wav siv:%'",
    ),
    "a URL that no key opens": (
        "wrong",
        f"UPDATE calls SET recording_url = replace(recording_url, 'siv:', 'siv:00') WHERE id = {CALL}",
    ),
    "a submission lost": ("lost", "DELETE FROM submissions WHERE body ->> 'teamId' = 'chaos 2 1'"),
    "a call lost": ("lost", f"DELETE FROM submissions WHERE call_pk = {GONE}", f"DELETE FROM calls WHERE id = {GONE}"),
    "a job lost": ("lost", f"DELETE FROM jobs WHERE call_pk = {CALL} AND state = 'superseded'"),
    "a transcript lost": ("lost", "DELETE FROM transcripts"),
    "a transcript of an older job": (
        "lost",
        "UPDATE transcripts SET job_id = (SELECT id FROM jobs WHERE state = 'superseded')",
    ),
    "a record twice": (
        "doubled",
        "ALTER TABLE calls DROP CONSTRAINT calls_call_id_key",
        f"""INSERT INTO calls (workspace_id, call_id, team_id, from_number, to_number, start_time, state)
            SELECT workspace_id, call_id, team_id, from_number, to_number, start_time, state
            FROM calls WHERE id = {CALL}""",
    ),
    "a job without a request": ("doubled", A_PROCESS_JOB.format(CALL, "done")),
    "two live jobs": (
        "doubled",
        "DROP INDEX jobs_one_live_idx",
        *(A_PROCESS_JOB.format(CALL, "queued") for _ in range(2)),
    ),
    "two jobs for one recording": (
        "doubled",
        "UPDATE submissions SET job_id = (SELECT job_id FROM submissions WHERE body ->> 'teamId' = 'chaos 4 1')"
        " WHERE body ->> 'teamId' = 'chaos 3 1'",
    ),
    "a result without a job": (
        "orphan",
        "INSERT INTO stage_results (call_pk, content_key, stage, job_id, result)"
        " VALUES (999, 'x', 'asr', gen_random_uuid(), '{}')",
    ),
    "a recording of another call's job": ("orphan", f"UPDATE recordings SET call_pk = {GONE}"),
    "a task without its finding": (
        "orphan",
        "INSERT INTO tasks (call_pk, position, title, owner, kind, confidence, evidence)"
        f" VALUES ({CALL}, 0, 'x', 'rep', 'x', 1, '[]')",
    ),
    "a submission without a sender": (
        "orphan",
        f"INSERT INTO submissions (call_pk, key_id, body) SELECT {CALL}, gen_random_uuid(),"
        " body || '{\"teamId\": \"chaos 77 1\"}' FROM submissions WHERE body ->> 'teamId' = 'chaos 8 1'",
    ),
    "a field of an earlier submission": ("wrong", f"UPDATE calls SET from_number = '+12025550001' WHERE id = {CALL}"),
    "a submission changed": (
        "wrong",
        "UPDATE submissions SET body = body || '{\"duration\": 6}' WHERE body ->> 'teamId' = 'chaos 2 1'",
    ),
    "a reason that is not true": ("wrong", "UPDATE calls SET failure_code = 'not_audio' WHERE state = 'failed'"),
    "a failure without cause": (
        "wrong",
        f"UPDATE calls SET state = 'failed', failure_code = 'worker_lost' WHERE id = {CALL}",
        f"UPDATE jobs SET state = 'failed' WHERE call_pk = {CALL} AND state = 'done'",
    ),
    "a call that never ends": ("unfinished", f"UPDATE calls SET state = 'transcribing' WHERE id = {CALL}"),
    "a job that is never done": (
        "unfinished",
        f"UPDATE jobs SET state = 'running' WHERE call_pk = {CALL} AND state = 'done' AND kind = 'process'",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
async def test_a_planted_fault_is_found(store: ConsistentStore, what: str) -> None:
    kind, *statements = PLANTED[what]
    store.break_it(*statements)
    faults = store.audit()
    assert kind in {fault.kind for fault in faults}, faults


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("kind", "damage"), [("lost", Path.unlink), ("wrong", lambda path: path.write_bytes(b"other"))]
)
async def test_a_stored_recording_that_is_gone_or_damaged_is_found(
    store: ConsistentStore, kind: str, damage: Damage
) -> None:
    for path in store.folder.glob("*.wav"):
        damage(path)
    assert {fault.kind for fault in store.audit()} == {kind}


async def test_a_call_that_completed_without_a_usable_recording_is_found(store: ConsistentStore) -> None:
    for recorded in store.truth.values():
        recorded["behaviour"] = "page"
    assert any("completed" in fault.what for fault in store.audit())
