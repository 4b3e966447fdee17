"""Redaction of a call: words first, so that nothing else reads or stores what a policy hides; then their sound.

The recognized words stay in memory until they are masked. `Stage.REDACTION` is recorded in place of
`Stage.RECOGNITION`. Words that an earlier policy has masked stay masked: a later policy only hides more of them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from pipeline.domain.redaction import (
    NEVER_SEALED,
    CallRedaction,
    Entity,
    EntityKind,
    EntityWords,
    NamedPolicy,
    OriginalPiece,
    Originals,
    RedactedSpan,
    Redaction,
    RedactionMode,
    RedactionPolicy,
    RedactionState,
)
from pipeline.domain.speech import PENDING, AudioAnalysis, LabelKind, Pending, Recognized, Recording, RedactedRecording
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.engines.registry import digest_of, installed, package_of
from pipeline.errors import CallError, CouldNotRedact, TimedOut
from pipeline.redaction.detect import Names, find_entities
from pipeline.redaction.mask import mask_words
from pipeline.redaction.sound import redact_sound, store_again, store_redacted
from pipeline.steps.call_run import CallRun
from pipeline.steps.recognize import recognize_call

NAMES_GROUP = "switchboard.redaction"
"""Entry points of functions that find names of persons, organizations and places (`detect.Names`)."""
log = logging.getLogger(__name__)

MIN_CARD_SYMBOLS = 7  # digits, and words that say some: a card number has 7 pairs or more


async def without_keys(run: CallRun, audio: AudioAnalysis) -> AudioAnalysis:
    """Return `audio` without the digits of pressed keys where the policy hides them; record it if that changes it."""
    policy = run.roster.redaction
    typed = [label for channel in audio.labels for label in channel if label.kind is LabelKind.DTMF and label.detail]
    if policy is None or not (typed and policy.hides_keys):
        return audio
    labels = tuple(
        tuple(replace(label, detail=None) if label in typed else label for label in channel) for channel in audio.labels
    )
    thinned = replace(audio, labels=labels)
    await run.journal.record(Stage.AUDIO, thinned)
    return thinned


async def recognize_words(run: CallRun, audio: AudioAnalysis) -> Recognized:
    """Return the words of a call, masked if a policy applies to it; then only the masked words are recorded.

    Raises `CouldNotRedact` where redaction could not look and the policy holds such calls back.
    """
    redacted = await run.journal.recall(Stage.REDACTION)
    policy = run.roster.redaction
    if redacted is not NOT_RECORDED and (policy is None or redacted.redaction.policy == policy):
        return redacted  # type: ignore[no-any-return]
    if policy is None:
        return await run.stage(Stage.RECOGNITION, lambda: recognize_call(run, audio))
    recognized = redacted if redacted is not NOT_RECORDED else await _unrecorded_words(run, audio)
    masked, originals = await _redact(run, audio, recognized, policy)
    if policy.mode is RedactionMode.MASK:
        await run.journal.record(Stage.ORIGINALS, originals)
    await run.journal.record(Stage.REDACTION, masked)
    return masked


async def _unrecorded_words(run: CallRun, audio: AudioAnalysis) -> Recognized:
    """Return words that an earlier job recorded before the policy, or recognize them without recording them."""
    recorded = await run.journal.recall(Stage.RECOGNITION)
    if recorded is not NOT_RECORDED:
        return recorded  # type: ignore[no-any-return]
    async with run.deadline(Stage.RECOGNITION, run.seconds):
        return await recognize_call(run, audio)


async def _redact(
    run: CallRun, audio: AudioAnalysis, recognized: Recognized, policy: NamedPolicy
) -> tuple[Recognized, Originals]:
    async with run.deadline(Stage.REDACTION, audio.duration):
        detected = await _find(run, recognized, policy)
        if detected.state is RedactionState.COULD_NOT_LOOK:
            if policy.hold:
                raise CouldNotRedact(f"{detected.reason} The policy {policy.name!r} holds such calls back.")
            return replace(recognized, redaction=_result(recognized, detected, policy)), Originals()
        if policy.agents_exempt:
            detected = _without_agents(run, recognized, detected)
        masked = await run.workers.compute(mask_words, recognized, detected, policy)
    result = _result(recognized, detected, policy)
    sealed = [entity for entity in detected.entities if not _may_be_code(recognized, entity)]
    pieces = tuple(_original(recognized, entity, piece) for entity, piece in _pieces(sealed))
    return replace(masked, redaction=result), Originals(pieces, adds=recognized.redaction is not None)


async def _find(run: CallRun, recognized: Recognized, policy: NamedPolicy) -> Redaction:
    """Return the entities; could not look if the detector fails. Its error may quote words: its class is logged."""
    try:
        return await run.workers.compute(look, recognized, policy)  # type: ignore[no-any-return]
    except TimedOut:
        raise
    except Exception as error:
        log.warning("call %s: redaction failed: %s", run.call.call_id, type(error).__name__)
        problem = error.code if isinstance(error, CallError) else type(error).__name__
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=f"The search for personal data failed ({problem}).")


def look(recognized: Recognized, policy: RedactionPolicy) -> Redaction:
    """Return what the rules find, and the names that an installed engine finds."""
    return find_entities(recognized, policy, names_engine())


@cache
def names_engine() -> Names | None:
    """Return the engine for names of an installed package. Raises ValueError if there are several."""
    points = [point for of_name in installed(NAMES_GROUP).values() for point in of_name]
    if len(points) > 1:
        packages = ", ".join(package_of(point) for point in points)
        raise ValueError(f"{packages} have an engine for names ({NAMES_GROUP}). Uninstall all but one of them.")
    return points[0].load() if points else None


def _without_agents(run: CallRun, recognized: Recognized, detected: Redaction) -> Redaction:
    """Return what was found without names of the team's members."""
    names = {
        part.casefold()
        for member in run.roster.members
        for name in (member.name, *member.aliases)
        for part in name.split()
    }
    others = tuple(entity for entity in detected.entities if not _is_name_of(recognized, entity, names))
    state = RedactionState.FOUND if others else RedactionState.NOTHING_FOUND
    return replace(detected, state=state, entities=others)


