"""`switchboard runs`: stored calls processed again with another configuration; compared, promoted, rolled back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from serve_app.cli.ui import lookup, since
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import (
    Json,
    command_group,
    counted,
    duration,
    err,
    moment,
    out,
    print_json,
    print_list,
    progress_bar,
    say,
)
from serve_app.cli.workspace import runs_compare
from serve_app.cli.workspace.gold_sets import parsed, some_of
from serve_app.cli.workspace.runs_compare import RunName, find

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.promotion import Moved
    from db.experiments.runs import Run
    from db.workspace.directory import Workspace
    from serve_app.experiments.configuration import Set

T = TypeVar("T")

POLL_SECONDS = 1.0
SHOWN = 5  # calls that failed

app = command_group("""Runs: stored calls by another model or other settings, beside their records.

    A run is processed while no call is waiting. Stages for which nothing changes are not run again. Compare its
    results with the records, make them the records (promote), or restore the old records (rollback).

    Examples:

      switchboard runs create tiny --set asr.model=whisper-tiny.en --since 30d --limit 200

      switchboard runs status tiny --watch

      switchboard runs compare tiny --gold returns

      switchboard runs promote tiny
""")

Watch = Annotated[bool, typer.Option("--watch", help="Follow it until it ends.")]


@app.command()
def create(
    name: lookup.NewName,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="GROUP.NAME=VALUE",
            help="A setting that differs from the service's: asr.model=whisper-tiny.en. Repeatable.",
            show_default="none: the service's current settings and code",
        ),
    ] = None,
    workspace: lookup.Workspace = None,
    team: lookup.Team = None,
    since_: since.Since = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Calls that started before.", show_default=False)
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Calls in this language (ISO 639-1).", show_default=False)
    ] = None,
    gold: Annotated[
        str | None, typer.Option(metavar="SET", help="Calls of a gold set: NAME or NAME@VERSION.", show_default=False)
    ] = None,
    call: Annotated[
        list[UUID] | None, typer.Option("--call", metavar="CALLID", help="This call; repeatable.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many, the latest first.", show_default="all, at most 2,000")
    ] = None,
    watch: Watch = False,
    json_: Json = False,
) -> None:
    """Create a run: completed calls, and the settings that differ from the service's.

    A run may set the groups asr, alignment, diarization, safety, roles and analysis (SETTINGS.md has their names).
    Without --set it shows what the service would produce for these calls today.

    Examples:

      switchboard runs create tiny --set asr.model=whisper-tiny.en --since 7d

      switchboard runs create checked --gold returns --set asr.beam_size=1

      switchboard runs create again --team sales --language en --limit 100 --watch
    """
    from serve_app.settings import Settings

    lookup.check_new(name, "a run")
    changes = _changes(set_ or [], Settings())
    from_, before = since.told(since_), since.told(until)

    async def work(database: "Database", home: "Workspace") -> "tuple[Run, list[UUID]]":
        from db.core.database import Reader
        from db.experiments import runs
        from db.experiments.gold_sets import NoSuchSet
        from serve_app.experiments.compared_calls import patient
        from serve_app.experiments.selection import Wanted, choose

        wanted = Wanted(
            call_ids=tuple(call or ()),
            gold=parsed(gold) if gold else None,
            started_from=await since.moment_of(database, from_),
            started_before=await since.moment_of(database, before),
            team_id=await lookup.team_id(database, home.workspace_id, team),
            language=language,
            limit=limit,
        )
        try:
            chosen = await choose(database, patient(Reader(home.workspace_id)), wanted)
        except NoSuchSet:
            raise CommandError(
                f"There is no gold set {gold!r}.", "`switchboard gold list` shows them.", USAGE
            ) from None
        if not chosen:
            raise CommandError("No completed call matches.", "`switchboard calls list` shows calls.", FAILED)
        return await runs.create(database, home.workspace_id, name, changes, chosen)

    made, left_out = _run(workspace, work, writes=True)
    if json_ and not watch:
        print_json({"run": made, "left_out": left_out})
        return
    err().print(f"Created run {made.name}: {counted(made.calls, 'call')}, {_set(made)}.", markup=False)
    if left_out:
        err().print(f"Left out because they are not completed: {some_of(left_out)}.", style="yellow", markup=False)
    if watch:
        status(name, workspace, watch=True, json_=json_)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List runs, the latest first.

    Example:

      switchboard runs list
    """
    from db.experiments import runs

    print_list(
        lookup.run(workspace, lambda database, home: runs.list_runs(database, home.workspace_id)),
        json_,
        ("!run", "state", "#calls", "#failed", "sets", "!made", "by"),
        lambda one: (
            one.name,
            "promoted" if one.promoted_at else _state(one),
            str(one.calls),
            str(one.failed or ""),
            _set(one),
            moment(one.made_at),
            one.made_by,
        ),
        "No runs yet: `switchboard runs create NAME --set asr.model=...` creates one from stored calls.",
    )


