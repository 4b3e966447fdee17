"""Speech that a machine speaks: announcements and the greetings of answering machines.

The words of a channel are cut into pieces where a sentence, a pause or another party's words end them. Each piece is
judged by what it says (`announced.py`) and by where it stands: beside music, a ring, a beep or keys, before anybody has
spoken, right before an answer. Where voices were separated (`channel_voices.py`), all that a voice says counts for
each of its pieces: a machine goes on in the voice that said "press one", a person in the one that talks. The likeliest
sequence of person and machine is found over all pieces (Viterbi), so that a doubtful piece follows its neighbors, and a
change costs less where the words leave a pause. In doubt it stays a person's speech, whose words count.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from pipeline.domain.speech import ChunkText, Label, LabelKind, SpeakerSpan, Word, text_of
from pipeline.speakers.announced import AnnouncementScore, evidence

PAUSE = 0.3  # seconds between two words that end a piece
LETS_GO = 0.6  # seconds of pause after which another may speak
LONG_PAUSE = 2.0  # seconds of pause around what stands alone
PARAGRAPH = 4.0  # seconds of pause inside what one machine says
LIKELY_LANGUAGE = 0.2  # probability from which a chunk may be in a language
SENTENCE = (".", "!", "?", "…")
BESIDE = 3.0  # seconds between a sound of the network and a machine that it belongs to
AFTER_A_RING = 6.0  # seconds: who answers may do so in the cadence's pause, of 4 s in most countries and 5 s in some
BEEP_WITHIN = 4.0  # seconds from the end of a greeting to its beep
ANSWERED_WITHIN = 1.5  # seconds in which a person is answered
SAME_PLACE = 0.5  # seconds from a voice's span within which a word may be the voice's
PASSING = 0.6  # seconds; a shorter sound in the other channel is no answer
SOUNDS = (LabelKind.RINGBACK, LabelKind.BUSY, LabelKind.MUSIC, LabelKind.BEEP, LabelKind.DTMF)

# All of the following are log odds for a machine.
UNTOLD = -0.8  # a piece that says nothing telling
BEFORE_ANYBODY = 0.8  # nobody has spoken yet, in any channel
BESIDE_SOUND = 1.0  # music, a ring, a busy tone, a beep or keys right before or after
BEEP_AFTER = 2.5  # a beep ends a greeting
ONLY_A_NOTICE = -3.0  # that the call is recorded, beside words of a person, or where one channel holds everybody
ANSWERED = -0.6  # the other party speaks right after
STANDS_ALONE = 0.5  # a pause of `LONG_PAUSE`, or the end of the call, before and after
BEGINS, BEGINS_AT_ONCE = -2.2, -4.0  # a machine begins to speak, after a pause or without one
ENDS, ENDS_SENTENCE, ENDS_AT_ONCE = -0.2, -1.0, -2.0  # it has spoken: before a pause, after a full stop, else
GOES_ON_AFTER_OTHERS = -1.5  # a machine speaks again after another party, in another voice, or after `PARAGRAPH`
VOICE = 5.0  # at most, by all that the same voice says, where voices are separated
VOICE_PIECE = (-0.8, 3.0)  # of each piece for its voice: a person may once speak as a machine does

Labels = tuple[tuple[Label, ...], ...]
Voices = tuple[tuple[SpeakerSpan, ...], ...]
"""For each channel whose voice says its pieces, see `channel_voices.py`; empty where voices were not separated."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a channel that one speaker says without a break. `voice` is the diarizer's label, if there is one."""

    words: tuple[Word, ...]
    said: AnnouncementScore
    voice: str | None = None

    @property
    def start(self) -> float:
        return self.words[0].start

    @property
    def end(self) -> float:
        return self.words[-1].end


@dataclass(frozen=True, slots=True)
class MachinePassage:
    """What a machine says from `start` to `end`, with the seconds where it may be cut from what lies beside it."""

    pieces: tuple[Piece, ...]
    start: float
    end: float
    score: float


