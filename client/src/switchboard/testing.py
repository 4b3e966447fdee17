"""A service in memory for tests of programs that use the client: no network, no database, no waiting.

    service = FakeService()
    client = service.client()
    reply = client.submit(from_number="+4930123456", to_number="+4940987654", start_time=now, recording_url=url)
    service.complete(reply.call_id, [("rep", "How can I help?"), ("customer", "I want my money back.")])
    assert client.wait(reply.call_id).tasks == []

It answers submissions, uploads, lists, records, transcripts, tasks, deletions and the stream of changes as the service
does. Any other request, and a filter that it does not know, raises NotImplementedError.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx
from pydantic.alias_generators import to_snake

from switchboard._async.client import AsyncClient
from switchboard._changes import EVENTS, CallChange
from switchboard._model import Model
from switchboard._operations import OPERATIONS
from switchboard._pages import Page
from switchboard._sync.client import Client
from switchboard.errors import KINDS
from switchboard.models import (
    CallBatch,
    CallLine,
    CallListPage,
    CallRecord,
    CallSummary,
    CallTask,
    Evidence,
    Failure,
    Layout,
    RecordingUpload,
    RetriedCall,
    Speaker,
    SubmitReply,
    TaskLine,
    TaskMark,
    Transcript,
    Turn,
    UploadedRecording,
    Word,
)
from switchboard.words import text_of

URL = "https://switchboard.test"
KEY = "sb_test"
WORD_SECONDS = 0.4  # of each word of a transcript
UPLOAD_LIFE = datetime.max.replace(tzinfo=UTC)
_REQUIRED = ("from", "to", "startTime")


@dataclass(frozen=True, slots=True)
class _Problem(Exception):
    """An error of the service, see `switchboard.errors`."""

    status: int
    kind: str
    detail: str
    retry_after: int | None = None

    def response(self) -> httpx.Response:
        body = {"type": f"urn:switchboard:problem:{self.kind}", "status": self.status, "detail": self.detail}
        headers = {"content-type": "application/problem+json", "x-request-id": uuid4().hex}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return httpx.Response(self.status, headers=headers, content=json.dumps(body))


@dataclass(slots=True)
class _Upload:
    call_id: UUID
    length: int
    content: bytearray = field(default_factory=bytearray)


class FakeService:
    """A service in memory. `client` and `async_client` return clients of it.

    `requests`: what was sent, the earliest first. `records`: the calls by their id. `recordings`: uploaded bytes by
    call. `on_submit`: called with the record of each submission that has a recording, for example to complete it.
    `team_id`: the team of the key.
    """

    def __init__(self, on_submit: Callable[[CallRecord], object] | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.records: dict[UUID, CallRecord] = {}
        self.recordings: dict[UUID, bytes] = {}
        self.on_submit = on_submit
        self.team_id, self.workspace_id = uuid4(), uuid4()
        self._uploads: dict[str, _Upload] = {}
        self._deleted: set[UUID] = set()
        self._refusals: list[_Problem] = []
        self._changes: list[CallChange] = []

    def client(self, *, timeout: float = 5.0) -> Client:
        """Return a client of this service."""
        return Client(URL, KEY, timeout=timeout, http=httpx.Client(transport=httpx.MockTransport(self._answer)))

    def async_client(self, *, timeout: float = 5.0) -> AsyncClient:
        """Return an asynchronous client of this service."""
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return AsyncClient(URL, KEY, timeout=timeout, http=http)

    def complete(
        self,
        call_id: UUID | str,
        turns: Iterable[tuple[str, str]],
        *,
        tasks: Iterable[str | CallTask] = (),
        language: str = "en",
        **changes: Any,
    ) -> CallRecord:
        """Complete a call with the words of its turns, each a speaker ("rep", "customer") and a text.

        `tasks`: titles, of tasks of the rep, or whole ones. `changes`: other fields of `CallRecord`.
        """
        transcript = _transcript(list(turns), language)
        now = datetime.now(UTC)
        record = self._record(call_id)
        listed = [_task(task, transcript) if isinstance(task, str) else task for task in tasks]
        updates = {"status": "completed", "language": language, "duration": transcript.duration, "completed_at": now}
        fields = {"transcript": transcript, "layout": transcript.layout, "tasks": listed, **changes}
        return self._store(record.model_copy(update=fields), failure=None, **updates)

    def fail(self, call_id: UUID | str, code: str, message: str = "", *, retryable: bool = False) -> CallRecord:
        """Fail a call, for example with "recording_missing"."""
        failure = Failure(code=code, message=message or code, retryable=retryable)
        return self._store(self._record(call_id), status="failed", failure=failure)

    def refuse_next(
        self, kind: str = "unavailable", status: int = 503, *, times: int = 1, retry_after: int | None = 0
    ) -> None:
        """Refuse the next requests with an error of `switchboard.errors.KINDS`; the client retries 429 and 503.

        Raises ValueError for another kind.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of error; kinds: {', '.join(sorted(KINDS))}")
        self._refusals += [_Problem(status, kind, "refused by the test", retry_after)] * times

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self._refusals:
            return self._refusals.pop(0).response()
        operation, ids = _operation(request)
        handler = getattr(self, f"_{to_snake(operation)}", None)
        if handler is None:
            raise NotImplementedError(f"FakeService does not answer {operation}: {request.method} {request.url.path}")
        try:
            answer = handler(request, **ids)
        except _Problem as problem:
            return problem.response()
        if isinstance(answer, Model):
            status = 202 if isinstance(answer, SubmitReply | UploadedRecording | RetriedCall) else 200
            return httpx.Response(status, json=answer.model_dump(mode="json", by_alias=True))
        return answer if isinstance(answer, httpx.Response) else httpx.Response(204)

    def _record(self, call_id: UUID | str) -> CallRecord:
        try:
            return self.records[UUID(str(call_id))]
        except (KeyError, ValueError):
            raise _Problem(404, "no-such-call", f"No call {call_id} is visible to this key.") from None

    def _completed(self, call_id: str) -> Transcript:
        transcript = self._record(call_id).transcript
        if transcript is None:
            raise _Problem(404, "not-there-yet", "The call is not completed.")
        return transcript

    def _store(self, record: CallRecord, **summary: Any) -> CallRecord:
        now = datetime.now(UTC)
        call = record.call.model_copy(update={"updated_at": now, **summary})
        self.records[call.call_id] = record = record.model_copy(update={"call": call})
        self._changes.append(
            CallChange(
                call_id=call.call_id,
                team_id=call.team_id,
                status=call.status,
                start_time=call.start_time,
                updated_at=now,
            )
        )
        return record

    def _submit_call(self, request: httpx.Request) -> SubmitReply:
        body = json.loads(request.content)
        missing = [name for name in _REQUIRED if name not in body]
        if missing:
            raise _Problem(400, "invalid-body", f"{', '.join(missing)} is missing.")
        call_id = UUID(body["callId"])
        if call_id in self._deleted:  # accepted, and not stored
            return _reply(call_id, uuid4() if body.get("recordingUrl") else None)
        summary = _fields(body)
        earlier = self.records.get(call_id) or _received(call_id, self.team_id, self.workspace_id, summary)
        url = body.get("recordingUrl")
        is_same = earlier.recording_url == url and earlier.call.status in ("transcribing", "completed")
        if url and not is_same:
            record = earlier.model_copy(
                update={"recording_url": url, "job_id": uuid4(), "transcript": None, "tasks": []}
            )
            summary |= {"status": "transcribing", "failure": None, "completed_at": None}
        else:
            record = earlier
        record = record.model_copy(update={"submissions": earlier.submissions + 1})
        stored = self._store(record, **summary)
        if url and not is_same and self.on_submit:
            self.on_submit(stored)
        return _reply(call_id, stored.job_id if url else None)

    def _upload_recording(self, request: httpx.Request, call_id: str) -> RecordingUpload:
        call = self._record(call_id).call
        upload_id = uuid4().hex
        self._uploads[upload_id] = _Upload(call.call_id, int(request.headers["upload-length"]))
        return self._show_upload(request, call_id, upload_id)

    def _show_upload(self, _: httpx.Request, call_id: str, upload_id: str) -> RecordingUpload:
        upload = self._uploads.get(upload_id)
        if upload is None or str(upload.call_id) != call_id:
            raise _Problem(404, "no-such-upload", "No such upload.")
        return RecordingUpload(
            upload_id=upload_id, offset=len(upload.content), length=upload.length, expires_at=UPLOAD_LIFE
        )

    def _continue_upload(self, request: httpx.Request, call_id: str, upload_id: str) -> Model:
        progress = self._show_upload(request, call_id, upload_id)
        if int(request.headers["upload-offset"]) != progress.offset:
            raise _Problem(409, "offset-mismatch", f"The upload continues at {progress.offset}.")
        upload = self._uploads[upload_id]
        upload.content += request.content
        if len(upload.content) < upload.length:
            return self._show_upload(request, call_id, upload_id)
        del self._uploads[upload_id]
        self.recordings[upload.call_id] = bytes(upload.content)
        record = self._record(call_id).model_copy(update={"job_id": uuid4(), "transcript": None, "tasks": []})
        record = self._store(record, status="transcribing", failure=None)
        if self.on_submit:
            self.on_submit(record)
        return UploadedRecording(status="transcribing", call_id=upload.call_id, job_id=record.job_id)

    def _list_calls(self, request: httpx.Request) -> CallListPage:
        filters = dict(request.url.params)
        limit, after = int(filters.pop("limit", "50")), int(filters.pop("cursor", "0"))
        with_total = filters.pop("total", "") == "true"
        newest_first = "updatedAfter" not in filters
        conditions = [_filter(name, value) for name, value in filters.items()]
        matching = [record for record in self.records.values() if all(holds(record) for holds in conditions)]
        matching.sort(
            key=lambda record: record.call.start_time if newest_first else record.call.updated_at, reverse=newest_first
        )
        page = matching[after : after + limit]
        return CallListPage(
            items=[CallLine(call=record.call, **_counts(record)) for record in page],
            next=str(after + limit) if len(matching) > after + limit else None,
            as_of=datetime.now(UTC),
            total=len(matching) if with_total else None,
        )

    def _show_call(self, _: httpx.Request, call_id: str) -> CallRecord:
        return self._record(call_id)

    def _show_calls(self, request: httpx.Request) -> CallBatch:
        ids = [UUID(call_id) for call_id in request.url.params["callIds"].split(",")]
        missing = [call_id for call_id in ids if call_id not in self.records]
        return CallBatch(items=[self.records[call_id] for call_id in ids if call_id not in missing], missing=missing)

    def _show_transcript(self, _: httpx.Request, call_id: str) -> Transcript:
        return self._completed(call_id)

    def _show_transcript_text(self, _: httpx.Request, call_id: str) -> httpx.Response:
        turns = self._completed(call_id).turns
        return httpx.Response(200, text="".join(f"{turn.speaker}: {text_of(turn.words)}\n" for turn in turns))

    def _list_tasks(self, request: httpx.Request) -> Page[TaskLine]:
        filters = dict(request.url.params)
        done, limit = filters.pop("done", None), int(filters.pop("limit", "50"))
        after = int(filters.pop("cursor", "0"))
        if filters:
            raise NotImplementedError(f"FakeService does not filter tasks by {', '.join(filters)}")
        lines = [_line(record.call, task) for record in self.records.values() for task in record.tasks]
        lines = [line for line in lines if done is None or (line.done_at is not None) == (done == "true")]
        lines.sort(key=lambda line: line.due_date or date.max)
        following = str(after + limit) if len(lines) > after + limit else None
        return Page[TaskLine](items=lines[after : after + limit], next=following)

    def _mark_task_done(self, _: httpx.Request, call_id: str, task_id: str) -> TaskMark:
        return self._mark(call_id, task_id, datetime.now(UTC))

    def _unmark_task(self, _: httpx.Request, call_id: str, task_id: str) -> TaskMark:
        return self._mark(call_id, task_id, None)

    def _mark(self, call_id: str, task_id: str, done_at: datetime | None) -> TaskMark:
        record = self._record(call_id)
        if task_id not in {str(task.task_id) for task in record.tasks}:
            raise _Problem(404, "no-such-call", "No such task.")
        tasks = [
            task.model_copy(update={"done_at": done_at}) if str(task.task_id) == task_id else task
            for task in record.tasks
        ]
        self._store(record.model_copy(update={"tasks": tasks}))
        return TaskMark(task_id=UUID(task_id), done_at=done_at, done_by="test" if done_at else None)

    def _retry_call(self, _: httpx.Request, call_id: str) -> RetriedCall:
        record = self._record(call_id)
        if record.call.status != "failed":
            raise _Problem(409, "nothing-to-retry", "The call has not failed.")
        record = self._store(record.model_copy(update={"job_id": uuid4()}), status="transcribing", failure=None)
        return RetriedCall(call_id=record.call.call_id, job_id=record.job_id)

    def _delete_call(self, _: httpx.Request, call_id: str) -> None:
        if UUID(call_id) not in self._deleted:
            self._deleted.add(self._record(call_id).call.call_id)
            del self.records[UUID(call_id)]

    def _stream_changes(self, request: httpx.Request) -> httpx.Response:
        after = int(request.headers.get("last-event-id", "0"))
        events = [
            f"id: {number}\nevent: call\ndata: {change.model_dump_json(by_alias=True)}\n\n"
            for number, change in enumerate(self._changes, 1)
            if number > after
        ]
        return httpx.Response(200, headers={"content-type": EVENTS}, text="".join(events))


