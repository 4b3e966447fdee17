"""`switchboard gold`: calls with known transcripts, to measure recognition against."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from serve_app.cli.ui import lookup, since
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, moment, out, print_json, print_list, say
from serve_app.cli.workspace import gold_score
from serve_app.cli.workspace.gold_sets import SetName, libraries, loaded, some_of, the_set

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.gold_sets import GoldSet
    from db.search.call_list import CallFilter
    from db.workspace.directory import Workspace
    from pipeline.evaluation.truth import TrueCall

PAGE = 100  # calls read in one transaction

app = command_group("""Gold sets: calls whose content is known, in versions that never change.

    Corrected calls become a set; annotations made elsewhere can be imported. Every measurement names the set, its
    version and its digest.

    Examples:

      switchboard gold create returns --since 30d

      switchboard gold score returns

      switchboard gold export returns --format stm --out returns.stm

      switchboard gold import bench annotated/
""")


@app.command()
def create(
    name: lookup.NewName,
    workspace: lookup.Workspace = None,
    team: lookup.Team = None,
    since_: since.Since = None,
    call: Annotated[
        list[UUID] | None,
        typer.Option("--call", metavar="CALLID", help="This call, corrected or not; repeatable.", show_default=False),
    ] = None,
    json_: Json = False,
) -> None:
    """Freeze corrected calls as the next version of a set.

    Without --call, all corrected calls are taken. If nothing changed since the latest version, no new one is made.

    Examples:

      switchboard gold create returns --team sales

      switchboard gold create checked --call 1d6c1f6e-6f2b-4f3a-9d59-0f6b5a1d9a11
    """
    lookup.check_new(name, "a gold set")
    moment_ = since.told(since_)

    async def work(database: "Database", home: "Workspace") -> "tuple[GoldSet, bool]":
        from db.search.call_list import CallFilter

        team_id = await lookup.team_id(database, home.workspace_id, team)
        start = await since.moment_of(database, moment_)
        found = await _read(
            database, home, CallFilter(corrected=True, team_id=team_id, started_from=start), call or None
        )
        if not found:
            raise CommandError(
                "None of these calls was corrected.", "Correct some in the console, or name calls with --call.", FAILED
            )
        return await _added(database, home, name, "corrections", found)

    _say(*lookup.run(workspace, work, writes=True), json_)


@app.command("import")
def import_(
    name: lookup.NewName,
    path: Annotated[
        Path, typer.Argument(exists=True, readable=True, help="A file, or a folder of files of one format.")
    ],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Import annotations: STM, CTM, RTTM, TextGrid or our JSON Lines, by the files' endings.

    Calls are named by their callId; submit recordings that the service does not have first. What a format does not
    hold is reported, and a measurement that needs it is refused.

    Example:

      switchboard gold import bench annotated.stm
    """
    from pipeline.evaluation import formats

    lookup.check_new(name, "a gold set")
    with libraries():
        try:
            calls = formats.read(path)
        except formats.UnreadableFile as error:
            raise CommandError(f"{error}.", "Nothing was imported.", USAGE) from error
    kind = formats.format_of(
        path if path.is_file() else next(f for f in sorted(path.iterdir()) if formats.format_of(f))
    )
    wrong = [one.name for one in calls if lookup.as_uuid(one.name) is None]
    if wrong:
        raise CommandError(
            f"Calls must be named by their callId (a UUID); these are not: {some_of(wrong)}.",
            "`switchboard calls list` shows callIds. Nothing was imported.",
            USAGE,
        )

    async def work(database: "Database", home: "Workspace") -> "tuple[GoldSet, bool]":
        from db.experiments.gold_sets import UnknownCalls

        try:
            return await _added(database, home, name, str(kind), calls)
        except UnknownCalls as error:
            raise CommandError(
                f"{len(error.names)} of {len(calls)} calls are not in workspace {home.name!r}: {some_of(error.names)}.",
                "Submit their recordings first, with these callIds. Nothing was imported.",
                FAILED,
            ) from error

    made, new = lookup.run(workspace, work, writes=True)
    _say(made, new, json_)
    if not json_:
        err().print(_known(calls), markup=False)


app.command()(gold_score.score)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List gold sets with their versions, the latest first.

    Example:

      switchboard gold list
    """
    from db.experiments import gold_sets

    print_list(
        lookup.run(workspace, lambda database, home: gold_sets.list_sets(database, home.workspace_id)),
        json_,
        ("!name", "#version", "#calls", "source", "!made", "by", "!digest"),
        lambda one: (
            one.name,
            str(one.version),
            str(one.calls) if one.left == one.calls else f"{one.left} of {one.calls}",
            one.source,
            moment(one.made_at),
            one.made_by,
            one.digest[:12],
        ),
        "No gold sets yet: correct calls in the console, then `switchboard gold create NAME`.",
    )


@app.command()
def show(name: SetName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Show a version: how much it holds, what is annotated, and whether its digest still matches.

    Example:

      switchboard gold show returns@2
    """
    from pipeline.evaluation import truth

    one, calls = lookup.run(workspace, lambda database, home: loaded(database, home, name))
    fits = truth.digest(calls) == one.digest
    turns = [turn for call in calls for turn in call.turns]
    facts: dict[str, Any] = {
        "turns": len(turns),
        "words": sum(len(turn.words or ()) for turn in turns),
        "spoken_seconds": round(sum(turn.end - turn.start for turn in turns), 1),
        "languages": sorted({call.language for call in calls if call.language}),
        "words_timed": all(call.words_timed for call in calls),
        "speakers_known": all(call.speakers_known for call in calls),
        "tasks_known": sum(call.tasks is not None for call in calls),
        "contacts_known": sum(call.contact is not None for call in calls),
        "digest_fits": fits,
    }
    if json_:
        from serve_app.http.camel_json import fields

        print_json({**fields(one), **facts})
        return
    out().print(f"{one.name}@{one.version}  from {one.source}, {moment(one.made_at)}, by {one.made_by}", markup=False)
    out().print(f"{len(calls)} calls, {facts['turns']} turns, {facts['words']} words", markup=False)
    out().print(_known(calls), markup=False)
    out().print(f"digest {one.digest}", markup=False)
    if not fits:
        gone = one.calls - one.left
        why = f"{gone} of its {one.calls} calls were removed since" if gone else "what is stored is not what was frozen"
        err().print(f"The digest does not match: {why}.", style="yellow", markup=False)