def _is_name_of(recognized: Recognized, entity: Entity, names: Collection[str]) -> bool:
    if entity.kind is not EntityKind.PERSON:
        return False
    words = (text for piece in entity.pieces for _, _, text in _original(recognized, entity, piece).words)
    return all(word.strip(".,;:!?").casefold() in names for word in words)


def _pieces(entities: Sequence[Entity]) -> list[tuple[Entity, EntityWords]]:
    return [(entity, piece) for entity in entities for piece in entity.pieces]


def _original(recognized: Recognized, entity: Entity, piece: EntityWords) -> OriginalPiece:
    words = recognized.texts[piece.text].words[piece.first : piece.last + 1]
    return OriginalPiece(entity.kind, piece.channel, tuple((word.start, word.end, word.text) for word in words))


def _may_be_code(recognized: Recognized, entity: Entity) -> bool:
    """Return whether an entity may be a card code: also what was taken for a card, and is too short for one."""
    words = [text for piece in entity.pieces for _, _, text in _original(recognized, entity, piece).words]
    symbols = sum(max(1, sum(sign.isdigit() for sign in word)) for word in words)
    is_short_card = entity.kind is EntityKind.CARD and symbols < MIN_CARD_SYMBOLS
    return entity.kind in NEVER_SEALED or is_short_card


def _result(recognized: Recognized, detected: Redaction, policy: NamedPolicy) -> CallRedaction:
    """Return what is hidden now, with what an earlier policy has hidden."""
    spans = {
        RedactedSpan(entity.kind, piece.channel, piece.start, piece.end, entity.confidence, entity.pattern)
        for entity, piece in _pieces(detected.entities)
    }
    counts = Counter(str(entity.kind) for entity in detected.entities)
    before = recognized.redaction
    if before is not None:
        spans |= set(before.spans)
        counts += Counter(before.counts)
    ordered = tuple(sorted(spans, key=lambda span: (span.start, span.end, span.channel, span.kind)))
    state = RedactionState.FOUND if ordered and detected.state is RedactionState.NOTHING_FOUND else detected.state
    return CallRedaction(state, policy, dict(sorted(counts.items())), ordered, detected.reason)


async def redact_recordings(
    run: CallRun, audio: AudioAnalysis, recognized: Recognized
) -> tuple[RedactedRecording, ...] | None:
    """Return the recordings that replace the stored ones, without the sound of what is hidden; None: they stay.

    Each has in `redaction` a digest of what was hidden, so that an interrupted job hides it again and no other does.
    """
    stored, redaction = run.recordings.stored, recognized.redaction
    hidden = None if redaction is None else _digest(redaction)
    is_pending = any(recording.redaction in PENDING for recording in stored)
    if run.redacted_files is None or not (is_pending or hidden):
        return None
    if all(recording.redaction == hidden for recording in stored) or not await run.recordings.are_in_store():
        return None
    if redaction is None or not (redaction.spans or redaction.policy.hides_keys):
        return await _revealed(run, stored, hidden)
    entities = [_entity(span) for span in redaction.spans]
    async with run.deadline(Stage.REDACTION, audio.duration):
        sound = await run.workers.compute(redact_sound, await run.sound.get(), audio.layout, entities, redaction.policy)
        files = await asyncio.to_thread(store_redacted, sound.files, run.options.storage, run.redacted_files.key)
    originals = {}
    if redaction.policy.mode is RedactionMode.MASK:
        originals = {recording.channel: await _sealed(run, recording) for recording in stored}
    return tuple(
        RedactedRecording(replace(recording, redaction=hidden), originals.get(recording.channel)) for recording in files
    )


async def _sealed(run: CallRun, recording: Recording) -> Recording | None:
    """Return the original sealed by the call's key; None if an earlier policy has redacted the file."""
    if recording.redaction == Pending.SEALED:
        return recording
    return await _stored_again(run, recording) if recording.redaction in {None, Pending.IN_MEMORY} else None


async def _revealed(run: CallRun, stored: Sequence[Recording], hidden: str | None) -> tuple[RedactedRecording, ...]:
    """Return recordings without anything to hide; those sealed in memory are stored again, in a form that is read."""
    recordings = [
        await _stored_again(run, recording) if recording.redaction == Pending.IN_MEMORY else recording
        for recording in stored
    ]
    return tuple(RedactedRecording(replace(recording, redaction=hidden)) for recording in recordings)


async def _stored_again(run: CallRun, recording: Recording) -> Recording:
    assert run.redacted_files is not None
    return await asyncio.to_thread(store_again, recording, run.options.storage, run.redacted_files.key)


def _digest(redaction: CallRedaction) -> str:
    spans = sorted((span.channel, span.start, span.end) for span in redaction.spans)
    return digest_of("redacted sound", spans, redaction.policy.guard_seconds, redaction.policy.hides_keys)


def _entity(span: RedactedSpan) -> Entity:
    piece = EntityWords(0, 0, 0, span.channel, span.start, span.end)
    return Entity(span.kind, (piece,), span.confidence, span.pattern)
