"""Detection of machine speech: announcements and the greetings of answering machines.

The words of a channel are cut into pieces at sentence ends, pauses and other parties' words. Each piece is scored by
its words (`announcement_score.py`) and its position: next to music, a ring, a beep or keys, before the first speech, or
right before a reply. If voices were separated (`channel_voices.py`), all words of a voice count for each of its pieces:
a machine continues in the voice that said "press one", a person in the voice that talks. The likeliest sequence of
person and machine over all pieces (Viterbi) makes a doubtful piece follow its neighbors, and makes a change cheaper at
a pause. In doubt it is a person's speech, whose words count.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from pipeline.domain.speech import ChunkText, Label, LabelKind, SpeakerSpan, Word, text_of
from pipeline.speakers.announcement_score import AnnouncementScore, evidence

PAUSE = 0.3  # seconds; a longer pause ends a piece
TURN_PAUSE = 0.6  # seconds of pause after which the speaker may change
LONG_PAUSE = 2.0  # seconds of pause around an isolated piece
PARAGRAPH = 4.0  # max. seconds of pause within one machine's speech
LIKELY_LANGUAGE = 0.2  # min. probability of a chunk's possible language
SENTENCE = (".", "!", "?", "…")
NEAR_SECONDS = 3.0  # max. seconds between a machine and a related network sound
RINGBACK_SECONDS = 6.0  # the same after a ring, whose cadence has a pause of 4 s in most countries and 5 s in some
BEEP_SECONDS = 4.0  # max. seconds from the end of a greeting to its beep
REPLY_SECONDS = 1.5  # max. seconds until a reply to a person
VOICE_TOLERANCE = 0.5  # max. seconds from a voice's span to a word of that voice
MIN_REPLY_SECONDS = 0.6  # shorter speech in the other channel is not a reply
MIN_ANSWERED = 3  # pieces that the other party answers: then a person speaks
ANSWER_SECONDS = 4.0  # max. seconds until an answer
CERTAIN = ("sure", "voicemail", "recording_notice")
SOUNDS = (LabelKind.RINGBACK, LabelKind.BUSY, LabelKind.MUSIC, LabelKind.BEEP, LabelKind.DTMF)

# All of the following are log odds for a machine.
LOG_ODDS_NO_CUE = -0.8  # a piece without a cue
_BEFORE_FIRST_SPEECH = 0.8  # before the first speech in any channel
NEAR_SOUND = 1.0  # music, a ring, a busy tone, a beep or keys right before or after
BEEP_AFTER = 2.5  # a beep ends a greeting
NOTICE_ONLY = -3.0  # a recording notice next to words of a person, or in a channel with all parties
REPLIED = -0.6  # the other party speaks right afterwards
_ISOLATED = 0.5  # a pause of `LONG_PAUSE`, or the end of the call, before and after
BEGINS, BEGINS_AT_ONCE = -2.2, -4.0  # a machine begins to speak, after a pause or without one
ENDS, ENDS_SENTENCE, ENDS_AT_ONCE = -0.2, -1.0, -2.0  # a machine stops: before a pause, after a full stop, else
RESUMES_AFTER_OTHERS = -1.5  # a machine speaks again after another party, in another voice, or after `PARAGRAPH`
VOICE = 5.0  # max. by all words of the same voice, if voices are separated
VOICE_PIECE = (-0.8, 3.0)  # bounds of each piece for its voice: a person may sound like a machine once

Labels = tuple[tuple[Label, ...], ...]
Voices = tuple[tuple[SpeakerSpan, ...], ...]
"""Each channel's spans by voice, see `channel_voices.py`; empty if voices were not separated."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a channel by one speaker without a break. `voice` is the diarizer's label, if any."""

    words: tuple[Word, ...]
    evidence: AnnouncementScore
    voice: str | None = None

    @property
    def start(self) -> float:
        return self.words[0].start

    @property
    def end(self) -> float:
        return self.words[-1].end


@dataclass(frozen=True, slots=True)
class MachinePassage:
    """Machine speech from `start` to `end`, the seconds at which it may be cut from its surroundings."""

    pieces: tuple[Piece, ...]
    start: float
    end: float
    score: float


def refine(labels: Labels, texts: Sequence[ChunkText], voices: Voices = ()) -> Labels:
    """Replace `SPEECH` by `ANNOUNCEMENT` and `VOICEMAIL` where a machine speaks.

    `labels` by channel: two channels are two parties; a single one has both. A label is split if only a part of it is a
    machine's. The `detail` of new labels contains the words that identified the machine.
    """
    pieces = []
    for channel in range(len(labels)):
        spans = voices[channel] if channel < len(voices) else ()
        # Fitted weights alone take too many people for machines: they count only if voices can contradict them.
        pieces.append(pieces_of([text for text in texts if text.chunk.channel == channel], spans, learned=bool(spans)))
    refined = []
    for channel, channel_labels in enumerate(labels):
        other = [piece for at, channel_pieces in enumerate(pieces) if at != channel for piece in channel_pieces]
        passages = _passages(pieces[channel], channel_labels, None if len(labels) == 1 else other)
        others = other if len(labels) > 1 else _of_other_voices(pieces[channel], passages)
        refined.append(_painted(channel_labels, [] if _takes_turns(passages, others) else passages))
    return tuple(refined)


def pieces_of(texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan], learned: bool) -> list[Piece]:
    """Return the pieces of a channel (see `cut`) with the evidence in their words; `learned`: see `evidence`."""
    return [
        Piece(
            tuple(words),
            max((evidence(text_of(words), code, learned) for code in languages), key=lambda score: score.score),
            voice,
        )
        for languages, voice, words in cut(texts, spans)
    ]


def cut(
    texts: Sequence[ChunkText], spans: Sequence[SpeakerSpan]
) -> list[tuple[frozenset[str], str | None, list[Word]]]:
    """Cut the words of a channel at the end of a sentence or voice, and at pauses: (languages, voice, words)."""
    runs: list[tuple[frozenset[str], str | None, list[Word]]] = []
    words = sorted(
        ((_languages(text), word) for text in texts for word in text.words),
        key=lambda item: (item[1].start, item[1].end),
    )
    for languages, word in words:
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
    """Return the language of a chunk, and others its sound makes likely: a short prompt may be in another language."""
    return frozenset({text.language, *(code for code, p in text.languages.items() if p >= LIKELY_LANGUAGE)})


def _voice(word: Word, spans: Sequence[SpeakerSpan]) -> str | None:
    """Return the voice of the nearest span; None if all are farther away than the error of word times."""
    middle = (word.start + word.end) / 2

    def distance(span: SpeakerSpan) -> float:
        return max(span.start - middle, middle - span.end, 0.0)

    nearest = min(spans, key=distance, default=None)
    return nearest.speaker if nearest and distance(nearest) <= VOICE_TOLERANCE else None


def _passages(pieces: Sequence[Piece], labels: Sequence[Label], party: Sequence[Piece] | None) -> list[MachinePassage]:
    """Return the machine speech of a channel; `party`: the other party's pieces, None if one channel has all."""
    other = party or ()
    place_odds = [_place(pieces, at, labels, other) for at in range(len(pieces))]
    for at, piece in enumerate(pieces):
        if _is_notice_only(piece) and (party is None or _in_person(pieces, at)):
            place_odds[at] += NOTICE_ONLY
    place_odds = [place + voice for place, voice in zip(place_odds, _by_voice(pieces, place_odds), strict=True)]
    machine = _likeliest(pieces, place_odds, other)
    _take_beginning(pieces, machine, other)
    runs = [list(run) for is_machine, run in groupby(range(len(pieces)), lambda at: machine[at]) if is_machine]
    return [_passage(pieces, run, sum(place_odds[at] + pieces[at].evidence.score for at in run)) for run in runs]


