"""Speaks planted calls and recognizes them; what is recognized may be stored, so that a run can be continued.

Voices: espeak-ng in five languages, SVOX Pico in four, or digits that people recorded in place of the turns that carry
the secret: those of a telephone system (Debian's Asterisk sounds, `bench.real.sources`), or of the Free Spoken Digit
Dataset after a real sentence of LibriSpeech.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
from pydantic import TypeAdapter

from bench.lib import espeak as library
from bench.lib import pico as pico_library
from bench.lib import planted_secrets
from bench.lib.planted_secrets import KINDS, LANGUAGES, PlantedCall, Turn
from bench.real.sources import PROMPT_VOICES, Half, Sources, load
from pipeline import asr
from pipeline.asr.engine import Engine
from pipeline.audio.analyze import analyze_audio
from pipeline.audio.analyze import load as load_sound
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.redaction import EntityKind
from pipeline.domain.speech import SAMPLE_RATE, Chunk, Recognized, Recording
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs
from pipeline.runtime.workers import LocalWorkers
from pipeline.steps.recognize import recognize

OF_DIGITS = (EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.NATIONAL_ID, EntityKind.PHONE)
OF_SYMBOLS = (EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.IBAN, EntityKind.NATIONAL_ID, EntityKind.PHONE)
DIGIT_PAUSE = 0.08  # seconds between recorded digits
GROUP = 4  # digits before a longer pause
QUIET = 0.01  # of full scale, before and after a recorded digit
LEVEL = 0.05  # root mean square of spliced sounds, which different people recorded
MAX_CARRIER = 5.0  # seconds of the sentence before spliced digits
PAUSE = 0.5  # seconds between turns
MAX_TRIED = 400  # calls of which those that are digits alone are spliced
Sound = npt.NDArray[np.float32]  # at 16 kHz
Place = tuple[int, float, float]
"""Channel, start and end."""


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A turn as speech. `secret`: seconds of the words that carry the secret; empty: the voice has no times."""

    samples: Sound
    secret: tuple[tuple[float, float], ...] = ()


Say = Callable[[PlantedCall, Turn], SpokenTurn]


@dataclass(frozen=True, slots=True)
class HeardCall:
    """A call without its neutral turns, as recognized.

    `secret`: places of the texts that carry the secret; `planted`: of each of its words; `places`: of each turn.
    """

    turns: tuple[tuple[str, ...], ...]
    recognized: Recognized
    secret: tuple[int, ...]
    planted: tuple[Place, ...]
    places: tuple[Place, ...]


_STORED = TypeAdapter(HeardCall)


@cache
def engine(model: str = "base") -> Engine:
    return asr.load(asr.AsrOptions(model=model, device="cpu"))


def espeak(call: PlantedCall, turn: Turn) -> SpokenTurn:
    """Return a turn as espeak-ng says it."""
    sound, spans = library.speak(turn.words, call.language)
    return _timed(sound, [span for at in _carrying(call, turn) if (span := spans[at])])


def pico(command: str) -> Say:
    """Return the voices of SVOX Pico, which has four of the languages."""

    def say(call: PlantedCall, turn: Turn) -> SpokenTurn:
        return _timed(*pico_library.speak(command, turn.words, call.language, _carrying(call, turn)))

    return say


def _carrying(call: PlantedCall, turn: Turn) -> list[int]:
    """Return the words of a secret that need a time: stopwords in it say nothing about it."""
    language = pack(call.language)
    common = language.words("text", "stopwords") - frozenset(language.numbers)
    return [at for at in sorted(turn.secret) if len(turn.words[at]) == 1 or turn.words[at] not in common]


def _timed(sound: Sound, spans: Sequence[tuple[float, float]]) -> SpokenTurn:
    shift = SAMPLE_RATE // 4
    return SpokenTurn(np.pad(sound, shift), tuple((start + 0.25, end + 0.25) for start, end in spans))


def prompts(sources: Sources) -> Say:
    """Return a voice that says the digits of a secret as people recorded them, one by one, and all else as espeak."""

    def say(call: PlantedCall, turn: Turn) -> SpokenTurn:
        if not turn.secret:
            return espeak(call, turn)
        digits = (sources.prompt(f"digits/{digit}", call.language).load() for digit in said_digits(turn, call.language))
        return _spliced(np.zeros(0, np.float32), digits)

    return say


