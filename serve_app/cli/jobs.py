"""`switchboard jobs`: the queue as an operator sees it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from serve_app.cli import names, state
from serve_app.cli.console import Json, err, moment, out, print_json, table

if TYPE_CHECKING:
    from db.database import Database
    from db.views import JobSummary

STYLES = {"queued": "cyan", "running": "yellow", "done": "green", "failed": "bold red", "superseded": "dim"}

app = typer.Typer(
    help="""Jobs: each promises to process a call.

    Example:

      switchboard jobs list --failed
    """,
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """One command for now; without this, typer would drop its name."""


@app.command("list")
def list_(
    failed: Annotated[bool, typer.Option("--failed", help="Only jobs that were given up.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Latest first, this many.")] = 20,
    workspace: names.Workspace = None,
    json_: Json = False,
) -> None:
    """List the latest jobs: state, stage, worker, attempts, crashes, next try, last error.

    Example:

      switchboard jobs list --failed --limit 100 --json
    """

    async def work(database: "Database") -> "list[JobSummary]":
        from db import views

        home = await names.workspace(database, workspace) if workspace else None
        return await views.list_jobs(database, home.workspace_id if home else None, "failed" if failed else None, limit)

    found = state.run(work)
    if json_:
        print_json(found)
        return
    if not found:
        err().print("No job was given up." if failed else "No jobs yet.")
        return
    lines = table("!job", "!call", "kind", "!state", "!attempts", "!created", "about")
    for job in found:
        lines.add_row(
            str(job.job_id),
            str(job.call_id),
            job.kind,
            Text(job.state, style=STYLES.get(job.state, "")),
            str(job.attempts),
            moment(job.created_at),
            Text(about(job)),
        )
    out().print(lines)


def about(job: "JobSummary") -> str:
    """Stage and worker while it runs, the next try while it waits, and the last error."""
    parts = []
    if job.state == "running":
        parts.append(f"{job.stage or 'starting'} on {job.worker}")
    if job.next_try and job.attempts:
        parts.append(f"next try {moment(job.next_try)}")
    if job.crashes:
        parts.append(f"{job.crashes} crashes")
    if job.error and job.state != "done":
        parts.append(f"{job.error.code}: {job.error.message}")
    return ", ".join(parts)