def _takes_turns(passages: Sequence[MachinePassage], other: Sequence[Piece]) -> bool:
    """Return whether the passages are a person's: the other party answers several pieces, none with a certain phrase.

    An agent says "one second, please" and the opening hours as machines do, but in a dialogue.
    """
    pieces = [piece for passage in passages for piece in passage.pieces]
    if any(piece.evidence.counts.get(kind) for piece in pieces for kind in CERTAIN):
        return False
    following = [*(piece.start for piece in pieces[1:]), math.inf]
    answered = sum(
        any(
            piece.end <= (speech.start + speech.end) / 2 <= end and speech.start - piece.end <= ANSWER_SECONDS
            for speech in other
        )
        for piece, end in zip(pieces, following[: len(pieces)], strict=True)
    )
    return answered >= MIN_ANSWERED


def _of_other_voices(pieces: Sequence[Piece], passages: Sequence[MachinePassage]) -> list[Piece]:
    """Return the pieces of a mixed channel in other voices than those of the passages."""
    voices = {piece.voice for passage in passages for piece in passage.pieces}
    return [piece for piece in pieces if piece.voice and piece.voice not in voices]


def _take_beginning(pieces: Sequence[Piece], is_machine: list[bool], other: Sequence[Piece]) -> None:
    """Extend a greeting to the words before its first cue ("This is Ann Berg."), before any other speech."""
    first = is_machine.index(True) if True in is_machine else 0
    if first and pieces[first].evidence.counts.get("voicemail"):
        pauses = [b.start - a.end for a, b in pairwise(pieces[: first + 1])]
        if max(pauses) <= PARAGRAPH and not any(speech.start < pieces[first].start for speech in other):
            is_machine[:first] = [True] * first


