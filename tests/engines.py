"""The real engines with the synthetic checkpoints, loaded once for the run."""

from typing import Any

import pytest

from tests import fixture_checkpoints


@pytest.fixture(scope="session")
def transcriber() -> Any:
    from pipeline.asr import AsrOptions, load

    return load(AsrOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu", cpu_threads=1))


@pytest.fixture(scope="session")
def diarizer() -> Any:
    from pipeline.diarization import DiarizationOptions, load

    return load(DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION), device="cpu"))
