"""Handlers: what people write. An edit is made, listed and undone; a task is ticked off."""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from db.core.pages import Page
from db.records import correct
from db.records.correct import EditRefused, TaskMark, WantedEdit
from db.records.corrections import CallEdit, Editor
from pipeline.domain.edits import EditKind
from serve_app.api.access import ReadRequest, json_answer
from serve_app.api.errors import (
    EditBodyRefused,
    EditIdUsed,
    NoSuchCall,
    NotReady,
    SomethingElse,
    TooManyEdits,
)
from serve_app.api.queries import NoQuery
from serve_app.api.writing import answer_with
from serve_app.http.auth import READ
from serve_app.http.camel_json import written
from serve_app.http.json_body import Fault, InvalidBody, read_object
from serve_app.http.limits import LimitOptions, check_media_type, read_body

T = TypeVar("T")
MOST_BYTES = 64 * 1024
MOST_WORDS = 4_000  # characters of a text, old or new

Words = Annotated[str, Field(max_length=MOST_WORDS)]
Seconds = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]
Label = Annotated[str, Field(min_length=1, max_length=100)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)

    edit_id: Annotated[UUID | None, Field(strict=False)] = Field(
        None, description="A UUID of yours for this edit; sent again, it is answered with the edit it made."
    )


class _OfTurn(_Body):
    turn: int = Field(ge=0, le=10**6, description="The turn's `index`.")
    start: Seconds = Field(description="`start` of the first word, as it is shown.")
    end: Seconds = Field(description="`end` of the last word, as it is shown.")


class TextEdit(_OfTurn):
    """One or several words of a turn."""

    kind: Literal["text"]
    old: Words = Field(description="The words as they are shown, single spaces between them.", min_length=1)
    new: Words = Field(description="The words that were said; empty: nothing was.")


class SpeakerEdit(_OfTurn):
    """Who said a turn."""

    kind: Literal["speaker"]
    old: Label = Field(description="The turn's `speaker`.")
    new: Label = Field(description="rep, customer, or another speaker's label.")


class RolesEdit(_Body):
    """Which party is the rep."""

    kind: Literal["roles"]
    old: bool = Field(description="The record's `swapped`.")
    new: bool = Field(description="true: the parties are swapped against what the machine said.")


class _Person(_Body):
    old: Annotated[UUID | None, Field(strict=False)] = Field(description="As it is shown; null: nobody.")
    new: Annotated[UUID | None, Field(strict=False)] = Field(description="Who it was; null: nobody that is known.")


class AgentEdit(_Person):
    """The member on our side, by `userId`; `old` is the record's `agentUserId`."""

    kind: Literal["agent"]


class ContactEdit(_Person):
    """The contact, by `contactId`; `old` is that of the record's contact."""

    kind: Literal["contact"]


Answered = Annotated[str, Field(min_length=1, max_length=300)]


class AnswerEdit(_Body):
    """The answer to one of the workspace's questions, or whether a tracker's phrase was said."""

    kind: Literal["answer"]
    question: Answered = Field(description="The key of the question or tracker.")
    old: Answered | None = Field(description="The answer as it is shown; of trackers said; null: nobody says it; n/a.")
    new: Answered | None = Field(description="The answer; of trackers said; null: nobody says it; n/a: not applicable.")
    comment: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")] = Field(description="Why.")


EditBody = Annotated[
    TextEdit | SpeakerEdit | RolesEdit | AgentEdit | ContactEdit | AnswerEdit, Field(discriminator="kind")
]
EDIT_BODY: TypeAdapter[Any] = TypeAdapter(EditBody)
_FIELDS = frozenset({"editId", "kind", "turn", "start", "end", "old", "new", "question", "comment"})


async def edit_call(writing: ReadRequest[NoQuery]) -> Response:
    """Keep an edit: 201; 200 where this request made it before."""
    wanted = await _wanted(writing.request)
    made = await _done(
        writing, correct.make(writing.database, writing.reader, _editor(writing), writing.call_id, wanted)
    )
    answer = _answer(writing, made.edit)
    answer.status_code = 201 if made.created else 200
    if made.created:
        answer.headers["Location"] = f"{writing.request.url.path}/{made.edit.edit_id}"
    return answer


async def list_edits(reading: ReadRequest[NoQuery]) -> Response:
    """The edits of a call, undone ones too, in the order in which they were made."""
    found = await _done(reading, correct.list_edits(reading.database, reading.reader, reading.call_id))
    await reading.note("record", [reading.call_id] if found else [], "edits")
    return json_answer(reading, Page(found))


