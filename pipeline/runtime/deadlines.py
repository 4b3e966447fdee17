"""How long a stage may take from start to finish, by the length of the audio.

Far beyond what any call needs, queueing included: a deadline ends work that hangs, and work on hostile audio.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pipeline.domain.stage import Stage
from pipeline.errors import TimedOut
from pipeline.observability.spans import observed

ENGINE_STAGES = frozenset({Stage.RECOGNITION, Stage.DIARIZATION, Stage.RECLUSTERING, Stage.VOICES, Stage.VOICEPRINT})


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """After which time a stage is stopped, its work is canceled, and the call is tried again."""

    seconds: float = 300.0  # for a stage that runs on the CPU, whatever the length of the audio,
    per_audio_second: float = 2.0  # plus so many for each second of audio
    engine_seconds: float = 1800.0  # for a stage that uses an engine, which may have to start first,
    engine_per_audio_second: float = 10.0  # plus so many for each second of audio

    def of(self, stage: Stage, audio_seconds: float) -> float:
        """Seconds that `stage` may take for a call of `audio_seconds`."""
        if stage in ENGINE_STAGES:
            return self.engine_seconds + self.engine_per_audio_second * audio_seconds
        return self.seconds + self.per_audio_second * audio_seconds


@asynccontextmanager
async def deadline(stage: Stage, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds`. Raises `TimedOut` then. The block is a step that operators see."""
    timer = asyncio.timeout(seconds)
    try:
        with observed(stage.display_name):
            async with timer:
                yield
    except TimeoutError:
        if not timer.expired():
            raise
        raise TimedOut(
            f"The {stage.display_name} stage took longer than {seconds:.0f} s, far longer than the audio explains."
        ).with_facts(stage=stage, seconds=seconds) from None
