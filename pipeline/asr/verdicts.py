import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pipeline.asr import acoustics, echoes, plausible
from pipeline.asr.acoustics import Levels
from pipeline.asr.echoes import Proof
from pipeline.domain.spans import seconds as seconds_of
from pipeline.domain.speech import Audio, AudioAnalysis, ChunkText, Label, Span, Word

REASONS: dict[str, str] = {
    "improbable": "The recognizer considers the text improbable.",
    "compressible": "The text repeats itself: it compresses more than speech does.",
    "unstable": "The recognizer considered its first text improbable, and its second differs from it.",
    "unsure": "The recognizer's confidence is so low that these words are probably wrong.",
    "loop": "The same words repeat again and again.",
    "no_speech": "The recognizer returned words although it detected no speech in the window.",
    "too_many_words": "More words than possible in the seconds of detected speech.",
    "too_few_words": "Hardly any words for the seconds of detected speech.",
    "missing_speech": "There is speech here, but no words were recognized.",
    "no_sound": "The channel is almost silent at these words.",
    "outside_speech": "The words are outside all detected speech.",
    "not_on_speech": "The words are on a tone, music, noise or silence.",
    "echo": "The words belong to the other channel and are faintly audible here.",
    "same_words": "Both channels have the same words at once, and it is uncertain whose they are.",
}
"""Reasons why a window is suspect or a word doubtful or removed: stable name and description."""

IMPROBABLE = -0.65  # mean log probability per token; text below it is suspect
MIN_WORDS_PER_SECOND = 0.4  # of loud speech; fewer are suspect
NO_SPEECH_FROM, NO_SPEECH_WEIGHT, NO_SPEECH_NEEDS = 0.2, 8.0, 8.25  # see `_invented`
MISSING_SECONDS = 1.0  # loud seconds of detected speech that have no words
QUIET_DB = 35.0  # a word this far below the channel's speech level has no sound
FAR_SECONDS = 0.5  # min. distance of a word outside detected speech
NOT_ON_SPEECH_SHARE = 0.8  # min. share of a word on a tone, music, noise or silence
LOUD_DB = 25.0  # below the channel's speech level: still speech
AS_LOUD_DB = 6.0  # below the channel's speech level: as loud as recognized speech
SHORT_SECONDS = 0.5  # of loud speech without any word: a breath or a cough may be shorter
FEW_WORDS_FROM = 4.0  # min. seconds of loud speech for "too_few_words"
MANY_WORDS_FROM = 4  # min. words for a meaningful rate
ECHO_MARGIN = 0.1  # seconds around a word, compared with it
REACH = 0.2  # seconds around words without missing speech: the accuracy of word times

Marked = dict[int, set[str]]  # a word's index in its window, and the reasons against it


@dataclass(slots=True)
class WindowVerdict:
    """Reasons against one window. `doubtful` and `withheld` words do not overlap.

    `lacks_loud_speech`: some speech without words is as loud as the rest, so it is no babble in the background.
    """

    reason_names: set[str] = field(default_factory=set)
    doubtful: Marked = field(default_factory=lambda: defaultdict(set))
    withheld: Marked = field(default_factory=lambda: defaultdict(set))
    missing: list[Span] = field(default_factory=list)
    lacks_loud_speech: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        return ordered(self.reason_names)

    def doubt(self, reason: str, words: Iterable[int]) -> None:
        """Keep these words and mark them."""
        self.reason_names.add(reason)
        for i in words:
            if i not in self.withheld:
                self.doubtful[i].add(reason)

    def withhold(self, reason: str, words: Iterable[int]) -> None:
        """Remove words that cannot have been spoken."""
        self.reason_names.add(reason)
        for i in words:
            self.drop(reason, i)

    def drop(self, reason: str, word: int) -> None:
        """Remove an impossible word without making the window suspect."""
        self.doubtful.pop(word, None)
        self.withheld[word].add(reason)


def ordered(reasons: set[str]) -> tuple[str, ...]:
    return tuple(name for name in REASONS if name in reasons)


def levels_of(audio: Audio, texts: Sequence[ChunkText]) -> list[Levels]:
    """Return the levels of each text's chunk: all that is needed of the sound, except for echoes."""
    return [acoustics.levels(audio, text.chunk) for text in texts]


