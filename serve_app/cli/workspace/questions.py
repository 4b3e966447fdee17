"""`switchboard questions`: what a workspace asks of its calls, phrases that it watches for, and scorecards."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, counted, err, moment, out, print_json, print_list, say

if TYPE_CHECKING:
    from db.core.database import Database
    from db.search.scores import ScoreWeek
    from db.workspace.directory import Workspace
    from db.workspace.questions import QuestionChanges, StoredQuestion, StoredScorecard
    from pipeline.domain.insight import Finding
    from pipeline.domain.questions import Defined

    Stored = StoredQuestion | StoredScorecard

app = command_group("""Questions asked of every call, trackers, which raise the event tracker.matched, and scorecards.

    They stand in a TOML or JSON file; docs/questions.md has the fields.

    Examples:

      switchboard questions try questions.toml --call 6f1c0a52-...

      switchboard questions set questions.toml

      switchboard questions list
""")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The question's key.")]
File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="TOML or JSON.")]


@app.command("set")
def set_(
    file: File,
    only: Annotated[bool, typer.Option("--only", help="Remove all that is not in the file.")] = False,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Ask the questions of a file from now on, and score by its scorecards; what has changed is a new version.

    Calls that are analyzed afterwards answer them. `switchboard runs create` asks them of stored calls.

    Example:

      switchboard questions set questions.toml --workspace acme
    """

    async def work(database: "Database", home: "Workspace") -> "QuestionChanges":
        from db.workspace import questions

        wanted = await _read(database, home, file, alone=only)
        try:
            return await questions.set_questions(database, home.workspace_id, wanted, only=only)
        except (questions.TooManyQuestions, questions.ScorecardUnfit) as error:
            raise CommandError(str(error), "", USAGE) from None

    changes = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(changes)
        return
    for what in ("made", "changed", "removed", "unchanged"):
        if keys := getattr(changes, what):
            out().print(f"{what}: {', '.join(keys)}", markup=False)
    if changes.made or changes.changed:
        err().print("`switchboard runs create NAME` asks them of stored calls.", markup=False)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List questions, trackers and scorecards as they are now.

    Example:

      switchboard questions list --workspace acme
    """
    from db.workspace import questions

    print_list(
        lookup.run(
            workspace, lambda database, home: questions.list_defined(database, home.workspace_id, home.workspace_id)
        ),
        json_,
        ("!key", "!version", "!type", "!party", "question"),
        lambda one: _line(one.scorecard if hasattr(one, "scorecard") else one.question),
        "No questions yet: `switchboard questions set FILE` asks some.",
    )


def _line(one: "Defined") -> tuple[str, str, str, str, str]:
    shared = (one.key, str(one.version), one.type)
    if one.type == "scorecard":
        return *shared, "", f"{one.title}: {', '.join(item.question for item in one.items)}"
    return *shared, one.party, one.question or ", ".join(one.phrases[:3])


@app.command("show")
def show(key: Key, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Show a question or scorecard as it would stand in a file; with --json, all its versions.

    Example:

      switchboard questions show appointment_offered > questions.toml
    """

    async def work(database: "Database", home: "Workspace") -> "tuple[list[Stored], dict[UUID, str]]":
        from db.workspace import questions

        found = await questions.defined_versions(database, home.workspace_id, home.workspace_id, key)
        if not found:
            raise _unknown(key)
        return found, await lookup.of_teams(database, home.workspace_id)

    versions, teams = lookup.run(workspace, work)
    if json_:
        print_json(versions)
        return
    from db.workspace.questions import definition
    from serve_app.records.question_files import as_toml

    latest = versions[0]
    told = as_toml([definition(latest)], {str(id_): name for id_, name in teams.items()})
    out().print(told, markup=False, soft_wrap=True, end="")
    ended = f", removed {moment(latest.retired_at)} by {latest.retired_by}" if latest.retired_at else ""
    err().print(
        f"Version {definition(latest).version}, made {moment(latest.made_at)} by {latest.made_by}{ended}.", markup=False
    )


