from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from db.core.pages import Page
from db.records import correct
from db.records.correct import TaskMark, WantedEdit
from db.records.corrections import CallEdit
from pipeline.domain.edits import EditKind
from serve_app.api.access import ApiRequest, answer_with, json_answer
from serve_app.api.errors import EditBodyRefused, EditConflict
from serve_app.api.queries import NoQuery
from serve_app.http.auth import READ
from serve_app.http.camel_json import to_camel_json
from serve_app.http.json_body import Fault, InvalidBody, read_object, unknown_name
from serve_app.http.limits import check_media_type, read_body
from serve_app.http.options import LimitOptions

MAX_BODY_BYTES = 64 * 1024
MAX_TEXT_CHARACTERS = 4_000  # of an old or new text

Words = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Seconds = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]
Label = Annotated[str, Field(min_length=1, max_length=100)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)

    edit_id: Annotated[UUID | None, Field(strict=False)] = Field(
        None, description="Client-generated UUID, used as the idempotency key."
    )


class _TurnEdit(_Body):
    turn: int = Field(ge=0, le=10**6, description="The turn's `index`.")
    start: Seconds = Field(description="Current `start` of the first word.")
    end: Seconds = Field(description="Current `end` of the last word.")


class TextEdit(_TurnEdit):
    """Correction of one or several words of a turn."""

    kind: Literal["text"]
    old: Words = Field(description="The current words, separated by single spaces.", min_length=1)
    new: Words = Field(description="The correct words; empty: nothing was said.")


class SpeakerEdit(_TurnEdit):
    """Correction of the speaker of a turn."""

    kind: Literal["speaker"]
    old: Label = Field(description="The turn's `speaker`.")
    new: Label = Field(description="rep, customer or another speaker label.")


class RolesEdit(_Body):
    """Correction of which party is the rep."""

    kind: Literal["roles"]
    old: bool = Field(description="The record's `swapped`.")
    new: bool = Field(description="true: the parties are swapped compared to the machine's result.")


class _PersonEdit(_Body):
    old: Annotated[UUID | None, Field(strict=False)] = Field(description="The current value; null: none.")
    new: Annotated[UUID | None, Field(strict=False)] = Field(description="The correct value; null: unknown.")


class AgentEdit(_PersonEdit):
    """Correction of the agent, by `userId`; `old` is `agentUserId` of the record."""

    kind: Literal["agent"]


class ContactEdit(_PersonEdit):
    """Correction of the contact, by `contactId`; `old` is that of the record."""

    kind: Literal["contact"]


AnswerText = Annotated[str, Field(min_length=1, max_length=300)]


class AnswerEdit(_Body):
    """Correction of the answer to a question, or of the result of a tracker."""

    kind: Literal["answer"]
    question: AnswerText = Field(description="The key of the question or tracker.")
    old: AnswerText | None = Field(
        description="The current answer; said for trackers; null: not said; n/a: not applicable."
    )
    new: AnswerText | None = Field(
        description="The correct answer; said for trackers; null: not said; n/a: not applicable."
    )
    comment: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")] = Field(
        description="Reason of the correction."
    )


class TagEdit(_Body):
    """A tag, which any number of calls may have. Undo the edit to remove it."""

    kind: Literal["tag"]
    new: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^,]*[^,\s][^,]*$")] = Field(
        description="The tag, stored in lower case; without commas."
    )


class CommentEdit(_Body):
    """A comment on the call. Undo the edit to remove it."""

    kind: Literal["comment"]
    comment: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")] = Field(description="The comment.")


EditBody = Annotated[
    TextEdit | SpeakerEdit | RolesEdit | AgentEdit | ContactEdit | AnswerEdit | TagEdit | CommentEdit,
    Field(discriminator="kind"),
]
EDIT_BODY: TypeAdapter[Any] = TypeAdapter(EditBody)
KINDS = ", ".join(kind for kind in EditKind if kind is not EditKind.TASK)
_FIELDS_OF_KIND = {
    kind: sorted(str(field.alias) for field in model.model_fields.values())
    for model in get_args(get_args(EditBody)[0])
    for kind in get_args(model.model_fields["kind"].annotation)
}
_FIELDS: frozenset[str] = frozenset().union(*_FIELDS_OF_KIND.values())


