"""Finds personal data in the timed words of a call. It never raises: a fault is the outcome "could not look"."""

import logging
import traceback
from collections.abc import Iterator
from typing import Any

from pipeline.domain.redaction import Entity, Redaction, RedactionMode, RedactionPolicy, RedactionState
from pipeline.domain.speech import Recognized
from pipeline.language.pack import pack
from pipeline.redaction.cues import cues_of
from pipeline.redaction.lines import lines
from pipeline.redaction.numbers import values
from pipeline.redaction.runs import rows_of

log = logging.getLogger(__name__)


def find_entities(recognized: Recognized, policy: RedactionPolicy, engine: Any = None) -> Redaction:
    """Return what the policy hides in a call, or why redaction could not look."""
    if policy.mode is RedactionMode.OFF:
        return Redaction(RedactionState.OFF)
    if reason := _unreadable(recognized):
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=reason)
    try:
        entities = tuple(sorted(_entities(recognized, policy), key=lambda entity: entity.pieces[0].start))
    except Exception as error:  # a fault here must not show what it should have hidden
        place = traceback.extract_tb(error.__traceback__)[-1]  # the message may quote the call
        log.error("Redaction failed: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
        return Redaction(RedactionState.COULD_NOT_LOOK, reason=f"The detectors failed: {type(error).__name__}.")
    return Redaction(RedactionState.FOUND if entities else RedactionState.NOTHING_FOUND, entities)


def _unreadable(recognized: Recognized) -> str:
    """Return why the words cannot be read; empty if they can."""
    spoken = [text for text in recognized.texts if text.words]
    if unknown := sorted({text.language for text in spoken if not pack(text.language).known}):
        return f"No language pack for {', '.join(unknown)}."
    untimed = sum(word.end <= word.start for text in spoken for word in text.words)
    words = sum(len(text.words) for text in spoken)
    return f"{untimed} of {words} words have no times." if untimed > words // 2 else ""


def _entities(recognized: Recognized, policy: RedactionPolicy) -> Iterator[Entity]:
    channels = lines(recognized)
    cues = cues_of(channels)
    for line in channels:
        breaks = [cue.end for cue in cues.cues if cue.channel != line.channel]
        for value in values(rows_of(line, breaks), cues):
            if value.kind in policy.kinds:
                taken = [token for row in value.rows for token in row.taken]
                yield Entity(value.kind, line.pieces(taken), value.confidence)
