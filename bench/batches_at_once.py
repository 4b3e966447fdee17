"""On a CPU: one batch after the other with all threads, or several at once with a share of the threads each?

    python bench/batches_at_once.py [--windows 32] [--size base] [--threads 2] [--rounds 3] [--json FILE]

The recognition engine as the Transcriber uses it, on a Whisper of full size that says a script: the same windows, in
every way of dividing the threads, in turn within a round. The reference is one batch at once with all threads.
To see what the heap costs, run it under the variables of `serve_app.app.HEAP` as well; page faults are told.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import scripted_whisper
from bench.diarization_batches import calls_of
from pipeline.asr import AsrOptions, load
from pipeline.domain.speech import SAMPLE_RATE, Chunk

SECONDS = 28.0  # of a window
BATCHES = (4, 8)
FIGURES = ("seconds", "processor_s", "system_s", "page_faults")


def windows(number: int) -> list[Any]:
    (sound,) = calls_of(1, SECONDS * number)
    return [np.ascontiguousarray(one) for one in np.split(sound[: round(SECONDS * SAMPLE_RATE) * number], number)]


def run(engine: Any, sounds: Sequence[Any]) -> dict[str, float]:
    """Batch after batch, as many at once as the engine takes and one ahead."""
    chunk = Chunk(0, 0.0, SECONDS, "en")
    size = engine.batch_size
    batches = [sounds[i : i + size] for i in range(0, len(sounds), size)]
    began, used, before = time.perf_counter(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF)
    with ThreadPoolExecutor(engine.batches_at_once + 1) as threads:
        texts = [
            text for batch in threads.map(lambda b: engine.transcribe(b, [chunk] * len(b)), batches) for text in batch
        ]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "system_s": after.ru_stime - before.ru_stime,
        "page_faults": after.ru_minflt - before.ru_minflt,
        "seconds": time.perf_counter() - began,
        "processor_s": time.process_time() - used,
        "words": sum(len(text.words) for text in texts),
    }


def measure(options: argparse.Namespace, model: Path) -> list[dict[str, Any]]:
    sounds = windows(options.windows)
    at_once = [n for n in (1, 2, 4, 8) if n <= options.threads]
    ways = [(n, size) for size in BATCHES for n in at_once]
    engines = {
        (n, size): load(
            AsrOptions(model=str(model), device="cpu", batch_size=size, batches_at_once=n, cpu_threads=options.threads)
        )
        for n, size in ways
    }
    took: dict[tuple[int, int], list[dict[str, float]]] = {way: [] for way in ways}
    for way in ways:
        run(engines[way], sounds[: way[1]])  # libraries, memory
    for number in range(options.rounds):
        for way in ways:
            took[way].append(run(engines[way], sounds))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    reference = took[(1, BATCHES[-1])]
    return [
        {
            "batches_at_once": n,
            "batch": size,
            "words": found[0]["words"],
            **{name: round(statistics.median(one[name] for one in found), 1) for name in FIGURES},
            **{
                f"{name}_of_reference": round(
                    statistics.median(one[name] / was[name] for one, was in zip(found, reference, strict=True)), 2
                )
                for name in ("seconds", "processor_s")
            },
        }
        for (n, size), found in took.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--size", choices=scripted_whisper.SIZES, default="base")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="in all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchboard-at-once-") as folder:
        rows = measure(options, scripted_whisper.write(Path(folder) / "model", options.size))
    print(f"{options.windows} windows of {SECONDS:g} s, Whisper {options.size}, {options.threads} threads in all")
    print(
        f"{'batches at once':>16}{'of windows':>12}{'seconds':>10}{'processor s':>13}{'of reference':>14}{'':>8}"
        f"{'in the kernel':>15}{'page faults':>13}"
    )
    for row in rows:
        print(
            f"{row['batches_at_once']:>16}{row['batch']:>12}{row['seconds']:>10.1f}{row['processor_s']:>13.1f}"
            f"{row['seconds_of_reference']:>14.2f}{row['processor_s_of_reference']:>8.2f}"
            f"{row['system_s']:>15.1f}{row['page_faults']:>13.0f}"
        )
    if options.json:
        figures = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
