import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from pipeline.domain.call import CallState
from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Words, Workspace, parse_call_id, parse_id
from serve_app.cli.ui.output import Json, counted, fields, out, print_json
from serve_app.cli.ui.resource import AnyScope, Group, Result, Scope, listing
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from db.core import database as core
    from db.core.database import Database
    from db.queue import backlog as queue
    from db.records import correct, corrections, views
    from db.records.corrections import CallEdit, Editor
    from db.records.views import CallRecord
    from db.search import call_list
    from db.search.call_list import CallLine
    from db.secrets import rotate
    from db.workspace import access_log, admin_log, questions
    from serve_app import settings
else:
    core, queue, correct, corrections, views, call_list, rotate, access_log, admin_log, questions, settings = lazy(
        "db.core.database",
        "db.queue.backlog",
        "db.records.correct",
        "db.records.corrections",
        "db.records.views",
        "db.search.call_list",
        "db.secrets.rotate",
        "db.workspace.access_log",
        "db.workspace.admin_log",
        "db.workspace.questions",
        "serve_app.settings",
    )


NOT_SAID = "not said"
WATCH_SECONDS = 1.0
MAX_PAGE = 200  # calls per page
MAX_SUMMARY = 160  # characters

CallId = Annotated[
    str,
    typer.Argument(metavar="ID", parser=parse_call_id, help="The callId, or its first 8 digits."),
]
EditId = Annotated[
    UUID,
    typer.Argument(
        metavar="EDIT",
        parser=parse_id("`switchboard calls edits` shows the ids."),
        help="`switchboard calls edits` shows the ids.",
    ),
]


app = Group("Calls: their state, records and corrections.")


def _reason(text: str) -> str:
    if not text.strip():
        raise CommandError("--comment is empty.", "Explain the correction.", USAGE)
    return text


QuestionKey = Annotated[str, typer.Argument(metavar="QUESTION", help="The key of a question or tracker.")]
Answer = Annotated[
    str,
    typer.Argument(metavar="ANSWER", help="yes, no, a choice, a number, a date; of trackers said; 'not said'; n/a."),
]
Comment = Annotated[str, typer.Option("--comment", "-c", metavar="WHY", parser=_reason, help="Stored with the answer.")]
OldAnswer = Annotated[
    str | None, typer.Option("--old", metavar="ANSWER", help="Change nothing unless this is the current answer.")
]


@app.writes()
async def answer(
    scope: Scope,
    call_id: CallId,
    question: QuestionKey,
    new: Answer,
    comment: Comment,
    old: OldAnswer = None,
) -> Result:
    """Correct the machine's answer to a question of a call, and say why. Scores follow; `undo` reverts it.

    Example:

      switchboard calls answer 3f0c1d5e-... recording_notice said --old "not said" --comment "before the beep"
    """
    from pipeline.domain.edits import EditKind

    call = await lookup.call_id(scope.database, call_id, scope.id)
    current = await _current_answer(scope, call, question)
    before = current if old is None else _parsed(old)
    edit_request = correct.WantedEdit(EditKind.ANSWER, before, _parsed(new), question=question, comment=comment)
    try:
        edit = (await correct.make(scope.database, scope.reader, _operator(), call, edit_request)).edit
    except correct.EditConflict as error:
        now = _shown(error.current.value if error.current else None)
        raise CommandError(
            f"Nothing was changed: the answer is {now!r}, not {_shown(before)!r}.",
            f"The call has changed in the meantime: check it, then pass --old {now!r}.",
            FAILED,
        ) from None
    except correct.InvalidEdit as error:
        raise CommandError(f"{new!r} cannot be the answer to {question!r}.", str(error), USAGE) from None
    except correct.EditRefused as error:
        raise CommandError(str(error) or type(error).__name__, "", FAILED) from None
    change = f"{_shown(edit.machine)} by the machine, {_shown(edit.person)} by {edit.made_by}"
    revert = f"`switchboard calls undo {call} {edit.edit_id}` reverts it."
    return Result(edit, (f"{question}: {change}.", revert))


