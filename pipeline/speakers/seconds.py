from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeline.domain.speech import (
    CUSTOMER,
    REP,
    AudioAnalysis,
    ChunkText,
    Label,
    LabelKind,
    LayoutKind,
    Recognized,
    Role,
    Span,
    Transcript,
    Word,
)
from pipeline.domain.vocabulary import NoSpeechReason
from pipeline.record_texts import SOUNDS, no_speech_text

Labels = tuple[tuple[Label, ...], ...]  # for each channel

MACHINES = (LabelKind.ANNOUNCEMENT, LabelKind.VOICEMAIL)
NEAR = 1.0  # max. seconds between a label and a related word
MIN_REST = 0.1  # min. seconds of a span without its padding
MIN_MENTIONED = 0.2  # seconds; shorter kinds are not mentioned


def machine_spans(labels: Labels) -> tuple[tuple[Span, ...], ...]:
    """Return each channel's spans of announcements and voicemail greetings."""
    machines = ([label for label in channel if label.kind in MACHINES] for channel in labels)
    return tuple(tuple(Span(label.start, label.end) for label in channel) for channel in machines)


def by_machine(labels: Labels) -> Callable[[int, Word], bool]:
    """Return a test whether a word is a machine's: its middle is in, or nearest to, machine speech."""
    machines = [[label for label in channel if label.kind in MACHINES] for channel in labels]
    people = [[label for label in channel if label.kind is LabelKind.SPEECH] for channel in labels]

    def is_machine(channel: int, word: Word) -> bool:
        if channel >= len(labels):
            return False
        middle = (word.start + word.end) / 2
        machine = min((_away(label, middle) for label in machines[channel]), default=NEAR)
        return machine < NEAR and machine < min((_away(label, middle) for label in people[channel]), default=NEAR)

    return is_machine


def _away(label: Label, moment: float) -> float:
    return max(label.start - moment, moment - label.end, 0.0)


def party_speech(analysis: AudioAnalysis, labels: Labels) -> tuple[tuple[Span, ...], ...]:
    """Return each channel's speech of its party: detected speech without machine speech."""
    machines = machine_spans(labels)
    return tuple(
        tuple(piece for span in spans for piece in without(span, machines[channel] if channel < len(machines) else ()))
        for channel, spans in enumerate(analysis.speech)
    )


def unpadded(spans: Sequence[Span], padding: float) -> tuple[Span, ...]:
    """Remove the padding (seconds) from both ends of ordered spans.

    Touching spans are merged: their padding met. A span at the start of the recording keeps its start, and at least a
    tenth of a second remains.
    """
    joined: list[Span] = []
    for span in spans:
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    trimmed = []
    for span in joined:
        off = max(0.0, min(padding, (span.duration - MIN_REST) / 2))
        trimmed.append(Span(span.start + off if span.start > 0 else span.start, span.end - off))
    return tuple(trimmed)


def speech_by_speaker(analysis: AudioAnalysis, transcript: Transcript, padding: float) -> dict[str, tuple[Span, ...]]:
    """Return speech spans by speaker label if channels identify speakers, without machine speech.

    The `padding` (seconds) that recognition needs is removed, or it would count as talk.
    """
    if not analysis.layout.kind.separated:
        return {}
    speech = party_speech(analysis, transcript.labels)
    by_role = {Role.REP: REP, Role.CUSTOMER: CUSTOMER}
    parties = [speaker for speaker in transcript.speakers if speaker.role in by_role]
    return {speaker.label: unpadded(speech[by_role[speaker.role]], padding) for speaker in parties}


def without(span: Span, taken: Sequence[Span]) -> list[Span]:
    """Return the parts of a span outside all of `taken`."""
    rest, start = [], span.start
    for other in sorted(taken, key=lambda other: other.start):
        if other.start > start:
            rest.append(Span(start, min(other.start, span.end)))
        start = max(start, other.end)
        if start >= span.end:
            break
    if start < span.end:
        rest.append(Span(start, span.end))
    return [piece for piece in rest if piece.duration > 0]


def seconds_in(text: ChunkText, speech: Sequence[Sequence[Span]]) -> float:
    """Return the seconds of `speech` (by channel) inside a chunk's sound."""
    chunk = text.chunk
    channel_speech = speech[chunk.channel] if chunk.channel < len(speech) else ()
    near = [span for span in channel_speech if span.end > chunk.start and span.start < chunk.end]
    return sum(
        max(0.0, min(span.end, piece.end) - max(span.start, piece.start)) for piece in chunk.sound for span in near
    )


def no_speech_note(analysis: AudioAnalysis, recognized: Recognized, labels: Labels) -> str:
    """Explain why no party says a word."""
    return no_speech_text(_no_speech_reason(analysis, recognized), analysis.duration, _kinds(labels))


def _no_speech_reason(analysis: AudioAnalysis, recognized: Recognized) -> NoSpeechReason:
    if any(text.words for text in recognized.texts):
        return NoSpeechReason.NO_PARTY
    if not any(analysis.speech):
        return NoSpeechReason.NO_VOICE
    if not recognized.texts:
        return NoSpeechReason.TOO_SHORT
    if any(not doubt.kept for doubt in recognized.doubts):
        return NoSpeechReason.ALL_REJECTED
    is_one_sided = analysis.layout.kind is LayoutKind.ONE_SIDED
    return NoSpeechReason.NO_WORDS_ON_ONE_CHANNEL if is_one_sided else NoSpeechReason.NO_WORDS


def _kinds(labels: Labels) -> list[LabelKind]:
    seconds: dict[LabelKind, float] = defaultdict(float)
    for label in sorted((label for channel in labels for label in channel), key=lambda label: label.start):
        seconds[label.kind] += label.end - label.start
    return [kind for kind in seconds if kind in SOUNDS and seconds[kind] >= MIN_MENTIONED]