def _reply(call_id: UUID, job_id: UUID | None) -> SubmitReply:
    return SubmitReply(
        status="transcribing" if job_id else "received", call_id=call_id, job_id=str(job_id) if job_id else None
    )


def _received(call_id: UUID, team_id: UUID, workspace_id: UUID, fields: Mapping[str, Any]) -> CallRecord:
    now = datetime.now(UTC)
    empty = dict.fromkeys(
        ("user_id", "outgoing", "duration", "declared_duration", "stage", "next_try", "failure", "language")
    )
    call = CallSummary.model_validate(
        {
            **empty,
            "call_id": call_id,
            "workspace_id": workspace_id,
            "team_id": team_id,
            "status": "received",
            "attempts": 0,
            "created_at": now,
            "updated_at": now,
            "completed_at": None,
            **fields,
        }
    )
    nothing = dict.fromkeys(
        ("job_id", "from_e164", "to_e164", "recording_url", "recording_url2", "layout", "transcript")
    )
    lists: dict[str, Any] = {
        name: [] for name in ("findings", "tasks", "contacts", "recordings", "warnings", "jobs", "timeline")
    }
    return CallRecord(call=call, submissions=0, **nothing, **lists)


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `CallSummary` that a submission has."""
    start = datetime.fromisoformat(body["startTime"])
    fields = {
        "from_number": body["from"],
        "to_number": body["to"],
        "start_time": start if start.tzinfo else start.replace(tzinfo=UTC),
        "outgoing": body.get("outgoing"),
        "declared_duration": body.get("duration"),
        "team_id": UUID(body["teamId"]) if body.get("teamId") else None,
        "user_id": UUID(body["userId"]) if body.get("userId") else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _transcript(turns: Sequence[tuple[str, str]], language: str) -> Transcript:
    at, spoken = 0.0, []
    for index, (speaker, text) in enumerate(turns):
        words = [
            Word(
                start=round(at + WORD_SECONDS * place, 2),
                end=round(at + WORD_SECONDS * (place + 1), 2),
                text=word,
                confidence=1.0,
            )
            for place, word in enumerate(text.split())
        ]
        end = words[-1].end if words else at
        spoken.append(Turn(index=index, speaker=speaker, start=at, end=end, words=words, language=language))
        at = end
    speakers = [
        Speaker(
            label=label,
            role=label if label in ("rep", "customer") else "unknown",
            role_confidence=1.0,
            role_reason="set by the test",
        )
        for label in dict.fromkeys(turn.speaker for turn in spoken)
    ]
    return Transcript(
        language=language,
        language_probability=1.0,
        duration=at,
        speakers=speakers,
        turns=spoken,
        layout=Layout(
            kind="stereo", channels=2, source_channels=2, confidence=1.0, evidence={}, reason="set by the test"
        ),
        engine="switchboard.testing",
    )


def _task(title: str, transcript: Transcript) -> CallTask:
    turn = transcript.turns[-1] if transcript.turns else None
    evidence = Evidence(
        turn=turn.index if turn else 0,
        start=turn.start if turn else 0.0,
        end=turn.end if turn else 0.0,
        quote=text_of(turn.words) if turn else title,
    )
    return CallTask(title=title, owner="rep", kind="commitment", evidence=evidence, confidence=1.0, task_id=uuid4())


def _line(call: CallSummary, task: CallTask) -> TaskLine:
    fields = {name: getattr(task, name) for name in TaskLine.model_fields if hasattr(task, name)}
    return TaskLine(
        call_id=call.call_id, team_id=call.team_id, user_id=call.user_id, start_time=call.start_time, **fields
    )


def _counts(record: CallRecord) -> dict[str, int]:
    return {"tasks": len(record.tasks), "open_tasks": sum(task.done_at is None for task in record.tasks)}


def _said(record: CallRecord) -> str:
    return " ".join(text_of(turn.words) for turn in record.transcript.turns) if record.transcript else ""


_FILTERS: dict[str, Callable[[CallRecord, str], bool]] = {
    "status": lambda record, value: record.call.status in value.split(","),
    "startedFrom": lambda record, value: record.call.start_time >= datetime.fromisoformat(value),
    "startedBefore": lambda record, value: record.call.start_time < datetime.fromisoformat(value),
    "updatedAfter": lambda record, value: record.call.updated_at > datetime.fromisoformat(value),
    "outgoing": lambda record, value: record.call.outgoing == (value == "true"),
    "teamId": lambda record, value: str(record.call.team_id) == value,
    "userId": lambda record, value: str(record.call.user_id) == value,
    "number": lambda record, value: value in (record.call.from_number, record.call.to_number),
    "language": lambda record, value: record.call.language == value,
    "text": lambda record, value: value.lower() in _said(record).lower(),
    "openTasks": lambda record, value: any(task.done_at is None for task in record.tasks) == (value == "true"),
}


def _filter(name: str, value: str) -> Callable[[CallRecord], bool]:
    matches = _FILTERS.get(name)
    if matches is None:
        raise NotImplementedError(f"FakeService does not filter calls by {name}")
    return lambda record: matches(record, value)


def _operation(request: httpx.Request) -> tuple[str, dict[str, str]]:
    """Return the operation of a request, and the ids in its path. Raises NotImplementedError for another path."""
    parts = request.url.path.split("/")
    candidates = []
    for name, operation in OPERATIONS.items():
        pattern = operation.path.split("/")
        is_id = [part.startswith("{") for part in pattern]
        fits = len(pattern) == len(parts) and all(
            varies or part == actual for varies, part, actual in zip(is_id, pattern, parts, strict=True)
        )
        if fits and operation.method == request.method:
            ids = {part[1:-1]: actual for varies, part, actual in zip(is_id, pattern, parts, strict=True) if varies}
            candidates.append((name, ids))
    if not candidates:
        raise NotImplementedError(f"FakeService does not answer {request.method} {request.url.path}")
    return min(candidates, key=lambda candidate: len(candidate[1]))  # calls/batch before calls/{call_id}
