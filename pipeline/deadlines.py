"""How long a stage may take from start to finish, by the length of the audio.

Far beyond what any call needs, waiting for a turn included: a deadline ends what hangs, and what hostile audio keeps
busy.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import TimedOut

ENGINE_STAGES = frozenset({"asr", "diarization", "voices", "voiceprint"})


class DeadlineOptions(BaseModel):
    """After which a stage is stopped, its work is cancelled, and the call is tried again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(300.0, gt=0, description="For a stage on the processor, whatever the audio's length.")
    per_audio_second: float = Field(2.0, ge=0, description="And so many seconds for each second of audio.")
    engine_seconds: float = Field(
        1800.0, gt=0, description="For a stage that asks an engine, which may have to be started first."
    )
    engine_per_audio_second: float = Field(10.0, ge=0, description="And so many seconds for each second of audio.")

    def of(self, stage: str, audio_seconds: float) -> float:
        """Seconds that `stage` may take for a call of `audio_seconds`."""
        if stage in ENGINE_STAGES:
            return self.engine_seconds + self.engine_per_audio_second * audio_seconds
        return self.seconds + self.per_audio_second * audio_seconds


@asynccontextmanager
async def deadline(stage: str, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds`. Raises `TimedOut` then."""
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            yield
    except TimeoutError:
        if not timer.expired():
            raise
        raise TimedOut(
            f"The stage {stage} took longer than {seconds:.0f} s, which is far more than the audio's length explains."
        ).with_facts(stage=stage, seconds=seconds) from None
