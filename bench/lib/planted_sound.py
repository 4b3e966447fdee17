"""Speaks planted calls, recognizes them, and looks for what is left of the secret.

Voices: espeak-ng in five languages, a voice of Piper, or digits that people recorded for a telephone system (Debian's
Asterisk sounds, `bench.real.sources`) in place of the turns that carry the secret.
"""

import io
import re
import subprocess
import tempfile
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from bench.lib import planted_secrets
from bench.lib.planted_secrets import PlantedCall, Turn
from bench.real.sources import PROMPT_VOICES, Sources
from pipeline import asr
from pipeline.asr.engine import Engine
from pipeline.domain.redaction import EntityKind, RedactionPolicy
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Recognized, text_of
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words

OF_DIGITS = (EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.NATIONAL_ID, EntityKind.PHONE)
OF_WORDS = (EntityKind.PASSWORD, EntityKind.SPELLED_NAME, EntityKind.ADDRESS)
VOICES = {"en": "en-us", "es": "es", "fr": "fr-fr", "de": "de", "pt": "pt-br"}
WORDS_PER_MINUTE = 135
DIGIT_PAUSE = 0.08  # seconds between recorded digits
GROUP = 4  # digits before a longer pause
QUIET = 0.01  # of full scale, before and after a recorded digit
MAX_TRIED = 400  # calls of which those that are digits alone are spliced
ALIKE = 0.8  # of a secret's word and a recognized one, by difflib's ratio
_EMAIL = re.compile(r"@|gmail|outlook|fastmail|posteo|\.(?:com|net|org)\b", re.IGNORECASE)
_LETTERS = re.compile(r"\b\w(?:[ .,-]+\w\b)+")  # as they are spelled


@cache
def _engine() -> Engine:
    return asr.load(asr.AsrOptions(model="base", device="cpu"))


Say = Callable[[Turn, str], npt.NDArray[np.float32]]
"""Returns a turn in a language as speech at 16 kHz."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of a secret. `recognized`: enough of its digits are in the recognized words to hide them."""

    is_hidden: bool
    recognized: bool
    text: str  # the recognized turns that carry it
    remains: str  # the same, redacted


