"""Audio and words. Times are seconds from the start of the recording unless a name says otherwise."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from pipeline.domain.redaction import CallRedaction

SAMPLE_RATE = 16_000  # Hz; everything after decoding works at this rate

REP, CUSTOMER = 0, 1  # channel 0 is the sender's own line, channel 1 the other party: always


class ForOperators:
    """Marks a field of a dataclass that the API, events and exports leave out: `Annotated[str, FOR_OPERATORS]`."""

    KEY = "x-for-operators"  # of its JSON Schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(schema) | {self.KEY: True}


FOR_OPERATORS = ForOperators()


@dataclass(frozen=True, slots=True)
class Recording:
    """A fetched file."""

    channel: int  # 0: recordingUrl, 1: recordingUrl2
    uri: Annotated[str, FOR_OPERATORS]  # an fsspec address in our own storage, never the sender's URL
    sha256: str
    size_bytes: int
    media_type: str | None = None  # as the server declared it; decoding does not trust it
    key: Annotated[bytes | None, FOR_OPERATORS] = field(default=None, repr=False, compare=False)  # opens a sealed file
    redaction: str | None = None  # `Pending`, or a digest of the hidden spans; None: no policy applied


class Pending(StrEnum):
    """The state of a file that was fetched under a policy of redaction: nothing plays it before its sound is hidden."""

    SEALED = "pending"  # sealed by the call's key
    IN_MEMORY = "in-memory"  # sealed by a key that only the process that fetched it has


PENDING = frozenset(Pending)


@dataclass(frozen=True, slots=True)
class RedactedRecording:
    """A stored file without the sound of what is hidden. `original`: sealed, with that sound; None: none is kept."""

    recording: Recording
    original: Recording | None = None


class LayoutKind(StrEnum):
    """Which party is on which channel; decided from the samples, never from a flag."""

    MONO = "mono"  # one channel with every party
    IDENTICAL = "identical"  # stereo whose channels carry the same audio: treated as mono
    ONE_SIDED = "one_sided"  # stereo with one dead channel: treated as mono
    STEREO = "stereo"  # one file, distinct channels: channel 0 rep, channel 1 customer
    TWO_FILES = "two_files"  # one file per leg, also where one is missing: channel 0 rep, channel 1 customer

    @property
    def separated(self) -> bool:
        """Whether the channel identifies the speaker."""
        return self in (LayoutKind.STEREO, LayoutKind.TWO_FILES)


@dataclass(frozen=True, slots=True)
class Bleed:
    """One party audible in the other's channel; it is suppressed before speech is detected."""

    source: int  # the channel whose party is audible in the other one
    level_db: float  # of the bleed against the source, below 0
    delay: float  # seconds by which it lags behind the source
    share: float  # of the windows in which only the source speaks, those with the bleed in them, 0..1


@dataclass(frozen=True, slots=True)
class Layout:
    """How the channels were separated, and why. `evidence` holds the measured figures by name."""

    kind: LayoutKind
    channels: int  # channels that speech is detected in: 1 or 2
    source_channels: int  # channels in the file or files
    confidence: float  # 0..1
    evidence: dict[str, float]
    reason: str  # one sentence for people
    bleed: tuple[Bleed, ...] = ()  # at most one in each direction; only where channels are separated
    starts: tuple[float, ...] = ()  # two files: the second at which each leg begins, the earlier one 0; else empty
    swapped: bool = False  # the sender says that the customer comes first: channel 0 is the second of the file or files


@dataclass(frozen=True, slots=True)
class Span:
    """start <= end, seconds."""

    start: float
    end: float

    @property
    def duration(self) -> float:
        return self.end - self.start


