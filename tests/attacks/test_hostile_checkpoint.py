"""A checkpoint is weights: one that is a program is not run."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.checkpoints.manifest import CHECKSUMS
from pipeline.diarization import DiarizationOptions, load
from pipeline.errors import CheckpointDamaged
from tests.fixture_checkpoints import DIARIZATION


class Program:
    """Makes a folder when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self._proof), 0o700, True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Return a pipeline whose segmentation network creates `tmp_path / "proof"`."""
    folder = Path(shutil.copytree(DIARIZATION, tmp_path / "pipeline"))
    (folder / CHECKSUMS).unlink()
    weights = folder / "segmentation" / "pytorch_model.bin"
    content = torch.load(weights, weights_only=False)
    torch.save({**content, "more": Program(tmp_path / "proof")}, weights)
    return folder


@pytest.mark.slow
def test_a_checkpoint_that_is_a_program_is_refused_and_not_run(pipeline: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointDamaged, match=r"os\.makedirs.*TRUST_CHECKPOINT=true"):
        load(DiarizationOptions(pipeline=str(pipeline)))
    assert not (tmp_path / "proof").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


@pytest.mark.slow
def test_it_is_run_where_it_is_trusted(pipeline: Path, tmp_path: Path) -> None:
    load(DiarizationOptions(pipeline=str(pipeline), trust_checkpoint=True))
    assert (tmp_path / "proof").exists()
