import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid4

import httpx
import typer

from serve_app.cli.run.up import print_engines
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, err, out, print_json, print_step
from serve_app.cli.ui.table import Table, table

if TYPE_CHECKING:
    from db.records.views import CallRecord
    from pipeline.domain.speech import Label
    from serve_app.demo.samples import Sample
    from serve_app.service.service import Endpoints, Service
    from serve_app.settings import Settings

HELLO = """[bold]Switchboard demo[/bold]: PostgreSQL, Ray Serve and the engines, as in production.
Recognition: {asr.model} ({asr.engine}). Diarization: {diarization.pipeline} ({diarization.engine}).
"""
VOICES = {"real": "real", "synthetic": "TTS"}
WORKSPACE, PLACE, KEY = "Demo", ("US", "America/New_York"), "demo"
MEMBERS = {"Anna", "John", "Laura", "Peter", "Lucía", "Sabine"}
CONTACTS = {"Peter Miller", "Laura Bennett", "Anna Clark", "Pablo Sánchez", "Hans Schneider"}
MODELS = {"faster-whisper": "base", "pyannote": "segmentation-3.0+campplus"}
ATTRIBUTION = """Real voices: LibriSpeech (V. Panayotov et al., CC BY 4.0); pyannote.audio (MIT);
Asterisk prompts by Allison Smith, music by Macroform and Reno Project (CC BY-SA
3.0). TTS: flite, espeak-ng. More: serve_app/demo/samples/README.md"""


@dataclass(frozen=True, slots=True)
class DemoResult:
    name: str
    call_id: str
    statuses: tuple[str, ...]
    job_id: str | None


Calls = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CALL ...]", help="Prefixes of sample names, such as 01 04.", show_default="all nine"),
]
Keep = Annotated[
    bool | None, typer.Option(help="Keep the service running afterwards, until Ctrl-C.", show_default="on a terminal")
]


