"""`switchboard calls`: list them, read one, take one out as a file, see who read it."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from pipeline.domain.call import CallState
from serve_app.cli.calls import edits
from serve_app.cli.calls.edits import ID_HELP, CallId
from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, counted, err, fields, moment, out, print_json
from serve_app.cli.ui.resource import Answer, Group, listing
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records.views import CallRecord, CallSummary
    from db.search.call_list import CallFilter

WATCH_SECONDS = 1.0
MAX_PAGE = 200  # calls of a page

app = Group("""Calls: their state, records and corrections.

    Examples:

      switchboard calls list --state failed

      switchboard calls show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11

      switchboard calls export 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --format srt > call.srt
""")


class TranscriptFormat(StrEnum):
    JSON = "json"
    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"


@app.command("list")
def list_(
    state_: Annotated[CallState | None, typer.Option("--state", help="Only calls in this state.")] = None,
    question: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only calls in which this question or tracker had --answer.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="ANSWER", help="yes, no, a choice, said, or 'not said'.")
    ] = None,
    scorecard: Annotated[str | None, typer.Option(metavar="KEY", help="Only calls scored by this scorecard.")] = None,
    passed: Annotated[bool | None, typer.Option("--passed/--failed", help="By that scorecard.")] = None,
    score_below: Annotated[float | None, typer.Option(min=0, max=100, help="Scored lower than this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the last changed first.")] = 20,
    workspace: lookup.Workspace = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing until Ctrl-C.")] = False,
    json_: Json = False,
) -> None:
    """List the latest calls: state, stage, attempts, next try, why a call waits or failed.

    Examples:

      switchboard calls list --watch

      switchboard calls list --state failed --json

      switchboard calls list --scorecard service --failed
    """
    from db.search.call_list import CallFilter

    states = () if state_ is None else (str(state_),)
    wanted = CallFilter(
        states, question=question, answer=answer, scorecard=scorecard, passed=passed, score_below=score_below
    )
    narrowed = wanted != CallFilter(states)
    if (question is None) is not (answer is None):
        raise CommandError("--question and --answer are given together.", "", USAGE)
    if scorecard is None and (passed, score_below) != (None, None):
        raise CommandError("--passed, --failed and --score-below need --scorecard KEY.", "", USAGE)

    async def work(database: "Database") -> "list[CallSummary]":
        from db.records import views

        if narrowed:
            return await _answered(database, workspace, wanted, limit)
        return await views.list_calls(database, await lookup.workspace_id(database, workspace), state_, limit)

    if watch and not json_ and out().is_terminal:
        databases.run(lambda database: _watch(database, work))
    found = databases.run(work)
    if json_:
        print_json(found)
    elif found:
        out().print(summary_table(found))
    else:
        none = "No calls yet." if state_ is None else f"No call is {state_}."
        err().print("No matching calls." if narrowed else none)


@app.command()
def show(
    call_id: CallId,
    words: Annotated[bool, typer.Option("--words", help="Show each word's time and confidence.")] = False,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Read a call: transcript, tone, tasks, contacts, statistics, how it was processed, what went wrong.

    Until it is processed: when it will be done, as far as the queue tells (`switchboard queue`).

    Examples:

      switchboard calls show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11

      switchboard calls show 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --json
    """
    from serve_app.cli.calls.expected_completion import expected
    from serve_app.cli.render.call import render_call
    from serve_app.settings import Settings

    record = load(call_id, workspace)
    on_its_way = record.call.state == CallState.TRANSCRIBING
    done = databases.run(lambda database: expected(database, record.job_id, Settings())) if on_its_way else None
    if json_:
        print_json({**fields(record), "expected": done})
    else:
        render_call(record, out(), words, done)


@app.command()
def export(
    call_id: CallId,
    format_: Annotated[
        TranscriptFormat, typer.Option("--format", "-f", help="json: the whole record.")
    ] = TranscriptFormat.TXT,
    workspace: lookup.Workspace = None,
) -> None:
    """Print a call's transcript as text or subtitles, or its record as JSON, for other programs.

    Example:

      switchboard calls export 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11 --format vtt > call.vtt
    """
    from serve_app.records import transcripts as formats

    record = load(call_id, workspace)
    if format_ is TranscriptFormat.JSON:
        print_json(record)
        return
    if record.transcript is None:
        raise CommandError(f"Call {record.call.call_id} has no transcript: it is {record.call.state}.", "", FAILED)
    print(formats.FORMATS[format_](record.transcript), end="")


