"""The driver of a backfill: what is not done yet, in blocks, through a pool of actors. Ray is initialized before."""

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

from pipeline.asr.engine import engine_class
from pipeline.backfill.actors import Backfiller, BackfillJob
from pipeline.backfill.output import HEARTBEAT_SECONDS, Output
from pipeline.backfill.rows import FAILED
from pipeline.backfill.source import Source, SourceFile, in_blocks
from pipeline.errors import CallError, StorageError

BLOCK = 16  # recordings in a block, which is what a kill costs for each actor
BLOCK_BYTES = 64 << 20
_OURS = re.compile(r"^(pipeline\.[\w.]+)\.(\w+): (.+)$", re.MULTILINE)  # in a traceback
RECORDING = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("us", "UTC"))])


@dataclass(frozen=True, slots=True)
class Hardware:
    """How many actors, and what Ray reserves for each. `resource`: one of a node's custom resources."""

    actors: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    resource: str | None = None


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """How far a run is. `done` counts this run's, `before` those of earlier ones; `audio` is in seconds."""

    found: int
    before: int
    done: int = 0
    failed: int = 0
    audio: float = 0.0
    seconds: float = 0.0  # since the actors were asked for

    @property
    def left(self) -> int:
        """Recordings that are still to be done."""
        return self.found - self.before - self.done


def backfill(
    job: BackfillJob,
    hardware: Hardware | None = None,
    pattern: str | None = None,
    again: bool = False,
    limit: int | None = None,
    on_progress: Callable[[BackfillProgress], None] = lambda _: None,
) -> BackfillProgress:
    """Put every recording of `job.source` that has no row in `job.output` yet through the pipeline.

    `again`: those whose row is an error, too. `limit`: at most so many recordings in this run. `job.run` is given by
    this function. Raises `StorageError` (a folder cannot be used, or is another run's), `CheckpointMissing`; what is
    done until then stays.
    """
    output = Output(job.output)
    found = list(Source(job.source).recordings(pattern))
    run = output.own(_about(job))
    try:
        with _heartbeat(output, run):
            return _run(replace(job, run=run), output, found, hardware or Hardware(), again, limit, on_progress)
    finally:
        with suppress(StorageError):  # an owner that is dead keeps nobody out
            output.leave(run)


def _run(
    job: BackfillJob,
    output: Output,
    found: Sequence[SourceFile],
    hardware: Hardware,
    again: bool,
    limit: int | None,
    on_progress: Callable[[BackfillProgress], None],
) -> BackfillProgress:
    done = output.done()
    if again:
        output.forget(done.failed)
    known = done.paths - done.failed.keys() if again else done.paths
    todo = [one for one in found if one.path not in known]
    progress = BackfillProgress(len(found), len(found) - len(todo))
    on_progress(progress)
    began = time.monotonic()
    for path in _summaries(job, hardware, todo[:limit]):
        progress = replace(
            progress,
            done=progress.done + 1,
            failed=progress.failed + (path["state"] == FAILED),
            audio=progress.audio + (path["duration"] or 0.0),
            seconds=time.monotonic() - began,
        )
        on_progress(progress)
    output.forget_started()
    return progress


def _summaries(job: BackfillJob, hardware: Hardware, todo: Sequence[SourceFile]) -> Iterator[dict[str, Any]]:
    """What became of each recording, as blocks are done."""
    tables = [
        _table(f"part-{job.run[:8]}-{at:06}", block) for at, block in enumerate(in_blocks(todo, BLOCK, BLOCK_BYTES))
    ]
    if not tables:
        return
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what ends the run is raised, without its advice
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    asked = ray.data.from_arrow(tables).map_batches(
        Backfiller,
        fn_constructor_args=(job,),
        batch_size=None,  # a table is a Ray block is a part
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=min(hardware.actors, len(tables))),
        num_cpus=hardware.cpus,
        num_gpus=hardware.gpus,
        **({"resources": {hardware.resource: 1}} if hardware.resource else {}),
    )
    try:
        for batch in asked.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except ray.exceptions.RayError as error:
        raise _cause(error) from error


def _table(name: str, block: Sequence[SourceFile]) -> pa.Table:
    rows = [{"path": one.path, "size": one.size, "modified": one.modified} for one in block]
    return pa.Table.from_pylist(rows, RECORDING).append_column("block", pa.array([name] * len(rows)))


def _cause(error: BaseException) -> CallError:
    """The error of ours that an actor raised, not Ray's wrappers around it.

    On its way from the actor an exception loses those that it was raised from; their text remains in Ray's traceback.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, CallError):
            return seen
        seen = getattr(seen, "cause", None) or seen.__cause__
    for module, name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, CallError):
            return kind(message)
    last = str(error).strip().splitlines()
    return CallError(f"Ray ended the run: {last[-1] if last else type(error).__name__}")


def _about(job: BackfillJob) -> dict[str, Any]:
    """What stays the same for an output folder: rows of different models do not stand side by side unnoticed."""
    aligned = getattr(engine_class(job.asr), "needs_aligner", False)  # others are as they are without
    return {
        "source": job.source.rstrip("/"),
        "recognition": job.asr.model_dump(mode="json", exclude={"device"}),
        **({"alignment": job.alignment.model_dump(mode="json", exclude={"device"})} if aligned else {}),
        "diarization": job.diarization.model_dump(mode="json", exclude={"device"}),
    }


@contextmanager
def _heartbeat(output: Output, run: str) -> Iterator[None]:
    """Say that the run is alive for as long as the block lasts. A failure to say so is tried again."""
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