def espeak(turn: Turn, language: str) -> npt.NDArray[np.float32]:
    voice = ["-v", VOICES[language], "-s", str(WORDS_PER_MINUTE), "-g", "4"]
    command = ["espeak-ng", *voice, "--stdout", " ".join(turn.words)]
    return _sound(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def piper(model: Path) -> Say:
    """Return a voice of Piper in its language."""

    def say(turn: Turn, language: str) -> npt.NDArray[np.float32]:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            command = ["piper", "-m", str(model), "-f", file.name, "--", " ".join(turn.words)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            return _sound(Path(file.name).read_bytes())

    return say


def spliced(sources: Sources) -> Say:
    """Return a voice that says the digits of a secret as people recorded them, one by one, and all else as espeak."""

    def say(turn: Turn, language: str) -> npt.NDArray[np.float32]:
        if not turn.secret:
            return espeak(turn, language)
        pause = np.zeros(int(DIGIT_PAUSE * SAMPLE_RATE), dtype=np.float32)
        parts = [pause, pause, pause, pause]
        for at, digit in enumerate(_digits(turn, language)):
            sound = sources.prompt(f"digits/{digit}", language).load()
            loud = np.flatnonzero(np.abs(sound) > QUIET)
            parts += [sound[loud[0] : loud[-1] + 1], *[pause] * (4 if at % GROUP == GROUP - 1 else 1)]
        return np.concatenate([*parts, pause, pause])

    return say


def spliced_calls(seed: int, half: str, per_cell: int) -> Iterator[PlantedCall]:
    """Yield calls whose secret is said in single digits after a question, in the languages with recorded digits."""
    for language in (name for name in PROMPT_VOICES if name in VOICES):
        for kind in sorted(OF_DIGITS):
            cell = islice(planted_secrets.cell(seed, half, language, kind), MAX_TRIED)
            yield from islice((call for call in cell if _is_digits(call)), per_cell)


def _is_digits(call: PlantedCall) -> bool:
    secret = [turn for turn in call.turns if turn.secret]
    words = pack(call.language).get("numbers", "units").split()
    digits = [turn.words[at].strip(".,") for turn in secret for at in turn.secret]
    return (
        len(call.turns) == 6
        and call.way in ("digits", "words")
        and all(digit in words or digit.isdigit() for digit in digits)
    )


def _digits(turn: Turn, language: str) -> str:
    spoken = " ".join(turn.words[at] for at in sorted(turn.secret))
    return "".join(run.text for run in digit_runs(spoken, pack(language), min_digits=1))


def _sound(wav: bytes) -> npt.NDArray[np.float32]:
    with wave.open(io.BytesIO(wav)) as file:
        samples = np.frombuffer(file.readframes(-1), dtype=np.int16).astype(np.float32) / 32768
        rate = file.getframerate()
    padded = np.pad(soxr.resample(samples, rate, SAMPLE_RATE), SAMPLE_RATE // 4)
    return padded.astype(np.float32)


def recognize(call: PlantedCall, say: Say) -> tuple[Recognized, list[int]]:
    """Return the words of a call without its neutral turns, and the places of the turns that carry the secret."""
    texts: list[ChunkText] = []
    secret = []
    now = 0.0
    for turn in call.turns[2:-2]:
        samples = say(turn, call.language)
        seconds = len(samples) / SAMPLE_RATE
        chunk = Chunk(0 if call.mixed else turn.channel, now, now + seconds, language=call.language)
        if turn.secret:
            secret.append(len(texts))
        texts += _engine().transcribe([samples], [chunk])
        now += seconds + 0.5
    return Recognized(tuple(texts), _engine().name), secret


def heard(call: PlantedCall, policy: RedactionPolicy, recognized: Recognized, secret: list[int]) -> Heard:
    """Return whether nothing of the secret's form is left in the turns that carry it."""
    masked = mask_words(recognized, find_entities(recognized, policy), policy)
    texts = [text_of(recognized.texts[at].words) for at in secret]
    remains = [text_of(masked.texts[at].words) for at in secret]
    is_hidden = not any(_is_left(text, call) for text in remains)
    return Heard(is_hidden, _is_recognized(call, " ".join(texts)), " / ".join(texts), " / ".join(remains))


def _is_recognized(call: PlantedCall, text: str) -> bool:
    """Return whether half of the secret is in the recognized text: digits in pairs or longer, otherwise words."""
    if call.kind is EntityKind.EMAIL:
        return bool(_EMAIL.search(text))
    if call.kind in OF_WORDS:
        words = secret_words(call)
        return len(words_left(text, words)) >= max(1, len(words) // 2)
    spoken = "".join(_digits(turn, call.language) for turn in call.turns if turn.secret)
    digits = "".join(run.text for run in digit_runs(text, pack(call.language), min_digits=1))
    blocks = SequenceMatcher(None, spoken, digits, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks if block.size >= 2) >= max(2, len(spoken) // 2)


def _is_left(text: str, call: PlantedCall) -> bool:
    if call.kind is EntityKind.EMAIL:
        return bool(_EMAIL.search(text))
    if call.kind in OF_WORDS and words_left(text, secret_words(call)):
        return True
    return any(len(run.text) >= 2 for run in digit_runs(text, pack(call.language), min_digits=2))


def secret_words(call: PlantedCall) -> frozenset[str]:
    """Return the words of a secret in lower case, without stopwords and numbers; the letters of a name as one word."""
    language = pack(call.language)
    words = [turn.words[at].lower().strip(".,?!") for turn in call.turns for at in sorted(turn.secret)]
    if call.kind is EntityKind.SPELLED_NAME:
        return frozenset(["".join(words).replace("-", "")])
    common = language.words("text", "stopwords") | frozenset(language.numbers)
    return frozenset(word for word in words if len(word) > 1 and word not in common and not word.isdigit())


def words_left(text: str, words: frozenset[str]) -> frozenset[str]:
    """Return those of a secret's words that are in a text, spelled or as a word that is `ALIKE`."""
    spelled = [re.sub(r"\W", "", letters) for letters in _LETTERS.findall(text.lower())]
    written = [*re.findall(r"\w+", text.lower()), *spelled]
    return frozenset(
        word for word in words if any(SequenceMatcher(None, word, other).ratio() >= ALIKE for other in written)
    )
