from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from db.core.database import Reader
from db.records import views
from db.search import trends as score_weeks
from db.workspace import questions
from db.workspace.questions import NoSuchQuestion, ScorecardUnfit, TooManyQuestions, definition
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Material, Roster
from pipeline.domain.questions import Question, Scorecard
from serve_app.cli.render.findings import render_finding
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import counted, moment
from serve_app.cli.ui.resource import Group, Result, Scope, data_line, listing
from serve_app.records.question_files import DefinitionRefused, as_toml, read_file

if TYPE_CHECKING:
    from pipeline.domain.questions import Defined

LIST_HINT = "`switchboard questions list` shows them."
MAX_FAULTS = 20  # printed

app = Group(
    """Questions about every call, trackers (which raise the event tracker.matched), and scorecards.

    They are defined in a TOML or JSON file; docs/questions.md describes the fields.
""",
    {ScorecardUnfit: ("Change or delete the scorecard first.", USAGE), TooManyQuestions: ("", USAGE)},
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The question's key.")]
File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="TOML or JSON.")]


@app.writes()
async def set_(
    scope: Scope,
    file: File,
    only: Annotated[bool, typer.Option("--only", help="Delete everything that is not in the file.")] = False,
) -> Result:
    """Store the questions, trackers and scorecards of a file; changed ones become a new version.

    They apply to calls analyzed from now on. `switchboard runs create` applies them to stored calls.
    """
    definitions = await _read(scope, file, only)
    changes = await questions.set_questions(scope.database, scope.id, definitions, only=only)
    names = {"made": "created", "changed": "changed", "removed": "deleted", "unchanged": "unchanged"}
    lines = [f"{name}: {', '.join(keys)}" for field, name in names.items() if (keys := getattr(changes, field))]
    hint = "`switchboard runs create NAME` applies them to stored calls."
    return Result(changes, lines, (hint,) if changes.made or changes.changed else ())


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the current questions, trackers and scorecards."""
    return listing(
        await questions.list_defined(scope.database, scope.id, scope.id),
        ("!key", "!version", "!type", "!party", "question"),
        lambda stored: _cells(definition(stored)),
        "No questions yet: `switchboard questions set FILE` creates them.",
    )


def _cells(defined: "Defined") -> tuple[Any, ...]:
    shared = (defined.key, defined.version, defined.type)
    if defined.type == "scorecard":
        return *shared, "", f"{defined.title}: {', '.join(item.question for item in defined.items)}"
    return *shared, defined.party, defined.question or ", ".join(defined.phrases[:3])


@app.reads()
async def show(scope: Scope, key: Key) -> Result:
    """Show a question or scorecard in the format of a file; with --json, all its versions.

    Example:

      switchboard questions show appointment_offered > questions.toml
    """
    versions = await questions.defined_versions(scope.database, scope.id, scope.id, key)
    if not versions:
        raise CommandError(f"No question {key!r}.", LIST_HINT)
    latest, teams = versions[0], await scope.team_names()
    text = as_toml([definition(latest)], {str(team_id): name for team_id, name in teams.items()})
    ended = f", deleted {moment(latest.retired_at)} by {latest.retired_by}" if latest.retired_at else ""
    note = f"Version {definition(latest).version}, created {moment(latest.made_at)} by {latest.made_by}{ended}."
    return Result(versions, data_line(text.rstrip("\n")), (note,))


@app.writes()
async def delete(scope: Scope, key: Key) -> Result:
    """Delete a question or scorecard. Existing answers are kept; if set again, it gets the next version."""
    try:
        await questions.remove(scope.database, scope.id, key)
    except NoSuchQuestion:
        raise CommandError(f"No question {key!r}.", LIST_HINT) from None
    return Result({"removed": key}, f"Deleted question {key!r}.")


class By(StrEnum):
    TEAM = "team"
    MEMBER = "member"


@app.reads()
async def scores(
    scope: Scope,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The scorecard's key.")],
    by: Annotated[By, typer.Option(help="Scores by team or by agent.")] = By.TEAM,
    weeks: Annotated[int, typer.Option(min=1, max=104, help="Number of weeks up to the latest call.")] = 12,
) -> Result:
    """Show the mean score by week of each team or member, and how many calls passed.

    Example:

      switchboard questions scores service --by member
    """
    if not await questions.defined_versions(scope.database, scope.id, scope.id, key):
        raise CommandError(f"No scorecard {key!r}.", LIST_HINT)
    time_zone = scope.workspace.time_zone
    return listing(
        await score_weeks.score_weeks(scope.database, Reader(scope.id), time_zone, weeks, by.value, key),
        ("!week", str(by), "#calls", "#score", "#passed", "#failed", "#automatically"),
        lambda week: (
            *(week.week, week.name or "unknown", week.calls, f"{week.score:.1f}"),
            *(week.passed, week.failed, week.auto_failed),
        ),
        f"No call is scored by {key!r} yet.",
    )


@app.reads()
async def try_(
    scope: Scope, file: File, call: Annotated[UUID, typer.Option("--call", metavar="CALLID", help="A completed call.")]
) -> Result:
    """Try a file on one stored call: answer its questions by phrases, and score the call. Nothing is stored.

    Example:

      switchboard questions try questions.toml --call 6f1c0a52-...
    """
    finding = await _try_questions(scope, await _read(scope, file), call)
    return Result(finding.value, render_finding(finding) or "The file has no questions.")


async def _try_questions(scope: Scope, definitions: "Sequence[Defined]", call_id: UUID) -> Finding:
    from pipeline.analysis.questions.step import QuestionsStep

    record = await views.show_call(scope.database, call_id, scope.id)
    if record is None or record.transcript is None:
        text = f"Workspace {scope.workspace.name!r} has no completed call {call_id}."
        raise CommandError(text, "`switchboard calls list` shows calls.", FAILED)
    shown = record.call
    call = Call(shown.call_id, shown.from_number, shown.to_number, shown.start_time, outgoing=shown.outgoing)
    roster = Roster(
        time_zone=scope.workspace.time_zone,
        questions=tuple(defined for defined in definitions if isinstance(defined, Question)),
        scorecards=tuple(defined for defined in definitions if isinstance(defined, Scorecard)),
    )
    findings = {finding.step: finding for finding in record.findings}
    material = Material(replace(call, team_id=shown.team_id), record.transcript, roster, findings=findings)
    return QuestionsStep().run(material)


async def _read(scope: Scope, file: Path, complete: bool = True) -> "list[Defined]":
    """Return the definitions of a file; unless `complete`, its scorecards may refer to stored questions."""
    teams = await scope.team_names()
    ids = {name: team_id for team_id, title in teams.items() for name in (title.casefold(), str(team_id))}
    before = [] if complete else await questions.list_questions(scope.database, scope.id, scope.id)
    try:
        return read_file(file, ids, [stored.question for stored in before])
    except DefinitionRefused as error:
        more = len(error.faults) - MAX_FAULTS
        text = "\n".join(error.faults[:MAX_FAULTS]) + (f"\n... and {more} more" if more > 0 else "")
        count = counted(len(error.faults), "fault")
        raise CommandError(text, f"{count}; nothing has changed. see docs/questions.md.", USAGE) from None
