"""Speaks planted calls with espeak-ng, recognizes them, and looks for what is left of the secret."""

import io
import re
import subprocess
import wave
from functools import cache

import numpy as np
import numpy.typing as npt
import soxr

from bench.lib.planted_secrets import PlantedCall
from pipeline import asr
from pipeline.asr.engine import Engine
from pipeline.domain.redaction import EntityKind, RedactionPolicy
from pipeline.domain.speech import SAMPLE_RATE, Chunk, ChunkText, Recognized, text_of
from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import digit_runs
from pipeline.redaction.detect import find_entities
from pipeline.redaction.mask import mask_words

KINDS = frozenset(
    [EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY, EntityKind.IBAN, EntityKind.NATIONAL_ID,
     EntityKind.PHONE, EntityKind.BIRTH_DATE, EntityKind.EMAIL]
)  # fmt: skip
"""Kinds whose remains can be told from other words."""
VOICES = {"en": "en-us", "es": "es", "fr": "fr-fr", "de": "de", "pt": "pt-br"}
WORDS_PER_MINUTE = 135
_EMAIL = re.compile(r"@|gmail|outlook|fastmail|posteo|\.(?:com|net|org)\b", re.IGNORECASE)


@cache
def _engine() -> Engine:
    return asr.load(asr.AsrOptions(model="base", device="cpu"))


def say(text: str, language: str) -> npt.NDArray[np.float32]:
    """Return speech at 16 kHz."""
    command = ["espeak-ng", "-v", VOICES[language], "-s", str(WORDS_PER_MINUTE), "-g", "4", "--stdout", text]
    sound = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    with wave.open(io.BytesIO(sound)) as file:
        samples = np.frombuffer(file.readframes(-1), dtype=np.int16).astype(np.float32) / 32768
        rate = file.getframerate()
    padded = np.pad(soxr.resample(samples, rate, SAMPLE_RATE), SAMPLE_RATE // 4)
    return padded.astype(np.float32)


def recognize(call: PlantedCall) -> tuple[Recognized, list[int]]:
    """Return the words of a call without its neutral turns, and the places of the turns that carry the secret."""
    texts: list[ChunkText] = []
    secret = []
    now = 0.0
    for turn in call.turns[2:-2]:
        samples = say(" ".join(turn.words), call.language)
        seconds = len(samples) / SAMPLE_RATE
        chunk = Chunk(0 if call.mixed else turn.channel, now, now + seconds, language=call.language)
        if turn.secret:
            secret.append(len(texts))
        texts += _engine().transcribe([samples], [chunk])
        now += seconds + 0.5
    return Recognized(tuple(texts), _engine().name), secret


def is_hidden(call: PlantedCall, policy: RedactionPolicy) -> bool:
    """Return whether nothing of the secret's form is left in the turns that carry it."""
    recognized, secret = recognize(call)
    masked = mask_words(recognized, find_entities(recognized, policy), policy)
    remains = [text_of(masked.texts[at].words) for at in secret]
    return not any(_is_left(text, call) for text in remains)


def _is_left(text: str, call: PlantedCall) -> bool:
    if call.kind is EntityKind.EMAIL:
        return bool(_EMAIL.search(text))
    return any(len(run.text) >= 2 for run in digit_runs(text, pack(call.language), min_digits=2))
