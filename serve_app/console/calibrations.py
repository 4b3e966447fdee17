"""Calibrations in pages: how far each is, a reviewer's own answers of a call, and how far reviewers agree.

A reviewer is the key that opened the session. Calibrations are of all teams: a viewer of one team sees none.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from starlette.responses import Response

from db.experiments import reviews
from db.experiments.reviews import AnswerUnfit, CalibrationRefused, NoSuchCalibration, ReviewSheet
from db.records.corrections import Editor
from db.workspace import access_log
from pipeline.asr.verdicts import REASONS
from pipeline.domain.calibration import Agreement, Answers
from pipeline.domain.overrides import NOT_APPLICABLE
from pipeline.domain.questions import NOT_SAID, SAID, Question
from serve_app.console import sentences
from serve_app.console.call import lanes_of, read
from serve_app.console.conversation import Conversation
from serve_app.console.forms import read_form
from serve_app.console.site import NotAllowed, NotFound, Visit

MOST_ANSWER = 300  # characters
MOST_BYTES, MOST_FIELDS = 512 * 1024, 250  # of a form: a hundred questions, two fields each


async def list_calibrations(visit: Visit) -> Response:
    """All of the workspace, the latest first."""
    found = await reviews.list_calibrations(visit.database, visit.reader)
    return visit.page("calibrations.html", calibrations=found, me=str(visit.viewer.key_id))


async def calibration(visit: Visit) -> Response:
    """How far each reviewer is; the viewer's own calls; the result, for those who handed in, and all once closed."""
    sheet = await _sheet(visit)
    left = sum(len(sheet.questions) - len(call.answers) for call in sheet.calls)
    shared: dict[str, Any] = {"sheet": sheet, "one": sheet.calibration, "may_review": _may_review(visit), "left": left}
    if sheet.handed_in_at is None and sheet.calibration.closed_at is None:
        return visit.page("calibration.html", **shared)
    found = await _agreement(visit)
    return visit.page(
        "calibration.html",
        **shared,
        found=found,
        names={who.reviewer: who.name for who in found.reviewers},
        titles={asked.question: asked.title for asked in found.questions},
        starts=await reviews.evidence_starts(visit.database, visit.reader, found.disagreements),
    )


async def review(visit: Visit) -> Response:
    """A call to listen to, and the questions, with what this reviewer answered; none of the machine's answers."""
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
        number=1 + [one.call_id for one in sheet.calls].index(call_id),
        conversation=conversation,
        part=conversation.parts[0] if conversation and conversation.parts else None,
        waiting=conversation.parts[1:] if conversation else (),
        lanes=lanes_of(conversation) if conversation else [],
        reasons=REASONS,
        reading=True,
    )


async def answer(visit: Visit) -> Response:
    """Keep what is answered of a call, and lead to the next one that is not answered wholly."""
    sheet = await _sheet(visit)
    call_id, _ = _call_of(visit, sheet)
    who = _reviewer(visit)
    form = await read_form(visit.request, MOST_BYTES, MOST_FIELDS)
    given = answers_of(sheet.questions, form)
    try:
        if given:
            await reviews.answer(visit.database, visit.reader, who, visit.id(), call_id, given)
    except AnswerUnfit:
        return visit.problem(sentences.NO_SUCH_ANSWER, 400)
    except CalibrationRefused:
        return visit.problem(sentences.REVIEW_STAYS, 409)
    except (NoSuchCalibration, reviews.NotInCalibration):
        raise NotFound from None
    here = f"/calibrations/{visit.id()}"
    following = _following(await _sheet(visit), call_id)
    return visit.go(f"{here}/calls/{following}" if following else here)


async def hand_in(visit: Visit) -> Response:
    """Hand in what the viewer answered."""
    sheet = await _sheet(visit)
    who = _reviewer(visit)
    try:
        await reviews.hand_in(visit.database, visit.reader, who, visit.id())
    except NoSuchCalibration:
        raise NotFound from None
    except CalibrationRefused:
        closed = sheet.calibration.closed_at is not None
        return visit.problem(sentences.REVIEW_STAYS if closed else sentences.REVIEW_INCOMPLETE, 409)
    return visit.go(f"/calibrations/{visit.id()}")


def offered(asked: Question) -> list[str]:
    """The answers to choose from; none where one is written."""
    told = {"yes/no": ["yes", "no"], "tracker": [SAID, NOT_SAID], "choice": [*asked.choices, NOT_SAID]}
    return [*told[asked.type], NOT_APPLICABLE] if asked.type in told else []


def answers_of(asked: Iterable[Question], form: Mapping[str, str]) -> Answers:
    """What a form answers, by key; without the questions that it leaves open. `instead-KEY` says that nothing is
    written."""
    found: dict[str, str | None] = {}
    for one in asked:
        written = " ".join(form.get(f"answer-{one.key}", "").replace("\x00", "").split())[:MOST_ANSWER]
        instead = form.get(f"instead-{one.key}", "")
        if told := instead if instead in (NOT_SAID, NOT_APPLICABLE) else written:
            found[one.key] = None if told == NOT_SAID else told
    return found


def _following(sheet: ReviewSheet, call_id: UUID) -> UUID | None:
    """The next call after this one, around the end, with a question that is not answered."""
    ids = [one.call_id for one in sheet.calls]
    at = ids.index(call_id) if call_id in ids else 0
    around = [*sheet.calls[at:], *sheet.calls[:at]]
    return next((one.call_id for one in around if len(one.answers) < len(sheet.questions)), None)


def _may_review(visit: Visit) -> bool:
    return visit.viewer.may_edit and visit.viewer.key_id is not None


def _reviewer(visit: Visit) -> Editor:
    """Raises `NotAllowed` for a session that may only read, and one that a link opened: its name may be of several."""
    if not _may_review(visit):
        raise NotAllowed(sentences.NO_REVIEWER)
    return _self(visit)


def _self(visit: Visit) -> Editor:
    """The viewer as reviewers are known: by the key; by the session where there is none, which reviewed nothing."""
    viewer = visit.viewer
    return Editor(viewer.key_id, viewer.session_id, viewer.name if viewer.key_id else str(viewer.session_id))


async def _sheet(visit: Visit) -> ReviewSheet:
    """Raises `NotFound`."""
    try:
        return await reviews.sheet(visit.database, visit.reader, _self(visit), visit.id())
    except NoSuchCalibration:
        raise NotFound from None


def _call_of(visit: Visit, sheet: ReviewSheet) -> tuple[UUID, Answers]:
    """The call in the path, and what is answered of it. Raises `NotFound`."""
    wanted = visit.id("call")
    for one in sheet.calls:
        if one.call_id == wanted:
            return wanted, one.answers
    raise NotFound


async def _agreement(visit: Visit) -> Agreement:
    """The result, with a note of who reads it."""
    found = (await reviews.agreement(visit.database, visit.reader, _self(visit), visit.id())).agreement
    who = visit.viewer.key_id or visit.viewer.session_id
    call_ids = [one.call_id for one in found.calls]
    await access_log.note(visit.database, visit.reader, who, call_ids, "record", "calibration")
    return found