async def _current_answer(scope: Scope, call_id: UUID, question: str) -> str | None:
    from pipeline.domain.overrides import shown_answer

    record = await views.show_call(scope.database, call_id, scope.id)
    if record is None:
        raise _no_call(call_id)
    answers = {answer.key: shown_answer(answer) for answer in record.answers}
    answers |= {tracker.key: shown_answer(tracker) for tracker in record.trackers}
    if question not in answers:
        keys = ", ".join(answers) or "none"
        raise CommandError(f"Call {call_id} has no answer to {question!r}.", f"Its questions: {keys}.", FAILED)
    return answers[question]


@app.reads()
async def edits(scope: Scope, call_id: CallId) -> Result:
    """List what people corrected in a call, undone corrections too, the earliest first."""
    call = await lookup.call_id(scope.database, call_id, scope.id)
    try:
        corrections = await correct.list_edits(scope.database, scope.reader, call)
    except correct.NotFound:
        raise _no_call(call) from None
    return listing(
        corrections,
        ("!edit", "!when", "!kind", "!status", "who", "what"),
        lambda edit: (
            *(edit.edit_id, edit.made_at, edit.kind, edit.state, edit.made_by),
            _change(edit) + (f" ({edit.comment})" if edit.comment else ""),
        ),
        f"Call {call} has no corrections.",
    )


@app.writes()
async def undo(scope: Scope, call_id: CallId, edit_id: EditId) -> Result:
    """Undo a correction of a call; it stays in the list of corrections, with the person's name."""
    call = await lookup.call_id(scope.database, call_id, scope.id)
    try:
        edit = await correct.undo(scope.database, scope.reader, _operator(), call, edit_id)
    except correct.NotFound:
        hint = f"`switchboard calls edits {call}` shows them."
        raise CommandError(f"Call {call} has no correction {edit_id}.", hint, FAILED) from None
    return Result(edit, f"Undone: {_change(edit)}.")


def _operator() -> "Editor":
    return corrections.Editor(None, None, admin_log.operator().name)


def _no_call(call_id: UUID) -> CommandError:
    return CommandError(f"No call {call_id}.", lookup.CALL_ID_HELP, FAILED)


def _parsed(text: str) -> str | None:
    return None if text == NOT_SAID else text


def _shown(answer: str | bool | None) -> str:
    return NOT_SAID if answer is None else str(answer)


def _change(edit: "CallEdit") -> str:
    if edit.question is not None:
        return f"{edit.question}: {_shown(edit.machine)} -> {_shown(edit.person)}"
    return f"{edit.machine} -> {edit.person}"


class TranscriptFormat(StrEnum):
    JSON = "json"
    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"


@dataclass(frozen=True, slots=True)
class CompletionEstimate:
    """An estimate from measured real-time factors; new submissions and failures change it."""

    at: datetime
    seconds: float  # from now
    audio_seconds_before: float  # processed before the call's turn; 0 while it is running
    measured: bool  # False: real-time factors of the settings, because no call has finished yet


AskedQuestion = Annotated[
    str | None, typer.Option(metavar="KEY", help="Only calls in which this question or tracker had --answer.")
]
AskedAnswer = Annotated[str | None, typer.Option(metavar="ANSWER", help="yes, no, a choice, said, or 'not said'.")]


@app.command("list")
def list_(
    state_: Annotated[CallState | None, typer.Option("--status", help="Only calls with this status.")] = None,
    question: AskedQuestion = None,
    answer: AskedAnswer = None,
    scorecard: Annotated[str | None, typer.Option(metavar="KEY", help="Only calls scored by this scorecard.")] = None,
    passed: Annotated[bool | None, typer.Option("--passed/--failed", help="By that scorecard.")] = None,
    score_below: Annotated[float | None, typer.Option(min=0, max=100, help="Scored lower than this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the last changed first.")] = 20,
    workspace: Workspace = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing until Ctrl-C.")] = False,
    json_: Json = False,
) -> None:
    """List the latest calls: status, stage, next try, why a call waits or failed, the beginning of the summary.

    Examples:

      switchboard calls list --watch

      switchboard calls list --status failed --json
    """
    states = () if state_ is None else (str(state_),)
    filter_ = call_list.CallFilter(
        states, question=question, answer=answer, scorecard=scorecard, passed=passed, score_below=score_below
    )
    _refuse_contradictions(filter_)
    narrowed = filter_ != call_list.CallFilter(states)

    async def work(database: "Database") -> "Sequence[CallLine]":
        if narrowed:
            return await _filtered_calls(database, workspace, filter_, limit)
        return await call_list.latest_calls(database, await lookup.workspace_id(database, workspace), state_, limit)

    if watch and not json_ and out().is_terminal:
        databases.run(lambda database: _watch(database, work))
    calls = databases.run(work)
    none = "No calls yet." if state_ is None else f"No call is {state_}."
    notes = () if calls else ("No matching calls." if narrowed else none,)
    data = [{**fields(line.call), "summary": line.summary} for line in calls]
    Result(data, summary_table(calls) if calls else (), notes).print(json_)


