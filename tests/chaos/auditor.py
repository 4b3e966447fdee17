"""Reads the database after a storm and says what does not agree with what senders know. Empty: every promise was kept.

Written apart from the code it judges, save what opens sealed URLs: plain SQL, and the rules of the contract
(serve_app/README.md) written down once more in `history.py`. It knows three things: the ledger of the senders, what the
recording server held, and the database.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.rows import dict_row

from db.secrets.encryption import SecretSealed
from db.secrets.recording_urls import BODY_FIELDS, UrlSealer, shown
from tests.chaos import history
from tests.chaos.ledger import ACCEPTED, Attempt
from tests.chaos.recordings import OUTCOMES

Row = dict[str, Any]
CallKey = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One broken promise. `kind`: lost, doubled, orphan, wrong or unfinished."""

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Truth:
    """What the recording server held, by URL without signature: behaviour, sha256, counts of answers."""

    recordings: dict[str, Row]

    @classmethod
    def read(cls, path: Path) -> "Truth":
        return cls(json.loads(path.read_text()))

    def of(self, url: str) -> Row:
        return self.recordings[url.split("?", maxsplit=1)[0]]


@dataclass
class Stored:
    """The database as one snapshot; everything of a call by the call's key."""

    calls: list[Row]
    submissions: dict[int, list[Row]]
    jobs: dict[int, list[Row]]
    transcripts: dict[int, list[Row]]
    recordings: dict[int, list[Row]]
    workspaces: dict[str, str]  # id -> name

    def key(self, call: Row) -> CallKey:
        return self.workspaces[str(call["workspace_id"])], str(call["call_id"])


