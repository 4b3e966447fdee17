"""A recognition engine that some recordings kill, as a fault in a native library would: no exception, no process."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.asr.engine import AsrOptions
from pipeline.domain.speech import Chunk, ChunkText

LOUD = 0.9  # a sample beyond it kills the process
ONCE = "SWITCHBOARD_TEST_DIES_ONCE"  # a folder: the first pass with fallback kills the process and leaves a file there


class Deadly:
    """Recognises nothing, in batches of 4, half a second each."""

    Options = AsrOptions
    name, max_chunk_seconds, packing, batch_size, batches_at_once = "deadly", 30.0, False, 4, 1

    def __init__(self, _options: Any, _store: Path | None = None) -> None: ...

    def transcribe(
        self,
        samples: Sequence[Any],
        chunks: Sequence[Chunk],
        vocabularies: Sequence[Sequence[str]] = (),
        with_fallback: bool = False,
    ) -> list[ChunkText]:
        time.sleep(0.1)
        if any(abs(sound).max(initial=0.0) > LOUD for sound in samples) or (with_fallback and _first_time()):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.4)
        return [ChunkText(chunk, "en", 1.0, (), 0.0, 0.0, with_fallback=with_fallback) for chunk in chunks]


def _first_time() -> bool:
    folder = os.environ.get(ONCE)
    if folder is None:
        return False
    mark = Path(folder) / f"died {os.getpid()}"
    if any(Path(folder).iterdir()):
        return False
    mark.touch()
    return True