def _refuse_contradictions(filter_: "call_list.CallFilter") -> None:
    if (filter_.question is None) is not (filter_.answer is None):
        raise CommandError("--question and --answer are given together.", "", USAGE)
    if filter_.scorecard is None and (filter_.passed, filter_.score_below) != (None, None):
        raise CommandError("--passed, --failed and --score-below need --scorecard KEY.", "", USAGE)


@app.command()
def show(
    call_id: CallId,
    words: Words = False,
    workspace: Workspace = None,
    json_: Json = False,
) -> None:
    """Read a call: transcript, tone, tasks, contacts, statistics, how it was processed, what went wrong.

    While it is processed: when it is expected to be done (`switchboard queue`).

    Examples:

      switchboard calls show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11

      switchboard calls show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --json
    """
    from serve_app.cli.render.call import render_call

    async def work(database: "Database") -> "tuple[CallRecord, CompletionEstimate | None]":
        record = await _load(database, call_id, workspace)
        if record.call.state != CallState.TRANSCRIBING:
            return record, None
        return record, await _estimate_completion(database, record.job_id)

    record, estimate = databases.run(work)
    if json_:
        print_json({**fields(record), "expected": estimate})
    else:
        render_call(record, out(), words, estimate)


@app.command()
def export(
    call_id: CallId,
    format_: Annotated[
        TranscriptFormat, typer.Option("--format", "-f", help="json: the whole record.")
    ] = TranscriptFormat.TXT,
    workspace: Workspace = None,
) -> None:
    """Print a call's transcript as text or subtitles, or its record as JSON, for other programs.

    Example:

      switchboard calls export 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --format vtt > call.vtt
    """
    from serve_app.records import transcripts

    record = databases.run(lambda database: _load(database, call_id, workspace))
    if format_ is TranscriptFormat.JSON:
        print_json(record)
        return
    if record.transcript is None:
        why = "it was deleted after its retention period" if record.content_expired else f"it is {record.call.state}"
        raise CommandError(f"Call {record.call.call_id} has no transcript: {why}.", "", FAILED)
    print(transcripts.FORMATS[format_](record.transcript), end="")


@app.reads()
async def reads(
    scope: AnyScope,
    call_id: CallId,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the latest first.")] = 100,
) -> Result:
    """List reads and changes of a call, over the API or in the console, with the key; also of a deleted call.

    A line counts the reads of a part of the call by a key within an hour. Lines are deleted after a year.
    Commands on this machine that read are not listed, except exports of a person: they read the database directly.
    """
    call = await lookup.call_id(scope.database, call_id, scope.id)
    return listing(
        await access_log.list_reads(scope.database, scope.id or core.EVERY_WORKSPACE, call, limit),
        ("!when", "times", "who", "!what", "how", "request"),
        lambda read: (read.last_at, read.count, read.name or read.key_id, read.what, read.detail, read.request_id),
        f"No reads of call {call}.",
    )


@app.writes()
async def reseal(database: "Database") -> Result:
    """Seal the recording URLs of all calls with the first of SWITCHBOARD_SECRETS_KEYS, including those stored unsealed.

    The same applies to the keys of workspaces, which seal those of sealed calls; what calls contain is not rewritten.
    Run it after you set a key or put a new one first. The service may be running.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard calls reseal
    """
    sealer = settings.Settings().url_sealer()
    if not sealer.seals:
        hint = "`openssl rand -base64 32` makes a key; set it on every node."
        raise CommandError("SWITCHBOARD_SECRETS_KEYS is not set: recording URLs are stored unsealed.", hint)
    done = await rotate.reseal(database, sealer)
    workspace_keys = await rotate.reseal_secrets(database, settings.Settings().sealer(), rotate.DATA_KEYS)
    data_keys, locked = workspace_keys.changed, workspace_keys.unopened
    changed = counted(done.changed, "call or submission", "calls and submissions")
    unopened = (
        f"{done.unopened} more are sealed with a key that is not among SWITCHBOARD_SECRETS_KEYS. Add that key after "
        "the first one and run this again; without it, these recordings must be submitted again."
    )
    workspaces = (
        f"The data keys of {counted(locked, 'workspace')} are sealed with a key that is not among "
        "SWITCHBOARD_SECRETS_KEYS. Add that key after the first one; without it, their sealed calls cannot be read."
    )
    return Result(
        {"resealed": done.changed, "unopened": done.unopened, "data_keys": data_keys, "unopened_data_keys": locked},
        (
            f"Recording URLs of {changed} sealed with the current key.",
            *((f"Data keys of {counted(data_keys, 'workspace')} sealed with the current key.",) if data_keys else ()),
        ),
        warnings=(*((unopened,) if done.unopened else ()), *((workspaces,) if locked else ())),
        failed=bool(done.unopened or locked),
    )