async def undo_edit(writing: ReadRequest[NoQuery]) -> Response:
    """Take an edit back; it is kept, and shown as undone."""
    edit_id: UUID = writing.request.path_params["edit_id"]
    return _answer(
        writing,
        await _done(
            writing, correct.undo(writing.database, writing.reader, _editor(writing), writing.call_id, edit_id)
        ),
    )


async def mark_task_done(writing: ReadRequest[NoQuery]) -> Response:
    """Tick a task off."""
    return await _mark(writing, correct.tick)


async def unmark_task(writing: ReadRequest[NoQuery]) -> Response:
    """Say that a task is to be done after all."""
    return await _mark(writing, correct.untick)


async def _mark(writing: ReadRequest[NoQuery], change: Any) -> Response:
    task_id: UUID = writing.request.path_params["task_id"]
    mark: TaskMark = await _done(
        writing, change(writing.database, writing.reader, _editor(writing), writing.call_id, task_id)
    )
    if READ not in writing.sender.scopes:
        mark = replace(mark, done_by=None)
    return answer_with(mark)


def _editor(writing: ReadRequest[Any]) -> Editor:
    return Editor(writing.sender.key_id)


def _answer(writing: ReadRequest[Any], made: CallEdit) -> Response:
    """The edit; without what the machine said for a key that may not read."""
    shown = written(made)
    if READ not in writing.sender.scopes:
        shown["machine"] = None
    return answer_with(shown)


async def _done(writing: ReadRequest[Any], work: Awaitable[T]) -> T:
    """What was done, or the refusal that says why not."""
    try:
        return await work
    except correct.NotFound:
        raise NoSuchCall("There is no such call, edit or task that the API key may see.") from None
    except correct.NoTranscript:
        raise NotReady from None
    except correct.InvalidEdit as error:
        raise EditBodyRefused([Fault(f"/{error.field}", str(error))]) from None
    except correct.IdUsed:
        raise EditIdUsed from None
    except correct.EditLimitExceeded:
        raise TooManyEdits(f"The call has {correct.MAX_EDITS} edits, as many as are kept.") from None
    except correct.EditConflict as error:
        shown = READ in writing.sender.scopes
        raise SomethingElse({"current": written(error.current)} if shown else {}) from None
    except EditRefused as error:  # pragma: no cover: every kind is above
        raise EditBodyRefused([Fault("", str(error))]) from None


async def _wanted(request: Request) -> WantedEdit:
    """The edit that the body asks for. Raises `EditBodyRefused` with every fault."""
    check_media_type(request.headers.getlist("content-type"), request.headers.getlist("content-encoding"))
    try:
        body, faults = read_object(await read_body(request, LimitOptions(), MOST_BYTES), _FIELDS)
    except InvalidBody as error:
        raise EditBodyRefused(error.faults) from None
    try:
        found = EDIT_BODY.validate_python(body)
    except ValidationError as error:
        faults += [_fault(one) for one in error.errors(include_url=False, include_input=False, include_context=False)]
    if faults:
        raise EditBodyRefused(list(dict.fromkeys(faults)))
    return wanted_of(found)


def wanted_of(body: Any) -> WantedEdit:
    """The edit that a body asks for, texts with single spaces."""
    plain = body.model_dump()
    kind = EditKind(plain.pop("kind"))
    for name in ("old", "new"):
        if isinstance(plain[name], UUID):
            plain[name] = str(plain[name])
        elif kind is EditKind.TEXT:
            plain[name] = " ".join(plain[name].split())
    return WantedEdit(kind, **plain)


def _fault(error: Any) -> Fault:
    """Never with what was sent: only names of ours are in it."""
    name = next((one for one in reversed(error["loc"]) if one in _FIELDS), None)
    if error["type"] == "extra_forbidden":
        return Fault("", f"A key is not a field of this kind of edit. Fields are: {', '.join(sorted(_FIELDS))}.")
    if error["type"].startswith("union_tag"):
        return Fault("/kind", "kind: one of text, speaker, roles, agent, contact, answer.")
    return Fault(f"/{name}" if name else "", f"{name or 'The body'}: {error['msg']}.")


__all__ = [
    "EDIT_BODY",
    "CallEdit",
    "EditBody",
    "TaskMark",
    "edit_call",
    "list_edits",
    "mark_task_done",
    "undo_edit",
    "unmark_task",
]
