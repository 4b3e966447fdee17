from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from db.core.database import Reader
from db.experiments import gold_sets
from db.experiments.gold_sets import NoSuchSet, UnknownCalls
from db.search.call_list import CallFilter, list_calls
from pipeline.evaluation import formats, truth
from pipeline.evaluation.formats import UnreadableFile
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import CallIds, Since, Team, as_uuid, moment_of, parse_new
from serve_app.cli.ui.output import err, fields, moment
from serve_app.cli.ui.resource import Group, Result, Scope, data_line, listing
from serve_app.cli.workspace import comparison as report
from serve_app.experiments import compared_calls
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.gold_sets import GoldSet
    from db.workspace.directory import Workspace
    from pipeline.evaluation.truth import TrueCall


SHOWN = 10  # names of a long list
MACHINE = "machine"  # the transcripts of the service, before corrections
PAGE = 100  # calls read in one transaction


SetName = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The set; by default its latest version.")]


def parse_set_name(reference: str) -> tuple[str, int | None]:
    """Return the name and version of a set; None: the latest. Raises `CommandError`."""
    name, _, version = reference.partition("@")
    if version and not version.isdecimal():
        raise CommandError(f"{reference!r} has no valid version.", "Write NAME@2 for version 2.", USAGE)
    return name, int(version) if version else None


async def find_gold_set(database: "Database", workspace: "Workspace", reference: str) -> "GoldSet":
    try:
        return await gold_sets.find(database, workspace.workspace_id, *parse_set_name(reference))
    except NoSuchSet as error:
        references = dict.fromkeys(
            f"{gold.name}@{gold.version}" for gold in await gold_sets.list_sets(database, workspace.workspace_id)
        )
        hint = (
            f"Existing: {join_names(list(references))}."
            if references
            else "`switchboard gold create NAME` creates one."
        )
        raise CommandError(f"No gold set {reference!r}.", hint, USAGE) from error


async def load_gold_set(
    database: "Database", workspace: "Workspace", reference: str
) -> "tuple[GoldSet, list[TrueCall]]":
    gold = await find_gold_set(database, workspace, reference)
    return gold, await compared_calls.gold_calls(database, workspace.workspace_id, gold)


def join_names(items: Sequence[object]) -> str:
    more = len(items) - SHOWN
    return ", ".join(map(str, items[:SHOWN])) + (f" and {more} more" if more > 0 else "")


@contextmanager
def libraries() -> Iterator[None]:
    """Raise `CommandError` with the install command if a library for the formats is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"This needs the package {error.name}.", "Install `switchboard-calls[evaluation]`.", FAILED
        ) from error


app = Group(
    """Gold sets: calls with reference transcripts, in immutable versions.

    Create a set from corrected calls, or import annotations. Every measurement reports the set, its version and its
    digest.