def read_digits(sources: Sources, digits: Path, half: Half = "report") -> Say:
    """Return a voice that says a real sentence before real digits and letters, and all else as espeak.

    `digits`: the folder `recordings` of the Free Spoken Digit Dataset, files DIGIT_SPEAKER_NUMBER.wav; each call has
    one of its speakers. The sentences are utterances of LibriSpeech, letters are prompts of Asterisk.
    """
    clips = [clip for clips in sources.utterances(half).values() for clip in clips]
    clips = [clip for clip in clips if set(clip.text.split()).isdisjoint(pack("en").numbers)]
    sentences = [sound for sound in (clip.load() for clip in clips) if len(sound) <= MAX_CARRIER * SAMPLE_RATE]
    speakers = sorted({path.stem.split("_")[1] for path in digits.glob("0_*_0.wav")})

    def say(call: PlantedCall, turn: Turn) -> SpokenTurn:
        if not turn.secret:
            return espeak(call, turn)
        rng = random.Random(" ".join(turn.words))
        speaker, number = rng.choice(speakers), rng.randrange(50)
        units = str(pack(call.language).get("numbers", "units")).split()
        symbols = (turn.words[at].lower().strip(".,") for at in sorted(turn.secret))
        symbols = (str(units.index(word)) if word in units else word for word in symbols)
        sounds = (
            load(digits / f"{symbol}_{speaker}_{(number + at) % 50}.wav") if symbol.isdigit()
            else sources.prompt(f"letters/{symbol}").load()
            for at, symbol in enumerate(symbols)
        )  # fmt: skip
        return _spliced(rng.choice(sentences), sounds)

    return say


def _spliced(before: Sound, sounds: Iterator[Sound]) -> SpokenTurn:
    """Return sounds one after the other, with their seconds."""
    pause = np.zeros(int(DIGIT_PAUSE * SAMPLE_RATE), np.float32)
    parts, length, seconds = [pause] * 4, 4 * len(pause), []
    if len(before):
        parts += [_level(before), *[pause] * 4]
        length = sum(map(len, parts))
    for at, sound in enumerate(sounds):
        loud = np.flatnonzero(np.abs(sound) > QUIET)
        part = _level(sound[loud[0] : loud[-1] + 1])
        seconds.append((length / SAMPLE_RATE, (length + len(part)) / SAMPLE_RATE))
        parts += [part, *[pause] * (4 if at % GROUP == GROUP - 1 else 1)]
        length = sum(map(len, parts))
    return SpokenTurn(np.concatenate([*parts, pause, pause, pause]).astype(np.float32), tuple(seconds))


def _level(sound: Sound) -> Sound:
    return sound * np.float32(LEVEL / (np.sqrt(np.mean(sound**2)) + 1e-9))


def spoken_calls(seed: int, half: str, per_cell: int) -> Iterator[PlantedCall]:
    """Yield calls that are not typed; all kinds and languages in turn, so that a part of them is balanced."""
    cells = [planted_secrets.cell(seed, half, language, kind) for language in LANGUAGES for kind in KINDS]
    for _ in range(per_cell):
        for cell in cells:
            yield next(call for call in cell if call.way != "typed")


def prompted_calls(seed: int, half: str, per_cell: int) -> Iterator[PlantedCall]:
    """Yield calls whose secret is said in single digits after a question, in the languages with recorded digits."""
    for language in (name for name in PROMPT_VOICES if name in LANGUAGES):
        for kind in sorted(OF_DIGITS):
            cell = islice(planted_secrets.cell(seed, half, language, kind), MAX_TRIED)
            yield from islice((call for call in cell if _is_symbols(call, letters=False)), per_cell)


def read_calls(seed: int, half: str, per_cell: int) -> Iterator[PlantedCall]:
    """Yield English calls whose secret is said in single digits and letters after a question."""
    for kind in OF_SYMBOLS:
        cell = islice(planted_secrets.cell(seed, half, "en", kind), MAX_TRIED)
        yield from islice((replace(call, mixed=False) for call in cell if _is_symbols(call, letters=True)), per_cell)


