"""`switchboard calls answer`, `edits`, `undo`: what people say against the machine's answers, and all corrections."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.options import parse_id
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Answer, Home, listing

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
        raise CommandError("--comment is empty.", "Say why the answer is another one.", USAGE)
    return text


async def answer(
    home: Home,
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
        typer.Option("--old", metavar="ANSWER", help="Only while this is the answer; else nothing is changed."),
    ] = None,
) -> Answer:
    """Correct the machine's answer to a question of a call, and say why. Scores follow; `undo` reverts it.

    Example:

      switchboard calls answer 3f0c1d5e-... recording_notice said --old "not said" --comment "before the beep"
    """
    from db.core.database import Reader
    from db.records import correct, views
    from db.records.correct import WantedEdit
    from pipeline.domain.edits import EditKind
    from pipeline.domain.overrides import shown_answer

    record = await views.show_call(home.database, call_id, home.id)
    if record is None:
        raise _no_call(call_id)
    answers = {one.key: shown_answer(one) for one in record.answers}
    answers |= {one.key: shown_answer(one) for one in record.trackers}
    if question not in answers:
        keys = ", ".join(answers) or "none"
        raise CommandError(f"Call {call_id} was not asked {question!r}.", f"Its questions: {keys}.", FAILED)
    before = answers[question] if old is None else _parsed(old)
    wanted = WantedEdit(EditKind.ANSWER, before, _parsed(new), question=question, comment=comment)
    try:
        edit = (await correct.make(home.database, Reader(home.id), _operator(), call_id, wanted)).edit
    except correct.Stale as error:
        now = _shown(error.current.value if error.current else None)
        raise CommandError(
            f"Nothing was changed: the answer is {now!r}, not {_shown(before)!r}.",
            f"It may have been corrected in the meantime: look at the call, then say --old {now!r}.",
            FAILED,
        ) from None
    except correct.CannotBe as error:
        raise CommandError(f"{new!r} cannot be the answer to {question!r}.", str(error), USAGE) from None
    except correct.EditRefused as error:
        raise CommandError(str(error) or type(error).__name__, "", FAILED) from None
    who = f"{_shown(edit.machine)} by the machine, {_shown(edit.person)} by {edit.made_by}"
    revert = f"`switchboard calls undo {call_id} {edit.edit_id}` reverts it."
    return Answer(edit, (f"{question}: {who}.", revert))


async def edits(home: Home, call_id: CallId) -> Answer:
    """List what people corrected in a call, undone corrections too, the earliest first.

    Example:

      switchboard calls edits 3f0c1d5e-8a52-4c2e-9a55-6a1f0e1c9a11
    """
    from db.core.database import Reader
    from db.records import correct

    try:
        corrections = await correct.list_edits(home.database, Reader(home.id), call_id)
    except correct.NoSuch:
        raise _no_call(call_id) from None
    return listing(
        corrections,
        ("!edit", "!when", "!kind", "!state", "who", "what"),
        lambda one: (
            *(str(one.edit_id), moment(one.made_at), str(one.kind), str(one.state), one.made_by),
            _change(one) + (f" ({one.comment})" if one.comment else ""),
        ),
        f"Call {call_id} has no corrections.",
    )


async def undo(home: Home, call_id: CallId, edit_id: EditId) -> Answer:
    """Undo a correction of a call; it stays in the list of corrections, with the person's name.

    Example:

      switchboard calls undo 3f0c1d5e-... 71c701e4-...
    """
    from db.core.database import Reader
    from db.records import correct

    try:
        edit = await correct.undo(home.database, Reader(home.id), _operator(), call_id, edit_id)
    except correct.NoSuch:
        hint = f"`switchboard calls edits {call_id}` shows them."
        raise CommandError(f"Call {call_id} has no correction {edit_id}.", hint, FAILED) from None
    return Answer(edit, f"Undone: {_change(edit)}.")


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
