"""Pages of calibrations: progress, a reviewer's answers for a call, agreement of reviewers.

A reviewer is the key that opened the session. Calibrations are workspace-wide: viewers limited to one team see none.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.experiments import calibrations
from db.experiments.calibrations import AnswerUnfit, CalibrationRefused, ReviewSheet
from db.records.corrections import Editor
from db.workspace import access_log
from pipeline.asr.verdicts import REASONS
from pipeline.domain.calibration import Agreement, Answers
from pipeline.domain.overrides import NOT_APPLICABLE
from pipeline.domain.questions import NOT_SAID, SAID, Question
from serve_app.console import sentences
from serve_app.console.call import lanes_of, read
from serve_app.console.conversation import Conversation
from serve_app.console.site import MAX_LONG_FORM_BYTES, NotAllowed, NotFound, Visit, read_form

MAX_ANSWER_LENGTH = 300  # characters
MAX_FORM_FIELDS = 250  # a hundred questions, two fields each


async def list_calibrations(visit: Visit) -> Response:
    listed = await calibrations.list_calibrations(visit.database, visit.reader)
    return visit.page("calibrations.html", calibrations=listed, me=str(visit.viewer.key_id))


async def calibration(visit: Visit) -> Response:
    """Render progress and the viewer's calls; after submission or closing also the agreement."""
    sheet = await _sheet(visit)
    unanswered = sum(len(sheet.questions) - len(call.answers) for call in sheet.calls)
    shared: dict[str, Any] = {
        "sheet": sheet,
        "calibration": sheet.calibration,
        "may_review": _may_review(visit),
        "unanswered": unanswered,
    }
    if sheet.handed_in_at is None and sheet.calibration.closed_at is None:
        return visit.page("calibration.html", **shared)
    agreement = await _agreement(visit)
    return visit.page(
        "calibration.html",
        **shared,
        found=agreement,
        names={who.reviewer: who.name for who in agreement.reviewers},
        titles={asked.question: asked.title for asked in agreement.questions},
        starts=await calibrations.evidence_starts(visit.database, visit.reader, agreement.disagreements),
    )


async def review(visit: Visit) -> Response:
    """Render a call with the questions and this reviewer's answers, but without automatic answers."""
    sheet = await _sheet(visit)
    call_id, answers = _call_of(visit, sheet)
    _reviewer(visit)
    record = await read(visit, "transcript", call_id=call_id)
    conversation = Conversation.of(record)
    return visit.page(
        "review.html",
        sheet=sheet,
        answers=answers,
        offered=offered,
        call=record.call,
        number=1 + [call.call_id for call in sheet.calls].index(call_id),
        conversation=conversation,
        part=conversation.parts[0] if conversation and conversation.parts else None,
        waiting=conversation.parts[1:] if conversation else (),
        lanes=lanes_of(conversation) if conversation else [],
        reasons=REASONS,
        reading=True,
    )


async def answer(visit: Visit) -> Response:
    """Save answers for a call; redirect to the next call with unanswered questions."""
    sheet = await _sheet(visit)
    call_id, _ = _call_of(visit, sheet)
    who = _reviewer(visit)
    form = await read_form(visit.request, MAX_LONG_FORM_BYTES, MAX_FORM_FIELDS)
    answers = answers_of(sheet.questions, form)
    try:
        if answers:
            await calibrations.answer(visit.database, visit.reader, who, visit.id(), call_id, answers)
    except AnswerUnfit:
        return visit.problem(sentences.NO_SUCH_ANSWER, 400)
    except CalibrationRefused:
        return visit.problem(sentences.REVIEW_STAYS, 409)
    here = f"/calibrations/{visit.id()}"
    following = _following(await _sheet(visit), call_id)
    return visit.go(f"{here}/calls/{following}" if following else here)


async def hand_in(visit: Visit) -> Response:
    sheet = await _sheet(visit)
    who = _reviewer(visit)
    try:
        await calibrations.hand_in(visit.database, visit.reader, who, visit.id())
    except CalibrationRefused:
        closed = sheet.calibration.closed_at is not None
        return visit.problem(sentences.REVIEW_STAYS if closed else sentences.REVIEW_INCOMPLETE, 409)
    return visit.go(f"/calibrations/{visit.id()}")


def offered(asked: Question) -> list[str]:
    """Return the choices for a question; none for free text."""
    choices = {"yes/no": ["yes", "no"], "tracker": [SAID, NOT_SAID], "choice": [*asked.choices, NOT_SAID]}
    return [*choices[asked.type], NOT_APPLICABLE] if asked.type in choices else []


def answers_of(asked: Iterable[Question], form: Mapping[str, str]) -> Answers:
    """Return the answers of a form by key, without unanswered questions. `instead-KEY` replaces a written answer."""
    answers: dict[str, str | None] = {}
    for question in asked:
        written = " ".join(form.get(f"answer-{question.key}", "").replace("\x00", "").split())[:MAX_ANSWER_LENGTH]
        instead = form.get(f"instead-{question.key}", "")
        if answer := instead if instead in (NOT_SAID, NOT_APPLICABLE) else written:
            answers[question.key] = None if answer == NOT_SAID else answer
    return answers


def _following(sheet: ReviewSheet, call_id: UUID) -> UUID | None:
    """Return the next call with an unanswered question, wrapping around at the end."""
    ids = [call.call_id for call in sheet.calls]
    at = ids.index(call_id) if call_id in ids else 0
    around = [*sheet.calls[at:], *sheet.calls[:at]]
    return next((call.call_id for call in around if len(call.answers) < len(sheet.questions)), None)


def _may_review(visit: Visit) -> bool:
    return visit.viewer.may_edit and visit.viewer.key_id is not None


def _reviewer(visit: Visit) -> Editor:
    """Raise `NotAllowed` for read-only sessions, and for sessions from a link: several people may use one name."""
    if not _may_review(visit):
        raise NotAllowed(sentences.NO_REVIEWER)
    return _self(visit)


def _self(visit: Visit) -> Editor:
    """Return the viewer as a reviewer: the key, or the session if it was opened by a link (it has no reviews)."""
    viewer = visit.viewer
    return Editor(viewer.key_id, viewer.session_id, viewer.name if viewer.key_id else str(viewer.session_id))


async def _sheet(visit: Visit) -> ReviewSheet:
    return await calibrations.sheet(visit.database, visit.reader, _self(visit), visit.id())


def _call_of(visit: Visit, sheet: ReviewSheet) -> tuple[UUID, Answers]:
    """Return the call id in the path and its answers. Raises `NotFound`."""
    call_id = visit.id("call")
    for call in sheet.calls:
        if call.call_id == call_id:
            return call_id, call.answers
    raise NotFound


async def _agreement(visit: Visit) -> Agreement:
    """Return the agreement, and log the access to its calls."""
    agreement = (await calibrations.agreement(visit.database, visit.reader, _self(visit), visit.id())).agreement
    who = visit.viewer.key_id or visit.viewer.session_id
    call_ids = [call.call_id for call in agreement.calls]
    await access_log.note(visit.database, visit.reader, who, call_ids, "record", "calibration")
    return agreement