def _is_symbols(call: PlantedCall, letters: bool) -> bool:
    words = pack(call.language).get("numbers", "units").split()
    symbols = [turn.words[at].strip(".,") for turn in call.turns for at in turn.secret]
    return (
        len(call.turns) == 6
        and call.way in ("digits", "words")
        and all(word in words or word.isdigit() or (letters and len(word) == 1) for word in symbols)
    )


def said_digits(turn: Turn, language: str) -> str:
    spoken = " ".join(turn.words[at] for at in sorted(turn.secret))
    return "".join(run.text for run in digit_runs(spoken, pack(language), min_digits=1))


def speak(call: PlantedCall, say: Say) -> list[SpokenTurn]:
    return [say(call, turn) for turn in call.turns[2:-2]]


def hear(call: PlantedCall, say: Say, folder: Path | None = None, whole: bool = False) -> HeardCall:
    """Recognize a call; with a folder, read what an earlier run recognized in the same turns, or write it there.

    `whole`: the stages of the service divide and check it; else each turn is recognized by itself, which is faster.
    """
    turns = tuple(turn.words for turn in call.turns[2:-2])
    name = sha256(repr((call, turns)).encode()).hexdigest()[:16]
    path = folder / f"{call.language}-{call.kind}-{name}.json" if folder else None
    if path and path.is_file():
        transcript = _STORED.validate_json(path.read_bytes())
        if transcript.turns == turns:
            return transcript
    transcript = _recognize(call, turns, speak(call, say), whole)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(_STORED.dump_json(transcript))
        new.replace(path)  # complete or not at all: a run may be killed
    return transcript


def _recognize(
    call: PlantedCall, words: tuple[tuple[str, ...], ...], spoken: list[SpokenTurn], whole: bool
) -> HeardCall:
    now, places, planted = 0.0, [], []
    for turn, sound in zip(call.turns[2:-2], spoken, strict=True):
        channel = 0 if call.mixed else turn.channel
        places.append((channel, now, now + len(sound.samples) / SAMPLE_RATE))
        planted += [(channel, now + start, now + end) for start, end in sound.secret]
        now = places[-1][2] + PAUSE
    if whole:
        recognized = asyncio.run(_by_stages(rows_of(places, spoken)))
    else:
        chunks = [Chunk(*place, language=call.language) for place in places]
        recognized = Recognized(tuple(engine().transcribe([sound.samples for sound in spoken], chunks)), engine().name)
    carry = [place for place, turn in zip(places, call.turns[2:-2], strict=True) if turn.secret]
    secret = [
        at for at, text in enumerate(recognized.texts)
        if any(text.chunk.channel == channel and text.chunk.start < end and text.chunk.end > start
               for channel, start, end in carry)
    ]  # fmt: skip
    return HeardCall(words, recognized, tuple(secret), tuple(planted), tuple(places))


def rows_of(places: Sequence[Place], spoken: Sequence[SpokenTurn]) -> npt.NDArray[np.int16]:
    """Return the sound of both channels."""
    rows = np.zeros((2, round((places[-1][2] + 1) * SAMPLE_RATE)), np.int16)
    for (channel, start, _), turn in zip(places, spoken, strict=True):
        first = round(start * SAMPLE_RATE)
        sound = np.clip(turn.samples * 32767, -32768, 32767).astype(np.int16)
        rows[channel, first : first + len(sound)] = sound
    return rows


@contextmanager
def recording_of(rows: npt.NDArray[np.int16]) -> Iterator[Recording]:
    """Write a recording of two channels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.wav"
        soundfile.write(path, rows.T, SAMPLE_RATE, subtype="PCM_16")
        yield Recording(0, path.as_uri(), "0" * 64, path.stat().st_size)


async def _by_stages(rows: npt.NDArray[np.int16]) -> Recognized:
    """Recognize a recording as the stages of the service do."""
    workers = LocalWorkers(engine, None)
    with recording_of(rows) as recording:
        sound = await workers.hold(load_sound, (recording,), DecodeOptions())
    recognition = await workers.recognition()
    limits = recognition.max_chunk_seconds, recognition.packing
    audio = await workers.compute(analyze_audio, sound, SpeechOptions(), *limits)
    return await recognize(workers, sound, audio, recognition.engine, ())
