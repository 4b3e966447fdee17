"""Folders of the checkpoints that fast tests and benches of speed load: small, trained on synthetic speech only.

Nothing about quality is measured on them. `bench/training/fixtures` has the scripts that made them.
"""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "fixtures" / "checkpoints"
RECOGNITION = FOLDER / "recognition"
DIARIZATION = FOLDER / "diarization"
CTC = FOLDER / "ctc"  # characters of one real utterance, `tests.engine_cases.speech()`

CALIBRATIONS = Path(__file__).resolve().parent / "fixtures" / "calibrations"
"""For models that tests invent, "m" and "other", and for the synthetic pipeline, by pieces too."""