def demo(
    calls: Calls = None,
    keep: Keep = None,
    data_dir: Annotated[Path, typer.Option(help="Folder for the state of the demo.")] = Path(".data/demo"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the calls to finish.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Start the service, submit the sample calls as a phone system would, and show the records.

    The samples have reference transcripts: the last table counts the words that were recognized wrong. The first run
    fetches model files (about 300 MB).

    On a terminal, the service then keeps running until Ctrl-C and prints a link to the console. Another demo processes
    the same calls again in the same workspace.

    Example:

      switchboard demo 01 08 --no-keep
    """
    from serve_app.service.run_folder import discard_own_folder
    from serve_app.service.service import Service

    settings = demo_settings(data_dir, port)
    _prepare_machine(settings)
    samples = chosen_samples(tuple(calls or ()))
    service = Service(settings, "local", on_step=print_step)
    try:
        endpoints = service.start()
        workspace = asyncio.run(_prepare_workspace(endpoints.database_url))
        completed = _process(service, endpoints, workspace, samples, settings.handed_in, timeout, as_json)
        if keep or (keep is None and sys.stdout.isatty() and not as_json):
            _keep_running(endpoints, *workspace, data_dir)
    finally:
        service.stop()
    if completed < len(samples):
        raise _incomplete(len(samples) - completed, len(samples))
    discard_own_folder()


def _prepare_machine(settings: "Settings") -> None:
    from serve_app.service.children import adopt_orphans

    err().print(HELLO.format(asr=settings.asr, diarization=settings.diarization))
    os.umask(0o077)
    adopt_orphans()
    _fetch_checkpoints(settings)


def _incomplete(missing: int, count: int) -> CommandError:
    from serve_app.service.run_folder import own_folder

    logs = f"{own_folder().path}/ray/session_latest/logs/serve"
    message = f"{missing} of {count} calls were not completed."
    return CommandError(message, f"See their records above; Ray's logs are in {logs}.", FAILED)


def _process(
    service: "Service",
    endpoints: "Endpoints",
    workspace: tuple[UUID, str],
    samples: "list[Sample]",
    folder: Path,
    timeout: float,
    as_json: bool,
) -> int:
    """Submit the samples, show their records, and return how many were completed. `workspace`: its id and a key."""
    workspace_id, key = workspace
    err().print(f"[green]ready[/green] after {endpoints.seconds:.1f} s: {endpoints.submit_url}")
    started = time.monotonic()
    results = _submit(samples, folder, endpoints.submit_url, key)
    engines = service.wait_for_engines(timeout)
    if engines.problems:
        raise CommandError("An engine is not available.", " ".join(engines.problems.values()), FAILED)
    print_engines(engines)
    records = asyncio.run(_follow(endpoints.database_url, workspace_id, results, timeout))
    report = _report(samples, results, records, endpoints.seconds, time.monotonic() - started)
    print_json(report) if as_json else _show(samples, records, report)
    return int(report["completed"])


def demo_settings(data_dir: Path, port: int) -> "Settings":
    """Return production settings except for the default engines' models, the folder and the port."""
    from serve_app.service.ports import free_port
    from serve_app.settings import Settings

    settings = Settings()
    changes = {
        "database_url": None,
        "storage": None,
        "data_dir": data_dir.resolve(),
        "http": settings.http.model_copy(update={"host": "127.0.0.1", "port": port or free_port()}),
        "asr": settings.asr.model_copy(update=_model(settings.asr.engine, "model")),
        "diarization": settings.diarization.model_copy(update=_model(settings.diarization.engine, "pipeline")),
        "processing": settings.processing.model_copy(update={"drain_seconds": 2.0}),
    }
    return settings.model_copy(update=changes)


def _model(engine: str, option: str) -> dict[str, str]:
    return {option: MODELS[engine]} if engine in MODELS else {}


def chosen_samples(prefixes: tuple[str, ...]) -> "list[Sample]":
    """Return the samples whose names start with one of the prefixes; all samples without prefixes."""
    from serve_app.demo.samples import load_samples

    samples = load_samples()
    chosen = [sample for sample in samples if sample.name.startswith(prefixes or "")]
    if not chosen:
        names = ", ".join(sample.name for sample in samples)
        raise CommandError(f"No sample call starts with {', '.join(prefixes)}.", f"Samples: {names}.", USAGE)
    return chosen


def _fetch_checkpoints(settings: "Settings") -> None:
    from pipeline.checkpoints.fetch import fetch
    from pipeline.checkpoints.lock import default_store

    kinds = settings.asr.engine_class.CHECKPOINTS, settings.diarization.engine_class.CHECKPOINTS
    models = zip((settings.asr.model, settings.diarization.pipeline), kinds, strict=True)
    parts = [part for model, kind in models if kind for part in kind.stored.get(model, {}).values()]
    folder = settings.checkpoints or default_store()
    fetch(parts, folder, lambda line: err().print(line, style="dim", markup=False))


async def _prepare_workspace(database_url: str) -> tuple[UUID, str]:
    """Return the demo's workspace and a new key of its team; reuse those of an earlier demo."""
    from db.core.database import Database
    from db.workspace import directory, keys

    async with await Database.open(database_url, pool_size=2) as database:
        workspaces = [
            workspace for workspace in await directory.list_workspaces(database) if workspace.name == WORKSPACE
        ]
        workspace = workspaces[-1] if workspaces else await directory.create_workspace(database, WORKSPACE, *PLACE)
        workspace_id = workspace.workspace_id
        teams = await directory.list_teams(database, workspace_id)
        team = teams[0] if teams else await directory.create_team(database, workspace_id, "Service desk")
        members = {member.name for member in await directory.list_members(database, workspace_id)}
        for name in MEMBERS - members:
            await directory.add_member(database, workspace_id, name, team_id=team.team_id)
        contacts = {contact.name for contact in await directory.list_contacts(database, workspace_id)}
        for name in CONTACTS - contacts:
            await directory.add_contact(database, workspace_id, name)
        for key in await keys.list_keys(database, workspace_id):
            if key.name == KEY and (rotated := await keys.rotate(database, key.key_id, timedelta())):
                return workspace_id, rotated[2]
        _, secret = await keys.create(database, workspace_id, team.team_id, ["submit"], KEY)
        return workspace_id, secret


async def _issue_link(database_url: str, workspace_id: UUID, console_url: str) -> str:
    from db.core.database import Database
    from db.workspace import sessions
    from serve_app.cli.workspace.console import link_url

    async with await Database.open(database_url, pool_size=2) as database:
        secret, _ = await sessions.issue_link(database, workspace_id, None, "demo", may_edit=True)
        return link_url(console_url, secret)


def _submit(samples: "list[Sample]", folder: Path, submit_url: str, key: str) -> list[DemoResult]:
    """Hand in and POST each sample; two-phase samples twice, first without a recording.

    A sample has the same callId in every demo but another recording URL, so it is processed again.
    """
    from pipeline.fetch.handed_in import hand_in

    results, run = [], uuid4().hex[:8]
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=10.0, trust_env=False) as client:
        for sample in samples:
            call_id = UUID(sample.body["callId"])
            names = [f"{run}-{recording.name}" for recording in sample.recordings]
            urls = [hand_in(folder, file, call_id, name) for file, name in zip(sample.recordings, names, strict=True)]
            bodies = sample.submissions(dict(zip(sample.recordings, urls, strict=True)).__getitem__, call_id)
            responses = [_post(client, submit_url, body) for body in bodies]
            statuses = tuple(response["status"] for response in responses)
            results.append(DemoResult(sample.name, responses[-1]["callId"], statuses, responses[-1].get("jobId")))
            err().print(f"  202 {' then '.join(statuses):<26} {sample.name}")
    return results


def _post(client: httpx.Client, url: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(url, json=body)
    if response.status_code != 202:
        raise CommandError(f"POST /submit responded {response.status_code}: {response.text}", "", FAILED)
    return dict(response.json())


async def _follow(
    database_url: str, workspace_id: UUID, results: list[DemoResult], seconds: float
) -> "dict[str, CallRecord]":
    from db.core.database import Database
    from serve_app.cli.calls.submit import follow
    from serve_app.settings import Settings

    async with await Database.open(database_url, pool_size=2, call_keys=Settings().call_keys()) as database:
        names = {UUID(result.call_id): result.name for result in results}
        records = await follow(database, list(names), workspace_id, seconds, err(), names)
        return {result.name: record for result, record in zip(results, records, strict=True)}


def _report(
    samples: "list[Sample]",
    results: list[DemoResult],
    records: "dict[str, CallRecord]",
    start_seconds: float,
    run_seconds: float,
) -> dict[str, Any]:
    from serve_app.demo.compare import WordErrors, compare, turns_by_role

    rows, total = [], WordErrors(0, 0)
    for sample, result in zip(samples, results, strict=True):
        record = records[sample.name]
        row: dict[str, Any] = {**asdict(result), "voices": sample.expected["voices"], "state": str(record.call.state)}
        if record.transcript is not None:
            errors = compare(sample.expected, turns_by_role(record.transcript), record.transcript.layout.kind.separated)
            total += errors
            row |= {
                "layout": str(record.transcript.layout.kind),
                "layout_expected": sample.expected["layout"],
                "language": record.transcript.language,
                "language_expected": sample.expected["language"],
                "words_wrong": errors.wrong,
                "words_said": errors.words,
                "words_doubtful": sum(word.doubtful for turn in record.transcript.turns for word in turn.words),
                "doubts": len(record.transcript.doubts),
                "channels": [_seconds_by_kind(labels) for labels in record.transcript.labels],
                "speakers": len({turn.speaker for turn in record.transcript.turns if not turn.machine}),
                "tasks": len(record.tasks),
            }
        rows.append(row)
    return {
        "completed": sum(row["state"] == "completed" for row in rows),
        "calls": rows,
        "words_wrong": total.wrong,
        "words_said": total.words,
        "start_seconds": round(start_seconds, 1),
        "run_seconds": round(run_seconds, 1),
    }


def _seconds_by_kind(labels: "Sequence[Label]") -> dict[str, float]:
    kinds = {label.kind for label in labels}
    return {
        str(kind): round(sum(label.end - label.start for label in labels if label.kind is kind), 1)
        for kind in sorted(kinds)
    }


def _show(samples: "list[Sample]", records: "dict[str, CallRecord]", report: dict[str, Any]) -> None:
    from serve_app.cli.render.call import render_call

    console = out()
    for sample in samples:
        console.rule(f"[bold]{sample.name}[/bold]")
        render_call(records[sample.name], console)
    console.rule("[bold]Transcripts compared with the references[/bold]")
    console.print(_summary(report["calls"]))
    rate = report["words_wrong"] / max(1, report["words_said"])
    console.print(
        f"\n[bold]{report['completed']} of {len(samples)} calls completed[/bold] in {report['run_seconds']} s "
        f"(service ready after {report['start_seconds']} s); {rate:.1%} of the words wrong."
    )
    console.print(ATTRIBUTION, style="dim")
    console.print(
        "\nNext:\n"
        "  switchboard up                the service, for your calls\n"
        "  switchboard process FILE      the pipeline on your recording\n"
        "  switchboard doctor            checks this machine for larger models\n"
        "  docs/operating.md             your PostgreSQL, larger models, ray up"
    )


def _summary(calls: list[dict[str, Any]]) -> Table:
    summary = table("!sample", "!status", "!layout", "!lang", "#wrong", "#doubtful", "#tasks", "!voice")
    for row in calls:
        wrong = f"{row['words_wrong']} of {row['words_said']}" if "words_said" in row else "-"
        about = (row.get("layout", "-"), row.get("language") or "-", wrong)
        counts = (row.get("words_doubtful", "-"), row.get("tasks", "-"))
        summary.add_row(row["name"], row["state"], *about, *counts, VOICES[row["voices"]])
    return summary


def _keep_running(endpoints: "Endpoints", workspace_id: UUID, key: str, data_dir: Path) -> None:
    """Print the console's link and wait for Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    console = err()
    if endpoints.console_url:
        link = asyncio.run(_issue_link(endpoints.database_url, workspace_id, endpoints.console_url))
        console.print(f"\n[bold]Console[/bold] (this link works once):\n  [green]{link}[/green]", soft_wrap=True)
    console.print(f"\nThe service keeps running. Send calls to {endpoints.submit_url} with this key:\n  {key}")
    console.print(f"Read them with: SWITCHBOARD_DATA_DIR={data_dir} switchboard calls list\nPress Ctrl-C to stop it.")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not interrupt the shutdown
        console.print("Stopping ...")
