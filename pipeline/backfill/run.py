"""Driver of a backfill: splits unfinished recordings into blocks for a pool of actors. Initialize Ray before."""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import ray
import ray.data

from pipeline.backfill.actors import Backfiller, BackfillJob
from pipeline.backfill.output import FAILED, HEARTBEAT_SECONDS, Output
from pipeline.backfill.source import Source, SourceFile, in_blocks
from pipeline.errors import CallError, StorageError

BLOCK = 16  # recordings in a block: the loss per actor that is killed
BLOCK_BYTES = 64 << 20
_CALL_ERROR = re.compile(r"^(pipeline\.[\w.]+)\.(\w+): (.+)$", re.MULTILINE)  # in a traceback
RECORDING = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("us", "UTC"))])


@dataclass(frozen=True, slots=True)
class Hardware:
    """Number of actors, and what Ray reserves for each. `resource`: a custom resource of nodes."""

    actors: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    resource: str | None = None


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Progress of a run. `done` counts this run's recordings, `before` earlier ones; `audio` is in seconds."""

    total: int
    before: int
    done: int = 0
    failed: int = 0
    audio: float = 0.0
    seconds: float = 0.0  # since the actors were requested

    @property
    def remaining(self) -> int:
        return self.total - self.before - self.done


def backfill(
    job: BackfillJob,
    hardware: Hardware | None = None,
    pattern: str | None = None,
    retry_failed: bool = False,
    limit: int | None = None,
    on_progress: Callable[[BackfillProgress], None] = lambda _: None,
) -> BackfillProgress:
    """Process every recording of `job.source` without a row in `job.output`.

    `retry_failed`: also those whose row is an error. `limit`: max. recordings in this run. `job.run` is overwritten.
    Raises `StorageError` (a folder is unusable, or owned by another run), `CheckpointMissing`; finished rows remain.
    """
    output = Output(job.output)
    files = list(Source(job.source).recordings(pattern))
    run = output.acquire(_manifest(job))
    try:
        with _heartbeat(output, run):
            return _run(replace(job, run=run), output, files, hardware or Hardware(), retry_failed, limit, on_progress)
    finally:
        with suppress(StorageError):  # a dead owner does not block later runs
            output.release(run)


def _run(
    job: BackfillJob,
    output: Output,
    files: Sequence[SourceFile],
    hardware: Hardware,
    retry_failed: bool,
    limit: int | None,
    on_progress: Callable[[BackfillProgress], None],
) -> BackfillProgress:
    done = output.done()
    if retry_failed:
        output.remove_rows(done.failed)
    finished = done.paths - done.failed.keys() if retry_failed else done.paths
    todo = [file for file in files if file.path not in finished]
    progress = BackfillProgress(len(files), len(files) - len(todo))
    on_progress(progress)
    began = time.monotonic()
    for summary in _summaries(job, hardware, todo[:limit]):
        progress = replace(
            progress,
            done=progress.done + 1,
            failed=progress.failed + (summary["status"] == FAILED),
            audio=progress.audio + (summary["duration"] or 0.0),
            seconds=time.monotonic() - began,
        )
        on_progress(progress)
    output.remove_started()
    return progress


def _summaries(job: BackfillJob, hardware: Hardware, todo: Sequence[SourceFile]) -> Iterator[dict[str, Any]]:
    """Yield the summary of each recording as blocks are finished."""
    tables = [
        _table(f"part-{job.run[:8]}-{at:06}", block) for at, block in enumerate(in_blocks(todo, BLOCK, BLOCK_BYTES))
    ]
    if not tables:
        return
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised, without Ray's advice
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    results = ray.data.from_arrow(tables).map_batches(
        Backfiller,
        fn_constructor_args=(job,),
        batch_size=None,  # each table is a Ray block and a part
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=min(hardware.actors, len(tables))),
        num_cpus=hardware.cpus,
        num_gpus=hardware.gpus,
        **({"resources": {hardware.resource: 1}} if hardware.resource else {}),
    )
    try:
        for batch in results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except ray.exceptions.RayError as error:
        raise _cause(error) from error


def _table(name: str, block: Sequence[SourceFile]) -> pa.Table:
    rows = [{"path": file.path, "size": file.size, "modified": file.modified} for file in block]
    return pa.Table.from_pylist(rows, RECORDING).append_column("block", pa.array([name] * len(rows)))


def _cause(error: BaseException) -> CallError:
    """Return the `CallError` that an actor raised, without Ray's wrappers.

    On its way from the actor an exception loses its causes; their text remains in Ray's traceback.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CallError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    for module, name, message in reversed(_CALL_ERROR.findall(str(error))):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, CallError):
            return kind(message)
    lines = str(error).strip().splitlines()
    return CallError(f"Ray ended the run: {lines[-1] if lines else type(error).__name__}")


def _manifest(job: BackfillJob) -> dict[str, Any]:
    """Return what must stay the same for an output folder, so that it does not mix rows of different models."""
    needs_aligner = getattr(job.asr.engine_class, "needs_aligner", False)  # other engines do not use it
    return {
        "source": job.source.rstrip("/"),
        "recognition": job.asr.model_dump(mode="json", exclude={"device"}),
        **({"alignment": job.alignment.model_dump(mode="json", exclude={"device"})} if needs_aligner else {}),
        "diarization": job.diarization.model_dump(mode="json", exclude={"device"}),
    }


@contextmanager
def _heartbeat(output: Output, run: str) -> Iterator[None]:
    """Renew the run's ownership while the block lasts; a failed renewal is retried."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            try:
                if output.owned_by(run):
                    output.renew(run)
            except StorageError:
                continue

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
