import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from starlette.responses import Response

from db.queue.stage_results import StageDone, stages_done
from db.records import views
from db.records.views import CallRecord
from db.records.waveforms import Peaks
from db.search import people_list
from db.workspace import access_log, directory, questions
from db.workspace.keys import UNREDACTED
from pipeline.asr.verdicts import REASONS
from pipeline.domain.edits import EditKind
from pipeline.domain.overrides import shown_answer
from pipeline.domain.redaction import RedactionState
from pipeline.domain.speech import Doubt
from serve_app.console import charts, labels
from serve_app.console.conversation import Conversation, finding
from serve_app.console.site import NotFound, NotUnderstood, Visit, etag_of
from serve_app.operations.estimates import engine_work, whole_cost
from serve_app.records.advice import advice, waiting_advice

MAX_LISTED_DOUBTS = 200  # in the panel; all are marked in the text
POLL_WAIT_SECONDS = 0.8  # then the page polls again
MAX_LANES = 3  # of a mixed recording; further speakers have none
PAUSE = 0.25  # seconds around a turn that still belong to its speaker
UNSURE_ONLY = ("unsure",)  # doubts about single words, marked in the text only


async def call(visit: Visit) -> Response:
    """Render the page. It polls while the call is being processed."""
    what = what_is_read(visit, "record")
    record = await read(visit, what)
    done = await stages_done(visit.database, visit.reader, record.call.call_id)
    team = next(
        (
            team_.name
            for team_ in await directory.list_teams(visit.database, visit.home)
            if team_.team_id == record.call.team_id
        ),
        None,
    )
    edit = await to_edit(visit, record)
    edit |= {"redacted": _redacted(visit, record), "unredacted": what == UNREDACTED}
    page = await asyncio.to_thread(_call_page, visit, record, done, team, edit)  # 0.1 s for an hour of talk
    if visit.request.headers.get("hx-request"):
        etag = etag_of(bytes(page.body).decode().replace(visit.request.state.nonce, ""))
        page.headers["ETag"] = etag
        return visit.unchanged(etag) or page
    return page


def _call_page(
    visit: Visit, record: CallRecord, done: Sequence[StageDone], team: str | None, edit: dict[str, Any]
) -> Response:
    conversation = Conversation.of(record)
    return visit.page(
        "call.html",
        record=record,
        call=record.call,
        team=team,
        conversation=conversation,
        part=conversation.parts[0] if conversation and conversation.parts else None,
        waiting=conversation.parts[1:] if conversation else (),
        found={finding_.step: finding_ for finding_ in record.findings},
        lanes=lanes_of(conversation) if conversation else [],
        doubts=list(_doubts(conversation)) if conversation else [],
        tone=charts.tone_over_time(conversation) if conversation else None,
        share=charts.talk_share(finding(record.findings, "statistics"), conversation) if conversation else [],
        work=list(_work(record, done)),
        engines=(engines := engine_work(done, visit.site.settings.scaling)),
        cost=whole_cost(engines),
        reasons=REASONS,
        advice=_advice(record),
        live=record.call.state in ("received", "transcribing"),
        **edit,
    )


async def to_edit(visit: Visit, record: CallRecord) -> dict[str, Any]:
    """Return the options of the forms, and names by the ids in edits."""
    members = []
    if visit.viewer.may_edit or record.edits:
        members = await directory.list_members(visit.database, visit.home)
    offered = [member for member in members if member.team_id is None or visit.sees(member.team_id)]
    contact_ids = {
        UUID(str(id_))
        for edit in record.edits
        if edit.kind is EditKind.CONTACT
        for id_ in (edit.machine, edit.person)
        if id_
    }
    contacts = await people_list.contacts_by_id(visit.database, visit.reader, contact_ids)
    names = {
        contact.contact_id: contact.name or contact.company or contact.phone or contact.email for contact in contacts
    }
    needs_choices = visit.viewer.may_edit and (record.answers or record.trackers)
    asked = await questions.list_questions(visit.database, visit.reader, visit.home) if needs_choices else []
    return {
        "choices": {question.question.key: list(question.question.choices) for question in asked},
        "shown_answer": shown_answer,
        "members": offered,
        "named": {str(member.user_id): member.name for member in members} | names,
        "agent_id": record.agent_user_id or "",
    }


async def turns(visit: Visit) -> Response:
    """Render a part of the conversation, loaded when the page scrolls to it."""
    return await asyncio.to_thread(_turns_page, visit, await read(visit, what_is_read(visit, "transcript")))


def what_is_read(visit: Visit, part: str) -> str:
    """Return what is read, for the log: what is sealed, if the viewer asks for it and may see it; else the part."""
    return UNREDACTED if "unredacted" in visit.request.query_params and visit.viewer.may_unredact else part


def _turns_page(visit: Visit, record: CallRecord) -> Response:
    conversation = Conversation.of(record)
    number = visit.request.path_params["part"]
    if conversation is None or number >= len(conversation.parts):
        raise NotUnderstood
    part = conversation.parts[number]
    reading = "reading" in visit.request.query_params  # a review: no corrections
    shown = {"conversation": conversation, "part": part, "reasons": REASONS, "call": record.call, "reading": reading}
    return visit.page("_turns.html", **shown)