@app.reads()
async def reads(
    database: "Database",
    call_id: CallId,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, the latest first.")] = 100,
    workspace: lookup.Workspace = None,
) -> Answer:
    """List reads of a call or its audio, over the API or in the console, with the key; also of a deleted call.

    Commands on this machine are not listed: they read the database directly.

    Example:

      switchboard calls reads 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    from db.core.database import EVERY_WORKSPACE
    from db.workspace import access_log

    scope = await lookup.workspace_id(database, workspace) or EVERY_WORKSPACE
    return listing(
        await access_log.list_reads(database, scope, call_id, limit),
        ("!when", "who", "!what", "how", "request"),
        lambda one: (moment(one.at), one.name or str(one.key_id), one.what, one.detail, one.request_id or ""),
        f"No reads of call {call_id}.",
    )


app.writes()(edits.answer)
app.reads()(edits.edits)
app.writes()(edits.undo)


@app.writes()
async def reseal(database: "Database") -> Answer:
    """Seal the recording URLs of all calls with the first of SWITCHBOARD_SECRETS_KEYS, including those stored unsealed.

    Run it after a key was set or put before others. The service may run.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard calls reseal
    """
    from db.secrets import rotate
    from serve_app.settings import Settings

    sealer = Settings().url_sealer()
    if not sealer.seals:
        hint = "`openssl rand -base64 32` makes a key; set it on every node."
        raise CommandError("SWITCHBOARD_SECRETS_KEYS is not set: recording URLs are stored unsealed.", hint)
    done = await rotate.reseal(database, sealer)
    changed = counted(done.changed, "call or submission", "calls and submissions")
    unopened = (
        f"{done.unopened} more are sealed with a key that is not among SWITCHBOARD_SECRETS_KEYS. Add that key behind "
        "the first one and run this again; without it their recordings can only be submitted again."
    )
    return Answer(
        {"resealed": done.changed, "unopened": done.unopened},
        f"Recording URLs of {changed} sealed with the current key.",
        warnings=(unopened,) if done.unopened else (),
        failed=bool(done.unopened),
    )


def load(call_id: UUID, workspace: str | None) -> "CallRecord":
    """Return the record of a call. Raises `CommandError` where there is none."""

    async def work(database: "Database") -> "CallRecord | None":
        from db.records import views

        return await views.show_call(database, call_id, await lookup.workspace_id(database, workspace))

    record = databases.run(work)
    if record is None:
        raise CommandError(f"No call {call_id}.", ID_HELP)
    return record


async def _answered(
    database: "Database", workspace: str | None, wanted: "CallFilter", limit: int
) -> "list[CallSummary]":
    """Calls of one workspace, by what they came to: the latest started first. Raises `CommandError`."""
    from db.core.database import Reader
    from db.search import call_list
    from db.workspace import questions

    home = (await lookup.workspace(database, workspace)).workspace_id
    for key in filter(None, (wanted.question, wanted.scorecard)):
        if not await questions.defined_versions(database, home, home, key):
            hint = "`switchboard questions list` shows questions and scorecards."
            raise CommandError(f"No question or scorecard {key!r}.", hint)
    found: list[CallSummary] = []
    cursor: str | None = None
    while True:
        page = await call_list.list_calls(database, Reader(home), wanted, cursor, min(limit - len(found), MAX_PAGE))
        found += [line.call for line in page.items]
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return found


def summary_table(found: "Sequence[CallSummary]") -> Table:
    from serve_app.cli.render.call import STATE_STYLES, status_line

    lines = table("!call", "!state", "!started", "!lang", "!from -> to", "about")
    for call in found:
        about = status_line(call)
        if call.failure:
            about = f"{call.failure.code}: {call.failure.message}"
        lines.add_row(
            str(call.call_id),
            Text(call.state, style=STATE_STYLES.get(call.state, "")),
            moment(call.start_time),
            call.language or "",
            f"{call.from_number} -> {call.to_number}",
            Text(about),
        )
    return lines


async def _watch(database: "Database", work: "databases.Work[list[CallSummary]]") -> None:
    """Until Ctrl-C."""
    from rich.live import Live

    with Live(console=out(), auto_refresh=False) as live:
        while True:
            live.update(summary_table(await work(database)), refresh=True)
            await asyncio.sleep(WATCH_SECONDS)
