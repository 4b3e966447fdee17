from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Result, Scope, listing

if TYPE_CHECKING:
    from db.records.corrections import CallEdit, Editor

NOT_SAID = "not said"
ID_HELP = "`switchboard calls list` shows the ids."
CallId = Annotated[UUID, typer.Argument(metavar="ID", parser=parse_id(ID_HELP), help="The callId that was submitted.")]
EditId = Annotated[
    UUID,
    typer.Argument(
        metavar="EDIT",
        parser=parse_id("`switchboard calls edits` shows the ids."),
        help="`switchboard calls edits` shows the ids.",
    ),
]


def _reason(text: str) -> str:
    if not text.strip():
        raise CommandError("--comment is empty.", "Explain the correction.", USAGE)
    return text


async def answer(
    scope: Scope,
    call_id: CallId,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The key of a question or tracker.")],
    new: Annotated[
        str,
        typer.Argument(
            metavar="ANSWER", help="yes, no, a choice, a number, a date; of trackers said; 'not said'; n/a."
        ),
    ],
    comment: Annotated[
        str, typer.Option("--comment", "-c", metavar="WHY", parser=_reason, help="Stored with the answer.")
    ],
    old: Annotated[
        str | None,
        typer.Option("--old", metavar="ANSWER", help="Change nothing unless this is the current answer."),
    ] = None,
) -> Result:
    """Correct the machine's answer to a question of a call, and say why. Scores follow; `undo` reverts it.

    Example:

      switchboard calls answer 3f0c1d5e-... recording_notice said --old "not said" --comment "before the beep"
    """
    from db.core.database import Reader
    from db.records import correct, views
    from db.records.correct import WantedEdit
    from pipeline.domain.edits import EditKind
    from pipeline.domain.overrides import shown_answer

    record = await views.show_call(scope.database, call_id, scope.id)
    if record is None:
        raise _no_call(call_id)
    answers = {answer.key: shown_answer(answer) for answer in record.answers}
    answers |= {tracker.key: shown_answer(tracker) for tracker in record.trackers}
    if question not in answers:
        keys = ", ".join(answers) or "none"
        raise CommandError(f"Call {call_id} has no answer to {question!r}.", f"Its questions: {keys}.", FAILED)
    before = answers[question] if old is None else _parsed(old)
    edit_request = WantedEdit(EditKind.ANSWER, before, _parsed(new), question=question, comment=comment)
    try:
        edit = (await correct.make(scope.database, Reader(scope.id), _operator(), call_id, edit_request)).edit
    except correct.EditConflict as error:
        now = _shown(error.current.value if error.current else None)
        raise CommandError(
            f"Nothing was changed: the answer is {now!r}, not {_shown(before)!r}.",
            f"The call has changed in the meantime: check it, then pass --old {now!r}.",
            FAILED,
        ) from None
    except correct.InvalidEdit as error:
        raise CommandError(f"{new!r} cannot be the answer to {question!r}.", str(error), USAGE) from None
    except correct.EditRefused as error:
        raise CommandError(str(error) or type(error).__name__, "", FAILED) from None
    change = f"{_shown(edit.machine)} by the machine, {_shown(edit.person)} by {edit.made_by}"
    revert = f"`switchboard calls undo {call_id} {edit.edit_id}` reverts it."
    return Result(edit, (f"{question}: {change}.", revert))


async def edits(scope: Scope, call_id: CallId) -> Result:
    """List what people corrected in a call, undone corrections too, the earliest first."""
    from db.core.database import Reader
    from db.records import correct

    try:
        corrections = await correct.list_edits(scope.database, Reader(scope.id), call_id)
    except correct.NotFound:
        raise _no_call(call_id) from None
    return listing(
        corrections,
        ("!edit", "!when", "!kind", "!status", "who", "what"),
        lambda edit: (
            *(str(edit.edit_id), moment(edit.made_at), str(edit.kind), str(edit.state), edit.made_by),
            _change(edit) + (f" ({edit.comment})" if edit.comment else ""),
        ),
        f"Call {call_id} has no corrections.",
    )


async def undo(scope: Scope, call_id: CallId, edit_id: EditId) -> Result:
    """Undo a correction of a call; it stays in the list of corrections, with the person's name."""
    from db.core.database import Reader
    from db.records import correct

    try:
        edit = await correct.undo(scope.database, Reader(scope.id), _operator(), call_id, edit_id)
    except correct.NotFound:
        hint = f"`switchboard calls edits {call_id}` shows them."
        raise CommandError(f"Call {call_id} has no correction {edit_id}.", hint, FAILED) from None
    return Result(edit, f"Undone: {_change(edit)}.")


def _operator() -> "Editor":
    from db.records.corrections import Editor
    from db.workspace.admin_log import operator

    return Editor(None, None, operator().name)


def _no_call(call_id: UUID) -> CommandError:
    return CommandError(f"No call {call_id}.", ID_HELP, FAILED)


def _parsed(text: str) -> str | None:
    return None if text == NOT_SAID else text


def _shown(answer: str | bool | None) -> str:
    return NOT_SAID if answer is None else str(answer)


def _change(edit: "CallEdit") -> str:
    if edit.question is not None:
        return f"{edit.question}: {_shown(edit.machine)} -> {_shown(edit.person)}"
    return f"{edit.machine} -> {edit.person}"