""",
    {UnreadableFile: ("Nothing was imported.", USAGE), ValueError: ("", FAILED)},
)


Heard = Annotated[  # language: ok
    list[Path] | None,
    typer.Option(
        exists=True,
        help="Transcripts of another system: a file or folder as for `gold import`. Repeatable; "
        "differences are reported against the first one.",
        show_default="what this service transcribed, before corrections",
    ),
]
WithMachine = Annotated[
    bool, typer.Option("--with-machine", help="With --heard: compare with this service, as the first system.")
]


@app.reads()
async def score(
    scope: Scope,
    name: SetName,
    heard: Heard = None,  # language: ok
    with_machine: WithMachine = False,
    by: report.By = "wer",
    worst: report.Worst = 5,
    price_per_hour: report.Price = None,
    csv_: report.Csv = None,
) -> Result:
    """Measure recognition against a gold set: words, speakers, times, tasks, actions, contacts, speed and cost.

    Shows confidence intervals (95 %, by 1,000 bootstrap resamples of the calls; none below five calls), slices and
    the worst calls. `--heard` measures other systems, or an earlier export, instead of this service; with several
    systems, it reports which is better, by how much, and where.

    Example:

      switchboard gold score returns@2 --heard tiny.jsonl --heard base.jsonl
    """
    with libraries():
        others = _read_systems(heard or [])
        gold = await find_gold_set(scope.database, scope.workspace, name)
        scoring = await compared_calls.live_input(scope.database, Reader(scope.id), gold, Settings().scaling, MACHINE)
        scoring = replace(scoring, sides=(scoring.sides if with_machine or not others else {}) | others)
        nothing = f"None of the calls of {gold.name}@{gold.version} has a transcript."
        comparison = report.measure(scoring, scoring.sides, price_per_hour, csv_, nothing)
        head = f"{gold.name}@{gold.version}, digest {gold.digest[:12]}: {gold.left} calls"
        return Result(
            {"set": fields(gold), **report.as_json(comparison, by, worst)},
            [head, *report.lines(comparison, by, worst)],
            report.notes(comparison),
        )


def _read_systems(files: Sequence[Path]) -> "dict[str, list[TrueCall]]":
    """Return the calls of other systems, by the name of the file; by its path if two have the same."""
    stems = [file.stem for file in files]
    try:
        return {file.stem if stems.count(file.stem) == 1 else str(file): formats.read(file) for file in files}
    except UnreadableFile as error:
        raise CommandError(f"{error}.", "Nothing was measured.", USAGE) from error


NewSet = Annotated[
    str,
    typer.Argument(
        metavar="NAME", parser=parse_new("a gold set"), help="Letters, digits, dots, dashes and underscores."
    ),
]


def _format(kind: str) -> str:
    if kind not in formats.FORMATS:
        raise CommandError(f"Unknown format {kind!r}.", f"Formats: {', '.join(formats.FORMATS)}.", USAGE)
    return kind


@app.writes()
async def create(scope: Scope, name: NewSet, team: Team = None, since: Since = None, call: CallIds = None) -> Result:
    """Freeze corrected calls as the next version of a set.

    Without --call, all corrected calls are included; calls of --call need no correction. If nothing has changed since
    the latest version, no new version is created.

    Examples:

      switchboard gold create returns --team sales

      switchboard gold create checked --call 1d6c1f6e-6f2b-4f3a-9d59-0f6b5a1d9a11
    """
    start = await moment_of(scope.database, since)
    corrected = CallFilter(corrected=True, team_id=await scope.team_id(team), started_from=start)
    calls = await _read(scope, corrected, call or None)
    if not calls:
        hint = "Correct some in the console, or select calls with --call."
        raise CommandError("None of these calls was corrected.", hint, FAILED)
    return await _add_version(scope, name, "corrections", calls)


@app.writes()
async def import_(
    scope: Scope,
    name: NewSet,
    path: Annotated[
        Path, typer.Argument(exists=True, readable=True, help="A file, or a folder of files of one format.")
    ],
) -> Result:
    """Import annotations: STM, CTM, RTTM, TextGrid or our JSON Lines, by the files' endings.

    Calls are identified by their callId; submit missing recordings first. Facts that a format lacks are reported, and
    measurements that need them are rejected.
    """
    with libraries():
        calls = formats.read(path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    kind = next(kind for file in files if (kind := formats.format_of(file)))
    if invalid := [call.name for call in calls if as_uuid(call.name) is None]:
        raise CommandError(
            f"Calls must be identified by their callId (a UUID); invalid: {join_names(invalid)}.",
            "`switchboard calls list` shows callIds. Nothing was imported.",
            USAGE,
        )
    try:
        result = await _add_version(scope, name, kind, calls)
    except UnknownCalls as error:
        absent = f"{len(error.names)} of {len(calls)} calls are not in workspace {scope.workspace.name!r}"
        hint = "Submit their recordings first, with these callIds. Nothing was imported."
        raise CommandError(f"{absent}: {join_names(error.names)}.", hint, FAILED) from error
    return replace(result, notes=(_annotated(calls),))


@app.reads()
async def list_(scope: Scope) -> Result:
    """List gold sets with their versions, the latest first."""
    return listing(
        await gold_sets.list_sets(scope.database, scope.id),
        ("!name", "#version", "#calls", "source", "!created", "by", "!digest"),
        lambda gold: (
            *(gold.name, gold.version, gold.calls if gold.left == gold.calls else f"{gold.left} of {gold.calls}"),
            *(gold.source, gold.made_at, gold.made_by, gold.digest[:12]),
        ),
        "No gold sets yet: correct calls in the console, then `switchboard gold create NAME`.",
    )


@app.reads()
async def show(scope: Scope, name: SetName) -> Result:
    """Show a version: its size, what is annotated, and whether its digest still matches."""
    gold, calls = await load_gold_set(scope.database, scope.workspace, name)
    turns = [turn for call in calls for turn in call.turns]
    facts: dict[str, Any] = {
        "turns": len(turns),
        "words": sum(len(turn.words or ()) for turn in turns),
        "spoken_seconds": round(sum(turn.end - turn.start for turn in turns), 1),
        "languages": sorted({call.language for call in calls if call.language}),
        "words_timed": all(call.words_timed for call in calls),
        "speakers_known": all(call.speakers_known for call in calls),
        "tasks_known": sum(call.tasks is not None for call in calls),
        "actions_known": sum(call.actions is not None for call in calls),
        "contacts_known": sum(call.contact is not None for call in calls),
        "digest_fits": truth.digest(calls) == gold.digest,
    }
    lines = (
        f"{gold.name}@{gold.version}  from {gold.source}, {moment(gold.made_at)}, by {gold.made_by}",
        f"{len(calls)} calls, {facts['turns']} turns, {facts['words']} words",
        *(_annotated(calls), f"digest {gold.digest}"),
    )
    deleted_calls = gold.calls - gold.left
    why = (
        f"{deleted_calls} of its {gold.calls} calls were deleted"
        if deleted_calls
        else "the stored set is not the one that was frozen"
    )
    mismatch = () if facts["digest_fits"] else (f"The digest does not match: {why}.",)
    return Result({**fields(gold), **facts}, lines, mismatch)


@app.reads()
async def export(
    scope: Scope,
    name: SetName,
    to: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The file; for TextGrid a folder.")],
    kind: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", parser=_format, help="jsonl, stm, ctm, rttm or textgrid.")
    ] = "jsonl",
) -> Result:
    """Export a version in a standard format, for scoring tools or for further annotation.

    Examples:

      switchboard gold export returns --format stm --out returns.stm

      switchboard gold export returns@1 --format textgrid --out grids/
    """
    gold, calls = await load_gold_set(scope.database, scope.workspace, name)
    title = f"{gold.name}@{gold.version}"
    with libraries():
        try:
            files = formats.write(calls, kind, to)
        except (OSError, ValueError) as error:
            raise CommandError(f"{title} could not be written: {error}.", "", FAILED) from error
    place = str(files[0]) if len(files) == 1 else f"{len(files)} files in {to}"
    left_out = formats.LEAVES_OUT[kind]
    return Result(
        {"name": gold.name, "version": gold.version, "digest": gold.digest, "files": [str(file) for file in files]},
        data_line(f"{title}: {len(calls)} calls in {place}"),
        (f"{kind} does not contain {left_out}.",) if left_out else (),
    )


@app.writes()
async def delete(scope: Scope, name: SetName) -> Result:
    """Delete one version. Calls and other versions stay."""
    gold = await find_gold_set(scope.database, scope.workspace, name)
    await gold_sets.remove(scope.database, scope.id, gold)
    return Result({"removed": gold}, f"Deleted {gold.name}@{gold.version}.")


async def _read(scope: Scope, corrected: CallFilter, call_ids: list[UUID] | None) -> "list[TrueCall]":
    """Return corrected calls, or those of `call_ids`. Raises `CommandError` if one has no transcript."""
    reader = compared_calls.with_long_timeout(Reader(scope.id))
    with err().status("Reading calls") as status:
        if call_ids is not None:
            calls = await compared_calls.corrected_calls(scope.database, reader, call_ids)
            if missing := {str(call_id) for call_id in call_ids} - {call.name for call in calls}:
                text = f"These calls have no transcript, or do not exist: {join_names(sorted(missing))}."
                raise CommandError(text, "", FAILED)
            return list(calls)
        calls, page = [], await list_calls(scope.database, reader, corrected, None, PAGE)
        while True:
            ids = [line.call.call_id for line in page.items]
            calls += await compared_calls.corrected_calls(scope.database, reader, ids)
            status.update(f"Reading calls: {len(calls)}")
            if page.next is None:
                return calls
            page = await list_calls(scope.database, reader, corrected, page.next, PAGE)


async def _add_version(scope: Scope, name: str, source: str, calls: "Sequence[TrueCall]") -> Result:
    calls = [replace(call, processing=None, cost=None) for call in calls]  # facts about a system, not annotations
    truths = {UUID(call.name): truth.plain(call) for call in calls}
    digest = truth.digest(calls)
    gold, is_new = await gold_sets.add_version(scope.database, scope.id, name, source, digest, truths)
    title = f"{gold.name}@{gold.version}"
    created = f"Created {title}: {gold.calls} calls, digest {gold.digest[:12]}"
    return Result(gold, created if is_new else f"{title} already contains these calls: no new version was created.")


def _annotated(calls: "Sequence[TrueCall]") -> str:
    facts = {
        "words": all(call.has_words for call in calls),
        "times of words": all(call.words_timed for call in calls),
        "speakers": all(call.speakers_known for call in calls),
        "tasks": all(call.tasks is not None for call in calls),
        "actions": all(call.actions is not None for call in calls),
        "contacts": all(call.contact is not None for call in calls),
    }
    present = [name for name, is_complete in facts.items() if is_complete]
    absent = [name for name, is_complete in facts.items() if not is_complete]
    return f"annotated: {', '.join(present) or 'nothing'}" + (
        f"; not in all calls: {', '.join(absent)}" if absent else ""
    )