def judge(
    audio: Audio, analysis: AudioAnalysis, texts: Sequence[ChunkText], levels: Sequence[Levels]
) -> list[WindowVerdict]:
    """Return a verdict per text; `levels` are those of its chunks, for any decoding of them."""
    judged = [WindowVerdict() for _ in texts]
    by_channel: dict[int, list[int]] = defaultdict(list)
    for i in sorted(range(len(texts)), key=lambda i: texts[i].chunk.start):
        by_channel[texts[i].chunk.channel].append(i)
    for channel, indices in by_channel.items():
        speech = _Spans(analysis.speech[channel] if channel < len(analysis.speech) else ())
        labels = _Labels(analysis.labels[channel] if channel < len(analysis.labels) else ())
        level = acoustics.speech_level([levels[i] for i in indices])
        for i in indices:
            _by_place(judged[i], texts[i], levels[i], level, speech, labels)
        _by_loops(judged, texts, indices)
    if analysis.layout.kind.separated:
        _by_echo(judged, audio, texts, by_channel)
    for verdict, text in zip(judged, texts, strict=True):
        _by_score(verdict, text)
    return judged


def _by_score(verdict: WindowVerdict, text: ChunkText) -> None:
    if not text.words:
        return
    indices = range(len(text.words))
    if _invented(text):
        verdict.withhold("no_speech", indices)
    if text.mean_log_probability < IMPROBABLE:
        verdict.doubt("improbable", indices)
    if text.compression > plausible.MAX_COMPRESSION:
        verdict.doubt("compressible", indices)
    if text.no_speech_probability > plausible.MAX_NO_SPEECH:
        verdict.doubt("no_speech", indices)
    for piece in text.chunk.pieces:  # the window's mean hides words invented in one piece
        in_piece = [i for i, word in enumerate(text.words) if piece.start <= word.start < piece.end]
        if in_piece and fmean(math.log(max(text.words[i].confidence, 1e-4)) for i in in_piece) < IMPROBABLE:
            verdict.doubt("improbable", in_piece)


def _invented(text: ChunkText) -> bool:
    """Return whether the recognizer invented a window's words for sound without speech.

    It has to begin with some word although the end of the text is far more probable, so the first word is as improbable
    as the window is likely to hold no speech. Detects 219 of 226 texts that tiny.en wrote over music, tones, fax and
    clicks, and 2 of 992 short stretches of real speech (telephone lines, some with noise 5 dB below); with base 83 of
    106, and 3 of 443 (`bench/training/no_speech`). A recognizer without a no-speech probability (0) is believed.
    """
    no_speech = text.no_speech_probability
    first = math.log(max(text.words[0].confidence, 1e-4))
    return no_speech >= NO_SPEECH_FROM and NO_SPEECH_WEIGHT * no_speech - first > NO_SPEECH_NEEDS


def _by_place(
    verdict: WindowVerdict,
    text: ChunkText,
    levels: Levels,
    speech_level: float,
    speech: "_Spans",
    labels: "_Labels",
) -> None:
    spoken = [span for piece in text.chunk.sound for span in speech.inside(piece.start, piece.end)]
    loud = levels.loud_seconds(spoken, speech_level - LOUD_DB)
    count, indices = len(text.words), range(len(text.words))
    if count >= MANY_WORDS_FROM and count > plausible.MAX_WORDS_PER_SECOND * seconds_of(spoken):
        verdict.doubt("too_many_words", indices)
    if count and loud >= FEW_WORDS_FROM and count < MIN_WORDS_PER_SECOND * loud:
        verdict.doubt("too_few_words", indices)
    min_seconds = MISSING_SECONDS if count else SHORT_SECONDS
    for turn in spoken:  # a turn without any word was skipped, so less speech is enough
        has_words = any(turn.start < word.end and word.start < turn.end for word in text.words)
        for span in plausible.without([turn], text.words, REACH):
            loud_seconds = levels.loud_seconds([span], speech_level - LOUD_DB)
            if loud_seconds >= (MISSING_SECONDS if has_words else SHORT_SECONDS):
                verdict.missing.append(span)
            if loud_seconds >= min_seconds:
                verdict.reason_names.add("missing_speech")
                verdict.lacks_loud_speech |= levels.loud_seconds([span], speech_level - AS_LOUD_DB) >= SHORT_SECONDS
    near = speech.inside(text.chunk.start - FAR_SECONDS, text.chunk.end + FAR_SECONDS)
    for i, word in enumerate(text.words):
        _word_by_place(verdict, i, word, levels, speech_level - QUIET_DB, near, labels)


