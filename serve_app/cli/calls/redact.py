import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from db.workspace.redaction_policies import PolicyRefused
from pipeline.domain.redaction import RedactionMode
from serve_app.cli.ui import database as databases
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.options import CallIds, Since, Team, Workspace, moment_of
from serve_app.cli.ui.output import Json, counted, err, progress_bar
from serve_app.cli.ui.policy import PolicyChoice, with_policy
from serve_app.cli.ui.resource import Result

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records import redactions
    from db.records.redactions import LateFilter
else:
    (redactions,) = lazy("db.records.redactions")

POLL_SECONDS = 0.5
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the calls, and change nothing.")]
_MODES = tuple(mode for mode in RedactionMode if mode is not RedactionMode.OFF)


def _mode(text: str) -> RedactionMode:
    if text not in _MODES:
        raise CommandError(f"{text!r} is no mode.", f"Write {' or '.join(_MODES)}.", USAGE)
    return RedactionMode(text)


Mode = Annotated[
    Any, typer.Option(metavar="MODE", parser=_mode, help="Of the policy: mask, or redacted-only: none is kept.")
]


@with_policy
def redact(
    choice: PolicyChoice,
    mode: Mode = RedactionMode.MASK,
    since: Since = None,
    team: Team = None,
    call: CallIds = None,
    dry_run: DryRun = False,
    workspace: Workspace = None,
    json_: Json = False,
) -> None:
    """Redact stored calls: words, sound, findings, search.

    With a preset, kind or pattern: by this policy, which applies to these calls once. Otherwise by the policies that
    are set.

    Calls are redacted by the running service while no live call waits, also after this command ends. Corrections, gold
    sets and results of runs of a call in which something is hidden are deleted. Hidden data of redacted-only cannot be
    restored. A repeated command continues. A call that cannot be checked is held back, except with --show-unchecked.

    Examples:

      switchboard redact --since 2026-01-01 --dry-run

      switchboard redact --since 2026-01-01 --preset pci --mode redacted-only --team support
    """
    choice.require()
    try:
        policy = choice.policy(mode) if choice else None
    except PolicyRefused as error:
        raise CommandError(str(error), "`switchboard redact --help` lists the options.", USAGE) from error

    async def run(database: "Database") -> Result:
        home = (await lookup.workspace(database, workspace)).workspace_id
        filter_ = redactions.LateFilter(
            await moment_of(database, since), await lookup.team_id(database, home, team), tuple(call or ()), policy
        )
        return await _redact(database, home, filter_, dry_run)

    databases.run(run, not dry_run).print(json_)


async def _redact(database: "Database", home: UUID, filter_: "LateFilter", dry_run: bool) -> Result:
    if not await redactions.policies(database, home, filter_.policy):
        advice = "`switchboard redaction set mask --preset pci` sets one; --preset names one for these calls."
        raise CommandError("No policy of redaction applies to the workspace.", advice, USAGE)
    due = await redactions.count_due(database, home, filter_)
    if dry_run:
        return Result({"due": due}, f"{counted(due, 'call')} would be redacted. Nothing was changed.")
    failed = await _wait(database, home, await _queue(database, home, filter_), due)
    remaining = await redactions.count_due(database, home, filter_)
    data = {"due": due, "redacted": due - remaining, "remaining": remaining, "failed": failed}
    lines = f"Redacted {counted(due - remaining, 'call')}; {remaining} remain."
    return Result(data, lines, failed=bool(remaining))


async def _queue(database: "Database", home: UUID, filter_: "LateFilter") -> list[int]:
    queued: list[int] = []
    while batch := await redactions.queue_due(database, home, filter_, queued[-1] if queued else 0):
        queued += batch
    return queued


async def _wait(database: "Database", home: UUID, queued: list[int], due: int) -> int:
    with progress_bar(disable=not err().is_terminal) as bar:
        task = bar.add_task("Redacting", total=due)
        while True:
            progress = await redactions.progress(database, home, queued)
            bar.update(task, completed=len(queued) - progress.waiting)
            if not progress.waiting:
                return progress.failed
            await asyncio.sleep(POLL_SECONDS)
