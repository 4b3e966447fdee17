import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid4

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipeline.fetch import handed_in
from serve_app.cli.ui import database as databases
from serve_app.cli.ui import this_machine
from serve_app.cli.ui.errors import FAILED, UNREACHABLE, USAGE, CommandError
from serve_app.cli.ui.options import FromNumber, Outgoing, ToNumber, parse_id
from serve_app.cli.ui.output import Json, err, out, print_json
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records.views import CallRecord
    from serve_app.settings import Settings


REQUEST_TIMEOUT = 30.0  # seconds for one response of /submit

ADVICE = {
    401: "Is the key right and not revoked? `switchboard keys list` shows the keys, `keys create` creates one.",
    403: "The key is valid, but it has no scope `submit`, or the call belongs to another team.",
    404: "Is --url the service's base URL? Calls are sent to the base URL followed by /submit.",
    413: "The body exceeds the service's limit.",
    429: "Too many submissions for this key; retry after {retry_after} s.",
    503: "The service cannot accept calls at the moment; retry after {retry_after} s with the same callId.",
}
POLL_SECONDS = 0.5
ENDED = ("completed", "failed")


@dataclass(frozen=True, slots=True)
class CommandProblem:
    """A rejected submission. `faults`: pointer and detail of each fault in the body."""

    status: int
    title: str
    detail: str
    faults: tuple[tuple[str, str], ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    name: str
    call_id: str
    body: dict[str, Any]
    reply: dict[str, Any] | None = None
    problem: CommandProblem | None = None


Recordings = Annotated[
    list[str] | None, typer.Argument(metavar="FILE|URL", help="Recordings, one call each.", show_default=False)
]
Url = Annotated[
    str | None,
    typer.Option(
        envvar="SWITCHBOARD_URL",
        show_envvar=True,
        show_default="the service of this machine",
        help="Base URL of the service.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="SWITCHBOARD_API_KEY",
        show_envvar=True,
        help="API key with scope `submit`; not needed for your service on this machine.",
    ),
]
Second = Annotated[
    str | None, typer.Option(metavar="FILE|URL", help="Recording of the other party, if each leg has its file.")
]
StartTime = Annotated[str | None, typer.Option(metavar="ISO8601", help="When the call started.", show_default="now")]
Duration = Annotated[int | None, typer.Option(min=0, help="Length of the call in seconds.")]
Team = Annotated[
    str | None, typer.Option(help="teamId (on this machine also a name), required with a workspace-wide key.")
]
User = Annotated[str | None, typer.Option(help="userId of the member who handled the call.")]
CallId = Annotated[
    str | None,
    typer.Option(help="The call's UUID: reuse it for the second phase and for retries.", show_default="new"),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until completed or failed, then print the record.")]
Timeout = Annotated[float, typer.Option(help="Seconds that --wait waits.")]


def submit(
    recordings: Recordings = None,
    url: Url = None,
    key: Key = None,
    second: Second = None,
    from_number: FromNumber = "anonymous",
    to_number: ToNumber = "anonymous",
    start_time: StartTime = None,
    outgoing: Outgoing = None,
    duration: Duration = None,
    team: Team = None,
    user: User = None,
    call_id: CallId = None,
    wait: Wait = False,
    timeout: Timeout = 900.0,
    json_: Json = False,
) -> None:
    """Submit calls to a running service.

    A URL is sent as it is. A local file is handed to your own service on this machine; a service elsewhere takes URLs.
    Without any recording, the call is announced (first phase); submit its recording later under the same --call-id.

    Examples:

      switchboard submit call.wav --wait

      switchboard submit rep.wav --second customer.wav --from +4930123456 --to +34911234567 --outgoing
    """
    names = recordings or []
    _refuse_contradictions(names, second, call_id)
    to = destination(url, key, team, [name for name in (*names, second) if name and not _is_url(name)])
    start = start_time or datetime.now().astimezone().isoformat(timespec="seconds")
    described: dict[str, Any] = {"from": from_number, "to": to_number, "startTime": start, "outgoing": outgoing}
    described |= {"duration": duration, "teamId": to.team, "userId": user}
    sent = _submit(to.url, to.key, _bodies(names, second, call_id, described), to.folder)
    if not json_:
        show(sent)
    _report(sent, _wait(sent, to, timeout) if wait else [], json_)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where calls are submitted. `service`: if it runs on this machine; `folder`: for the files that are handed in."""

    url: str
    key: str
    team: str | None
    service: this_machine.LocalService | None

    @property
    def folder(self) -> Path | None:
        return self.service.handed_in if self.service else None


def destination(url: str | None, key: str | None, team: str | None, files: Sequence[str]) -> Destination:
    """Return the service at `url`, by default that of this machine. Raises `CommandError` if it takes no `files`."""
    from serve_app.settings import Settings

    _check_files(files)
    settings = Settings()
    service = this_machine.find(settings, url)
    if service is not None and service.has_database:
        key, team = this_machine.key_and_team(service, key, team)
    to = Destination(
        str(service.facts["url"]) if service else url or settings.base_url, _require_key(key), team, service
    )
    if files and to.folder is None:
        raise _files_refused(to.url, files)
    return to


def _report(sent: "Sequence[Submission]", records: Sequence[Any], as_json: bool) -> None:
    if as_json:
        print_json([_as_json(submission, records) for submission in sent])
    else:
        _show_records(records)
    if any(submission.problem for submission in sent) or any(record.call.state == "failed" for record in records):
        raise typer.Exit(FAILED)


def _show_records(records: Sequence[Any]) -> None:
    from serve_app.cli.render.call import render_call

    for record in records:
        out().print()
        render_call(record, out())


def _refuse_contradictions(names: Sequence[str], second: str | None, call_id: str | None) -> None:
    if (second or call_id) and len(names) > 1:
        raise CommandError("--second and --call-id describe one call, but there are several recordings.", "", USAGE)
    if call_id:
        parse_id("--call-id takes the call's UUID.")(call_id)
    if second and not names:
        raise CommandError("--second needs a first recording before it.", "", USAGE)


def _require_key(key: str | None) -> str:
    if not key:
        raise CommandError(
            "No API key.",
            "Pass --key or set SWITCHBOARD_API_KEY; `switchboard keys create --workspace NAME` creates one.",
            USAGE,
        )
    return key


def _files_refused(url: str, files: Sequence[str]) -> CommandError:
    return CommandError(
        f"{url} accepts no files from this machine: {', '.join(files)}.",
        "Files can be handed to a service that you run on this machine. For any other service, put the recording into "
        "a bucket or on a web server that the service can fetch from, and pass its https URL.",
        USAGE,
    )


def _bodies(
    names: Sequence[str], second: str | None, call_id: str | None, described: dict[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and body of each submission; without a recording, of one announcement.

    The body for a file to be handed in has its path.
    """
    bodies = []
    for name in names or (None,):
        urls = {"recordingUrl": _address(name), "recordingUrl2": _address(second)}
        body = {"callId": call_id or str(uuid4()), **urls, **described}
        bodies.append((name or "announcement", {field: value for field, value in body.items() if value is not None}))
    return bodies


def _submit(url: str, key: str, bodies: Sequence[tuple[str, dict[str, Any]]], folder: Path | None) -> list[Submission]:
    """Send the bodies; with `folder`, hand in the files of each just before its submission."""
    if folder is None:
        return send(url, key, bodies)
    return [_hand_in(url, key, name, body, folder) for name, body in bodies]


def _hand_in(url: str, key: str, name: str, body: dict[str, Any], folder: Path) -> Submission:
    """Hand in the files of one call and send it. Files of a call that was not accepted are withdrawn."""
    call = UUID(body["callId"])
    sent = dict(body)
    accepted = False
    try:
        for field in ("recordingUrl", "recordingUrl2"):
            if isinstance(body.get(field), Path):
                sent[field] = handed_in.hand_in(folder, body[field], call)
        (submission,) = send(url, key, [(name, sent)])
        accepted = submission.problem is None
        return submission
    except handed_in.NoRoom as error:
        return Submission(name, str(call), body, None, CommandProblem(507, "No room for the file", str(error)))
    except CommandError as error:
        accepted = not _is_connect_error(error)
        raise
    finally:
        for field in () if accepted else ("recordingUrl", "recordingUrl2"):
            if handed_in.is_handed_in(str(sent.get(field, ""))):
                handed_in.withdraw(folder, sent[field], call)


def _is_connect_error(error: CommandError) -> bool:
    # After a connection, the service may have accepted a call without a response.
    import httpx

    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)


def send(url: str, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> list[Submission]:
    """POST each body to `url`/submit in order. Raises `CommandError` (3) if the service is not reachable."""
    import httpx

    endpoint = f"{url.rstrip('/')}/submit"
    sent = []
    try:
        with httpx.Client(
            timeout=REQUEST_TIMEOUT, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        ) as client:
            for name, body in bodies:
                response = client.post(endpoint, json=body)
                reply, problem = None, None
                if response.status_code == 202:
                    reply = response.json()
                else:
                    problem = read_problem(response.status_code, response.headers, response.content)
                sent.append(Submission(name, str(body["callId"]), body, reply, problem))
    except (httpx.TransportError, httpx.InvalidURL, UnicodeError) as error:
        raise CommandError(
            f"No answer from {endpoint}: {error or type(error).__name__}.",
            "Is the service up (`switchboard up`) and --url right? Calls already accepted stay accepted.",
            UNREACHABLE,
        ) from error
    return sent


def show(sent: Sequence[Submission]) -> None:
    console = out()
    for submission in sent:
        if submission.problem:
            show_problem(submission.problem, submission.name, err())
        elif reply := submission.reply:
            job = f"  jobId {reply['jobId']}" if "jobId" in reply else ""
            console.print(f"{submission.name}: {reply['status']}  callId {reply['callId']}{job}", markup=False)


def _wait(sent: Sequence[Submission], to: Destination, timeout: float) -> list[Any]:
    call_ids = [UUID(each.call_id) for each in sent if each.reply and "jobId" in each.reply]
    return follow_calls(call_ids, to.key, timeout, to.service.settings if to.service else None) if call_ids else []


def _is_url(name: str) -> bool:
    return "://" in name


def _check_files(names: Sequence[str]) -> None:
    absent = [name for name in names if not Path(name).is_file()]
    if absent:
        raise CommandError(f"No such file: {', '.join(absent)}", "A recording is a file or a URL (https://...).", USAGE)


def _address(name: str | None) -> str | Path | None:
    return name if name is None or _is_url(name) else Path(name).resolve()


def _as_json(submission: Submission, records: Sequence[Any]) -> dict[str, Any]:
    record = next((record for record in records if str(record.call.call_id) == submission.call_id), None)
    return {
        "submitted": submission.name,
        "callId": submission.call_id,
        "reply": submission.reply,
        "problem": submission.problem,
        "record": record,
    }


def read_problem(status: int, headers: Any, body: bytes) -> CommandProblem:
    """Return the problem of an error response (RFC 9457), or of its status if the body is no problem document."""
    import json

    try:
        document = json.loads(body)
        document = document if isinstance(document, dict) else {}
    except ValueError:
        document = {}
    faults = [fault for fault in document.get("errors") or [] if isinstance(fault, dict)]
    advice = ADVICE.get(status, "").replace("{retry_after}", str(headers.get("retry-after", "a few")))
    return CommandProblem(
        status=status,
        title=str(document.get("title") or f"The service responded {status}"),
        detail=str(document.get("detail") or ""),
        faults=tuple((str(fault.get("pointer", "")), str(fault.get("detail", ""))) for fault in faults),
        advice=advice,
    )


def show_problem(problem: CommandProblem, name: str, console: Console) -> None:
    console.print(Text.assemble((f"{name}: refused ", "bold red"), f"({problem.status}) {problem.title}"))
    if problem.detail and problem.detail != problem.title:
        console.print(Text(f"  {problem.detail}"))
    for pointer, detail in problem.faults:
        console.print(Text.assemble("  - ", (pointer or "body", "bold"), f": {detail}"))
    if problem.advice:
        console.print(Text(f"  {problem.advice}", style="yellow"))


def follow_calls(
    call_ids: Sequence[UUID], key: str, timeout: float, settings: "Settings | None" = None
) -> "list[CallRecord]":
    """Show progress on stderr until all calls have ended; return their records in the order of `call_ids`.

    The calls are read from the database, in the workspace of `key`. Raises `CommandError` if some have not ended
    after `timeout` seconds.
    """

    async def work(database: "Database") -> "list[CallRecord]":
        from db.workspace import keys

        sender = await keys.find(database, key)
        return await follow(database, call_ids, sender.workspace_id if sender else None, timeout, err())

    return databases.run(work, settings=settings)


async def follow(
    database: "Database",
    call_ids: Sequence[UUID],
    workspace_id: UUID | None,
    seconds: float,
    console: Console,
    names: Mapping[UUID, str] | None = None,
) -> "list[CallRecord]":
    """Follow calls with an open database; `names` are shown instead of ids. See `follow_calls`."""
    from db.records import views

    ends = time.monotonic() + seconds
    progress = _Progress(console, names or {})
    with progress:
        while True:
            results = [await views.show_call(database, call_id, workspace_id) for call_id in call_ids]
            records = [record for record in results if record is not None]
            progress.show(records)
            if len(records) == len(call_ids) and all(record.call.state in ENDED for record in records):
                return records
            if time.monotonic() > ends:
                raise CommandError(
                    "\n  ".join(
                        (f"After {seconds:.0f} s some calls have not finished.", *progress.unfinished(records))
                    ),
                    "They continue; `switchboard calls show ID` shows their state.",
                    FAILED,
                )
            await asyncio.sleep(POLL_SECONDS)


class _Progress:
    """A live table on a terminal; elsewhere one line for each change."""

    def __init__(self, console: Console, names: Mapping[UUID, str]) -> None:
        self._console = console
        self._names = names
        self._live = Live(console=console, transient=True) if console.is_terminal else None
        self._printed: dict[str, str] = {}

    def __enter__(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, records: "Sequence[CallRecord]") -> None:
        from serve_app.cli.render.call import STATE_STYLES, status_line

        if self._live:
            lines = table("!call", "!status", "about")
            for record in records:
                lines.add_row(
                    self._name(record),
                    Text(record.call.state, style=STATE_STYLES.get(record.call.state, "")),
                    status_line(record.call),
                )
            self._live.update(lines)
            return
        for record in records:
            line = self._line(record)
            if self._printed.get(str(record.call.call_id)) != line:
                self._printed[str(record.call.call_id)] = line
                self._console.print(line, markup=False)

    def unfinished(self, records: "Sequence[CallRecord]") -> list[str]:
        """Return a line for each call that has not ended: its status, and why it waits."""
        return [self._line(record) for record in records if record.call.state not in ENDED]

    def _line(self, record: "CallRecord") -> str:
        from serve_app.cli.render.call import status_line

        return f"{self._name(record)} {record.call.state} {status_line(record.call)}".rstrip()

    def _name(self, record: "CallRecord") -> str:
        return self._names.get(record.call.call_id, str(record.call.call_id))
