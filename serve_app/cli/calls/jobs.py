from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import Time, moment_of, parse_id, parse_time
from serve_app.cli.ui.output import counted, fields, moment
from serve_app.cli.ui.resource import AnyScope, Group, Result, details, listing
from serve_app.cli.ui.table import Table
from serve_app.records.advice import advice, waiting_advice

if TYPE_CHECKING:
    from db.core.database import Database
    from db.queue import retries
    from db.queue.retries import FailedJob, WaitingJob
    from db.records import job_views
    from db.records.job_views import JobSummary
else:
    retries, job_views = lazy("db.queue.retries", "db.records.job_views")

STYLES = {
    "fetching": "cyan",
    "queued": "cyan",
    "running": "yellow",
    "done": "green",
    "failed": "bold red",
    "superseded": "dim",
}

app = Group("Jobs: each processes a call.")

Code = Annotated[str | None, typer.Option("--code", help="Only failures with this code.")]
Since = Annotated[
    Time | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=parse_time,
        help="Only jobs that failed since: 2h, 3d, or a time such as 2026-11-20T08:00.",
    ),
]


@app.reads()
async def list_(
    scope: AnyScope,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed jobs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 20,
) -> Result:
    """List the latest jobs: state, stage, worker, attempts, crashes, next try, last error.

    Example:

      switchboard jobs list --failed --limit 100 --json
    """
    return listing(
        await job_views.list_jobs(scope.database, scope.id, "failed" if failed else None, limit),
        ("!job", "!status", "#tries", "!created", "!call", "!kind", "about"),
        lambda job: (
            *(job.job_id, Text(job.state, style=STYLES.get(job.state, "")), job.attempts),
            *(job.created_at, job.call_id, job.kind, about(job)),
        ),
        "No job failed." if failed else "No jobs yet.",
    )


def about(job: "JobSummary") -> str:
    """Return the stage and worker of a running job, the next attempt of a waiting one, and the last error."""
    from pipeline.domain.stage import Stage

    parts = []
    if job.state == "running" or (job.state == "fetching" and not job.next_try):
        stage = Stage.display_name_of(job.stage) if job.stage else "starting"
        parts.append(f"{stage} on {job.worker}" if job.worker else stage)
    if job.next_try and job.attempts:
        parts.append(f"next try {moment(job.next_try)}")
    if job.crashes:
        parts.append(counted(job.crashes, "crash", "crashes"))
    if job.error and job.state != "done":
        parts.append(f"{job.error.code}: {job.error.message}")
    return ", ".join(parts)


@app.reads()
async def failed(
    scope: AnyScope,
    code: Code = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show, newest first.")] = 50,
) -> Result:
    """List failed jobs, why they failed, and what to do about it.

    Example:

      switchboard jobs failed --since 1d
    """
    start = await moment_of(scope.database, since)
    jobs = await retries.failed(scope.database, scope.id, code=code, since=start, limit=limit)
    answer = listing(
        jobs,
        ("!job", "!code", "!failed", "!call", "!kind", "why"),
        lambda job: (job.job_id, Text(job.code, "red"), job.failed_at, job.call_id, job.kind, job.message),
        "No job failed.",
        [{**fields(job), "advice": advice(job.code)} for job in jobs],
    )
    codes = Counter(job.code for job in jobs).most_common()
    hints = [Text.assemble((f"\n{name} ({count}): ", "bold"), advice(name)) for name, count in codes]
    return replace(answer, lines=(answer.lines, *hints)) if isinstance(answer.lines, Table) else answer


def _selects(present: set[str]) -> bool:
    if ("id_" in present) == bool(present & {"all_", "waiting", "code", "since"}):
        raise CommandError("Nothing selected: pass an ID, --all, --waiting, --code or --since.", "", USAGE)
    return "dry_run" not in present


