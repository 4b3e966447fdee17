"""The real engines with the shipped demo checkpoints, loaded once for the run."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def transcriber() -> Any:
    from pipeline.asr import AsrOptions, load

    return load(AsrOptions(model="demo", device="cpu", cpu_threads=1))


@pytest.fixture(scope="session")
def diarizer() -> Any:
    from pipeline.diarization import DiarizationOptions, load

    return load(DiarizationOptions(pipeline="demo", device="cpu"))
