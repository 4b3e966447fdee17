from pathlib import Path

import numpy as np
import pytest

from pipeline.domain.speech import Voiceprint
from pipeline.speakers.voiceprint import match
from pipeline.voice.calibrate import CannotCalibrate, as_toml, calibrate
from pipeline.voice.calibration import calibration_of


def people(count: int, spread: float, seed: int, recordings: int = 3) -> dict[str, list[Voiceprint]]:
    """Return voices in random directions of 32 dimensions, each recorded several times."""
    rng = np.random.default_rng(seed)
    voiceprints = {}
    for number in range(count):
        voice = rng.normal(0, 1, 32)
        vectors = [voice / np.linalg.norm(voice) + rng.normal(0, spread, 32) for _ in range(recordings)]
        voiceprints[f"p{number}"] = [
            Voiceprint(tuple((vector / np.linalg.norm(vector)).tolist()), "mine", 10.0, 0.9) for vector in vectors
        ]
    return voiceprints


def test_people_are_named_and_strangers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(as_toml(calibrate(people(20, 0.04, seed=0))))
    calibration = calibration_of("mine", path)
    assert calibration is not None
    assert "20 speakers, 60 recordings" in calibration.basis
    others = people(12, 0.04, seed=1)
    enrolled = {name: prints[:2] for name, prints in others.items()}
    for name, prints in others.items():
        matched = match(prints[2], enrolled, calibration)
        assert matched is not None
        assert matched.name == name
        assert (
            match(prints[2], {other: prints for other, prints in enrolled.items() if other != name}, calibration)
            is None
        )


def test_too_few_people_are_refused() -> None:
    with pytest.raises(CannotCalibrate, match="9 speakers"):
        calibrate(people(9, 0.04, seed=0) | {"once": people(1, 0.04, seed=2)["p0"][:1]})


def test_an_embedder_that_does_not_separate_voices_is_refused() -> None:
    with pytest.raises(CannotCalibrate, match="cannot separate them"):
        calibrate(people(20, 0.5, seed=0))
