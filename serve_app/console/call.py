"""One call: what was said, what follows from it, and why the service thinks so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from starlette.responses import Response

from db.queue.stage_times import StageDone, stages_done
from db.records import views
from db.records.views import CallRecord
from db.records.waveforms import Peaks
from db.search import people_list
from db.workspace import access_log, directory, questions
from pipeline.asr.verdicts import REASONS
from pipeline.domain.edits import EditKind
from pipeline.domain.overrides import shown_answer
from pipeline.domain.speech import Doubt
from serve_app.console import charts
from serve_app.console.conversation import Conversation, finding
from serve_app.console.site import NotFound, NotUnderstood, Visit, etag_of
from serve_app.operations.estimates import engine_work, whole_cost
from serve_app.records.advice import advice, waiting_advice

SHOWN_DOUBTS = 200  # in the panel; more are marked in the text only
UNSURE_ONLY = ("unsure",)  # doubts of single words: marked where they stand


async def call(visit: Visit) -> Response:
    """The page. A call that is still worked on looks for news by itself."""
    record = await read(visit, "record")
    conversation = Conversation.of(record)
    done = await stages_done(visit.database, visit.reader, record.call.call_id)
    team = next(
        (
            one.name
            for one in await directory.list_teams(visit.database, visit.viewer.workspace_id)
            if one.team_id == record.call.team_id
        ),
        None,
    )
    page = visit.page(
        "call.html",
        record=record,
        call=record.call,
        team=team,
        conversation=conversation,
        part=conversation.parts[0] if conversation and conversation.parts else None,
        waiting=conversation.parts[1:] if conversation else (),
        found={one.step: one for one in record.findings},
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
        **await to_edit(visit, record),
    )
    if visit.request.headers.get("hx-request"):
        etag = etag_of(bytes(page.body).decode().replace(visit.request.state.nonce, ""))
        page.headers["ETag"] = etag
        return visit.unchanged(etag) or page
    return page


async def to_edit(visit: Visit, record: CallRecord) -> dict[str, Any]:
    """What the forms offer, and the names behind the ids of edits."""
    members = []
    if visit.viewer.may_edit or record.edits:
        members = await directory.list_members(visit.database, visit.viewer.workspace_id)
    team = visit.viewer.team_id
    offered = [one for one in members if team in (None, one.team_id) or one.team_id is None]
    wanted = {
        UUID(str(v)) for one in record.edits if one.kind is EditKind.CONTACT for v in (one.machine, one.person) if v
    }
    contacts = await people_list.contacts_by_id(visit.database, visit.reader, wanted)
    names = {one.contact_id: one.name or one.company or one.phone or one.email for one in contacts}
    own = visit.viewer.may_edit and (record.answers or record.trackers)
    asked = await questions.list_questions(visit.database, visit.reader, visit.viewer.workspace_id) if own else []
    return {
        "choices": {one.question.key: list(one.question.choices) for one in asked},
        "shown_answer": shown_answer,
        "members": offered,
        "named": {str(one.user_id): one.name for one in members} | names,
        "agent_id": record.agent_user_id or "",
    }


async def turns(visit: Visit) -> Response:
    """One part of the conversation, for a page that has scrolled to it."""
    record = await read(visit, "transcript")
    conversation = Conversation.of(record)
    number = visit.request.path_params["part"]
    if conversation is None or number >= len(conversation.parts):
        raise NotUnderstood
    part = conversation.parts[number]
    reading = "reading" in visit.request.query_params  # beside a review, where nothing is corrected
    shown = {"conversation": conversation, "part": part, "reasons": REASONS, "call": record.call, "reading": reading}
    return visit.page("_turns.html", **shown)


async def read(visit: Visit, what: str | None, machine: bool = False, call_id: UUID | None = None) -> CallRecord:
    """A call, that in the path unless another is meant, and a note of who read what of it; None: nothing that was
    said. `machine`: without what people corrected. Raises `NotFound`."""
    call_id = call_id or visit.id()
    async with visit.database.transaction(visit.reader, snapshot=True) as connection:
        record = await views.read_call(connection, call_id, machine)
    if record is None:
        raise NotFound
    if what is not None and record.transcript is not None:
        await note(visit, call_id, what)
    return record


async def note(visit: Visit, call_id: UUID, what: str, detail: str = "console") -> None:
    """Note who reads or hears a call: the session's key, or the session that a link opened."""
    who = visit.viewer.key_id or visit.viewer.session_id
    await access_log.note(visit.database, visit.reader, who, [call_id], what, detail)


@dataclass(frozen=True, slots=True)
class WaveformLane:
    """One line of the waveform: the sound of a channel, or of a speaker of a mixed recording."""

    name: str
    side: str


def lanes_of(conversation: Conversation) -> list[WaveformLane]:
    """One for each party: of separated channels the rep's first; of a mixed recording one for each speaker."""
    say = {"rep": "Rep", "customer": "Customer"}
    by_side = {conversation.sides[label]: name for label, name in conversation.names.items()}
    if conversation.transcript.layout.kind.separated:
        return [WaveformLane(by_side.get(side, say[side]), side) for side in ("rep", "customer")]
    speakers = conversation.transcript.speakers[:3]
    return [
        WaveformLane(conversation.names.get(one.label, one.label), conversation.sides[one.label]) for one in speakers
    ] or [WaveformLane("", "other")]


def _doubts(conversation: Conversation) -> Iterator[Doubt]:
    """What is worth a line of its own: stretches, and text that was taken out."""
    worth = (one for one in conversation.transcript.doubts if one.reasons != UNSURE_ONLY or not one.kept)
    for number, one in enumerate(sorted(worth, key=lambda doubt: doubt.start)):
        if number == SHOWN_DOUBTS:
            return
        yield one


def _work(record: CallRecord, done: Sequence[StageDone]) -> Iterator[Mapping[str, Any]]:
    """What was done for the call: each job with its seconds, and after how many of them each stage was done."""
    for job in record.jobs:
        ran = job.finished_at and job.started_at and (job.finished_at - job.started_at).total_seconds()
        began = job.started_at
        own = [one for one in done if one.job_id == job.job_id and began is not None and one.recorded_at >= began]
        stages = [(one.stage, (one.recorded_at - began).total_seconds()) for one in own if began is not None]
        yield {"job": job, "seconds": ran, "stages": stages}


def _advice(record: CallRecord) -> str | None:
    """What can be done where a call failed, or waits because of a failure."""
    call_ = record.call
    if call_.failure is not None:
        return advice(call_.failure.code, call_.call_id)
    if call_.state == "transcribing" and call_.last_error is not None and call_.next_try is not None:
        return waiting_advice(call_.call_id)
    return None


PATIENCE = 0.8  # seconds that a page waits for an outline before it asks again


LANES = 3  # of a mixed recording; further speakers are drawn in none


PAUSE = 0.25  # seconds around a turn that still belong to its speaker


async def outline(visit: Visit) -> Response:
    """One byte for each slice, lane after lane; 202 while it is being made."""
    record = await read(visit, None)
    conversation = Conversation.of(record)
    if conversation is None or not record.recordings or record.job_id is None:
        raise NotFound
    try:
        machine = await read(visit, None, machine=True)  # the outline is kept as the machine has the channels
        peaks = await visit.site.outliner.get(visit.database, visit.reader, machine, PATIENCE)
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
    """A mixed recording's outline with a lane for each speaker, where they speak: shape (lanes, slices)."""
    transcript = conversation.transcript
    labels = [speaker.label for speaker in transcript.speakers[:LANES]]
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
