from collections import defaultdict
from dataclasses import replace

from pipeline.domain.redaction import Originals
from pipeline.domain.speech import CUSTOMER, REP, Role, Transcript, Turn, Word


def with_originals(transcript: Transcript, originals: Originals) -> Transcript:
    """Return the transcript with the original words in place of masked ones; what was never sealed stays masked."""
    texts: dict[tuple[float, float], list[tuple[int, str]]] = defaultdict(list)
    for piece in originals.pieces:
        for start, end, text in piece.words:
            texts[start, end].append((piece.channel, text))
    channels = {
        speaker.label: {Role.REP: REP, Role.CUSTOMER: CUSTOMER}.get(speaker.role) for speaker in transcript.speakers
    }
    separated = transcript.layout.kind.separated

    def original(turn: Turn, word: Word) -> Word:
        candidates = texts.get((word.start, word.end), ()) if _is_masked(word) else ()
        channel = channels.get(turn.speaker) if separated else None
        text = next((text for at, text in candidates if channel in (None, at)), None)
        return word if text is None else replace(word, text=text)

    turns = (replace(turn, words=tuple(original(turn, word) for word in turn.words)) for turn in transcript.turns)
    return replace(transcript, turns=tuple(turns))


def _is_masked(word: Word) -> bool:
    return not word.text or "[" in word.text
