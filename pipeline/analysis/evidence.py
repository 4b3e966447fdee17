from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.domain.insight import Evidence, Finding
from pipeline.domain.speech import Transcript, Turn, places_of, text_of

TOLERANCE = 0.01  # s: times are rounded when they are stored
_KEYS = {"turn", "start", "end", "quote"}


def quote(
    turn: Turn, first: int = 0, last: int | None = None, places: Sequence[tuple[int, int]] | None = None
) -> Evidence:
    """Return the whole words that overlap the characters `first`..`last` of `turn.text`, with their times.

    `places`: those of the turn's words, for a caller that quotes a long turn many times.
    """
    places = places_of(turn.words) if places is None else places
    begin = bisect_right(places, first, key=lambda place: place[1])
    end = len(places) if last is None else bisect_left(places, last, key=lambda place: place[0])
    touched = turn.words[begin:end]
    if not touched:
        return Evidence(turn.index, turn.start, turn.end, turn.text)
    return Evidence(turn.index, touched[0].start, touched[-1].end, text_of(touched))


def fault(evidence: Evidence, transcript: Transcript) -> str | None:
    """Return why this evidence is invalid; None if it is valid."""
    turn = next((turn for turn in transcript.turns if turn.index == evidence.turn), None)
    if turn is None:
        return f"there is no turn {evidence.turn}"
    if not evidence.quote.strip() or evidence.quote not in turn.text:
        return f"a quote does not occur in turn {evidence.turn}"
    if not (turn.start - TOLERANCE <= evidence.start <= evidence.end <= turn.end + TOLERANCE):
        return f"a quote is outside the times of turn {evidence.turn}"
    return None


def checked(finding: Finding, transcript: Transcript) -> Finding:
    """Return the finding without invalid evidence; the note states what was dropped.

    Evidence inside `value` is checked as well. A list item with invalid evidence is dropped with it; elsewhere the
    evidence becomes None.
    """
    faults: list[str] = []
    valid = []
    for evidence in finding.evidence:
        why = fault(evidence, transcript)
        faults.extend([why] if why else [])
        valid.extend([] if why else [evidence])
    value = _checked_value(finding.value, transcript, faults)
    if not faults:
        return finding
    dropped = "; ".join(dict.fromkeys(faults))
    note = f"{finding.note}; evidence dropped: {dropped}" if finding.note else f"evidence dropped: {dropped}"
    return replace(finding, value=value, evidence=tuple(valid), note=note)


def _checked_value(value: Any, transcript: Transcript, faults: list[str]) -> Any:
    if isinstance(value, dict):
        if set(value) == _KEYS:
            why = fault(Evidence(**value), transcript)
            faults.extend([why] if why else [])
            return None if why else value
        return {key: _checked_value(item, transcript, faults) for key, item in value.items()}
    if isinstance(value, list):
        items = [(item, _checked_value(item, transcript, faults)) for item in value]
        return [new for old, new in items if not _lost_its_evidence(old, new)]
    return value


def _lost_its_evidence(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and set(old) == _KEYS:
        return new is None
    return isinstance(old, dict) and bool(old.get("evidence")) and not new.get("evidence")
