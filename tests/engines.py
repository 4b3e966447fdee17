"""The real engines, loaded once for the run: synthetic checkpoints, and real weights of tiny.en and CAM++."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests import fixture_checkpoints


@pytest.fixture(scope="session")
def transcriber() -> Any:
    from pipeline.asr import AsrOptions, load

    return load(AsrOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu", cpu_threads=1))


@pytest.fixture(scope="session")
def tiny() -> Any:
    from pipeline.asr import AsrOptions, load

    return load(AsrOptions(model="tiny.en", device="cpu", cpu_threads=1), store_with("whisper-tiny.en"))


@pytest.fixture(scope="session")
def diarizer() -> Any:
    from pipeline.diarization import DiarizationOptions, load

    return load(DiarizationOptions(pipeline=str(fixture_checkpoints.DIARIZATION), device="cpu"))


@pytest.fixture(scope="session")
def clustering() -> Any:
    from pipeline.diarization import DiarizationOptions, load

    return load(DiarizationOptions(engine="clustering", device="cpu"), store_with("campplus"))


def store_with(weights: str) -> Path:
    """Return the checkpoint store's folder. Skips where it lacks the weights."""
    from pipeline.checkpoints.lock import default_store, locked

    folder = Path(os.environ.get("SWITCHBOARD_CHECKPOINTS") or default_store())
    if not locked()[weights].is_in(folder):
        pytest.skip(f"{weights} is not in the checkpoint store: switchboard checkpoints fetch {weights}")
    return folder
