"""Checkpoints are read as weights, not as the programs that pickles may be.

pyannote loads its files with `weights_only=False`; an environment variable of PyTorch overrides that.
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
    """Allow only weights and pyannote's training metadata in files loaded within; `trusted`: anything.

    `name`: of the checkpoint, for the message. Raises `CheckpointDamaged` for a file with more.
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
        refused = re.search(r"GLOBAL (\S+)", str(error))
        raise CheckpointDamaged(
            f"The checkpoint {name!r} contains more than weights{f' ({refused[1]})' if refused else ''}: "
            "reading it could run code of its author. If you trust the author, set "
            "SWITCHBOARD_DIARIZATION__TRUST_CHECKPOINT=true."
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