class Audio(ABC):
    """Decoded audio: int16 at `SAMPLE_RATE`, read in pieces, so that no process has to hold a whole call."""

    __slots__ = ()

    @property
    @abstractmethod
    def channels(self) -> int:
        """1 or 2."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Samples in each channel."""

    @abstractmethod
    def read(self, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
        """Return samples `first` to `last` (exclusive) of one channel, shape (n,), clipped to the recording.

        May raise `StorageError`.
        """

    def gaps(self, channel: int) -> tuple[Span, ...]:
        """Return where a channel is silent because the recording lacks audio, in order and without overlap."""
        return ()

    @property
    def duration(self) -> float:
        return self.length / SAMPLE_RATE

    def cut(self, channel: int, start: float, end: float) -> npt.NDArray[np.float32]:
        """Return the samples of one channel between two times, float32 in -1..1, shape (n,)."""
        piece = self.read(channel, round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        return piece.astype(np.float32) / np.float32(32768)

    def sound(self, chunk: "Chunk") -> npt.NDArray[np.float32]:
        """Return the samples of a chunk, its pieces concatenated, float32 in -1..1, shape (n,)."""
        return np.concatenate([self.cut(chunk.channel, span.start, span.end) for span in chunk.sound])


@dataclass(frozen=True, slots=True, eq=False)
class AudioInMemory(Audio):
    """Samples in an array, int16 of shape (channels, n): for tests, notebooks and short pieces."""

    samples: npt.NDArray[np.int16]
    lacking: tuple[Span, ...] = ()  # see `gaps`

    def gaps(self, channel: int) -> tuple[Span, ...]:
        return self.lacking

    @property
    def channels(self) -> int:
        return int(self.samples.shape[0])

    @property
    def length(self) -> int:
        return int(self.samples.shape[1])

    def read(self, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
        return self.samples[channel, max(0, first) : max(0, last)]


class LabelKind(StrEnum):
    """Content of a stretch of a channel."""

    SPEECH = "speech"
    SILENCE = "silence"
    RINGBACK = "ringback"  # the far telephone rings
    BUSY = "busy"  # busy or congestion tone
    DTMF = "dtmf"  # keys pressed: `keys` says how many
    MUSIC = "music"  # hold music
    ANNOUNCEMENT = "announcement"  # a machine speaks
    VOICEMAIL = "voicemail"  # an answering machine's greeting
    BEEP = "beep"  # a single short tone
    GAP = "gap"  # nothing: the recording lacks this stretch, and silence stands in for it
    NOISE = "noise"  # hum, hiss, rumble, clicks: sound that is none of the above

    @property
    def speech(self) -> bool:
        """Whether words are spoken, by a person or a machine."""
        return self in (LabelKind.SPEECH, LabelKind.ANNOUNCEMENT, LabelKind.VOICEMAIL)


@dataclass(frozen=True, slots=True)
class Label:
    """Content of one channel from `start` to `end`. The labels of a channel are contiguous."""

    start: float
    end: float
    kind: LabelKind
    confidence: float = 1.0  # 0..1, not calibrated
    detail: str | None = None  # frequencies of a tone, words that gave a machine away, digits where they may be kept
    keys: int | None = None  # pressed, of DTMF


@dataclass(frozen=True, slots=True)
class Chunk:
    """Speech of one channel, up to 30 s of audio; it refers to samples and does not hold them.

    `pieces` are the parts of start..end that its audio consists of, in order of time, the first from `start` and the
    last to `end`, without the pauses between them. Empty: all of it. A time "in its sound" counts from 0 without those
    pauses; `Audio.sound` returns the samples.
    """

    channel: int
    start: float
    end: float
    language: str | None = None  # ISO 639-1; None: the engine is to detect it
    pieces: tuple[Span, ...] = ()

    @property
    def duration(self) -> float:
        """Seconds from `start` to `end`, pauses that are left out included."""
        return self.end - self.start

    @property
    def seconds(self) -> float:
        return sum(span.duration for span in self.sound)

    @property
    def sound(self) -> tuple[Span, ...]:
        """The spans of the recording that it consists of, at least one."""
        return self.pieces or (Span(self.start, self.end),)

    @property
    def parts(self) -> tuple[Span, ...]:
        """`sound` in its own time: the first from 0, each from where the one before it ends."""
        spans: list[Span] = []
        for span in self.sound:
            begin = spans[-1].end if spans else 0.0
            spans.append(Span(begin, begin + span.duration))
        return tuple(spans)

    def moment(self, seconds: float) -> float:
        """Convert a time in its sound to a time of the recording; at a skipped pause, the start of the next piece."""
        parts = self.parts
        at = max(0, bisect_right([part.start for part in parts], seconds) - 1)
        return self.sound[at].start + seconds - parts[at].start

    def between(self, first: float, last: float) -> "Chunk":
        """Return the part of its sound from `first` to `last`, in the same language."""
        cut = [
            Span(span.start + max(first - part.start, 0.0), span.end - max(part.end - last, 0.0))
            for span, part in zip(self.sound, self.parts, strict=True)
            if part.start < last and part.end > first
        ] or [Span(self.moment(first), self.moment(first))]
        return replace(self, start=cut[0].start, end=cut[-1].end, pieces=tuple(cut) if len(cut) > 1 else ())


@dataclass(frozen=True, slots=True)
class Word:
    """A timed word as recognized, punctuation attached. `confidence` is a probability, 0..1."""

    start: float
    end: float
    text: str
    confidence: float
    doubtful: bool = False  # probably wrong, or in a window that is still suspect after decoding it again
    joined: bool = False  # written without a space after the word before it, as in Chinese or Thai


def text_of(words: Iterable[Word]) -> str:
    """Join words to text with single spaces, except before joined words."""
    return "".join(word.text if word.joined else f" {word.text}" for word in words).strip()


def places_of(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the character range of each word in `text_of(words)`."""
    places: list[tuple[int, int]] = []
    for word in words:
        before = places[-1][1] if places else 0  # 0 also after words that are hidden
        first = before + (1 if before and not word.joined else 0)
        places.append((first, first + len(word.text)))
    return places


@dataclass(frozen=True, slots=True)
class ChunkText:
    """Recognition result of one chunk; word times count from the start of the recording."""

    chunk: Chunk
    language: str
    language_probability: float  # 1: it was requested; 0: the recognizer supports no other
    words: tuple[Word, ...]
    mean_log_probability: float
    no_speech_probability: float
    languages: dict[str, float] = field(default_factory=dict)  # how probable the sound alone makes each, the likeliest
    compression: float = 0.0  # characters by gzipped bytes: text that repeats itself is above 2.4
    temperature: float = 0.0  # at which it was decoded
    with_fallback: bool = False  # decoded again, alone
    decodings: int = 1  # decoder passes over this window, in all
    supports: tuple[float, ...] = ()  # for each word, the share of the hypotheses that have it, 0..1; empty: not known

    @property
    def language_detected(self) -> bool:
        """Whether the recognizer supports several languages."""
        return bool(self.languages) or self.language_probability > 0


@dataclass(frozen=True, slots=True)
class Doubt:
    """A stretch of uncertain text. Removed text is stored here, so that nothing is hidden."""

    channel: int
    start: float
    end: float
    reasons: tuple[str, ...]  # names of `pipeline.asr.safety.REASONS`
    text: str = ""  # the recognizer's text
    # False: removed from the turns, since it cannot be speech
    kept: bool = True  # language: ok


@dataclass(frozen=True, slots=True)
class AudioAnalysis:
    """Result of the audio stage: layout, duration, speech per channel, and the chunks to recognize."""

    layout: Layout
    duration: float
    speech: tuple[tuple[Span, ...], ...]  # one tuple of spans per channel of the layout
    chunks: tuple[Chunk, ...]
    warnings: tuple[str, ...] = ()
    labels: tuple[tuple[Label, ...], ...] = ()  # for each channel, from 0 to `duration` without gaps


@dataclass(frozen=True, slots=True)
class LanguageStretch:
    """One channel speaks one language from `start` to `end`."""

    channel: int
    start: float
    end: float
    language: str  # ISO 639-1
    probability: float | None  # 0..1; None: the recognizer supports no other


@dataclass(frozen=True, slots=True)
class Recognized:
    """Recognition result of a recording, and the engine."""

    texts: tuple[ChunkText, ...]
    engine: str
    doubts: tuple[Doubt, ...] = ()
    languages: tuple[LanguageStretch, ...] = ()  # by channel and time
    undone: int = 0  # suspect windows beyond the budget of decoding again
    redaction: CallRedaction | None = None  # None: no policy applied, and these are the words as recognized


class Role(StrEnum):
    """Which party of the call a speaker is."""

    REP = "rep"
    CUSTOMER = "customer"
    UNKNOWN = "unknown"


BY_VOICE = "voiceprint"
"""The reason of a role that a member's voice profile identified."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One voice of a call. `label` is unique in the call ("rep", "customer", "A", "B", ...)."""

    label: str
    role: Role
    role_confidence: float  # 0..1; 1.0 where the channel says it
    role_reason: str  # "channel", BY_VOICE, "talk", ...
    user_id: str | None = None  # the member, if known


@dataclass(frozen=True, slots=True)
class Turn:
    """Consecutive words of one speaker. `speaker` is a `Speaker.label`."""

    index: int
    speaker: str
    start: float
    end: float
    words: tuple[Word, ...]
    language: str
    machine: bool = False  # an announcement or a voicemail greeting: no party says it, whosever channel it is

    @property
    def text(self) -> str:
        """Its words; see `text_of`."""
        return text_of(self.words)


@dataclass(frozen=True, slots=True)
class Transcript:
    """Transcript, in one form for every audio layout. An empty one has the reason in `note`."""

    language: str | None
    language_probability: float | None
    duration: float
    speakers: tuple[Speaker, ...]
    turns: tuple[Turn, ...]
    layout: Layout
    engine: str  # what recognized the words
    note: str | None = None
    labels: tuple[tuple[Label, ...], ...] = ()  # for each channel of the layout, what every second holds
    languages: tuple[LanguageStretch, ...] = ()
    language_note: str | None = None  # why the language is not sure
    doubts: tuple[Doubt, ...] = ()
    redaction: CallRedaction | None = None  # None: no policy applied


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """`speaker` is the diarizer's own label; spans of one recording do not overlap (exclusive diarization)."""

    start: float
    end: float
    speaker: str


@dataclass(frozen=True, slots=True)
class Voiceprint:
    """An L2-normalized voice embedding, the model that made it, and the net speech it was made from."""

    vector: tuple[float, ...]
    model: str
    speech_seconds: float
    agreement: float | None = None  # cosine of the stretch least like the others to their mean; None: one stretch only
    quality_issues: tuple[str, ...] = ()  # why it is not enrolled: names of `pipeline.speakers.gate.QUALITY_ISSUES`


@dataclass(frozen=True, slots=True)
class Diarization:
    """Who spoke when in a mixed recording, with a voiceprint for each label that has enough speech."""

    spans: tuple[SpeakerSpan, ...]
    voiceprints: dict[str, Voiceprint]
    engine: str


@dataclass(frozen=True, slots=True)
class Slices:
    """How one channel's party speaks, in slices of `Prosody.seconds`; one entry for each slice that contains speech."""

    index: tuple[int, ...] = ()  # slice i lasts from i to i + 1 slices' length
    pitch: tuple[float | None, ...] = ()  # median, Hz; None where too little is voiced
    spread: tuple[float | None, ...] = ()  # of the pitch inside the slice, semitones
    level: tuple[float, ...] = ()  # dB of full scale
    voiced: tuple[float, ...] = ()  # share of the speech, 0..1


@dataclass(frozen=True, slots=True)
class Prosody:
    """Pitch, level and voicing of the voices, for each channel of the layout."""

    seconds: float  # length of a slice
    channels: tuple[Slices, ...]