def _in_person(pieces: Sequence[Piece], at: int) -> bool:
    """Return whether the words right before or after are a person's: a rep may read the notice as well."""
    near = [pieces[i] for i in (at - 1, at + 1) if 0 <= i < len(pieces)]
    piece = pieces[at]
    return any(
        neighbor.evidence.counts.get("person")
        and max(neighbor.start - piece.end, piece.start - neighbor.end) <= PARAGRAPH
        for neighbor in near
    )


def _is_notice_only(piece: Piece) -> bool:
    return bool(piece.evidence.counts.get("recording_notice")) and not any(
        piece.evidence.counts.get(kind) for kind in ("sure", "likely", "voicemail")
    )


def _passage(pieces: Sequence[Piece], run: Sequence[int], score: float) -> MachinePassage:
    first, last = run[0], run[-1]
    start, end = pieces[first].start, pieces[last].end
    before = pieces[first - 1].end if first else 0.0
    after = pieces[last + 1].start if last + 1 < len(pieces) else math.inf
    return MachinePassage(
        tuple(pieces[first : last + 1]), (before + start) / 2 if first else 0.0, (end + after) / 2, score
    )


def _place(pieces: Sequence[Piece], at: int, labels: Sequence[Label], other: Sequence[Piece]) -> float:
    piece = pieces[at]
    odds = LOG_ODDS_NO_CUE if piece.evidence.score <= 0 else 0.0
    if piece.evidence.score > 0 and _is_distinctive(piece):
        odds += NEAR_SOUND * _is_near_sound(piece, labels)
        odds += _BEFORE_FIRST_SPEECH * (at == 0 and not any(speech.start < piece.start for speech in other))
        odds += REPLIED * any(
            -0.2 <= speech.start - piece.end <= REPLY_SECONDS and speech.end - speech.start >= MIN_REPLY_SECONDS
            for speech in other
        )
        before = pieces[at - 1].end if at else -LONG_PAUSE
        after = pieces[at + 1].start if at + 1 < len(pieces) else piece.end + LONG_PAUSE
        odds += _ISOLATED * (piece.start - before >= LONG_PAUSE and after - piece.end >= LONG_PAUSE)
    if piece.evidence.counts.get("voicemail") or piece.evidence.counts.get("sure"):
        odds += BEEP_AFTER * _beep_after(piece, labels)
    return odds


