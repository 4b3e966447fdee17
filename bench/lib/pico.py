"""Speech of SVOX Pico with the times of its words.

The command returns no times, but markup makes one word softer and changes nothing else: the word is where the sound
differs.
"""

import io
import subprocess
import tempfile
import wave
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE

VOICES = {"en": "en-US", "es": "es-ES", "fr": "fr-FR", "de": "de-DE"}
LEVEL, SOFT = 45, 30  # percent
MAX_WORDS = 29  # at once: the command hangs if more are marked


def speak(
    command: str, words: tuple[str, ...], language: str, timed: Sequence[int]
) -> tuple[npt.NDArray[np.float32], list[tuple[float, float]]]:
    """Return words as sound at 16 kHz, and the seconds of the words at `timed`."""
    if len(words) > MAX_WORDS:
        half = len(words) // 2
        first, spans = speak(command, words[:half], language, [at for at in timed if at < half])
        rest, others = speak(command, words[half:], language, [at - half for at in timed if at >= half])
        shift = len(first) / SAMPLE_RATE
        return np.concatenate([first, rest]).astype(np.float32), [
            *spans,
            *((start + shift, end + shift) for start, end in others),
        ]
    sound = _say(command, words, language)
    spans = []
    for at in timed:
        changes = (np.flatnonzero(_say(command, words, language, soft) != sound) for soft in range(at, len(words)))
        changed = next(places for places in changes if len(places))  # "mai 19" is one word to Pico, as loud as its last
        spans.append((float(changed[0]) / SAMPLE_RATE, float(changed[-1] + 1) / SAMPLE_RATE))
    return (sound / 32768).astype(np.float32), spans


def _say(command: str, words: tuple[str, ...], language: str, soft: int | None = None) -> npt.NDArray[np.int16]:
    levels = (SOFT if at == soft else LEVEL for at in range(len(words)))
    text = " ".join(f'<volume level="{level}">{word}</volume>' for level, word in zip(levels, words, strict=True))
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        arguments = [command, "-l", VOICES[language], "-w", file.name, text]
        subprocess.run(arguments, check=True, capture_output=True, timeout=60)
        with wave.open(io.BytesIO(file.read())) as sound:
            return np.frombuffer(sound.readframes(-1), dtype=np.int16)