async def _load(database: "Database", call_id: str, workspace: str | None) -> "CallRecord":
    workspace_id = await lookup.workspace_id(database, workspace)
    record = await views.show_call(database, await lookup.call_id(database, call_id, workspace_id), workspace_id)
    if record is None:
        raise CommandError(f"No call {call_id}.", lookup.CALL_ID_HELP)
    return record


async def _estimate_completion(database: "Database", job_id: UUID | None) -> CompletionEstimate | None:
    """Return None for a job that has ended or waits for a retry."""
    from serve_app.operations.estimates import CALL, RUNNING_PART, Estimate, ahead, left_of_running

    current = settings.Settings()
    place = await queue.place(database, job_id) if job_id else None
    if place is None:
        return None
    backlog, lanes = await queue.lanes(database)
    own_lane = next((lane for lane in lanes if (lane.team_id, lane.live) == (place.team_id, place.live)), None)
    if place.running:  # running calls share the engines, so all of them may end together
        before, audio = 0.0, max(left_of_running(backlog), place.audio_seconds * RUNNING_PART)
    elif own_lane is not None:
        before = ahead(own_lane, place.before, lanes, backlog, current.processing.BACKFILL_SHARE)
        audio = before + place.audio_seconds
    else:  # the job ended between the two queries
        return None
    seconds = Estimate(backlog, current.scaling.assumed_rtfx).drain_time(audio)
    measured = any(pace.stage == CALL for pace in backlog.paces)
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return CompletionEstimate(at, round(seconds, 1), round(before, 1), measured)


async def _filtered_calls(
    database: "Database", workspace: str | None, filter_: "call_list.CallFilter", limit: int
) -> "list[CallLine]":
    """Return matching calls of one workspace, the latest started first. Raises `CommandError`."""
    workspace_id = (await lookup.workspace(database, workspace)).workspace_id
    for key in filter(None, (filter_.question, filter_.scorecard)):
        if not await questions.defined_versions(database, workspace_id, workspace_id, key):
            hint = "`switchboard questions list` shows questions and scorecards."
            raise CommandError(f"No question or scorecard {key!r}.", hint)
    calls: list[CallLine] = []
    cursor: str | None = None
    while True:
        size = min(limit - len(calls), MAX_PAGE)
        page = await call_list.list_calls(database, core.Reader(workspace_id), filter_, cursor, size)
        calls += page.items
        cursor = page.next
        if cursor is None or len(calls) >= limit:
            return calls


def summary_table(calls: "Sequence[CallLine]") -> Table:
    from serve_app.cli.render.call import STATE_STYLES, status_line

    lines = table("!call", "!status", "!started", "!lang", "!from -> to", "about")
    for line in calls:
        call = line.call
        about = f"{call.failure.code}: {call.failure.message}" if call.failure else status_line(call)
        about = about or shorten(line.summary or "", MAX_SUMMARY, placeholder=" ...")
        state = Text(call.state, style=STATE_STYLES.get(call.state, ""))
        parties = f"{call.from_number} -> {call.to_number}"
        lines.add_row(call.call_id, state, call.start_time, call.language, parties, about)
    return lines


async def _watch(database: "Database", work: "databases.Work[Sequence[CallLine]]") -> None:
    from rich.live import Live

    with Live(console=out(), auto_refresh=False) as live:
        while True:
            live.update(summary_table(await work(database)), refresh=True)
            await asyncio.sleep(WATCH_SECONDS)