@app.command()
def status(name: RunName, workspace: lookup.Workspace = None, watch: Watch = False, json_: Json = False) -> None:
    """Show a run's progress, speed, remaining time and failures.

    Examples:

      switchboard runs status tiny

      switchboard runs status tiny --watch
    """

    async def work(database: "Database", home: "Workspace") -> "tuple[Run, list[Any]]":
        from db.experiments import run_results

        run = await find(database, home, name)
        if watch:
            run = await _watched(database, home, run)
        failed = await run_results.list_calls(database, home.workspace_id, run.run_id, "failed", limit=SHOWN)
        return run, list(failed.items)

    run, failed = _run(workspace, work)
    if json_:
        print_json({"run": run, "failed": failed})
        return
    for line in _lines(run):
        out().print(line, markup=False)
    for one in failed:
        out().print(f"  {one.call_id}  {one.error_code}: {one.error_message}", style="red", markup=False)
    if run.failed > len(failed):
        out().print(f"  and {run.failed - len(failed)} more", markup=False)


app.command()(runs_compare.compare)


@app.command()
def promote(name: RunName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Make a run's results the records of its calls, all at once. Calls that changed since are skipped.

    Corrections are kept where the words they correct are still there. Each call gets a call.promoted event.
    `runs rollback` undoes the promotion.

    Example:

      switchboard runs promote tiny
    """
    from db.experiments import promotion

    _move(name, workspace, promotion.promote, "is the record of", json_)


@app.command()
def rollback(name: RunName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Restore the records that a promotion replaced, all at once.

    Example:

      switchboard runs rollback tiny
    """
    from db.experiments import promotion

    _move(name, workspace, promotion.roll_back, "is no longer the record of", json_)


@app.command()
def cancel(name: RunName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Stop a run. Calls that are done stay, and can be compared and promoted.

    Example:

      switchboard runs cancel tiny
    """

    from db.experiments import runs

    run = _to_run(name, workspace, runs.cancel)
    say(f"Canceled run {run.name}: {run.done} of {counted(run.calls, 'call')} are done.", run, json_)


@app.command()
def delete(name: RunName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove a run and its results. Calls and their records stay; a promoted run is rolled back first.

    Example:

      switchboard runs delete tiny
    """

    from db.experiments import runs

    run = _to_run(name, workspace, runs.delete)
    say(f"Deleted run {run.name}.", {"deleted": run}, json_)


def _run(workspace: str | None, work: Callable[["Database", "Workspace"], Awaitable[Any]], writes: bool = False) -> Any:
    """As `names.run`; what cannot be done is told."""
    from db.experiments.runs import RunRefused

    try:
        return lookup.run(workspace, work, writes)
    except RunRefused as error:
        raise CommandError(str(error), "", FAILED) from None


def _to_run(name: str, workspace: str | None, change: Callable[["Database", UUID, UUID], Awaitable[T]]) -> T:
    """Change the run that is called so, and return what `change` does."""

    async def work(database: "Database", home: "Workspace") -> T:
        return await change(database, home.workspace_id, (await find(database, home, name)).run_id)

    done: T = _run(workspace, work, writes=True)
    return done


def _move(
    name: str,
    workspace: str | None,
    move: Callable[["Database", UUID, UUID], Awaitable["Moved"]],
    what: str,
    json_: bool,
) -> None:
    moved = _to_run(name, workspace, move)
    if json_:
        print_json(moved)
        return
    out().print(f"Run {moved.run.name} {what} {counted(moved.calls, 'call')}.", markup=False)
    for why in sorted(set(moved.skipped.values())):
        calls = [call_id for call_id, reason in moved.skipped.items() if reason == why]
        err().print(f"Skipped ({why}): {some_of(calls)}", style="yellow", markup=False)


async def _watched(database: "Database", home: "Workspace", run: "Run") -> "Run":
    """Show the run's progress on stderr until it has ended."""
    from db.experiments import runs

    console, told = err(), time.monotonic()
    with progress_bar(disable=not console.is_terminal) as bar:
        shown = bar.add_task(run.name, total=run.calls)
        while run.state == "running":
            bar.update(shown, completed=run.done + run.failed, total=run.waiting + run.running + run.done + run.failed)
            if not console.is_terminal and time.monotonic() - told > 30:
                told = time.monotonic()
                console.print(_lines(run)[1], markup=False)
            await asyncio.sleep(POLL_SECONDS)
            run = await runs.find(database, home.workspace_id, run.run_id)
    return run


def _lines(run: "Run") -> list[str]:
    """What a person wants to know of a run."""
    lines = [f"{run.name}  {_set(run)}"]
    left = run.waiting + run.running
    ended = f"{run.done} of {counted(run.calls, 'call')} done" + (f", {run.failed} failed" if run.failed else "")
    lines.append(f"{_state(run)}: {ended}" + (f", {_remaining(run)}" if left and run.state == "running" else ""))
    if run.worked_seconds > 0:
        rate = run.audio_seconds / run.worked_seconds
        worked = f"{duration(run.worked_seconds)} of processing ({rate:.1f} times real time)"
        lines.append(f"{duration(run.audio_seconds)} of audio in {worked}")
    elif run.done:
        lines.append(f"{duration(run.audio_seconds)} of audio; no stage had to run again")
    if run.configuration:
        engine, code = run.configuration["engines"]["asr"], run.configuration["code"]
        lines.append(
            f"engine {engine['name']} ({engine['digest'][:12]}), code {code['version']} ({code['digest'][:12]})"
        )
        lines.append(f"configuration {run.digest}")
    if run.promoted_at:
        lines.append(f"promoted {moment(run.promoted_at)} by {run.promoted_by}: the record of {run.promoted} calls")
    gone = run.calls - run.done - run.failed - left
    if gone and run.state != "canceled":
        lines.append(f"{counted(gone, 'call')} were removed since")
    return lines


def _remaining(run: "Run") -> str:
    """How long it will still take."""
    from datetime import UTC, datetime

    seconds = run.seconds_left(datetime.now(UTC))
    if seconds is None:
        return "waiting for its turn" if not run.running else "processing the first calls"
    return f"about {duration(seconds)} left"


def _state(run: "Run") -> str:
    return "waiting" if run.is_waiting else run.state


def _set(run: "Run") -> str:
    return ", ".join(run.changes) or "the service's settings"


def _changes(assignments: list[str], settings: Any) -> "Set":
    from serve_app.experiments.configuration import SettingRefused, check, parse

    try:
        return check(parse(assignments), settings)
    except SettingRefused as error:
        raise CommandError(str(error), "SETTINGS.md has all of them.", USAGE) from None
