"""A calibration that is measured on labeled recordings keeps strangers out, or is refused."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.domain.speech import Voiceprint
from pipeline.speakers.voiceprint import match
from pipeline.voice.calibrate import CannotCalibrate, as_toml, calibrate
from pipeline.voice.calibration import calibration_of


def people(count: int, spread: float, seed: int, recordings: int = 3) -> dict[str, list[Voiceprint]]:
    """Voices in random directions of 32 dimensions, each recorded several times."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        voice = rng.normal(0, 1, 32)
        made = [voice / np.linalg.norm(voice) + rng.normal(0, spread, 32) for _ in range(recordings)]
        found[f"p{number}"] = [
            Voiceprint(tuple((one / np.linalg.norm(one)).tolist()), "mine", 10.0, 0.9) for one in made
        ]
    return found


def test_people_are_named_and_strangers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(as_toml(calibrate(people(20, 0.04, seed=0))))
    calibration = calibration_of("mine", path)
    assert calibration is not None
    assert "20 speakers, 60 recordings" in calibration.basis
    others = people(12, 0.04, seed=1)
    known = {name: own[:2] for name, own in others.items()}
    for name, own in others.items():
        found = match(own[2], known, calibration)
        assert found is not None
        assert found.name == name
        assert match(own[2], {one: prints for one, prints in known.items() if one != name}, calibration) is None


def test_too_few_people_are_refused() -> None:
    with pytest.raises(CannotCalibrate, match="9 speakers"):
        calibrate(people(9, 0.04, seed=0) | {"once": people(1, 0.04, seed=2)["p0"][:1]})


def test_an_embedder_that_does_not_separate_voices_is_refused() -> None:
    with pytest.raises(CannotCalibrate, match="cannot separate them"):
        calibrate(people(20, 0.5, seed=0))
