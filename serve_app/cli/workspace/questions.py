"""`switchboard questions`: what a workspace asks of its calls, phrases that it watches for, and scorecards."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from db.core.database import Reader
from db.records import views
from db.search import scores as score_weeks
from db.workspace import questions
from db.workspace.questions import NoSuchQuestion, ScorecardUnfit, TooManyQuestions, definition
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Material, Roster
from pipeline.domain.questions import Question, Scorecard
from serve_app.cli.render.findings import render_finding
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import counted, moment
from serve_app.cli.ui.resource import Answer, Group, Home, data_line, listing
from serve_app.records.question_files import DefinitionRefused, as_toml, read_file

if TYPE_CHECKING:
    from pipeline.domain.questions import Defined

LISTED = "`switchboard questions list` shows them."
MAX_FAULTS = 20  # that are printed

app = Group(
    """Questions asked of every call, trackers, which raise the event tracker.matched, and scorecards.

    They stand in a TOML or JSON file; docs/questions.md has the fields.

    Examples:

      switchboard questions try questions.toml --call 6f1c0a52-...

      switchboard questions set questions.toml

      switchboard questions list
""",
    {ScorecardUnfit: ("Change or delete the scorecard first.", USAGE), TooManyQuestions: ("", USAGE)},
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The question's key.")]
File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="TOML or JSON.")]


@app.writes()
async def set_(
    home: Home,
    file: File,
    only: Annotated[bool, typer.Option("--only", help="Delete all that is not in the file.")] = False,
) -> Answer:
    """Ask the questions of a file from now on, and score by its scorecards; what has changed is a new version.

    Calls that are analyzed afterwards answer them. `switchboard runs create` asks them of stored calls.

    Example:

      switchboard questions set questions.toml --workspace acme
    """
    definitions = await _read(home, file, only)
    changes = await questions.set_questions(home.database, home.id, definitions, only=only)
    names = {"made": "created", "changed": "changed", "removed": "deleted", "unchanged": "unchanged"}
    lines = [f"{name}: {', '.join(keys)}" for field, name in names.items() if (keys := getattr(changes, field))]
    hint = "`switchboard runs create NAME` asks them of stored calls."
    return Answer(changes, lines, (hint,) if changes.made or changes.changed else ())


@app.reads()
async def list_(home: Home) -> Answer:
    """List questions, trackers and scorecards as they are now.

    Example:

      switchboard questions list --workspace acme
    """
    return listing(
        await questions.list_defined(home.database, home.id, home.id),
        ("!key", "!version", "!type", "!party", "question"),
        lambda stored: _cells(definition(stored)),
        "No questions yet: `switchboard questions set FILE` creates some.",
    )


def _cells(defined: "Defined") -> tuple[str, str, str, str, str]:
    shared = (defined.key, str(defined.version), defined.type)
    if defined.type == "scorecard":
        return *shared, "", f"{defined.title}: {', '.join(item.question for item in defined.items)}"
    return *shared, defined.party, defined.question or ", ".join(defined.phrases[:3])


@app.reads()
async def show(home: Home, key: Key) -> Answer:
    """Show a question or scorecard as in a file; with --json, all its versions.

    Example:

      switchboard questions show appointment_offered > questions.toml
    """
    versions = await questions.defined_versions(home.database, home.id, home.id, key)
    if not versions:
        raise CommandError(f"No question {key!r}.", LISTED)
    latest, teams = versions[0], await home.team_names()
    text = as_toml([definition(latest)], {str(team_id): name for team_id, name in teams.items()})
    ended = f", deleted {moment(latest.retired_at)} by {latest.retired_by}" if latest.retired_at else ""
    note = f"Version {definition(latest).version}, created {moment(latest.made_at)} by {latest.made_by}{ended}."
    return Answer(versions, data_line(text.rstrip("\n")), (note,))


@app.writes()
async def delete(home: Home, key: Key) -> Answer:
    """Delete a question or scorecard. Records keep theirs; set again, it gets the next version.

    Example:

      switchboard questions delete appointment_offered
    """
    try:
        await questions.remove(home.database, home.id, key)
    except NoSuchQuestion:
        raise CommandError(f"No question {key!r}.", LISTED) from None
    return Answer({"removed": key}, f"Deleted question {key!r}.")


class By(StrEnum):
    TEAM = "team"
    MEMBER = "member"


@app.reads()
async def scores(
    home: Home,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The scorecard's key.")],
    by: Annotated[By, typer.Option(help="Of each team, or of each agent.")] = By.TEAM,
    weeks: Annotated[int, typer.Option(min=1, max=104, help="Up to that of the latest call.")] = 12,
) -> Answer:
    """Show the mean score by week of each team or member, and how many calls passed.

    Example:

      switchboard questions scores service --by member
    """
    if not await questions.defined_versions(home.database, home.id, home.id, key):
        raise CommandError(f"No scorecard {key!r}.", LISTED)
    time_zone = home.workspace.time_zone
    return listing(
        await score_weeks.score_weeks(home.database, Reader(home.id), time_zone, weeks, by.value, key),
        ("!week", str(by), "#calls", "#score", "#passed", "#failed", "#automatically"),
        lambda one: (
            *(str(one.week), one.name or "unknown", str(one.calls), f"{one.score:.1f}"),
            *(str(one.passed), str(one.failed), str(one.auto_failed)),
        ),
        f"No call is scored by {key!r} yet.",
    )


@app.reads()
async def try_(
    home: Home, file: File, call: Annotated[UUID, typer.Option("--call", metavar="CALLID", help="A completed call.")]
) -> Answer:
    """Answer a file's questions by their phrases in one stored call, and score it. Nothing is stored.

    Example:

      switchboard questions try questions.toml --call 6f1c0a52-...
    """
    finding = await _tried(home, await _read(home, file), call)
    return Answer(finding.value, render_finding(finding) or "The file has no questions.")


async def _tried(home: Home, definitions: "Sequence[Defined]", call_id: UUID) -> Finding:
    from pipeline.analysis.questions.step import QuestionsStep

    record = await views.show_call(home.database, call_id, home.id)
    if record is None or record.transcript is None:
        text = f"Workspace {home.workspace.name!r} has no completed call {call_id}."
        raise CommandError(text, "`switchboard calls list` shows calls.", FAILED)
    shown = record.call
    call = Call(shown.call_id, shown.from_number, shown.to_number, shown.start_time, outgoing=shown.outgoing)
    roster = Roster(
        time_zone=home.workspace.time_zone,
        questions=tuple(defined for defined in definitions if isinstance(defined, Question)),
        scorecards=tuple(defined for defined in definitions if isinstance(defined, Scorecard)),
    )
    findings = {finding.step: finding for finding in record.findings}
    material = Material(replace(call, team_id=shown.team_id), record.transcript, roster, findings=findings)
    return QuestionsStep().run(material)


async def _read(home: Home, file: Path, complete: bool = True) -> "list[Defined]":
    """Return what a file defines; unless it is `complete`, its scorecards may name questions of the workspace."""
    teams = await home.team_names()
    ids = {name: team_id for team_id, title in teams.items() for name in (title.casefold(), str(team_id))}
    before = [] if complete else await questions.list_questions(home.database, home.id, home.id)
    try:
        return read_file(file, ids, [stored.question for stored in before])
    except DefinitionRefused as error:
        more = len(error.faults) - MAX_FAULTS
        text = "\n".join(error.faults[:MAX_FAULTS]) + (f"\n... and {more} more" if more > 0 else "")
        count = counted(len(error.faults), "fault")
        raise CommandError(text, f"{count}; nothing has changed. docs/questions.md has the fields.", USAGE) from None
