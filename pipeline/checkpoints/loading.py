"""What a library says of files that are no whole model, as one error."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import CallError, CheckpointDamaged

_OF_THE_DEVICE = re.compile(r"\b(?:cuda|cublas|cudnn|out of memory|allocate)", re.IGNORECASE)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Raise `CheckpointDamaged` where the files of `folder` cannot be loaded: a copy that broke off, or is under way.

    A folder with SHA256SUMS was compared before. What fails for the device's sake is raised as it is.
    """
    try:
        for path in folder.glob("*.json"):
            json.loads(path.read_bytes())  # a library may do without one that cannot be read, by guessing
        yield
    except CallError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError | ImportError) or _OF_THE_DEVICE.search(str(error)):
            raise
        raise CheckpointDamaged(
            f"The files in {folder} are no whole model ({str(error).rstrip('.') or type(error).__name__}). "
            "If they are still being copied, nothing needs to be done; otherwise copy them again."
        ) from error
