"""Speech of espeak-ng with the times of its words, by its library: the command does not return them."""

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt
import soxr

from pipeline.domain.speech import SAMPLE_RATE

VOICES = {"en": "en-us", "es": "es", "fr": "fr", "de": "de", "pt": "pt-br"}
WORDS_PER_MINUTE = 135
WORD_GAP = 4  # of 10 ms
QUIET = 0.01  # of full scale: a word that is followed by a pause ends where it is softer
SYNCHRONOUS, CHARS_UTF8, RATE, GAP = 2, 1, 1, 7  # of speak_lib.h
LIST_END, WORD, MESSAGE_END = 0, 1, 6
Spans = list[tuple[float, float] | None]


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int),
        ("length", ctypes.c_int), ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p), ("id", ctypes.c_char * 8),
    )  # fmt: skip


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    """Return the library and the rate of its sound."""
    library = ctypes.CDLL("libespeak-ng.so.1")
    rate = library.espeak_Initialize(SYNCHRONOUS, 500, None, 0)
    library.espeak_SetParameter(RATE, WORDS_PER_MINUTE, 0)
    library.espeak_SetParameter(GAP, WORD_GAP, 0)
    return library, rate


def speak(words: tuple[str, ...], language: str) -> tuple[npt.NDArray[np.float32], Spans]:
    """Return words as sound at 16 kHz, and the seconds of each word, None for one without a time of its own."""
    library, rate = _library()
    if library.espeak_SetVoiceByName(VOICES[language].encode()):
        raise ValueError(f"espeak-ng has no voice {VOICES[language]}: install its data")
    pieces: list[npt.NDArray[np.int16]] = []
    events: list[tuple[int, int, float]] = []

    def receive(wav: ctypes.Array[ctypes.c_short], count: int, event: ctypes.Array[_Event]) -> int:
        if count:
            pieces.append(np.ctypeslib.as_array(wav, (count,)).copy())
        at = 0
        while event[at].type != LIST_END:
            events.append((event[at].type, event[at].text_position, event[at].audio_position / 1000))
            at += 1
        return 0

    callback = _CALLBACK(receive)
    library.espeak_SetSynthCallback(callback)
    text = " ".join(words).encode()
    library.espeak_Synth(text, len(text) + 1, 0, 1, 0, CHARS_UTF8, None, None)
    samples = np.concatenate(pieces or [np.zeros(1, np.int16)]).astype(np.float32) / 32768
    sound = soxr.resample(samples, rate, SAMPLE_RATE).astype(np.float32)
    return sound, _spans(words, events, sound)


def _spans(words: tuple[str, ...], events: list[tuple[int, int, float]], sound: npt.NDArray[np.float32]) -> Spans:
    firsts = np.cumsum([0, *(len(word) + 1 for word in words)])
    timed = [(position - 1, seconds) for kind, position, seconds in events if kind == WORD]
    spans: Spans = [None] * len(words)
    ends = [*(seconds for _, seconds in timed[1:]), len(sound) / SAMPLE_RATE]
    for (position, start), end in zip(timed, ends, strict=True):
        at = int(np.searchsorted(firsts, position, side="right")) - 1
        loud = np.flatnonzero(np.abs(sound[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]) > QUIET)
        if len(loud) and 0 <= at < len(words):
            first, last = start + loud[0] / SAMPLE_RATE, start + loud[-1] / SAMPLE_RATE
            span = spans[at]
            spans[at] = (min(first, span[0]), max(last, span[1])) if span else (first, last)
    return spans