async def read(visit: Visit, what: str | None, machine: bool = False, call_id: UUID | None = None) -> CallRecord:
    """Return a call, by default the one in the path, and log the access to `what`; None: nothing confidential is read.
    `machine`: without manual corrections. Raises `NotFound`."""
    call_id = call_id or visit.id()
    read_call = views.read_unredacted if what == UNREDACTED else views.read_call
    async with visit.database.transaction(visit.reader, snapshot=True) as connection:
        record = await read_call(connection, call_id, machine)
    if record is None:
        raise NotFound
    if what is not None and record.transcript is not None:
        await note(visit, call_id, what)
    return record


async def note(visit: Visit, call_id: UUID, what: str, detail: str = "console") -> None:
    """Log an access under the session's key, or under the session if it was opened by a link."""
    who = visit.viewer.key_id or visit.viewer.session_id
    await access_log.note(visit.database, visit.reader, who, [call_id], what, detail)


@dataclass(frozen=True, slots=True)
class WaveformLane:
    """A line of the waveform: a channel, or a speaker of a mixed recording."""

    name: str
    side: str


def lanes_of(conversation: Conversation) -> list[WaveformLane]:
    """Return a lane per party: the agent's first if channels are separated, else one per speaker."""
    by_side = {conversation.sides[label]: name for label, name in conversation.names.items()}
    if conversation.transcript.layout.kind.separated:
        return [WaveformLane(by_side.get(side, labels.SIDES[side]), side) for side in ("rep", "customer")]
    speakers = conversation.transcript.speakers[:MAX_LANES]
    return [
        WaveformLane(conversation.display_name(speaker.label), conversation.sides[speaker.label])
        for speaker in speakers
    ] or [WaveformLane("", "other")]


def _doubts(conversation: Conversation) -> Iterator[Doubt]:
    worth = (doubt for doubt in conversation.transcript.doubts if doubt.reasons != UNSURE_ONLY or not doubt.kept)
    for number, doubt in enumerate(sorted(worth, key=lambda doubt: doubt.start)):
        if number == MAX_LISTED_DOUBTS:
            return
        yield doubt


def _work(record: CallRecord, done: Sequence[StageDone]) -> Iterator[Mapping[str, Any]]:
    """Yield the call's jobs with their seconds, and the seconds after which each stage was done."""
    for job in record.jobs:
        ran = job.finished_at and job.started_at and (job.finished_at - job.started_at).total_seconds()
        began = job.started_at
        job_stages = [
            stage for stage in done if stage.job_id == job.job_id and began is not None and stage.recorded_at >= began
        ]
        stages = [
            (stage.stage, (stage.recorded_at - began).total_seconds()) for stage in job_stages if began is not None
        ]
        yield {"job": job, "seconds": ran, "stages": stages}


def _redacted(visit: Visit, record: CallRecord) -> str:
    if record.redaction is None:
        return ""
    name = record.redaction.policy.name
    match record.redaction.state:
        case RedactionState.COULD_NOT_LOOK:
            return visit.wording.say("Not redacted: {reason}", reason=record.redaction.reason)
        case RedactionState.FOUND:
            say = visit.wording.say
            kinds = ((say(labels.ENTITIES[kind]), count) for kind, count in record.redaction.counts.items())
            counts = ", ".join(f"{kind} ({count})" for kind, count in kinds)
            return visit.wording.say("Redacted by the policy {name}: {counts}", name=name, counts=counts)
    return visit.wording.say("Checked by the policy {name}: nothing to hide", name=name)


def _advice(record: CallRecord) -> str | None:
    call_ = record.call
    if call_.failure is not None:
        return advice(call_.failure.code, call_.call_id)
    if call_.state == "transcribing" and call_.last_error is not None and call_.next_try is not None:
        return waiting_advice(call_.call_id)
    return None


async def waveform(visit: Visit) -> Response:
    """Return one byte per slice, lane after lane; 202 while the waveform is being computed."""
    record = await read(visit, None)
    conversation = Conversation.of(record)
    if conversation is None or not record.recordings or record.job_id is None:
        raise NotFound
    try:
        machine = await read(visit, None, machine=True)  # it is stored in the order of the detected channels
        peaks = await visit.site.tools.waveforms.get(visit.database, visit.reader, machine, POLL_WAIT_SECONDS)
    except TimeoutError:
        return Response(status_code=202, headers={"Retry-After": "1"})
    if peaks is None:
        raise NotFound
    separated = conversation.transcript.layout.kind.separated
    if separated:
        lanes = np.resize(peaks, (2, peaks.shape[1]))[:: -1 if record.swapped else 1]
    else:
        lanes = by_speaker(peaks, conversation)
    return Response(lanes.tobytes(), media_type="application/octet-stream")


def by_speaker(peaks: Peaks, conversation: Conversation) -> Peaks:
    """Split the waveform of a mixed recording into a lane per speaker: shape (lanes, slices)."""
    transcript = conversation.transcript
    labels = [speaker.label for speaker in transcript.speakers[:MAX_LANES]]
    if not labels:
        return peaks[:1]
    count = peaks.shape[1]
    at = count / max(transcript.duration, 0.001)
    lanes = np.zeros((len(labels), count), np.uint8)
    for turn in transcript.turns:
        if turn.speaker in labels:
            first, last = max(0, int((turn.start - PAUSE) * at)), int((turn.end + PAUSE) * at) + 1
            lanes[labels.index(turn.speaker), first:last] = peaks[0, first:last]
    return lanes
