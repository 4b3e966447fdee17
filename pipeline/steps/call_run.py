"""One run of the pipeline over one call: the state that its steps share. `process.py` has their order."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.errors import CheckpointDamaged, CheckpointMissing, EngineUnavailable, WorkerLost
from pipeline.journal import Journal
from pipeline.observability.tracing import observed
from pipeline.options import ProcessOptions
from pipeline.runtime.deadlines import deadline
from pipeline.runtime.workers import Workers
from pipeline.steps.decoded_sound import DecodedSound
from pipeline.steps.recordings import CallRecordings, RecordingFetcher

T = TypeVar("T")
NO_ENGINE = (EngineUnavailable, CheckpointMissing, CheckpointDamaged, WorkerLost)
"""An engine has no model, or this call kills it: another try does not help."""


@dataclass(frozen=True, slots=True)
class RedactedFiles:
    """How recordings without the sound of personal data are stored; `key` seals them."""

    key: bytes | None = field(default=None, repr=False)


class CallRun:
    """Holds what the steps read and share, and runs each stage once over all attempts."""

    def __init__(
        self,
        call: Call,
        workers: Workers,
        roster: Roster,
        journal: Journal,
        options: ProcessOptions,
        fetcher: RecordingFetcher | None = None,
        warnings: Sequence[str] = (),
        redacted_files: RedactedFiles | None = None,
    ) -> None:
        """Without a `fetcher` the recordings have to be in the store. `warnings`: of an earlier fetch.

        `redacted_files`: None: the stored recordings stay as they are.
        """
        self.redacted_files = redacted_files
        self.call, self.workers, self.roster, self.journal, self.options = call, workers, roster, journal, options
        self.warnings = [*warnings]
        self.recordings = CallRecordings(workers, journal, fetcher, self.warnings)
        self.sound = DecodedSound(call, workers, roster, options, self.recordings)
        self.seconds = 0.0  # of the call's audio, once known

    async def stage(
        self, stage: Stage, work: Callable[[], Awaitable[T]], seconds: Callable[[], float] | None = None
    ) -> T:
        """Return the recorded result of the stage, or the result of `work` after recording it.

        The deadline follows from `seconds` of audio; left out, the call's.
        """
        recorded = await self.journal.recall(stage)
        if recorded is not NOT_RECORDED:
            return recorded  # type: ignore[no-any-return]
        if stage is Stage.FETCH:  # each recording has its own deadline
            with observed(stage.display_name):
                result = await work()
        else:
            async with self.deadline(stage, self.seconds if seconds is None else seconds()):
                result = await work()
        await self.journal.record(stage, result)
        return result

    def deadline(self, stage: Stage, seconds: float) -> AbstractAsyncContextManager[None]:
        return deadline(stage, self.options.deadlines.of(stage, seconds))

    def max_audio_seconds(self) -> float:
        """Return the maximum length of audio that the recordings can contain, by their size."""
        return sum(self.options.decode.max_sound_seconds(recording.size_bytes) for recording in self.recordings.stored)

    async def is_out_of_reach(self, stage: Stage) -> bool:
        """Return whether a stage is not recorded and cannot run, because the stored sound is gone.

        Such a call was processed before the stage existed.
        """
        if self.sound.is_requested or await self.journal.recall(stage) is not NOT_RECORDED:
            return False
        return not await self.recordings.are_in_store()
