"""Checkpoints are read as weights and not as the programs that pickles may be.

pyannote loads its files with `weights_only=False`; PyTorch has a variable of the environment that overrules that.
"""

import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import CheckpointDamaged

VARIABLE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextmanager
def weights_only(name: str, trusted: bool) -> Iterator[None]:
    """What is loaded within holds weights, and what pyannote writes of their training; `trusted`: anything.

    `name` is the checkpoint's, for people. Raises `CheckpointDamaged` for a file that wants more.
    """
    if trusted:
        yield
        return
    from pyannote.audio.core.task import Problem, Resolution, Specifications
    from torch.serialization import safe_globals
    from torch.torch_version import TorchVersion

    try:
        with safe_globals([Problem, Resolution, Specifications, TorchVersion]), _set(VARIABLE, "1"):
            yield
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        raise CheckpointDamaged(
            f"The checkpoint {name!r} holds more than weights{f' ({wanted[1]})' if wanted else ''}: reading it could "
            "run code of its author. If you trust them, set SWITCHBOARD_DIARIZATION__TRUST_CHECKPOINT=true."
        ) from error


@contextmanager
def _set(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before
