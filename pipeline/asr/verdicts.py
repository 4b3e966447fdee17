"""What speaks against each window's text, and against single words of it."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pipeline.asr import acoustics, echoes, plausible
from pipeline.asr.acoustics import Levels
from pipeline.asr.echoes import Proof
from pipeline.domain.speech import Audio, AudioAnalysis, ChunkText, Label, Span, Word

REASONS: dict[str, str] = {
    "improbable": "The recognizer itself finds the text improbable.",
    "compressible": "The text repeats itself: it compresses more than speech does.",
    "unstable": "The recognizer found its first text improbable, and its second has little in common with it.",
    "unsure": "The recognizer is so unsure of these words that they are probably wrong.",
    "loop": "The same words follow each other again and again.",
    "no_speech": "The recognizer gave words although it found no speech in the window.",
    "too_many_words": "More words than anybody speaks in the seconds of speech that were heard.",
    "too_few_words": "Hardly any words for the seconds of speech that were heard.",
    "missing_speech": "Someone speaks here, and no words were recognized.",
    "no_sound": "The words lie where the channel is almost silent.",
    "outside_speech": "The words lie away from all speech that was detected.",
    "not_on_speech": "The words lie on a tone, music, noise or silence.",
    "echo": "The words belong to the other channel and are faintly audible here.",
    "same_words": "Both channels have the same words at once, and it is not sure whose they are.",
}
"""Why a window is suspect, a word doubtful or taken out: a stable name and a sentence for people."""

IMPROBABLE = -0.65  # mean log probability per token; text below it is suspect
MIN_WORDS_PER_SECOND = 0.4  # of loud speech; fewer are suspect
NO_SPEECH_FROM, NO_SPEECH_WEIGHT, NO_SPEECH_NEEDS = 0.2, 8.0, 8.25  # see `_invented`
MISSING_SECONDS = 1.0  # loud seconds of detected speech that have no words
QUIET_DB = 35.0  # a word that stays this far below the channel's speech level has no sound
FAR_SECONDS = 0.5  # a word at least this far from any detected speech is outside of it
NOT_ON_SPEECH_SHARE = 0.8  # of a word that lies on a tone, music, noise or silence: it is not on speech
LOUD_DB = 25.0  # below the channel's speech level: still speech
AS_LOUD_DB = 6.0  # below the channel's speech level: as loud as those whose words were heard
SHORT_SECONDS = 0.5  # of a stretch of loud speech without any word: a breath or a cough may be shorter
FEW_WORDS_FROM = 4.0  # seconds of loud speech from which few words are suspect
MANY_WORDS_FROM = 4  # words from which a rate means something
ECHO_MARGIN = 0.1  # seconds around a word that are compared with it
REACH = 0.2  # seconds around words in which speech is not missing: word times are no better

Marked = dict[int, set[str]]  # a word's index in its window, and the reasons against it


@dataclass(slots=True)
class WindowVerdict:
    """What was found against one window. `doubtful` and `withheld` words do not overlap.

    `lacks_loud_speech`: some of what is missing is as loud as the rest: a party's own words, and no babble behind them.
    """

    reason_names: set[str] = field(default_factory=set)
    doubtful: Marked = field(default_factory=lambda: defaultdict(set))
    withheld: Marked = field(default_factory=lambda: defaultdict(set))
    missing: list[Span] = field(default_factory=list)
    lacks_loud_speech: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """All of them, in the order of `REASONS`."""
        return ordered(self.reason_names)

    def doubt(self, reason: str, words: Iterable[int]) -> None:
        """Words that stay and are marked."""
        self.reason_names.add(reason)
        for i in words:
            if i not in self.withheld:
                self.doubtful[i].add(reason)

    def withhold(self, reason: str, words: Iterable[int]) -> None:
        """Words that nobody can have said."""
        self.reason_names.add(reason)
        for i in words:
            self.drop(reason, i)

    def drop(self, reason: str, word: int) -> None:
        """A word that nobody can have said, which speaks against no other: the window is not suspect for it."""
        self.doubtful.pop(word, None)
        self.withheld[word].add(reason)


def ordered(reasons: set[str]) -> tuple[str, ...]:
    """In the order of `REASONS`."""
    return tuple(name for name in REASONS if name in reasons)


def levels_of(audio: Audio, texts: Sequence[ChunkText]) -> list[Levels]:
    """The levels of each text's chunk: what reading the sound is needed for, echoes apart."""
    return [acoustics.levels(audio, text.chunk) for text in texts]


def judge(
    audio: Audio, analysis: AudioAnalysis, texts: Sequence[ChunkText], levels: Sequence[Levels]
) -> list[WindowVerdict]:
    """One verdict for each text; `levels` are those of its chunks, whichever decoding of them is judged."""
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
    for piece in text.chunk.pieces:  # the window's mean hides what was invented in one piece among others
        in_piece = [i for i, word in enumerate(text.words) if piece.start <= word.start < piece.end]
        if in_piece and fmean(math.log(max(text.words[i].confidence, 1e-4)) for i in in_piece) < IMPROBABLE:
            verdict.doubt("improbable", in_piece)


def _invented(text: ChunkText) -> bool:
    """Whether a window's words are what the recognizer writes when it hears nothing to write.

    It must begin with some word, though it finds the end of the text far more probable: that word is as improbable as
    the window is likely to hold no speech. Of 226 texts that tiny.en wrote over music, tones, fax and clicks 219 are
    found, of 992 short stretches of real speech two (telephone lines, some with noise 5 dB below); with base 83 of
    106, and three of 443 (`bench/training/no_speech`). A recognizer that says nothing of no speech (0) is believed.
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
    if count >= MANY_WORDS_FROM and count > plausible.MAX_WORDS_PER_SECOND * plausible.seconds(spoken):
        verdict.doubt("too_many_words", indices)
    if count and loud >= FEW_WORDS_FROM and count < MIN_WORDS_PER_SECOND * loud:
        verdict.doubt("too_few_words", indices)
    min_seconds = MISSING_SECONDS if count else SHORT_SECONDS
    for turn in spoken:  # one without any word was skipped, which takes less to say than that a sentence goes on
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
    """Taken out is only what lies far from all detected speech, and there on no speech or on no sound."""
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
    """Loops and copies within windows and across the windows of one channel."""
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
    found_echoes = echoes.find(audio, words)
    for echo in found_echoes:
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
    """Faint sound is misheard: where a window holds an echo, its other words are asked too, by their sound alone."""
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
    """Spans of one channel in order, asked for by time; many thousand in a long call."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.start)
        self._ends = [span.end for span in self._spans]

    def inside(self, start: float, end: float) -> list[Span]:
        """The parts between two times; the spans of a channel do not overlap."""
        first = bisect_left(self._ends, start)
        last = first
        while last < len(self._spans) and self._spans[last].start < end:
            last += 1
        return plausible.inside(self._spans[first:last], start, end)


class _Labels:
    """The stretches of a channel that hold no speech."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._spans = _Spans([Span(label.start, label.end) for label in labels if not label.kind.speech])

    def share_without_speech(self, word: Word) -> float:
        """Of the word's time, 0..1."""
        span = word.end - word.start
        return plausible.seconds(self._spans.inside(word.start, word.end)) / span if span > 0 else 0.0
