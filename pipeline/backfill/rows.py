import asyncio
import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
from pydantic import TypeAdapter

from pipeline import scratch
from pipeline.backfill.source import Source, SourceFile
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Roster
from pipeline.domain.speech import Recording, Speaker, Turn
from pipeline.domain.stage import Stage
from pipeline.errors import CallError, RecordingUnreachable, public_message
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import Outcome, process
from pipeline.runtime.workers import Workers

log = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # relative to the source
        pa.field("status", pa.string(), nullable=False),  # completed or failed
        pa.field("sha256", pa.string()),  # of the recording; null if it could not be read
        pa.field("bytes", pa.int64()),
        pa.field("modified", pa.timestamp("us", "UTC")),  # of the file; reference date for "tomorrow"
        pa.field("duration", pa.float64()),  # seconds
        pa.field("layout", pa.string()),
        pa.field("language", pa.string()),
        pa.field("text", pa.string()),  # one line per turn
        pa.field("turns", pa.string()),  # JSON: `pipeline.domain.speech.Turn`, with words and their seconds
        pa.field("speakers", pa.string()),  # JSON: `pipeline.domain.speech.Speaker`
        pa.field("findings", pa.string()),  # JSON: `pipeline.domain.insight.Finding`
        pa.field("warnings", pa.list_(pa.string())),
        pa.field("code", pa.string()),  # of a failure, from `pipeline.errors`, with its message
        pa.field("error", pa.string()),
        pa.field("retryable", pa.bool_()),  # whether a retry may succeed
        pa.field("engine", pa.string()),  # recognition engine
        pa.field("seconds", pa.float64()),  # of processing, in parallel with others
        pa.field("done_at", pa.timestamp("us", "UTC")),
    ]
)
COMPLETED, FAILED = "completed", "failed"
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
        if not isinstance(error, CallError):
            log.exception("recording %s failed", file.path)
        row |= failure(error)
    return row | {"seconds": time.monotonic() - began, "done_at": datetime.now(UTC)}


def failure(error: Exception) -> dict[str, Any]:
    """Return the columns of a recording that failed."""
    call_error = error if isinstance(error, CallError) else CallError(public_message(error))
    return {"status": FAILED, "code": call_error.code, "error": call_error.message, "retryable": call_error.retryable}


async def _copy(file: SourceFile, source: Source, folder: Path, options: ProcessOptions) -> Recording:
    """Copy the recording within the time limit; a reader that hangs blocks only its thread."""
    limits = options.fetch
    try:
        async with asyncio.timeout(limits.max_seconds):
            return await asyncio.to_thread(source.copy, file, folder, limits.max_bytes)
    except TimeoutError:
        raise RecordingUnreachable(f"Reading the recording took longer than {limits.max_seconds:g} s.") from None


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
