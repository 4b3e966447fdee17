"""`switchboard jobs`: the queue as an operator sees it, and what failed."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui import database as state
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, counted, err, fields, moment, out, print_json, print_list
from serve_app.cli.ui.since import moment_of, told
from serve_app.cli.ui.table import table
from serve_app.records.advice import advice, waiting_advice

if TYPE_CHECKING:
    from db.core.database import Database
    from db.queue.retries import FailedJob, Retried, WaitingJob
    from db.records.views import JobSummary

T = TypeVar("T")
STYLES = {
    "fetching": "cyan",
    "queued": "cyan",
    "running": "yellow",
    "done": "green",
    "failed": "bold red",
    "superseded": "dim",
}

app = command_group("""Jobs: each promises to process a call.

    Examples:

      switchboard jobs list

      switchboard jobs failed

      switchboard jobs retry --code storage_error
""")


Code = Annotated[str | None, typer.Option("--code", help="Only failures with this code.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only jobs that failed since: 2h, 3d, or a time such as 2026-11-20T08:00."
    ),
]


@app.command("list")
def list_(
    failed: Annotated[bool, typer.Option("--failed", help="Only failed jobs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 20,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """List the latest jobs: state, stage, worker, attempts, crashes, next try, last error.

    Example:

      switchboard jobs list --failed --limit 100 --json
    """

    async def work(database: "Database") -> "list[JobSummary]":
        from db.records import views

        home = await lookup.workspace_id(database, workspace)
        return await views.list_jobs(database, home, "failed" if failed else None, limit)

    print_list(
        state.run(work),
        json_,
        ("!job", "!state", "#tries", "!created", "!call", "!kind", "about"),
        lambda job: (
            str(job.job_id),
            Text(job.state, style=STYLES.get(job.state, "")),
            str(job.attempts),
            moment(job.created_at),
            str(job.call_id),
            job.kind,
            Text(about(job)),
        ),
        "No job failed." if failed else "No jobs yet.",
    )


def about(job: "JobSummary") -> str:
    """Stage and worker while it runs, the next attempt while it waits, and the last error."""
    from pipeline.domain.stage import Stage

    parts = []
    if job.state == "running" or (job.state == "fetching" and not job.next_try):
        parts.append(f"{Stage.display_name_of(job.stage) if job.stage else 'starting'} on {job.worker}")
    if job.next_try and job.attempts:
        parts.append(f"next try {moment(job.next_try)}")
    if job.crashes:
        parts.append(counted(job.crashes, "crash", "crashes"))
    if job.error and job.state != "done":
        parts.append(f"{job.error.code}: {job.error.message}")
    return ", ".join(parts)


@app.command("failed")
def failed_(
    code: Code = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 50,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """List failed jobs, why they failed, and what to do about it.

    Example:

      switchboard jobs failed --since 1d
    """
    found = _failed(workspace, code, since, None, limit)
    print_list(
        found,
        json_,
        ("!job", "!code", "!failed", "!call", "!kind", "why"),
        lambda job: (
            str(job.job_id),
            Text(job.code, "red"),
            moment(job.failed_at),
            str(job.call_id),
            job.kind,
            Text(job.message),
        ),
        "No job failed.",
        [{**fields(job), "advice": advice(job.code)} for job in found],
    )
    for name, count in () if json_ else Counter(job.code for job in found).most_common():
        out().print(Text.assemble((f"\n{name} ({count}): ", "bold"), advice(name)))


@app.command()
def retry(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="A failed or waiting job, or its call.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All jobs that `jobs failed` lists.")] = False,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Jobs that wait for their next try, instead of failed ones: try them now.")
    ] = False,
    code: Code = None,
    since: Since = None,
    workspace: lookup.Workspace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be retried without doing it.")] = False,
    json_: Json = False,
) -> None:
    """Retry failed jobs: a new job for each call, as if the same recording were submitted again.

    A job that waits for its next try is tried now.

    Examples:

      switchboard jobs retry 7b6c2f0e-1f7a-4b0a-9d5e-1d2f3a4b5c6d

      switchboard jobs retry --code storage_error --since 6h --dry-run

      switchboard jobs retry --waiting --code recording_unreachable
    """
    if (id_ is None) == (not (all_ or waiting or code or since)):
        raise CommandError("Say what to retry: an ID, or --all, --waiting, --code or --since.", "", USAGE)
    ids = None if id_ is None else [lookup.need_uuid(id_, "`switchboard jobs failed` shows the ids.")]
    found = [] if waiting else _failed(workspace, code, since, ids, None)
    if not found and (waiting or id_ is not None):
        due = _waiting(workspace, code, since, ids)
        if not due and id_ is not None:
            raise CommandError(
                f"{id_} is neither a failed nor a waiting job.", "`switchboard jobs list` shows how jobs stand.", FAILED
            )
        _tell_tried(due, set() if dry_run else _try_now(due), dry_run, json_)
        return
    done = [] if dry_run else _retry([job.job_id for job in found])
    _tell_retried(found, done, dry_run, json_)


@app.command()
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="A job.")],
    json_: Json = False,
) -> None:
    """Show one job: state, stage, worker, attempts, the last error and what to do about it.

    Example:

      switchboard jobs show 7b6c2f0e-1f7a-4b0a-9d5e-1d2f3a4b5c6d
    """
    from db.records import views

    wanted = lookup.need_uuid(id_, "`switchboard jobs list` shows the ids.")
    job = state.run(lambda database: views.show_job(database, wanted))
    if job is None:
        raise CommandError(f"No job {wanted}.", "`switchboard jobs list` shows the ids.", FAILED)
    if json_:
        print_json(job)
        return
    lines = table("!what", "value")
    lines.show_header = False
    for name in ("job_id", "call_id", "kind", "state", "stage", "worker", "attempts", "failures", "crashes"):
        if getattr(job, name) is not None:
            lines.add_row(name.replace("_", " "), str(getattr(job, name)))
    for name in ("created_at", "started_at", "next_try", "finished_at"):
        if getattr(job, name) is not None:
            lines.add_row(name.replace("_", " "), moment(getattr(job, name)))
    if job.error and job.state != "done":
        lines.add_row("error", Text(f"{job.error.code}: {job.error.message}"))
        to_do = waiting_advice(job.job_id) if job.next_try else advice(job.error.code, job.job_id)
        lines.add_row("what to do", to_do)
    out().print(lines)


def _failed(
    workspace: str | None, code: str | None, since: str | None, ids: list[UUID] | None, limit: int | None
) -> "list[FailedJob]":
    from db.queue import retries

    return _found(retries.failed, workspace, since, code=code, ids=ids, limit=limit)


def _waiting(workspace: str | None, code: str | None, since: str | None, ids: list[UUID] | None) -> "list[WaitingJob]":
    from db.queue import retries

    return _found(retries.waiting, workspace, since, code=code, ids=ids)


def _found(ask: Callable[..., Awaitable[T]], workspace: str | None, since: str | None, **which: Any) -> T:
    asked = told(since)

    async def work(database: "Database") -> T:
        home, earliest = await lookup.workspace_id(database, workspace), await moment_of(database, asked)
        return await ask(database, home, since=earliest, **which)

    return state.run(work)


def _retry(job_ids: list[UUID]) -> "list[Retried]":
    async def work(database: "Database") -> "list[Retried]":
        from db.queue import retries

        done = [await retries.retry(database, job_id) for job_id in job_ids]
        return [one for one in done if one is not None]

    return state.run(work, writes=True)


def _try_now(due: "list[WaitingJob]") -> set[UUID]:
    async def work(database: "Database") -> set[UUID]:
        from db.queue import retries

        return {job.job_id for job in due if await retries.try_now(database, job.job_id)}

    return state.run(work, writes=True)


def _tell_tried(due: "list[WaitingJob]", tried: set[UUID], dry_run: bool, json_: bool) -> None:
    if json_:
        print_json([{**fields(job), "tried": job.job_id in tried} for job in due])
        return
    for job in due:
        what = f"call {job.call_id} ({job.kind}, {job.code}), attempt {job.attempts + 1}"
        if dry_run:
            out().print(f"would be tried now: {what}, due {moment(job.next_try)}")
        elif job.job_id in tried:
            out().print(f"tried now: {what}")
        else:
            out().print(f"left alone: {what}: it no longer waits")
    err().print(f"{len(due)} would be tried now." if dry_run else f"{len(tried)} of {len(due)} are tried now.")


def _tell_retried(found: "list[FailedJob]", done: "list[Retried]", dry_run: bool, json_: bool) -> None:
    new = {one.job_id: one.new_job_id for one in done}
    if json_:
        print_json([{**fields(job), "new_job_id": new.get(job.job_id)} for job in found])
        return
    for job in found:
        what = f"call {job.call_id} ({job.kind}, {job.code})"
        if dry_run:
            out().print(f"would try again: {what}")
        elif new.get(job.job_id):
            out().print(f"tried again: {what}, new job {new[job.job_id]}")
        else:
            out().print(f"left alone: {what}: something else was begun meanwhile")
    begun = sum(value is not None for value in new.values())
    err().print(f"{len(found)} would be tried again." if dry_run else f"{begun} of {len(found)} are tried again.")
