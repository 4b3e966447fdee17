"""`switchboard submit`: calls to the service over HTTP, as a telephony system sends them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import typer

from pipeline.fetch import handed_in
from serve_app.cli.ui import this_machine
from serve_app.cli.ui.errors import FAILED, UNREACHABLE, USAGE, CommandError
from serve_app.cli.ui.lookup import need_uuid
from serve_app.cli.ui.output import Json, err, out, print_json
from serve_app.cli.ui.problems import CommandProblem, read_problem, show_problem

REQUEST_TIMEOUT = 30.0  # seconds for one answer of /submit


@dataclass(frozen=True, slots=True)
class Sent:
    """One submission and what came of it: `reply` when it was accepted, else `problem`."""

    name: str
    call_id: str
    body: dict[str, Any]
    reply: dict[str, Any] | None = None
    problem: CommandProblem | None = None


def submit(
    recordings: Annotated[
        list[str] | None, typer.Argument(metavar="FILE|URL", help="Recordings, one call each.", show_default=False)
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="SWITCHBOARD_URL",
            show_envvar=True,
            show_default="the service of this machine",
            help="Base URL of the service, to which /submit is added.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            envvar="SWITCHBOARD_API_KEY",
            show_envvar=True,
            help="API key with scope `submit`; not needed for a service of yours on this machine.",
        ),
    ] = None,
    second: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="Recording of the other party, if each leg has its own file.")
    ] = None,
    from_number: Annotated[str, typer.Option("--from", help="The calling number.")] = "anonymous",
    to_number: Annotated[str, typer.Option("--to", help="The number that was called.")] = "anonymous",
    start_time: Annotated[
        str | None, typer.Option(metavar="ISO8601", help="When the call started.", show_default="now")
    ] = None,
    outgoing: Annotated[
        bool | None, typer.Option("--outgoing/--incoming", help="Who placed the call.", show_default="inferred")
    ] = None,
    duration: Annotated[int | None, typer.Option(min=0, help="Length of the call in seconds.")] = None,
    team: Annotated[
        str | None, typer.Option(help="teamId, which a workspace-wide key needs; of a service on this machine a name.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="userId of the member who handled the call.")] = None,
    call_id: Annotated[
        str | None,
        typer.Option(help="The call's UUID: reuse it for the second phase and for retries.", show_default="new"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until completed or failed, then print the record.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.")] = 900.0,
    json_: Json = False,
) -> None:
    """Submit calls to a running service.

    A URL is sent as it is. A local file is handed to your own service on this machine; a service elsewhere takes URLs.
    Without any recording, the call is announced (first phase); submit its recording later under the same --call-id.

    Examples:

      switchboard submit call.wav --wait

      switchboard submit rep.wav --second customer.wav --from +4930123456 --to +34911234567 --outgoing

      switchboard submit https://pbx.example.com/recordings/17.mp3 --team 5f0c... --key sb_...
    """
    from serve_app.settings import Settings

    names = recordings or []
    _refuse_contradictions(names, second, call_id)
    local = [name for name in (*names, second) if name and not _is_url(name)]
    _check_files(local)
    service = this_machine.find(Settings(), url)
    url = str(service.facts["url"]) if service else url or Settings().base_url
    if service is not None and service.has_database:
        key, team = this_machine.key_and_team(service, key, team)
    key = _require_key(key)
    described = {
        "from": from_number,
        "to": to_number,
        "startTime": start_time or datetime.now().astimezone().isoformat(timespec="seconds"),
        "outgoing": outgoing,
        "duration": duration,
        "teamId": team,
        "userId": user,
    }
    folder = service.handed_in if service else None
    if local and folder is None:
        raise _takes_no_files(url, local)
    sent = _submit(url, key, _bodies(names, second, call_id, described), folder)
    if not json_:
        show(sent)
    records = _wait(sent, key, timeout, service) if wait else []
    if json_:
        print_json([_as_json(one, records) for one in sent])
    else:
        _show_records(records)
    if _any_failed(sent, records):
        raise typer.Exit(FAILED)


def _show_records(records: Sequence[Any]) -> None:
    """As `switchboard calls show` does, one after another."""
    from serve_app.cli.render.call import render_call

    for record in records:
        out().print()
        render_call(record, out())


def _any_failed(sent: Sequence[Sent], records: Sequence[Any]) -> bool:
    return any(one.problem for one in sent) or any(record.call.state == "failed" for record in records)


def _refuse_contradictions(names: Sequence[str], second: str | None, call_id: str | None) -> None:
    if (second or call_id) and len(names) > 1:
        raise CommandError("--second and --call-id describe one call, but several recordings were given.", "", USAGE)
    if call_id:
        need_uuid(call_id, "--call-id takes the call's UUID.")
    if second and not names:
        raise CommandError("--second needs the sender's own recording before it.", "", USAGE)


def _require_key(key: str | None) -> str:
    if not key:
        raise CommandError(
            "No API key.",
            "Pass --key or set SWITCHBOARD_API_KEY; `switchboard keys create --workspace NAME` makes one.",
            USAGE,
        )
    return key


def _takes_no_files(url: str, files: Sequence[str]) -> CommandError:
    return CommandError(
        f"{url} takes no file of this machine: {', '.join(files)}.",
        "Files can be handed to a service that you run on this machine. To any other, submit a URL: put the recording "
        "into a bucket or on a web server that the service can fetch from, and pass its https URL.",
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
        own = call_id or str(uuid4())
        body = {"callId": own, "recordingUrl": _address(name), "recordingUrl2": _address(second)}
        body |= described
        bodies.append((name or "announcement", {field: value for field, value in body.items() if value is not None}))
    return bodies


def _submit(url: str, key: str, bodies: Sequence[tuple[str, dict[str, Any]]], folder: Path | None) -> list[Sent]:
    """As `send`; with `folder`, files are handed in one by one, each just before its submission."""
    if folder is None:
        return send(url, key, bodies)
    return [_hand_in(url, key, name, body, folder) for name, body in bodies]


def _hand_in(url: str, key: str, name: str, body: dict[str, Any], folder: Path) -> Sent:
    """As `send`, for one call; nothing stays in `folder` of one that was refused or never arrived."""
    call = UUID(body["callId"])
    sent = dict(body)
    accepted = False
    try:
        for field in ("recordingUrl", "recordingUrl2"):
            if isinstance(body.get(field), Path):
                sent[field] = handed_in.hand_in(folder, body[field], call)
        (one,) = send(url, key, [(name, sent)])
        accepted = one.problem is None
        return one
    except handed_in.NoRoom as error:
        return Sent(name, str(call), body, None, CommandProblem(507, "No room for the file", str(error)))
    except CommandError as error:
        accepted = not _never_arrived(error)
        raise
    finally:
        for field in () if accepted else ("recordingUrl", "recordingUrl2"):
            if handed_in.is_handed_in(str(sent.get(field, ""))):
                handed_in.withdraw(folder, sent[field], call)


def _never_arrived(error: CommandError) -> bool:
    """Whether no connection was made. After one, the service may have accepted what it did not answer."""
    import httpx

    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)


def send(url: str, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> list[Sent]:
    """POST each body to `url`/submit in order. Raises `CommandError` (3) when nothing answers there."""
    import httpx

    endpoint = f"{url.rstrip('/')}/submit"
    sent = []
    try:
        with httpx.Client(
            timeout=REQUEST_TIMEOUT, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        ) as client:
            for name, body in bodies:
                answer = client.post(endpoint, json=body)
                reply, problem = None, None
                if answer.status_code == 202:
                    reply = answer.json()
                else:
                    problem = read_problem(answer.status_code, answer.headers, answer.content)
                sent.append(Sent(name, str(body["callId"]), body, reply, problem))
    except (httpx.TransportError, httpx.InvalidURL, UnicodeError) as error:
        raise CommandError(
            f"No answer from {endpoint}: {error or type(error).__name__}.",
            "Is the service up (`switchboard up`), and --url right? What was accepted before is kept.",
            UNREACHABLE,
        ) from error
    return sent


def show(sent: Sequence[Sent]) -> None:
    console = out()
    for one in sent:
        if one.problem:
            show_problem(one.problem, one.name, err())
        elif one.reply:
            job = f"  jobId {one.reply['jobId']}" if "jobId" in one.reply else ""
            console.print(f"{one.name}: {one.reply['status']}  callId {one.reply['callId']}{job}", markup=False)


def _wait(sent: Sequence[Sent], key: str, timeout: float, service: this_machine.LocalService | None) -> list[Any]:
    """Wait until the accepted calls have ended; return their records."""
    from serve_app.cli.calls.follow import follow_calls

    call_ids = [UUID(one.call_id) for one in sent if one.reply and "jobId" in one.reply]
    return follow_calls(call_ids, key, timeout, service.settings if service else None) if call_ids else []


def _is_url(name: str) -> bool:
    return "://" in name


def _check_files(names: Sequence[str]) -> None:
    absent = [name for name in names if not Path(name).is_file()]
    if absent:
        raise CommandError(f"No such file: {', '.join(absent)}", "A recording is a file or a URL (https://...).", USAGE)


def _address(name: str | None) -> str | Path | None:
    """Return the URL of a recording, or the path of a local file."""
    return name if name is None or _is_url(name) else Path(name).resolve()


def _as_json(one: Sent, records: Sequence[Any]) -> dict[str, Any]:
    record = next((record for record in records if str(record.call.call_id) == one.call_id), None)
    return {
        "submitted": one.name,
        "callId": one.call_id,
        "reply": one.reply,
        "problem": one.problem,
        "record": record,
    }
