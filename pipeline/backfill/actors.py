"""Actors of a backfill: production's engines, loaded once per actor, with the stages around them in threads.

The recordings of a block run in parallel, so that they share batches as calls of the service do. If an actor dies, Ray
starts another, which processes the recordings of that block one by one: a recording that kills it twice alone becomes a
row with an error, and the rest continues.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
from pydantic import TypeAdapter

from pipeline import errors, scratch
from pipeline.asr.alignment.engine import AlignmentOptions
from pipeline.asr.engine import AsrOptions
from pipeline.backfill.output import COMPLETED, FAILED, Output
from pipeline.backfill.source import Source, SourceFile
from pipeline.diarization.engine import DiarizationOptions
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Roster
from pipeline.domain.speech import Chunk, ChunkText, Diarization, Recording, Span, Speaker, Turn, Voiceprint
from pipeline.domain.stage import Stage
from pipeline.journal import MemoryJournal
from pipeline.net.endpoint import REVEAL
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, process
from pipeline.runtime.actors import TranscriberReplica
from pipeline.runtime.diarizer import DiarizerReplica
from pipeline.runtime.workers import LocalWorkers, Recognition, RemoteRef, Workers

log = logging.getLogger(__name__)

UNKNOWN_NUMBER = "anonymous"
_TURNS, _SPEAKERS = TypeAdapter(tuple[Turn, ...]), TypeAdapter(tuple[Speaker, ...])
_FINDINGS = TypeAdapter(tuple[Finding, ...])


async def row_of(
    file: SourceFile, source: Source, workers: Workers, options: ProcessOptions, roster: Roster
) -> dict[str, Any]:
    """Process a recording and return its row, of `SCHEMA`; a failure is a row with an error, never an exception."""
    began = time.monotonic()
    row: dict[str, Any] = {"path": file.path, "bytes": file.size, "modified": file.modified, "warnings": []}
    try:
        with TemporaryDirectory(dir=scratch.local_folder(), ignore_cleanup_errors=True) as folder:
            recording = await _copy(file, source, Path(folder), options)
            row |= {"sha256": recording.sha256, "bytes": recording.size_bytes}
            outcome = await _process(file, recording, workers, options, roster)
        row |= _columns(outcome)
    except Exception as error:
        if not isinstance(error, errors.CallError):
            log.exception("recording %s failed", file.path)
        row |= failure(error)
    return row | {"seconds": time.monotonic() - began, "done_at": datetime.now(UTC)}


def failure(error: Exception) -> dict[str, Any]:
    """Return the columns of a recording that failed."""
    call_error = error if isinstance(error, errors.CallError) else errors.CallError(errors.public_message(error))
    return {"status": FAILED, "code": call_error.code, "error": call_error.message, "retryable": call_error.retryable}


async def _copy(file: SourceFile, source: Source, folder: Path, options: ProcessOptions) -> Recording:
    """Copy the recording within the time limit; a reader that hangs blocks only its thread."""
    limits = options.fetch
    try:
        async with asyncio.timeout(limits.max_seconds):
            return await asyncio.to_thread(source.copy, file, folder, limits.max_bytes)
    except TimeoutError:
        raise errors.RecordingUnreachable(f"Reading the recording took longer than {limits.max_seconds:g} s.") from None


async def _process(
    file: SourceFile, recording: Recording, workers: Workers, options: ProcessOptions, roster: Roster
) -> Outcome:
    started = file.modified or datetime.now(UTC)
    call = Call(uuid5(NAMESPACE_URL, recording.sha256), UNKNOWN_NUMBER, UNKNOWN_NUMBER, started)
    journal = MemoryJournal({Stage.FETCH: (recording,)})
    return await process(call, workers, roster, journal, options=options)


def _columns(outcome: Outcome) -> dict[str, Any]:
    transcript = outcome.transcript
    return {
        "status": COMPLETED,
        "duration": transcript.duration,
        "layout": transcript.layout.kind.value,
        "language": transcript.language,
        "text": "\n".join(turn.text for turn in transcript.turns),
        "turns": _TURNS.dump_json(transcript.turns).decode(),
        "speakers": _SPEAKERS.dump_json(transcript.speakers).decode(),
        "findings": _FINDINGS.dump_json(outcome.findings).decode(),
        "warnings": list(outcome.warnings),
        "engine": transcript.engine,
    }


T = TypeVar("T")
NICE = 10  # live calls on the same machine go first
AT_ONCE = 8  # recordings of a block in parallel
UNREADABLE = (errors.RecordingUnreachable.code, errors.RecordingGone.code)
PAUSE_SECONDS = 5.0  # before a recording is read once more
DEATHS_ALONE = 2  # of an actor with one recording, until the recording counts as the cause
SUMMARY = ("path", "status", "code", "duration", "seconds")  # columns for the driver; the rest is in the part


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """Configuration of an actor. `source`, `output`: fsspec folders that every node can access."""

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
    """Workers in this process, behind the queues of production's replicas: recordings share batches."""

    def __init__(self, transcriber: TranscriberReplica, diarizer: DiarizerReplica) -> None:
        super().__init__(None, None)
        self._transcriber, self._diarizer = transcriber, diarizer

    async def recognition(self) -> Recognition:
        return await self._transcriber.recognition()

    async def transcribe(
        self, audio: RemoteRef, chunks: Sequence[Chunk], vocabulary: Sequence[str] = (), with_fallback: bool = False
    ) -> list[ChunkText]:
        return await self._transcriber.transcribe([_LocalSound(audio)], chunks, tuple(vocabulary), with_fallback)

    async def diarize(self, audio: RemoteRef) -> Diarization:
        return await self._diarizer.diarize([_LocalSound(audio)])

    async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> Voiceprint | None:
        return await self._diarizer.voiceprint([_LocalSound(audio)], channel, speech)

    async def voices(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> list[Voiceprint | None]:
        return await self._diarizer.voices([_LocalSound(audio)], channel, speech)


class _LocalSound:
    """Awaitable for sound in this process; elsewhere a replica awaits a reference into Ray's object store."""

    def __init__(self, sound: RemoteRef) -> None:
        self._sound = sound

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self._sound.inside


class Backfiller:
    """Processes blocks of recordings, writes a part for each, and returns the columns of `SUMMARY`.

    Raises `StorageError` for a part or source that fails, `CheckpointMissing` without a model: both end the run.
    """

    def __init__(self, job: BackfillJob) -> None:
        with contextlib.suppress(OSError):
            os.nice(NICE)
        logging.getLogger("pipeline").setLevel(logging.ERROR)
        self._job = job
        self._source, self._output = Source(job.source), Output(job.output)
        self._options = job.process.model_copy(update={"scratch": scratch.temporary_root().as_uri()})
        store = str(job.store) if job.store else None
        self._loop = asyncio.new_event_loop()
        self._replicas: tuple[TranscriberReplica, DiarizerReplica] = self._wait_for(self._load(store))
        self._workers = ReplicaWorkers(*self._replicas)

    async def _load(self, store: str | None) -> tuple[TranscriberReplica, DiarizerReplica]:
        job = self._job
        return (
            TranscriberReplica(
                job.asr.model_dump(mode="json", context={REVEAL: True}), store, job.alignment.model_dump(mode="json")
            ),
            DiarizerReplica(job.diarization.model_dump(mode="json"), store),
        )

    def __call__(self, block: pa.Table) -> pa.Table:
        for replica in self._replicas:
            if problem := self._wait_for(replica.problem()):
                raise errors.CheckpointMissing(problem)
        name = block["block"][0].as_py()
        part = self._output.part(name)  # an actor died after writing its part
        if part is None:
            part = self._process(
                name, [SourceFile(row["path"], row["size"], row["modified"]) for row in block.to_pylist()]
            )
        for replica in self._replicas:
            self._wait_for(replica.check_health())  # frees memory
        return part.select(SUMMARY)

    def _process(self, name: str, block: Sequence[SourceFile]) -> pa.Table:
        run = self._job.run
        note = self._output.started(name, run)
        if note is None:
            self._output.note_started(name, run, None, {})
            return self._output.write(name, self._read_with_retry(name, block), run)
        deaths = dict(note["deaths"])
        if alone := note["alone"]:
            deaths[alone] = deaths.get(alone, 0) + 1
        return pa.concat_tables(
            [self._process_alone(f"{name}-{at:04}", name, recording, deaths) for at, recording in enumerate(block)]
        )

    def _process_alone(self, part: str, block: str, recording: SourceFile, deaths: dict[str, int]) -> pa.Table:
        """Process one recording alone, in its own part, so that the next death affects no other."""
        if (written := self._output.part(part)) is not None:
            return written
        self._output.note_started(block, self._job.run, recording.path, deaths)
        if deaths.get(recording.path, 0) < DEATHS_ALONE:
            (row,) = self._read_with_retry(part, [recording])
        else:
            error = errors.WorkerLost(f"The process of the engines died {DEATHS_ALONE} times on this recording alone.")
            row = {
                "path": recording.path,
                "bytes": recording.size,
                "modified": recording.modified,
                "warnings": [],
            } | failure(error)
        return self._output.write(part, [row], self._job.run)

    def _read_with_retry(self, part: str, block: Sequence[SourceFile]) -> list[dict[str, Any]]:
        """Return the rows; retry unreadable recordings once, since an object store may be busy.

        Raises `StorageError` as `_check_source` does.
        """
        rows = self._check_source(part, self._wait_for(self._rows(block)))
        busy = [
            file for file, row in zip(block, rows, strict=True) if row.get("code") == errors.RecordingUnreachable.code
        ]
        if not busy:
            return rows
        time.sleep(PAUSE_SECONDS)
        second_rows = {row["path"]: row for row in self._wait_for(self._rows(busy))}
        return self._check_source(part, [second_rows.get(row["path"], row) for row in rows])

    def _check_source(self, part: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows, unless the whole source is unavailable: then unreadable recordings are not to blame.

        Raises `StorageError` in that case, which ends the run; finished rows are written.
        """
        read_rows = [row for row in rows if row.get("code") not in UNREADABLE]
        if len(read_rows) < len(rows):
            try:
                self._source.check()
            except errors.StorageError:
                if read_rows:
                    self._output.write(part, read_rows, self._job.run)
                raise
        return rows

    async def _rows(self, block: Sequence[SourceFile]) -> list[dict[str, Any]]:
        semaphore = asyncio.Semaphore(AT_ONCE)

        async def process_recording(recording: SourceFile) -> dict[str, Any]:
            async with semaphore:
                return await row_of(recording, self._source, self._workers, self._options, self._job.roster)

        return list(await asyncio.gather(*map(process_recording, block)))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)
