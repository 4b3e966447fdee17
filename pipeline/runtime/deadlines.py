"""Deadlines of stages by the length of the audio.

Far beyond what any call needs, queueing included: a deadline ends work that hangs, and work on hostile audio.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pipeline.domain.stage import Stage
from pipeline.errors import TimedOut
from pipeline.observability.tracing import observed

ENGINE_STAGES = frozenset({Stage.RECOGNITION, Stage.DIARIZATION, Stage.RECLUSTERING, Stage.VOICES, Stage.VOICEPRINT})


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """The time after which a stage is stopped, its work is canceled, and the call is retried."""

    seconds: float = 300.0  # of a stage on the CPU, for any length of audio,
    per_audio_second: float = 2.0  # plus these per second of audio
    engine_seconds: float = 1800.0  # of a stage with an engine, which may have to start first,
    engine_per_audio_second: float = 10.0  # plus these per second of audio

    def of(self, stage: Stage, audio_seconds: float) -> float:
        if stage in ENGINE_STAGES:
            return self.engine_seconds + self.engine_per_audio_second * audio_seconds
        return self.seconds + self.per_audio_second * audio_seconds


@asynccontextmanager
async def deadline(stage: Stage, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds`, and observe it as a step of the stage. Raises `TimedOut`."""
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
