"""The actors of a backfill: production's engines, loaded once in each, and the stages around them in threads.

A block is done side by side, so that its recordings share batches as calls of the service do. Where an actor dies of
one, Ray starts another, which does the recordings of that block one by one: what kills it twice alone is a row with an
error, and the rest goes on.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.asr.alignment.engine import AlignmentOptions
from pipeline.asr.engine import AsrOptions
from pipeline.backfill.output import Output
from pipeline.backfill.rows import failure, row_of
from pipeline.backfill.source import Source, SourceFile
from pipeline.diarization.engine import DiarizationOptions
from pipeline.domain.insight import Roster
from pipeline.domain.speech import Chunk, ChunkText, Diarization, Span, Voiceprint
from pipeline.errors import CheckpointMissing, RecordingGone, RecordingUnreachable, StorageError, WorkerLost
from pipeline.net.endpoint import REVEAL
from pipeline.options import ProcessOptions
from pipeline.runtime.actors import TranscriberReplica
from pipeline.runtime.diarizer import DiarizerReplica
from pipeline.runtime.workers import LocalWorkers, Recognition, RemoteRef

T = TypeVar("T")
NICE = 10  # live calls on the same machine go first
AT_ONCE = 8  # recordings of a block that are worked on side by side
UNREAD = (RecordingUnreachable.code, RecordingGone.code)
PAUSE_SECONDS = 5.0  # before a recording is read once more
DEATHS_ALONE = 2  # of an actor with one recording, after which the recording is to blame
SUMMARY = ("path", "state", "code", "duration", "seconds")  # what the driver is told; the rest is in the part


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """What an actor needs to know. `source`, `output`: fsspec folders that every node sees."""

    source: str
    output: str
    run: str
    asr: AsrOptions
    diarization: DiarizationOptions
    process: ProcessOptions
    roster: Roster
    alignment: AlignmentOptions = field(default_factory=AlignmentOptions)
    store: Path | None = None  # the folder of the checkpoint store; None: the user's


class ReplicaWorkers(LocalWorkers):
    """Everything in this process, behind the queues of production's replicas: recordings share batches."""

    def __init__(self, transcriber: TranscriberReplica, diarizer: DiarizerReplica) -> None:
        super().__init__(None, None)
        self._transcriber, self._diarizer = transcriber, diarizer

    async def recognition(self) -> Recognition:
        return await self._transcriber.recognition()

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        return await self._transcriber.transcribe([_Here(audio)], chunks, tuple(vocabulary), with_fallback)

    async def diarize(self, audio: RemoteRef) -> Diarization:
        return await self._diarizer.diarize([_Here(audio)])

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._diarizer.voiceprint([_Here(audio)], channel, speech)

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        return await self._diarizer.voices([_Here(audio)], channel, speech)


class _Here:
    """What a replica awaits to get at sound, which elsewhere is a reference into Ray's object store."""

    def __init__(self, held: RemoteRef) -> None:
        self._held = held

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self._held.inside


class Backfiller:
    """Takes blocks of recordings, writes a part for each, and answers with the columns of `SUMMARY`.

    Raises `StorageError` where a part cannot be written or the source gives nothing, and `CheckpointMissing` without a
    model: both end the run.
    """

    def __init__(self, job: BackfillJob) -> None:
        with contextlib.suppress(OSError):
            os.nice(NICE)
        logging.getLogger("pipeline").setLevel(logging.ERROR)
        self._job = job
        self._source, self._output = Source(job.source), Output(job.output)
        self._scratch = TemporaryDirectory(prefix="switchboard-backfill-", ignore_cleanup_errors=True)
        self._options = job.process.model_copy(update={"scratch": Path(self._scratch.name).as_uri()})
        store = str(job.store) if job.store else None
        self._loop = asyncio.new_event_loop()
        self._replicas: tuple[TranscriberReplica, DiarizerReplica] = self._ran(self._loaded(store))
        self._workers = ReplicaWorkers(*self._replicas)

    async def _loaded(self, store: str | None) -> tuple[TranscriberReplica, DiarizerReplica]:
        job = self._job
        return (
            TranscriberReplica(
                job.asr.model_dump(mode="json", context={REVEAL: True}), store, job.alignment.model_dump(mode="json")
            ),
            DiarizerReplica(job.diarization.model_dump(mode="json"), store),
        )

    def __call__(self, block: pa.Table) -> pa.Table:
        for replica in self._replicas:
            if problem := self._ran(replica.problem()):
                raise CheckpointMissing(problem)
        name = block["block"][0].as_py()
        there = self._output.part(name)  # an actor died between its part and its answer
        if there is None:
            there = self._done(
                name, [SourceFile(row["path"], row["size"], row["modified"]) for row in block.to_pylist()]
            )
        for replica in self._replicas:
            self._ran(replica.check_health())  # gives memory back
        return there.select(SUMMARY)

    def _done(self, name: str, block: Sequence[SourceFile]) -> pa.Table:
        run = self._job.run
        noted = self._output.started(name, run)
        if noted is None:
            self._output.note_started(name, run, None, {})
            return self._output.write(name, self._read(name, block), run)
        deaths = dict(noted["deaths"])
        if alone := noted["alone"]:
            deaths[alone] = deaths.get(alone, 0) + 1
        return pa.concat_tables([self._alone(f"{name}-{at:04}", name, one, deaths) for at, one in enumerate(block)])

    def _alone(self, part: str, block: str, one: SourceFile, deaths: dict[str, int]) -> pa.Table:
        """One recording with nothing else running, in a part of its own: so the next death loses nothing more."""
        if (there := self._output.part(part)) is not None:
            return there
        self._output.note_started(block, self._job.run, one.path, deaths)
        if deaths.get(one.path, 0) < DEATHS_ALONE:
            (row,) = self._read(part, [one])
        else:
            lost = WorkerLost(f"The process of the engines died {DEATHS_ALONE} times on this recording alone.")
            row = {"path": one.path, "bytes": one.size, "modified": one.modified, "warnings": []} | failure(lost)
        return self._output.write(part, [row], self._job.run)

    def _read(self, part: str, block: Sequence[SourceFile]) -> list[dict[str, Any]]:
        """The rows. What cannot be read while the source answers is read once more: an object store may be busy.

        Raises `StorageError` as `_reached` does.
        """
        rows = self._reached(part, self._ran(self._rows(block)))
        busy = [one for one, row in zip(block, rows, strict=True) if row.get("code") == RecordingUnreachable.code]
        if not busy:
            return rows
        time.sleep(PAUSE_SECONDS)
        again = {row["path"]: row for row in self._ran(self._rows(busy))}
        return self._reached(part, [again.get(row["path"], row) for row in rows])

    def _reached(self, part: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows, unless the whole source is out of reach: then recordings that could not be read are not to blame.

        Raises `StorageError` in that case, which ends the run; what was done is written, the rest is left to the next.
        """
        read = [row for row in rows if row.get("code") not in UNREAD]
        if len(read) < len(rows):
            try:
                self._source.check()
            except StorageError:
                if read:
                    self._output.write(part, read, self._job.run)
                raise
        return rows

    async def _rows(self, block: Sequence[SourceFile]) -> list[dict[str, Any]]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(found: SourceFile) -> dict[str, Any]:
            async with room:
                return await row_of(found, self._source, self._workers, self._options, self._job.roster)

        return list(await asyncio.gather(*map(one, block)))

    def _ran(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)
