"""`switchboard calls answer`, `edits`, `undo`: what people say against the machine's answers, and all corrections."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, moment, out, print_json, print_list, say

if TYPE_CHECKING:
    from db.core.database import Database
    from db.records.corrections import CallEdit, Editor
    from db.workspace.directory import Workspace

NOT_SAID = "not said"
ID_HELP = "`switchboard calls list` shows the ids."
CallId = Annotated[str, typer.Argument(metavar="ID", help="The callId that was submitted.")]


def answer(
    call_id: CallId,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The key of a question or tracker.")],
    new: Annotated[
        str,
        typer.Argument(
            metavar="ANSWER", help="yes, no, a choice, a number, a date; of trackers said; 'not said'; n/a."
        ),
    ],
    comment: Annotated[str, typer.Option("--comment", "-c", metavar="WHY", help="Kept beside it.")],
    old: Annotated[
        str | None,
        typer.Option("--old", metavar="ANSWER", help="Only while this is the answer; else nothing is changed."),
    ] = None,
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Answer a question of a call otherwise than the machine did, and say why. Scores follow; `undo` takes it back.

    Example:

      switchboard calls answer 3f0c1d5e-... recording_notice said --old "not said" --comment "before the beep"
    """
    wanted = lookup.need_uuid(call_id, ID_HELP)
    if not comment.strip():
        raise CommandError("--comment is empty.", "Say why the answer is another one.", USAGE)

    async def work(database: "Database", home: "Workspace") -> "CallEdit":
        from db.core.database import Reader
        from db.records import correct, views
        from db.records.correct import WantedEdit
        from pipeline.domain.edits import EditKind
        from pipeline.domain.overrides import shown_answer

        record = await views.show_call(database, wanted, home.workspace_id)
        if record is None:
            raise _no_call(wanted)
        answers = {one.key: shown_answer(one) for one in record.answers}
        answers |= {one.key: shown_answer(one) for one in record.trackers}
        if question not in answers:
            keys = ", ".join(answers) or "none"
            raise CommandError(f"Call {wanted} was not asked {question!r}.", f"Its questions: {keys}.", FAILED)
        was = answers[question] if old is None else _answer(old)
        edit = WantedEdit(EditKind.ANSWER, was, _answer(new), question=question, comment=comment)
        try:
            made = await correct.make(database, Reader(home.workspace_id), _operator(), wanted, edit)
        except correct.Stale as error:
            now = error.current.value if error.current else None
            raise CommandError(
                f"Nothing was changed: the answer is {_told(now)!r}, not {_told(was)!r}.",
                f"Somebody may have been faster: look at the call, then say --old {_told(now)!r}.",
                FAILED,
            ) from None
        except correct.CannotBe as error:
            raise CommandError(f"{new!r} cannot be the answer to {question!r}.", str(error), USAGE) from None
        except correct.EditRefused as error:
            raise CommandError(str(error) or type(error).__name__, "", FAILED) from None
        return made.edit

    edit = lookup.run(workspace, work, writes=True)
    if json_:
        print_json(edit)
        return
    out().print(
        f"{question}: {_told(edit.machine)} by the machine, {_told(edit.person)} by {edit.made_by}.", markup=False
    )
    out().print(f"`switchboard calls undo {wanted} {edit.edit_id}` takes it back.", markup=False)


def list_edits(call_id: CallId, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List what people corrected in a call, undone corrections too, the earliest first.

    Example:

      switchboard calls edits 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    wanted = lookup.need_uuid(call_id, ID_HELP)

    async def work(database: "Database", home: "Workspace") -> "tuple[CallEdit, ...]":
        from db.core.database import Reader
        from db.records import correct

        try:
            return await correct.list_edits(database, Reader(home.workspace_id), wanted)
        except correct.NoSuch:
            raise _no_call(wanted) from None

    print_list(
        lookup.run(workspace, work),
        json_,
        ("!edit", "!when", "!kind", "!state", "who", "what"),
        lambda one: (
            *(str(one.edit_id), moment(one.made_at), str(one.kind), str(one.state), one.made_by),
            Text(_what(one) + (f" ({one.comment})" if one.comment else "")),
        ),
        f"Nobody has corrected call {wanted}.",
    )


def undo(
    call_id: CallId,
    edit_id: Annotated[str, typer.Argument(metavar="EDIT", help="`switchboard calls edits` shows the ids.")],
    workspace: lookup.Workspace = None,
    json_: Json = False,
) -> None:
    """Take a correction of a call back; who made it, and that it was undone, stays.

    Example:

      switchboard calls undo 3f0c1d5e-... 71c701e4-...
    """
    wanted = lookup.need_uuid(call_id, ID_HELP)
    which = lookup.need_uuid(edit_id, "`switchboard calls edits` shows the ids.")

    async def work(database: "Database", home: "Workspace") -> "CallEdit":
        from db.core.database import Reader
        from db.records import correct

        try:
            return await correct.undo(database, Reader(home.workspace_id), _operator(), wanted, which)
        except correct.NoSuch:
            hint = f"`switchboard calls edits {wanted}` shows them."
            raise CommandError(f"Call {wanted} has no correction {which}.", hint, FAILED) from None

    edit = lookup.run(workspace, work, writes=True)
    say(f"Undone: {_what(edit)}.", edit, json_)


def _operator() -> "Editor":
    from db.records.corrections import Editor
    from db.workspace.admin_log import operator

    return Editor(None, None, operator().name)


def _no_call(call_id: UUID) -> CommandError:
    return CommandError(f"No call {call_id}.", ID_HELP, FAILED)


def _answer(told: str) -> str | None:
    return None if told == NOT_SAID else told


def _told(answer: str | bool | None) -> str:
    return NOT_SAID if answer is None else str(answer)


def _what(edit: "CallEdit") -> str:
    if edit.question is not None:
        return f"{edit.question}: {_told(edit.machine)} -> {_told(edit.person)}"
    return f"{edit.machine} -> {edit.person}"