@app.command("delete")
def delete(key: Key, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Ask a question no more, or score by a scorecard. Records keep theirs; set again, it gets the next version.

    Example:

      switchboard questions delete appointment_offered
    """

    async def work(database: "Database", home: "Workspace") -> None:
        from db.workspace import questions

        try:
            await questions.remove(database, home.workspace_id, key)
        except questions.NoSuchQuestion:
            raise _unknown(key) from None
        except questions.ScorecardUnfit as error:
            raise CommandError(str(error), "Change the scorecard first, or delete it.", USAGE) from None

    lookup.run(workspace, work, writes=True)
    say(f"Removed question {key!r}.", {"removed": key}, json_)


class By(StrEnum):
    TEAM = "team"
    MEMBER = "member"


@app.command("scores")
def scores(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The scorecard's key.")],
    by: Annotated[By, typer.Option(help="Of each team, or of each agent.")] = By.TEAM,
    weeks: Annotated[int, typer.Option(min=1, max=104, help="Up to that of the latest call.")] = 12,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Show the mean score by week of each team or member, and how many calls passed.

    Example:

      switchboard questions scores service --by member
    """

    async def work(database: "Database", home: "Workspace") -> "list[ScoreWeek]":
        from db.core.database import Reader
        from db.search import scores as outcomes
        from db.workspace import questions

        if not await questions.defined_versions(database, home.workspace_id, home.workspace_id, key):
            raise CommandError(f"No scorecard {key!r}.", "`switchboard questions list` shows them.")
        return await outcomes.score_weeks(database, Reader(home.workspace_id), home.time_zone, weeks, by.value, key)

    print_list(
        lookup.run(workspace, work),
        json_,
        ("!week", str(by), "#calls", "#score", "#passed", "#failed", "#automatically"),
        lambda one: (
            *(str(one.week), one.name or "unknown", str(one.calls), f"{one.score:.1f}"),
            *(str(one.passed), str(one.failed), str(one.auto_failed)),
        ),
        f"No call is scored by {key!r} yet.",
    )


@app.command("try")
def try_(
    file: File,
    call: Annotated[UUID, typer.Option("--call", metavar="CALLID", help="A completed call.")],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Answer a file's questions by their phrases in one stored call, and score it. Nothing is stored.

    Example:

      switchboard questions try questions.toml --call 6f1c0a52-...
    """

    async def work(database: "Database", home: "Workspace") -> "Finding":
        return await _tried(database, home, await _read(database, home, file), call)

    found = lookup.run(workspace, work)
    if json_:
        print_json(found.value)
        return
    from serve_app.cli.render.findings import render_finding

    for line in render_finding(found) or [Text("The file has no questions.")]:
        out().print(line)


async def _tried(database: "Database", home: "Workspace", asked: "Sequence[Defined]", call_id: UUID) -> "Finding":
    from db.records import views
    from pipeline.analysis.questions.step import QuestionsStep
    from pipeline.domain.call import Call
    from pipeline.domain.insight import Material, Roster
    from pipeline.domain.questions import Question, Scorecard

    record = await views.show_call(database, call_id, home.workspace_id)
    if record is None or record.transcript is None:
        raise CommandError(
            f"Workspace {home.name!r} has no completed call {call_id}.", "`switchboard calls list` shows calls.", FAILED
        )
    told = record.call
    one = Call(told.call_id, told.from_number, told.to_number, told.start_time, outgoing=told.outgoing)
    cards = tuple(one for one in asked if isinstance(one, Scorecard))
    known = tuple(one for one in asked if isinstance(one, Question))
    roster = Roster(time_zone=home.time_zone, questions=known, scorecards=cards)
    findings = {finding.step: finding for finding in record.findings}
    material = Material(replace(one, team_id=told.team_id), record.transcript, roster, findings=findings)
    return QuestionsStep().run(material)


async def _read(database: "Database", home: "Workspace", file: Path, alone: bool = True) -> "list[Defined]":
    """What a file defines; unless it stands `alone`, its scorecards may name questions that the workspace has."""
    from db.workspace import questions
    from serve_app.records.question_files import DefinitionRefused, read_file

    teams = await lookup.of_teams(database, home.workspace_id)
    known = {name: id_ for id_, called in teams.items() for name in (called.casefold(), str(id_))}
    before = [] if alone else await questions.list_questions(database, home.workspace_id, home.workspace_id)
    try:
        return read_file(file, known, [one.question for one in before])
    except DefinitionRefused as error:
        more = f"\n... and {len(error.faults) - MOST_FAULTS} more" if len(error.faults) > MOST_FAULTS else ""
        told = "\n".join(error.faults[:MOST_FAULTS]) + more
        counts = counted(len(error.faults), "fault")
        raise CommandError(told, f"{counts}; nothing has changed. docs/questions.md has the fields.", USAGE) from None


MOST_FAULTS = 20  # that are printed


def _unknown(key: str) -> CommandError:
    return CommandError(f"No question {key!r}.", "`switchboard questions list` shows them.")