@app.command()
def export(
    name: SetName,
    to: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The file; for TextGrid a folder.")],
    kind: Annotated[
        str, typer.Option("--format", "-f", help="jsonl, stm, ctm, rttm or textgrid.", show_default=True)
    ] = "jsonl",
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Export a version in a standard format, for scoring tools or for further annotation.

    Examples:

      switchboard gold export returns --format stm --out returns.stm

      switchboard gold export returns@1 --format textgrid --out grids/
    """
    from pipeline.evaluation import formats

    if kind not in formats.FORMATS:
        raise CommandError(f"Unknown format {kind!r}.", f"Formats: {', '.join(formats.FORMATS)}.", USAGE)
    one, calls = lookup.run(workspace, lambda database, home: loaded(database, home, name))
    with libraries():
        try:
            files = formats.write(calls, kind, to)
        except (OSError, ValueError) as error:
            raise CommandError(f"{one.name}@{one.version} was not written: {error}.", "", FAILED) from error
    if json_:
        print_json({"name": one.name, "version": one.version, "digest": one.digest, "files": [str(f) for f in files]})
        return
    left_out = formats.LEAVES_OUT[kind]
    out().print(f"{one.name}@{one.version}: {len(calls)} calls in {_files(files, to)}", markup=False, soft_wrap=True)
    if left_out:
        err().print(f"{kind} does not hold {left_out}.", markup=False)


@app.command()
def remove(name: SetName, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove one version. Calls and other versions stay.

    Example:

      switchboard gold remove returns@1
    """

    async def work(database: "Database", home: "Workspace") -> "GoldSet":
        from db.experiments import gold_sets

        one = await the_set(database, home, name)
        await gold_sets.remove(database, home.workspace_id, one)
        return one

    gone = lookup.run(workspace, work, writes=True)
    say(f"Removed {gone.name}@{gone.version}.", {"removed": gone}, json_)


async def _read(
    database: "Database", home: "Workspace", wanted: "CallFilter", chosen: list[UUID] | None
) -> list["TrueCall"]:
    """Calls as people corrected them: those that are chosen, or all that are wanted. Raises `CommandError`."""
    from db.core.database import Reader
    from db.search.call_list import list_calls
    from serve_app.experiments import compared_calls

    reader = compared_calls.patient(Reader(home.workspace_id))
    found: list[TrueCall] = []

    async def add(call_ids: list[UUID]) -> None:
        found.extend(await compared_calls.corrected_calls(database, reader, call_ids))

    with err().status("Reading calls") as status:
        if chosen is not None:
            await add(chosen)
            missing = {str(one) for one in chosen} - {call.name for call in found}
            if missing:
                raise CommandError(
                    f"These calls have no transcript, or do not exist: {some_of(sorted(missing))}.", "", FAILED
                )
            return found
        cursor = None
        while True:
            page = await list_calls(database, reader, wanted, cursor, PAGE)
            await add([line.call.call_id for line in page.items])
            status.update(f"Reading calls: {len(found)}")
            cursor = page.next
            if cursor is None:
                return found


async def _added(
    database: "Database", home: "Workspace", name: str, source: str, calls: list["TrueCall"]
) -> "tuple[GoldSet, bool]":
    from db.experiments import gold_sets
    from pipeline.evaluation.truth import digest, plain

    calls = [replace(call, processing=None, cost=None) for call in calls]  # of a system: nothing that people know
    truths = {UUID(call.name): plain(call) for call in calls}
    try:
        return await gold_sets.add_version(database, home.workspace_id, name, source, digest(calls), truths)
    except ValueError as error:
        raise CommandError(f"{error}.".capitalize(), "", FAILED) from error


def _say(made: "GoldSet", new: bool, json_: bool) -> None:
    if json_:
        print_json(made)
    elif new:
        out().print(f"Created {made.name}@{made.version}: {made.calls} calls, digest {made.digest[:12]}", markup=False)
    else:
        out().print(f"{made.name}@{made.version} already holds these calls: no new version was made.", markup=False)


def _known(calls: Iterable["TrueCall"]) -> str:
    """What is known of calls, and what is not, in a sentence."""
    some = list(calls)
    facts = {
        "what was said": all(call.has_words for call in some),
        "when each word was said": all(call.words_timed for call in some),
        "who spoke": all(call.speakers_known for call in some),
        "tasks": all(call.tasks is not None for call in some),
        "contacts": all(call.contact is not None for call in some),
    }
    known = [what for what, holds in facts.items() if holds]
    unknown = [what for what, holds in facts.items() if not holds]
    return f"known: {', '.join(known) or 'nothing'}" + (f"; not known of all: {', '.join(unknown)}" if unknown else "")


def _files(files: list[Path], to: Path) -> str:
    return str(files[0]) if len(files) == 1 else f"{len(files)} files in {to}"
