"""`switchboard calibrations`: reviewers score the same calls, each for themselves; how far they agree."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from serve_app.cli.calls.edits import NOT_SAID
from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, counted, err, moment, out, print_json, print_list
from serve_app.cli.ui.table import table

if TYPE_CHECKING:
    from db.core.database import Database
    from db.experiments.reviews import Calibration, CalibrationAgreement, CalibrationCall, ReviewSheet
    from db.records.corrections import Editor
    from db.workspace.directory import Workspace
    from pipeline.domain.calibration import Agreement

T = TypeVar("T")
SHOWN = 10  # disagreements

app = command_group("""Calibrations: reviewers answer a scorecard on the same calls, each without the others.

    Who has handed in sees the answers of others, and how far all agree; everybody does once it is closed.

    Examples:

      switchboard calibrations create march service --call 6f1c0a52-... --call 71c701e4-...

      switchboard calibrations answer march 6f1c0a52-... offered=yes "notice=not said"

      switchboard calibrations hand-in march

      switchboard calibrations agreement march
""")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The calibration: its name or id.")]
Who = Annotated[
    str | None,
    typer.Option("--reviewer", metavar="NAME", help="Whose answers these are.", show_default="your login's name"),
]


@app.command()
def create(
    name: lookup.NewName,
    scorecard: Annotated[str, typer.Argument(metavar="SCORECARD", help="Its key.")],
    call: Annotated[list[UUID], typer.Option("--call", metavar="CALLID", help="A completed call; repeatable.")],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Create a calibration: a scorecard as it is now, and the calls that it is answered on.

    Example:

      switchboard calibrations create march service --call 6f1c0a52-... --call 71c701e4-...
    """
    lookup.check_new(name, "a calibration")

    async def work(database: "Database", home: "Workspace") -> "Calibration":
        from db.experiments import reviews as calibrations
        from db.workspace import questions

        try:
            return await _done(calibrations.create(database, home.workspace_id, name, scorecard, call))
        except questions.NoSuchQuestion:
            raise CommandError(f"No scorecard {scorecard!r}.", "`switchboard questions list` shows them.") from None

    made = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(made)
    else:
        told = f"Calibration {name!r}: {counted(made.calls, 'call')} by {scorecard!r}, version {made.version}."
        out().print(told, markup=False)


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List calibrations, the latest first, and who has handed in.

    Example:

      switchboard calibrations list
    """

    async def work(database: "Database", home: "Workspace") -> "list[Calibration]":
        from db.experiments import reviews as calibrations

        return await calibrations.list_calibrations(database, home.workspace_id)

    print_list(
        lookup.run(workspace, work),
        json_,
        ("!name", "scorecard", "#version", "#calls", "reviewers", "!closed"),
        lambda one: (
            *(one.name, one.scorecard, str(one.version), str(one.calls)),
            ", ".join(x.name + (" (handed in)" if x.handed_in_at else "") for x in one.reviewers),
            moment(one.closed_at),
        ),
        "No calibrations yet: `switchboard calibrations create` makes one.",
    )


@app.command()
def show(name: Name, reviewer: Who = None, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Show the questions and calls of a calibration, and what you have answered.

    Example:

      switchboard calibrations show march
    """

    async def work(database: "Database", home: "Workspace") -> "ReviewSheet":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        return await calibrations.sheet(database, home.workspace_id, _who(reviewer), one.calibration_id)

    found = lookup.run(workspace, work)
    if json_:
        print_json(found)
        return
    out().print(f"{found.scorecard.title} (version {found.scorecard.version})", markup=False)
    for asked in found.questions:
        choices = f": {', '.join(asked.choices)}" if asked.choices else ""
        told = asked.question or ", ".join(asked.phrases[:3])
        out().print(f"  {asked.key}: {told} ({asked.type}{choices})", markup=False)
    lines = table("!call", "answers")
    for call in found.calls:
        lines.add_row(str(call.call_id), ", ".join(f"{key}={_told(one)}" for key, one in call.answers.items()))
    out().print(lines)
    if found.handed_in_at:
        err().print(f"Handed in {moment(found.handed_in_at)}.", markup=False)


