"""How each engine of the registries is loaded for the contract that all of them pass; one without a case fails."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from pipeline import asr
from pipeline.asr import alignment
from pipeline.asr.alignment import AlignmentOptions
from pipeline.domain.speech import REP, SAMPLE_RATE
from tests import fixture_checkpoints
from tests.transcription_server import MODEL

UTTERANCES = Path(__file__).parent / "fixtures" / "utterances"


@cache
def speech(name: str = "1998-15444-0005") -> np.ndarray:
    """Real read English (LibriSpeech) of one voice, float32 at 16 kHz: 8.3 s unless another is named."""
    samples, rate = soundfile.read(UTTERANCES / f"{name}.flac", dtype="float32")
    resampled = resample_poly(samples, SAMPLE_RATE // rate, 1).astype(np.float32)
    resampled.setflags(write=False)
    return resampled


def load_recognizer(name: str, request: pytest.FixtureRequest) -> Any:
    """Load a recognition engine that knows what is said in `speech()`."""
    if name == "faster-whisper":
        return request.getfixturevalue("tiny")
    if name == "openai":
        server = request.getfixturevalue("transcription_server")
        server.reset()
        server.word_times = False
        options = asr.AsrOptions(engine=name, base_url=server.base_url, model=MODEL)  # type: ignore[call-arg]
        return asr.load(options, None, AlignmentOptions(model="tiny.en"))
    if name == "onnx":
        return asr.load(asr.AsrOptions(engine=name, model=str(fixture_checkpoints.CTC), device="cpu", cpu_threads=1))  # type: ignore[call-arg]
    raise AssertionError(f"tests/engine_cases.py has no case for the recognition engine {name!r}")


def load_aligner(name: str, request: pytest.FixtureRequest) -> Any:
    """Load an aligner that knows English."""
    if name == "whisper":
        request.getfixturevalue("tiny")  # skips where there are no weights
        return alignment.load(AlignmentOptions(model="tiny.en"))
    if name == "ctc":
        model = str(fixture_checkpoints.CTC)
        return alignment.load(AlignmentOptions(engine=name, model=model, device="cpu"))
    raise AssertionError(f"tests/engine_cases.py has no case for the aligner {name!r}")


def load_diarizer(name: str, request: pytest.FixtureRequest) -> Any:
    """Load a diarization engine."""
    if name == "pyannote":
        return request.getfixturevalue("diarizer")
    if name == "clustering":
        return request.getfixturevalue("clustering")
    raise AssertionError(f"tests/engine_cases.py has no case for the diarization engine {name!r}")


VOICES = {"A": ("1998-15444-0005", "1998-15444-0001"), "B": ("1688-142285-0005", "1688-142285-0007")}
"""Utterances of two real voices (LibriSpeech)."""


def two_voices(engine: Any, sample_call: Any) -> np.ndarray:
    """Return a mixed call of two voices that the weights of a diarization engine know how to separate."""
    if engine.checkpoint.synthetic:
        return np.asarray(
            sample_call("03").samples[0, : 17 * SAMPLE_RATE]
        )  # synthetic voices, as the fixture's weights
    return talk(VOICES["A"][0], VOICES["B"][0], VOICES["A"][1])


def one_voice(engine: Any, sample_call: Any) -> np.ndarray:
    """Return a recording of one voice, likewise."""
    if engine.checkpoint.synthetic:
        call = sample_call("01")
        spoken = np.concatenate([call.cut(REP, span.start, span.end) for span in call.speech("rep")])
        return spoken[: 12 * SAMPLE_RATE]
    return talk(*VOICES["A"])


def talk(*names: str) -> np.ndarray:
    """Return utterances one after another, with a pause of 0.6 s around each."""
    pause = np.zeros(round(0.6 * SAMPLE_RATE), np.float32)
    return np.concatenate([pause, *(part for name in names for part in (speech(name), pause))])
