"""What the seconds of a call hold, by their labels: where parties speak, where machines do, and why nobody does."""

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

Labels = tuple[tuple[Label, ...], ...]  # for each channel

MACHINES = (LabelKind.ANNOUNCEMENT, LabelKind.VOICEMAIL)
_SAID = {
    LabelKind.RINGBACK: "ringback",
    LabelKind.BUSY: "a busy tone",
    LabelKind.DTMF: "keys being pressed",
    LabelKind.MUSIC: "music",
    LabelKind.ANNOUNCEMENT: "an announcement",
    LabelKind.VOICEMAIL: "a voicemail greeting",
    LabelKind.BEEP: "a beep",
}
NEAR = 1.0  # seconds from a label beyond which a word has nothing to do with it
SHORTEST = 0.1  # seconds of speech that are left of a span without its padding
WORTH_SAYING = 0.2  # seconds, below which a kind is not mentioned


def machine_spans(labels: Labels) -> tuple[tuple[Span, ...], ...]:
    """For each channel, where an announcement or a voicemail greeting speaks."""
    return tuple(tuple(Span(one.start, one.end) for one in own if one.kind in MACHINES) for own in labels)


def by_machine(labels: Labels) -> Callable[[int, Word], bool]:
    """Whether a machine says a word of a channel: its middle lies in, or nearest to, speech of a machine."""
    machines = [[one for one in own if one.kind in MACHINES] for own in labels]
    people = [[one for one in own if one.kind is LabelKind.SPEECH] for own in labels]

    def said(channel: int, word: Word) -> bool:
        if channel >= len(labels):
            return False
        middle = (word.start + word.end) / 2
        machine = min((_away(one, middle) for one in machines[channel]), default=NEAR)
        return machine < NEAR and machine < min((_away(one, middle) for one in people[channel]), default=NEAR)

    return said


def _away(label: Label, moment: float) -> float:
    return max(label.start - moment, moment - label.end, 0.0)


def party_speech(analysis: AudioAnalysis, labels: Labels) -> tuple[tuple[Span, ...], ...]:
    """For each channel, the speech of its party: what was taken for speech, without what machines say."""
    machines = machine_spans(labels)
    return tuple(
        tuple(piece for span in spans for piece in without(span, machines[channel] if channel < len(machines) else ()))
        for channel, spans in enumerate(analysis.speech)
    )


def unpadded(spans: Sequence[Span], padding: float) -> tuple[Span, ...]:
    """Spans, in order, that were padded by so many seconds at both ends, without it. Spans that touch are one: between
    them the padding met. What begins with the recording keeps its beginning, and a tenth of a second always remains.
    """
    joined: list[Span] = []
    for span in spans:
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    made = []
    for span in joined:
        off = max(0.0, min(padding, (span.duration - SHORTEST) / 2))
        made.append(Span(span.start + off if span.start > 0 else span.start, span.end - off))
    return tuple(made)


def speech_by_speaker(analysis: AudioAnalysis, transcript: Transcript, padding: float) -> dict[str, tuple[Span, ...]]:
    """Spans with voice activity by speaker label, where the channel says whose they are; machines speak for nobody.

    Without the `padding` (seconds) that recognition gets at their ends: it would count as talk.
    """
    if not analysis.layout.kind.separated:
        return {}
    speech = party_speech(analysis, transcript.labels)
    by_role = {Role.REP: REP, Role.CUSTOMER: CUSTOMER}
    own = {one.label: speech[by_role[one.role]] for one in transcript.speakers if one.role in by_role}
    return {label: unpadded(spans, padding) for label, spans in own.items()}


def without(span: Span, taken: Sequence[Span]) -> list[Span]:
    """What remains of a span outside all of `taken`."""
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
    """Seconds of `speech` (by channel) inside a chunk's sound."""
    chunk = text.chunk
    own = speech[chunk.channel] if chunk.channel < len(speech) else ()
    near = [span for span in own if span.end > chunk.start and span.start < chunk.end]
    return sum(
        max(0.0, min(span.end, piece.end) - max(span.start, piece.start)) for piece in chunk.sound for span in near
    )


def why_silent(analysis: AudioAnalysis, recognized: Recognized, labels: Labels) -> str:
    """Why no party says a word: what the call holds in place of speech."""
    other = _what_is_heard(labels)
    if any(text.words for text in recognized.texts):
        return f"Only {other} {_were(labels)} heard." if other else "Nobody speaks."
    if not any(analysis.speech):
        return f"No speech was found in {analysis.duration:.1f} s of audio{f', only {other}' if other else ''}."
    if not recognized.texts:
        return "Speech was found, but no chunk of it was long enough to recognize."
    if any(not doubt.kept for doubt in recognized.doubts):
        return "All words were removed because no one can have said them: see the doubts."
    side = " in the one channel that carries sound" if analysis.layout.kind is LayoutKind.ONE_SIDED else ""
    beside = f" Beside it {_were(labels)} {other}." if other else ""
    return f"Something like speech was found{side}, but the recognizer heard no words in it.{beside}"


def _kinds(labels: Labels) -> list[LabelKind]:
    """Kinds worth a mention, in the order in which they begin."""
    seconds: dict[LabelKind, float] = defaultdict(float)
    for one in sorted((one for own in labels for one in own), key=lambda one: one.start):
        seconds[one.kind] += one.end - one.start
    return [kind for kind in seconds if kind in _SAID and seconds[kind] >= WORTH_SAYING]


def _what_is_heard(labels: Labels) -> str:
    said = [_SAID[kind] for kind in _kinds(labels)]
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def _were(labels: Labels) -> str:
    return "was" if len(_kinds(labels)) == 1 and _kinds(labels) != [LabelKind.DTMF] else "were"