def refine(labels: Labels, texts: Sequence[ChunkText], voices: Voices = ()) -> Labels:
    """The labels, with `ANNOUNCEMENT` and `VOICEMAIL` in place of `SPEECH` where a machine speaks.

    `labels` by channel: two channels are two parties; one holds both. A label is cut in two where only a part of it is
    a machine's. The new labels' `detail` holds the words that gave the machine away.
    """
    pieces = []
    for channel in range(len(labels)):
        spans = voices[channel] if channel < len(voices) else ()
        # Learned words alone take too many persons for machines: they count where voices can contradict them.
        pieces.append(pieces_of([one for one in texts if one.chunk.channel == channel], spans, learned=bool(spans)))
    refined = []
    for channel, own in enumerate(labels):
        other = [piece for at, one in enumerate(pieces) if at != channel for piece in one]
        passages = _passages(pieces[channel], own, None if len(labels) == 1 else other)
        refined.append(_painted(own, passages))
    return tuple(refined)


def pieces_of(texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan], learned: bool) -> list[Piece]:
    """The pieces of a channel, see `cut`, with what their words say; `learned`: see `evidence`."""
    return [
        Piece(
            tuple(words),
            max((evidence(text_of(words), code, learned) for code in languages), key=lambda said: said.score),
            voice,
        )
        for languages, voice, words in cut(texts, spans)
    ]


def cut(
    texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan]
) -> list[tuple[frozenset[str], str | None, list[Word]]]:
    """The words of a channel, cut where a sentence or a voice ends, or a pause begins: (languages, voice, words)."""
    runs: list[tuple[frozenset[str], str | None, list[Word]]] = []
    heard = sorted(
        ((_languages(text), word) for text in texts for word in text.words), key=lambda one: (one[1].start, one[1].end)
    )
    for languages, word in heard:
        voice = _voice(word, spans)
        before = runs[-1] if runs else None
        if (
            before is None
            or (not word.joined and (before[0], before[1]) != (languages, voice))
            or before[2][-1].text.rstrip("\"'”»").endswith(SENTENCE)
            or word.start - before[2][-1].end >= PAUSE
        ):
            runs.append((languages, voice, [word]))
        else:
            before[2].append(word)
    return runs


def _languages(text: ChunkText) -> frozenset[str]:
    """The language of a chunk, and others that its sound makes likely: a short prompt may be in another one."""
    return frozenset({text.language, *(code for code, p in text.languages.items() if p >= LIKELY_LANGUAGE)})


def _voice(word: Word, spans: Sequence[SpeakerSpan]) -> str | None:
    """The voice of the nearest span; none where all are farther away than word times are off."""
    middle = (word.start + word.end) / 2

    def away(span: SpeakerSpan) -> float:
        return max(span.start - middle, middle - span.end, 0.0)

    nearest = min(spans, key=away, default=None)
    return nearest.speaker if nearest and away(nearest) <= SAME_PLACE else None


def _passages(pieces: Sequence[Piece], own: Sequence[Label], party: Sequence[Piece] | None) -> list[MachinePassage]:
    """What machines say in a channel; `party` are the pieces of the other party's, None where one holds everybody.

    Where voices are separated, all that a voice says counts for each of its pieces.
    """
    other = party or ()
    places = [_place(pieces, at, own, other) for at in range(len(pieces))]
    for at, piece in enumerate(pieces):
        if _only_a_notice(piece) and (party is None or _in_person(pieces, at)):
            places[at] += ONLY_A_NOTICE
    places = [place + voice for place, voice in zip(places, _by_voice(pieces, places), strict=True)]
    machine = _likeliest(pieces, places, other)
    _take_beginning(pieces, machine, other)
    runs = [list(run) for is_machine, run in groupby(range(len(pieces)), lambda at: machine[at]) if is_machine]
    return [_passage(pieces, run, sum(places[at] + pieces[at].said.score for at in run)) for run in runs]


