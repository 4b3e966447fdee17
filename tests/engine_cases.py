"""How each engine of the registries is loaded for the contract that all of them pass; one that is missing here fails."""

from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

from pipeline.domain.speech import SAMPLE_RATE

SAMPLES = Path(__file__).resolve().parents[1] / "serve_app" / "demo" / "samples" / "01_help_line"


@cache
def speech(name: str = "1998-15444-0005") -> np.ndarray:
    """Real read English (LibriSpeech) of one voice, float32 at 16 kHz: 8.3 s unless another is named."""
    samples, rate = soundfile.read(SAMPLES / f"{name}.flac", dtype="float32")
    found = resample_poly(samples, SAMPLE_RATE // rate, 1).astype(np.float32)
    found.setflags(write=False)
    return found