def _is_distinctive(piece: Piece) -> bool:
    """Return whether a piece contains more than a rep's usual greeting ("Thank you for calling.")."""
    return any(piece.evidence.counts.get(kind) for kind in ("sure", "likely", "voicemail", "recording_notice"))


def _is_near_sound(piece: Piece, labels: Sequence[Label]) -> bool:
    return any(
        -0.5 <= piece.start - label.end <= (RINGBACK_SECONDS if label.kind is LabelKind.RINGBACK else NEAR_SECONDS)
        or -0.5 <= label.start - piece.end <= NEAR_SECONDS
        for label in labels
        if label.kind in SOUNDS
    )


def _beep_after(piece: Piece, labels: Sequence[Label]) -> bool:
    return any(label.kind is LabelKind.BEEP and -0.5 <= label.start - piece.end <= BEEP_SECONDS for label in labels)


def _by_voice(pieces: Sequence[Piece], place_odds: Sequence[float]) -> list[float]:
    """Return each piece's log odds for a machine by all other words of its voice."""
    piece_odds = [
        min(max(place + piece.evidence.score, VOICE_PIECE[0]), VOICE_PIECE[1])
        for piece, place in zip(pieces, place_odds, strict=True)
    ]
    together: dict[str | None, float] = defaultdict(float)
    for piece, odds in zip(pieces, piece_odds, strict=True):
        together[piece.voice] += odds
    return [
        min(max(together[piece.voice] - odds, -VOICE), VOICE) if piece.voice else 0.0
        for piece, odds in zip(pieces, piece_odds, strict=True)
    ]


def _likeliest(pieces: Sequence[Piece], place_odds: Sequence[float], other: Sequence[Piece]) -> list[bool]:
    if not pieces:
        return []
    person, machine = 0.0, BEGINS + place_odds[0] + pieces[0].evidence.score
    previous: list[tuple[bool, bool]] = []  # for person and machine at each piece: whether a machine precedes
    for at in range(1, len(pieces)):
        begins, ends, continues = _changes(pieces[at - 1], pieces[at], other)
        to_person = (person, machine + ends)
        to_machine = (person + begins, machine + continues)
        previous.append((to_person[1] > to_person[0], to_machine[1] > to_machine[0]))
        person = max(to_person)
        machine = max(to_machine) + place_odds[at] + pieces[at].evidence.score
    path = [machine > person]
    for from_person, from_machine in reversed(previous):
        path.append(from_machine if path[-1] else from_person)
    return path[::-1]


def _changes(before: Piece, after: Piece, other: Sequence[Piece]) -> tuple[float, float, float]:
    """Return the log odds that a machine begins, ends and continues between two pieces of a channel."""
    gap = after.start - before.end
    answered = any(before.end - 0.1 <= (speech.start + speech.end) / 2 <= after.start + 0.1 for speech in other)
    apart = before.voice and after.voice and before.voice != after.voice
    continues = RESUMES_AFTER_OTHERS if answered or apart or gap > PARAGRAPH else 0.0
    if answered or gap >= TURN_PAUSE or before.voice != after.voice:
        return BEGINS, ENDS, continues
    ends = ENDS_SENTENCE if before.words[-1].text.endswith(SENTENCE) else ENDS_AT_ONCE
    return (BEGINS if gap >= PAUSE else BEGINS_AT_ONCE), ends, continues


def _painted(labels: Sequence[Label], passages: Sequence[MachinePassage]) -> tuple[Label, ...]:
    painted: list[Label] = []
    for label in labels:
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
        for kind, count in piece.evidence.counts.items():
            counts[kind] += count
    detail = "; ".join(piece.evidence.words for piece in passage.pieces if piece.evidence.words)
    return (LabelKind.VOICEMAIL if counts["voicemail"] else LabelKind.ANNOUNCEMENT), detail or None