def audit(url: str, attempts: Sequence[Attempt], truth: Truth, urls: UrlSealer | None = None) -> list[Fault]:
    """Yield every fault. `urls` opens sealed values."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute("SELECT set_config('switchboard.workspace', '*', true)")
        stored = _read(connection)
        faults = [*_opened(stored, urls or UrlSealer()), *_promises(stored, attempts), *_orphans(connection)]
    for call in stored.calls:
        name = "/".join(stored.key(call))
        for fault in _call(stored, call, truth):
            faults.append(Fault(fault.kind, f"call {name}: {fault.what}"))
    return sorted(set(faults))


def _read(connection: psycopg.Connection[Row]) -> Stored:
    def by_call(query: str) -> dict[int, list[Row]]:
        rows: dict[int, list[Row]] = defaultdict(list)
        for row in connection.execute(query).fetchall():
            rows[row["call_pk"]].append(row)
        return rows

    return Stored(
        connection.execute("SELECT * FROM calls ORDER BY id").fetchall(),
        by_call("SELECT * FROM submissions ORDER BY call_pk, id"),
        by_call("SELECT * FROM jobs ORDER BY call_pk, created_at"),
        by_call("SELECT call_pk, job_id, content FROM transcripts"),
        by_call("SELECT * FROM recordings ORDER BY call_pk, job_id, channel"),
        {str(row["id"]): row["name"] for row in connection.execute("SELECT id, name FROM workspaces").fetchall()},
    )


def _opened(stored: Stored, urls: UrlSealer) -> Iterator[Fault]:
    """Open all URLs in place, and yield those that are not sealed properly."""
    rows = [(call, ("recording_url", "recording_url2")) for call in stored.calls]
    rows += [(submission["body"], BODY_FIELDS) for several in stored.submissions.values() for submission in several]
    for row, names in rows:
        for name in names:
            if (value := row.get(name)) is None:
                continue
            try:
                row[name] = urls.open(value)
            except SecretSealed as error:
                yield Fault("wrong", f"{name} {shown(value)} cannot be opened: {error.message}")
                continue
            if urls.seal(row[name]) != value:
                yield Fault("wrong", f"{name} {shown(value)} is not stored sealed")


# What was promised to senders


def _promises(stored: Stored, attempts: Sequence[Attempt]) -> Iterator[Fault]:
    stored_attempts: dict[str, Row] = {}
    for call in stored.calls:
        for attempt in stored.submissions[call["id"]]:
            stored_attempts[str(attempt["body"].get("teamId"))] = attempt | {"key": stored.key(call)}
    markers = {attempt.marker for attempt in attempts}
    answered = [attempt for attempt in attempts if attempt.status == ACCEPTED]
    for attempt in answered:
        row = stored_attempts.get(attempt.marker)
        if row is None:
            yield Fault(
                "lost", f"submission {attempt.marker!r} of {'/'.join(attempt.call)} was answered 202 and is not stored"
            )
        elif row["key"] != attempt.call or row["body"] != attempt.body:
            yield Fault("wrong", f"submission {attempt.marker!r} is not stored as it was sent")
        elif (None if row["job_id"] is None else str(row["job_id"])) != attempt.job_id:
            yield Fault(
                "wrong", f"submission {attempt.marker!r} was answered with job {attempt.job_id}, stored {row['job_id']}"
            )
    records = [stored.key(call) for call in stored.calls]
    for key in sorted({attempt.call for attempt in answered} - set(records)):
        yield Fault("lost", f"call {'/'.join(key)} has no record")
    for key in sorted({key for key in records if records.count(key) > 1}) if len(set(records)) < len(records) else ():
        yield Fault("doubled", f"call {'/'.join(key)} has more than one record")
    for marker in sorted(set(stored_attempts) - markers):
        yield Fault("orphan", f"submission {marker!r} is stored but was not sent")
    for call in stored.calls:
        if not stored.submissions[call["id"]]:
            yield Fault("orphan", f"call {'/'.join(stored.key(call))} is stored and no submission made it")


# One call


def _call(stored: Stored, call: Row, truth: Truth) -> Iterator[Fault]:
    submissions, jobs = stored.submissions[call["id"]], stored.jobs[call["id"]]
    if not submissions:
        return
    yield from _fields(call, submissions)
    yield from _jobs(call, submissions, jobs)
    yield from _end(stored, call, submissions, jobs, truth)


def _fields(call: Row, submissions: Sequence[Row]) -> Iterator[Fault]:
    """Check that each field has its latest value, in the commit order of the submissions."""
    for name, value in history.merged([submission["body"] for submission in submissions]).items():
        if call[name] != value:
            yield Fault("wrong", f"{name} is {call[name]!r}, the latest value sent is {value!r}")


def _jobs(call: Row, submissions: Sequence[Row], jobs: Sequence[Row]) -> Iterator[Fault]:
    process = {job["id"]: job for job in jobs if job["kind"] == "process"}
    for kind in ("process", "analyze"):
        live = [job for job in jobs if job["kind"] == kind and job["state"] in ("fetching", "queued", "running")]
        if len(live) > 1:
            yield Fault("doubled", f"{len(live)} live {kind} jobs")
        elif live:
            yield Fault("unfinished", f"{kind} job {live[0]['id']} is still {live[0]['state']}")
    asked: list[Any] = []
    for step in history.recordings(
        [submission["body"] for submission in submissions], [submission["job_id"] for submission in submissions]
    ):
        if step.job_id not in process:
            yield Fault("lost", f"job {step.job_id} was promised and does not exist")
        elif step.again and step.job_id != asked[-1] and process.get(asked[-1], {}).get("state") != "failed":
            yield Fault("doubled", f"the same recording started job {step.job_id} after {asked[-1]}")
        elif not step.again and step.job_id in asked:
            yield Fault("lost", f"another recording was answered with the old job {step.job_id}")
        asked.append(step.job_id)
    for job_id in set(process) - set(asked):
        yield Fault("doubled", f"process job {job_id} was not promised")
    if asked and call["job_id"] != asked[-1]:
        yield Fault("wrong", f"the record is of job {call['job_id']}, the latest is {asked[-1]}")
    for job_id in set(process) - set(asked[-1:]):
        if process[job_id]["state"] not in ("done", "failed", "superseded"):
            yield Fault("unfinished", f"job {job_id}, which was superseded, is {process[job_id]['state']}")


def _end(stored: Stored, call: Row, submissions: Sequence[Row], jobs: Sequence[Row], truth: Truth) -> Iterator[Fault]:
    urls = history.latest_urls([submission["body"] for submission in submissions])
    if not urls:
        if call["state"] != "received":
            yield Fault("wrong", f"no recording was sent and the call is {call['state']}")
        return
    last = next((job for job in jobs if job["id"] == call["job_id"]), None)
    if call["state"] not in ("completed", "failed"):
        yield Fault("unfinished", f"the call is {call['state']}")
        return
    if last is not None and last["state"] != {"completed": "done", "failed": "failed"}[call["state"]]:
        yield Fault("wrong", f"the call is {call['state']} and its job {last['state']}")
    expected = history.outcome([OUTCOMES[truth.of(url)["behaviour"]] for url in urls])
    if call["state"] == "failed":
        if call["failure_code"] not in expected.codes:
            reason = f"{call['failure_code']}: {call['failure_message']}"
            yield Fault("wrong", f"it failed ({reason}); its recordings: {_told(urls, truth)}")
        return
    if not expected.completes:
        yield Fault("wrong", f"it completed; its recordings: {_told(urls, truth)}")
    yield from _record(stored, call, urls, truth)


def _told(urls: Iterable[str], truth: Truth) -> str:
    return ", ".join(f"{truth.of(url)['behaviour']} {truth.of(url)['answers']}" for url in urls)


def _record(stored: Stored, call: Row, urls: Sequence[str], truth: Truth) -> Iterator[Fault]:
    """Check that a completed call has one transcript of its latest job, and complete recordings."""
    transcripts = stored.transcripts[call["id"]]
    of_job = [transcript for transcript in transcripts if transcript["job_id"] == call["job_id"]]
    if not of_job:
        yield Fault("lost", "it is completed and has no transcript of its latest job")
    if len(transcripts) > 1:
        yield Fault("doubled", f"{len(transcripts)} transcripts")
    recordings = [recording for recording in stored.recordings[call["id"]] if recording["job_id"] == call["job_id"]]
    whole = {truth.of(url)["sha256"] for url in urls if OUTCOMES[truth.of(url)["behaviour"]] is None}
    if {recording["sha256"] for recording in recordings} != whole:
        yield Fault("wrong", f"{len(recordings)} recordings are kept, and not those that were handed out whole")
    if len(whole) < len(urls) and not call["warnings"]:
        yield Fault("wrong", "one of its two recordings could not be fetched and no warning says so")
    for recording in recordings:
        yield from _file(recording)


def _file(recording: Row) -> Iterator[Fault]:
    """Check that every recording of a job is stored as fetched. Local folders only."""
    path = Path(unquote(urlsplit(recording["uri"]).path))
    if not path.is_file():
        yield Fault("lost", f"the stored recording {path.name} does not exist")
    elif hashlib.sha256(path.read_bytes()).hexdigest() != recording["sha256"]:
        yield Fault("wrong", f"the stored recording {path.name} is not what was fetched")


# Rows without owner

_OF_CALLS = ("submissions", "jobs", "recordings", "stage_results", "transcripts", "findings", "tasks", "call_contacts")
_ORPHANS = {
    **{
        f"a row of {table} whose call does not exist": f"""
            SELECT count(*) AS n FROM {table} WHERE NOT EXISTS (SELECT FROM calls WHERE calls.id = {table}.call_pk)"""
        for table in _OF_CALLS
    },
    **{
        f"a row of {table} whose job is none of its call": f"""
            SELECT count(*) AS n FROM {table} WHERE NOT EXISTS (
                SELECT FROM jobs WHERE jobs.id = {table}.job_id AND jobs.call_pk = {table}.call_pk)"""
        for table in ("recordings", "stage_results", "transcripts")
    },
    "a call whose job belongs to another call": """
        SELECT count(*) AS n FROM calls WHERE job_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM jobs WHERE jobs.id = calls.job_id AND jobs.call_pk = calls.id AND jobs.kind = 'process')""",
    "a finding of a call without a transcript": """
        SELECT count(*) AS n FROM findings WHERE NOT EXISTS (
            SELECT FROM transcripts WHERE transcripts.call_pk = findings.call_pk)""",
    "a task that no finding holds": """
        SELECT count(*) AS n FROM tasks WHERE NOT EXISTS (
            SELECT FROM findings WHERE findings.call_pk = tasks.call_pk AND findings.step = 'tasks')""",
    "a stage's result without the recording it was made from": """
        SELECT count(*) AS n FROM stage_results WHERE NOT EXISTS (
            SELECT FROM recordings WHERE recordings.call_pk = stage_results.call_pk)""",
    "an analysis of a call that was never completed": """
        SELECT count(*) AS n FROM jobs WHERE kind = 'analyze' AND NOT EXISTS (
            SELECT FROM jobs AS first WHERE first.call_pk = jobs.call_pk AND first.kind = 'process'
            AND first.state IN ('done', 'superseded', 'failed'))""",
}


def _orphans(connection: psycopg.Connection[Row]) -> Iterator[Fault]:
    for what, query in _ORPHANS.items():
        row = connection.execute(query).fetchone()
        assert row is not None
        if row["n"]:
            yield Fault("orphan", f"{what}: {row['n']}")