def _take_beginning(pieces: Sequence[Piece], machine: list[bool], other: Sequence[Piece]) -> None:
    """A greeting begins before the words that tell it ("This is Ann Berg."), where nobody has spoken yet."""
    first = machine.index(True) if True in machine else 0
    if first and pieces[first].said.counts.get("voicemail"):
        pauses = [b.start - a.end for a, b in pairwise(pieces[: first + 1])]
        if max(pauses) <= PARAGRAPH and not any(one.start < pieces[first].start for one in other):
            machine[:first] = [True] * first


def _in_person(pieces: Sequence[Piece], at: int) -> bool:
    """Whether what is said right before or after is what persons say: a rep, too, has to read the notice."""
    near = [pieces[i] for i in (at - 1, at + 1) if 0 <= i < len(pieces)]
    piece = pieces[at]
    return any(
        one.said.counts.get("person") and max(one.start - piece.end, piece.start - one.end) <= PARAGRAPH for one in near
    )


def _only_a_notice(piece: Piece) -> bool:
    return bool(piece.said.counts.get("recording_notice")) and not any(
        piece.said.counts.get(kind) for kind in ("sure", "likely", "voicemail")
    )


def _passage(pieces: Sequence[Piece], run: Sequence[int], score: float) -> MachinePassage:
    """It reaches to the middle of the pauses beside it."""
    first, last = run[0], run[-1]
    start, end = pieces[first].start, pieces[last].end
    before = pieces[first - 1].end if first else 0.0
    after = pieces[last + 1].start if last + 1 < len(pieces) else math.inf
    return MachinePassage(
        tuple(pieces[first : last + 1]), (before + start) / 2 if first else 0.0, (end + after) / 2, score
    )


def _place(pieces: Sequence[Piece], at: int, own: Sequence[Label], other: Sequence[Piece]) -> float:
    """What the place of a piece says, in log odds for a machine."""
    piece = pieces[at]
    odds = UNTOLD if piece.said.score <= 0 else 0.0
    if piece.said.score > 0 and _tells(piece):
        odds += BESIDE_SOUND * _beside(piece, own)
        odds += BEFORE_ANYBODY * (at == 0 and not any(one.start < piece.start for one in other))
        odds += ANSWERED * any(
            -0.2 <= one.start - piece.end <= ANSWERED_WITHIN and one.end - one.start >= PASSING for one in other
        )
        before = pieces[at - 1].end if at else -LONG_PAUSE
        after = pieces[at + 1].start if at + 1 < len(pieces) else piece.end + LONG_PAUSE
        odds += STANDS_ALONE * (piece.start - before >= LONG_PAUSE and after - piece.end >= LONG_PAUSE)
    if piece.said.counts.get("voicemail") or piece.said.counts.get("sure"):
        odds += BEEP_AFTER * _beep_after(piece, own)
    return odds


def _tells(piece: Piece) -> bool:
    """Whether it says more than what a rep who answers a call says as well ("Thank you for calling.")."""
    return any(piece.said.counts.get(kind) for kind in ("sure", "likely", "voicemail", "recording_notice"))


def _beside(piece: Piece, own: Sequence[Label]) -> bool:
    return any(
        -0.5 <= piece.start - label.end <= (AFTER_A_RING if label.kind is LabelKind.RINGBACK else BESIDE)
        or -0.5 <= label.start - piece.end <= BESIDE
        for label in own
        if label.kind in SOUNDS
    )


def _beep_after(piece: Piece, own: Sequence[Label]) -> bool:
    return any(label.kind is LabelKind.BEEP and -0.5 <= label.start - piece.end <= BEEP_WITHIN for label in own)