@app.checked(_selects)
async def retry(
    scope: AnyScope,
    id_: Annotated[
        UUID | None,
        typer.Argument(
            metavar="[ID]",
            parser=parse_id("`switchboard jobs failed` shows the ids."),
            help="A failed or waiting job, or its call.",
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All jobs that `jobs failed` lists.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Retry waiting jobs now, instead of failed ones.")] = False,
    code: Code = None,
    since: Since = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be retried without doing it.")] = False,
) -> Result:
    """Retry failed jobs: a new job for each call, as if the same recording were submitted again.

    A job that waits for a retry is retried now.

    Examples:

      switchboard jobs retry --code storage_error --since 6h --dry-run

      switchboard jobs retry --waiting --code recording_unreachable
    """
    database, start = scope.database, await moment_of(scope.database, since)
    ids = None if id_ is None else [id_]
    if not waiting:
        jobs = await retries.failed(database, scope.id, code=code, since=start, ids=ids, limit=None)
        if jobs or id_ is None:
            return await _retry(database, jobs, dry_run)
    due = await retries.waiting(database, scope.id, code=code, since=start, ids=ids)
    if not due and id_ is not None:
        hint = "`switchboard jobs list` shows the states of jobs."
        raise CommandError(f"{id_} is neither a failed nor a waiting job.", hint, FAILED)
    return await _try_now(database, due, dry_run)


@app.reads()
async def show(
    database: "Database",
    id_: Annotated[
        UUID, typer.Argument(metavar="ID", parser=parse_id("`switchboard jobs list` shows the ids."), help="A job.")
    ],
) -> Result:
    """Show one job: state, stage, worker, attempts, the last error and what to do about it."""
    job = await job_views.show_job(database, id_)
    if job is None:
        raise CommandError(f"No job {id_}.", "`switchboard jobs list` shows the ids.", FAILED)
    names = ("job_id", "call_id", "kind", "state", "stage", "worker", "attempts", "failures", "crashes")
    times = ("created_at", "started_at", "next_try", "finished_at")
    values = ((name, getattr(job, name)) for name in (*names, *times))
    rows = [("status" if name == "state" else name, value) for name, value in values if value is not None]
    if job.error and job.state != "done":
        to_do = waiting_advice(job.job_id) if job.next_try else advice(job.error.code, job.job_id)
        rows += [("error", f"{job.error.code}: {job.error.message}"), ("what to do", to_do)]
    return Result(job, details(rows))


async def _try_now(database: "Database", due: "list[WaitingJob]", dry_run: bool) -> Result:
    tried = set() if dry_run else {job.job_id for job in due if await retries.try_now(database, job.job_id)}
    lines = []
    for job in due:
        what = f"call {job.call_id} ({job.kind}, {job.code}), attempt {job.attempts + 1}"
        if dry_run:
            lines.append(f"would be tried now: {what}, due {moment(job.next_try)}")
        else:
            lines.append(f"tried now: {what}" if job.job_id in tried else f"skipped: {what}: it no longer waits")
    count = f"{len(due)} would be tried now." if dry_run else f"{len(tried)} of {len(due)} are tried now."
    return Result([{**fields(job), "tried": job.job_id in tried} for job in due], lines, (count,))


async def _retry(database: "Database", jobs: "list[FailedJob]", dry_run: bool) -> Result:
    new: dict[UUID, UUID | None] = {}
    for job in () if dry_run else jobs:
        if retried := await retries.retry(database, job.job_id):
            new[retried.job_id] = retried.new_job_id
    lines = []
    for job in jobs:
        what, new_id = f"call {job.call_id} ({job.kind}, {job.code})", new.get(job.job_id)
        if dry_run:
            lines.append(f"would be retried: {what}")
        else:
            lines.append(f"retried: {what}, new job {new_id}" if new_id else f"skipped: {what}: it has another job now")
    count = sum(new_id is not None for new_id in new.values())
    note = f"{len(jobs)} would be retried." if dry_run else f"{count} of {len(jobs)} are retried."
    return Result([{**fields(job), "new_job_id": new.get(job.job_id)} for job in jobs], lines, (note,))