def _word_by_place(
    verdict: WindowVerdict,
    i: int,
    word: Word,
    levels: Levels,
    quiet: float,
    near: Sequence[Span],
    labels: "_Labels",
) -> None:
    """Remove a word only if it is far from all detected speech, and silent or on a label without speech."""
    is_far = plausible.distance(near, word) >= FAR_SECONDS
    is_silent = not (levels.between(word.start - REACH, word.end + REACH) > quiet).any()
    is_off_speech = labels.share_without_speech(word) >= NOT_ON_SPEECH_SHARE
    for reason, holds in (("not_on_speech", is_off_speech), ("no_sound", is_silent)):
        if holds and is_far:
            verdict.withhold(reason, [i])
        elif holds:
            verdict.doubt(reason, [i])
    if is_far and not (is_off_speech or is_silent):
        verdict.doubt("outside_speech", [i])


def _by_loops(judged: Sequence[WindowVerdict], texts: Sequence[ChunkText], indices: Sequence[int]) -> None:
    owners = [(i, k) for i in indices for k in range(len(texts[i].words))]
    words = [texts[i].words[k] for i, k in owners]
    loops = plausible.loops(words)
    for loop in loops:
        seconds = words[loop.last - 1].end - words[loop.first].start
        is_impossible = loop.last - loop.first > plausible.RUSH * seconds
        for position in range(loop.first, loop.last):
            i, k = owners[position]
            if is_impossible and position >= loop.first + loop.period:
                judged[i].withhold("loop", [k])
            else:
                judged[i].doubt("loop", [k])
    looping = {position for loop in loops for position in range(loop.first, loop.last)}
    for copy in plausible.copies(words):
        if looping.isdisjoint(copy):
            for i, k in owners[copy.start : copy.stop]:
                judged[i].drop("loop", k)


def _by_echo(
    judged: Sequence[WindowVerdict],
    audio: Audio,
    texts: Sequence[ChunkText],
    by_channel: dict[int, list[int]],
) -> None:
    owners = [[(i, k) for i in by_channel.get(c, []) for k in range(len(texts[i].words))] for c in (0, 1)]
    words = [[texts[i].words[k] for i, k in channel] for channel in owners]
    for echo in echoes.find(audio, words):
        for position in echo.words:
            i, k = owners[echo.channel][position]
            if echo.proof is Proof.ECHO:
                judged[i].withhold("echo", [k])
            else:
                judged[i].doubt("same_words", [k])
    for verdict, text in zip(judged, texts, strict=True):
        if any("echo" in reasons for reasons in verdict.withheld.values()):
            _rest_of_echo(verdict, audio, text)


def _rest_of_echo(verdict: WindowVerdict, audio: Audio, text: ChunkText) -> None:
    """Check the other words of a window with an echo by sound alone: faint sound is often misrecognized."""
    for k, word in enumerate(text.words):
        if k in verdict.withheld:
            continue
        sound = acoustics.shared(audio, max(0.0, word.start - ECHO_MARGIN), word.end + ECHO_MARGIN)
        if (
            sound is not None
            and sound.quieter == text.chunk.channel
            and sound.share >= echoes.ECHO_SHARE
            and sound.difference_db >= echoes.QUIETER_DB
        ):
            verdict.withhold("echo", [k])


class _Spans:
    """Spans of one channel in order, searched by time; a long call has many thousands."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.start)
        self._ends = [span.end for span in self._spans]

    def inside(self, start: float, end: float) -> list[Span]:
        """Return the parts between two times; the spans of a channel do not overlap."""
        first = bisect_left(self._ends, start)
        last = first
        while last < len(self._spans) and self._spans[last].start < end:
            last += 1
        return plausible.inside(self._spans[first:last], start, end)


class _Labels:
    """The stretches of a channel without speech."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._spans = _Spans([Span(label.start, label.end) for label in labels if not label.kind.speech])

    def share_without_speech(self, word: Word) -> float:
        span = word.end - word.start
        return seconds_of(self._spans.inside(word.start, word.end)) / span if span > 0 else 0.0