def _by_voice(pieces: Sequence[Piece], places: Sequence[float]) -> list[float]:
    """For each piece, log odds for a machine by all that its voice says besides."""
    own = [
        min(max(place + piece.said.score, VOICE_PIECE[0]), VOICE_PIECE[1])
        for piece, place in zip(pieces, places, strict=True)
    ]
    together: dict[str | None, float] = defaultdict(float)
    for piece, odds in zip(pieces, own, strict=True):
        together[piece.voice] += odds
    return [
        min(max(together[piece.voice] - odds, -VOICE), VOICE) if piece.voice else 0.0
        for piece, odds in zip(pieces, own, strict=True)
    ]


def _likeliest(pieces: Sequence[Piece], places: Sequence[float], other: Sequence[Piece]) -> list[bool]:
    """For each piece, whether it is a machine's, in the likeliest sequence."""
    if not pieces:
        return []
    person, machine = 0.0, BEGINS + places[0] + pieces[0].said.score
    came_from: list[tuple[bool, bool]] = []  # for person and machine at each piece, whether a machine came before
    for at in range(1, len(pieces)):
        begins, ends, goes_on = _changes(pieces[at - 1], pieces[at], other)
        to_person = (person, machine + ends)
        to_machine = (person + begins, machine + goes_on)
        came_from.append((to_person[1] > to_person[0], to_machine[1] > to_machine[0]))
        person = max(to_person)
        machine = max(to_machine) + places[at] + pieces[at].said.score
    path = [machine > person]
    for from_person, from_machine in reversed(came_from):
        path.append(from_machine if path[-1] else from_person)
    return path[::-1]


def _changes(before: Piece, after: Piece, other: Sequence[Piece]) -> tuple[float, float, float]:
    """Log odds of: a machine begins, a machine ends, a machine goes on, between two pieces of a channel."""
    gap = after.start - before.end
    answered = any(before.end - 0.1 <= (one.start + one.end) / 2 <= after.start + 0.1 for one in other)
    apart = before.voice and after.voice and before.voice != after.voice
    goes_on = GOES_ON_AFTER_OTHERS if answered or apart or gap > PARAGRAPH else 0.0
    if answered or gap >= LETS_GO or before.voice != after.voice:
        return BEGINS, ENDS, goes_on
    ends = ENDS_SENTENCE if before.words[-1].text.endswith(SENTENCE) else ENDS_AT_ONCE
    return (BEGINS if gap >= PAUSE else BEGINS_AT_ONCE), ends, goes_on


def _painted(own: Sequence[Label], passages: Sequence[MachinePassage]) -> tuple[Label, ...]:
    """The labels with the passages in them."""
    painted: list[Label] = []
    for label in own:
        if label.kind is not LabelKind.SPEECH:
            painted.append(label)
            continue
        at = label.start
        for passage in passages:
            start, end = max(passage.start, at), min(passage.end, label.end)
            if end - start <= 0 or not any(_overlaps(word, label) for piece in passage.pieces for word in piece.words):
                continue
            if start > at:
                painted.append(replace(label, start=at, end=start))
            kind, detail = _kind(passage)
            confidence = round(min(0.95, 0.5 + 0.06 * passage.score), 2)
            painted.append(Label(start, end, kind, max(0.5, confidence), detail))
            at = end
        if label.end > at:
            painted.append(replace(label, start=at))
    return tuple(painted)


def _overlaps(word: Word, label: Label) -> bool:
    return min(word.end, label.end) - max(word.start, label.start) > 0


def _kind(passage: MachinePassage) -> tuple[LabelKind, str | None]:
    counts: dict[str, int] = defaultdict(int)
    for piece in passage.pieces:
        for kind, count in piece.said.counts.items():
            counts[kind] += count
    detail = "; ".join(piece.said.words for piece in passage.pieces if piece.said.words)
    return (LabelKind.VOICEMAIL if counts["voicemail"] else LabelKind.ANNOUNCEMENT), detail or None