@app.command()
def answer(
    name: Name,
    call: Annotated[UUID, typer.Argument(metavar="CALLID", help="A call of the calibration.")],
    answers: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION=ANSWER...",
            help="yes, no, a choice, a number, a date; of trackers said; 'not said'; n/a.",
        ),
    ],
    reviewer: Who = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Answer questions of a call; a question again replaces its answer, until they are handed in.

    Example:

      switchboard calibrations answer march 6f1c0a52-... offered=yes "notice=not said" product=n/a
    """
    given: dict[str, str | None] = {}
    for one in answers:
        key, equals, told = one.partition("=")
        if not equals or not told:
            raise CommandError(f"{one!r} is no answer.", "Write QUESTION=ANSWER, such as offered=yes.", USAGE)
        given[key] = None if told == NOT_SAID else told

    async def work(database: "Database", home: "Workspace") -> "CalibrationCall":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        who = (home.workspace_id, _who(reviewer), one.calibration_id)
        try:
            return await _done(calibrations.answer(database, *who, call, given))
        except calibrations.NotInCalibration:
            hint = f"`switchboard calibrations show {name}` lists them."
            raise CommandError(f"Calibration {name!r} does not have the call {call}.", hint) from None

    made = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(made)
    else:
        out().print(", ".join(f"{key}={_told(one)}" for key, one in made.answers.items()), markup=False)


@app.command("hand-in")
def hand_in(name: Name, reviewer: Who = None, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Hand in your answers: they stay as they are, and you may see those of others.

    Example:

      switchboard calibrations hand-in march
    """

    async def work(database: "Database", home: "Workspace") -> "ReviewSheet":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        return await _done(calibrations.hand_in(database, home.workspace_id, _who(reviewer), one.calibration_id))

    made = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(made)
    else:
        out().print(f"Handed in: {counted(len(made.calls), 'call')}.", markup=False)


@app.command()
def agreement(name: Name, reviewer: Who = None, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Show how far those agree who handed in: by question, by reviewer, and where they disagree most.

    Example:

      switchboard calibrations agreement march
    """

    async def work(database: "Database", home: "Workspace") -> "CalibrationAgreement":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        return await _done(calibrations.agreement(database, home.workspace_id, _who(reviewer), one.calibration_id))

    found = lookup.run(workspace, work)
    if json_:
        print_json(found)
    else:
        _print(found.agreement)


@app.command()
def close(name: Name, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Take no more reviews; what came of it is shown to all.

    Example:

      switchboard calibrations close march
    """

    async def work(database: "Database", home: "Workspace") -> "Calibration":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        return await calibrations.close(database, home.workspace_id, one.calibration_id)

    made = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(made)
    else:
        out().print(f"Closed calibration {made.name!r}.", markup=False)


@app.command()
def delete(name: Name, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove a calibration with its reviews. Calls stay.

    Example:

      switchboard calibrations delete march
    """

    async def work(database: "Database", home: "Workspace") -> "Calibration":
        from db.experiments import reviews as calibrations

        one = await _found(database, home, name)
        return await calibrations.delete(database, home.workspace_id, one.calibration_id)

    gone = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(gone)
    else:
        out().print(f"Removed calibration {gone.name!r}.", markup=False)


def _print(found: "Agreement") -> None:
    called = {one.reviewer: one.name for one in found.reviewers}
    lines = table("question", "#answers", "#agreement", "#alpha", "#as the machine")
    for one in found.questions:
        figures = (_share(one.agreement), _figure(one.alpha, ".2f"), _share(one.with_machine))
        lines.add_row(one.question, str(one.answers), *figures)
    out().print(lines)
    lines = table("reviewer", "#score", "#from the group", "#from the machine")
    for who in found.reviewers:
        lines.add_row(
            who.name, _figure(who.score, ".1f"), _figure(who.from_group, "+.1f"), _figure(who.from_machine, "+.1f")
        )
    out().print(lines)
    if not found.disagreements:
        return
    lines = table("!call", "question", "#agreement", "answers")
    for worst in found.disagreements[:SHOWN]:
        told = [f"{called[who]}: {label}" for who, label in worst.answers.items()]
        told += [] if worst.machine is None else [f"machine: {worst.machine}"]
        lines.add_row(str(worst.call_id), worst.question, _share(worst.agreement), ", ".join(told))
    out().print(lines)


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _told(answer: str | None) -> str:
    return NOT_SAID if answer is None else answer


def _who(reviewer: str | None) -> "Editor":
    from db.records.corrections import Editor
    from db.workspace.admin_log import operator

    return Editor(None, None, reviewer or operator().name)


async def _found(database: "Database", home: "Workspace", name: str) -> "Calibration":
    from db.experiments import reviews as calibrations

    try:
        return await calibrations.find(database, home.workspace_id, name)
    except calibrations.NoSuchCalibration:
        raise CommandError(f"No calibration {name!r}.", "`switchboard calibrations list` shows them.") from None


async def _done(work: Awaitable[T]) -> T:
    from db.experiments import reviews as calibrations

    try:
        return await work
    except calibrations.CalibrationRefused as error:
        raise CommandError(str(error), "", FAILED) from None