async def edit_call(writing: ApiRequest[NoQuery]) -> Response:
    """Create an edit: 201, or 200 if an earlier request created it."""
    edit = await _requested_edit(writing.request)
    try:
        result = await correct.make(writing.database, writing.reader, writing.editor, writing.call_id, edit)
    except correct.EditConflict as error:
        shown = READ in writing.sender.scopes
        raise EditConflict({"current": to_camel_json(error.current)} if shown else {}) from None
    answer = _answer(writing, result.edit)
    answer.status_code = 201 if result.created else 200
    if result.created:
        answer.headers["Location"] = f"{writing.request.url.path}/{result.edit.edit_id}"
    return answer


async def list_edits(reading: ApiRequest[NoQuery]) -> Response:
    """List the edits of a call, including undone ones, the earliest first."""
    edits = await correct.list_edits(reading.database, reading.reader, reading.call_id)
    await reading.note("record", [reading.call_id] if edits else [], "edits")
    return json_answer(reading, Page(edits))


async def undo_edit(writing: ApiRequest[NoQuery]) -> Response:
    """Undo an edit; it stays in the list as undone."""
    edit_id: UUID = writing.request.path_params["edit_id"]
    edit = await correct.undo(writing.database, writing.reader, writing.editor, writing.call_id, edit_id)
    return _answer(writing, edit)


async def mark_task_done(writing: ApiRequest[NoQuery]) -> Response:
    return await _mark(writing, correct.tick)


async def unmark_task(writing: ApiRequest[NoQuery]) -> Response:
    return await _mark(writing, correct.untick)


async def _mark(writing: ApiRequest[NoQuery], change: Any) -> Response:
    task_id: UUID = writing.request.path_params["task_id"]
    mark: TaskMark = await change(writing.database, writing.reader, writing.editor, writing.call_id, task_id)
    if READ not in writing.sender.scopes:
        mark = replace(mark, done_by=None)
    return answer_with(mark)


def _answer(writing: ApiRequest[Any], edit: CallEdit) -> Response:
    """Return the edit, without the machine's value for a key that lacks the scope `read`."""
    shown = to_camel_json(edit)
    if READ not in writing.sender.scopes:
        shown["machine"] = None
    return answer_with(shown)


async def _requested_edit(request: Request) -> WantedEdit:
    """Return the edit in the body. Raises `EditBodyRefused` with every fault."""
    check_media_type(request.headers.getlist("content-type"), request.headers.getlist("content-encoding"))
    try:
        body, faults = read_object(await read_body(request, LimitOptions(), MAX_BODY_BYTES), _FIELDS)
    except InvalidBody as error:
        raise EditBodyRefused(error.faults) from None
    try:
        parsed = EDIT_BODY.validate_python(body)
    except ValidationError as error:
        faults += [
            fault
            for item in error.errors(include_url=False, include_input=False, include_context=False)
            for fault in _faults(item, body)
        ]
    if faults:
        raise EditBodyRefused(list(dict.fromkeys(faults)))
    return requested_edit(parsed)


def requested_edit(body: Any) -> WantedEdit:
    """Return the edit of a parsed body, with whitespace in texts normalized."""
    plain = {"old": None, "new": None} | body.model_dump()
    kind = EditKind(plain.pop("kind"))
    for name in ("old", "new"):
        if isinstance(plain[name], UUID):
            plain[name] = str(plain[name])
        elif kind is EditKind.TEXT:
            plain[name] = " ".join(plain[name].split())
    if kind is EditKind.TAG:
        plain["new"] = correct.tag_of(plain["new"])
    return WantedEdit(kind, **plain)


def _faults(error: Any, body: dict[str, Any]) -> Iterator[Fault]:
    """Yield the faults of an error without any sent value."""
    name = next((part for part in reversed(error["loc"]) if part in _FIELDS), None)
    if error["type"] == "extra_forbidden":
        kind, sent = map(str, error["loc"])
        fields = _FIELDS_OF_KIND[kind]
        yield Fault("", f"{unknown_name('field', sent, fields)} Fields of the kind {kind}: {', '.join(fields)}.")
    elif error["type"].startswith("union_tag"):
        yield from (Fault("", unknown_name("field", sent, _FIELDS)) for sent in body if sent not in _FIELDS)
        yield Fault("/kind", f"kind: must be one of {KINDS}.")
    else:
        yield Fault(f"/{name}" if name else "", f"{name or 'The body'}: {error['msg']}.")
