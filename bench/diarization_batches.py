"""What does a call's diarization cost alone, and what beside others, against pyannote's own pipeline call by call?

    python bench/diarization_batches.py [--calls 6] [--seconds 30] [--rounds 3] [--resnet34] [--json FILE]

The same calls, process, threads and batch sizes; the three ways take turns within a round, and the table holds the
median of the rounds, by processor time on a CPU (the machine is rarely alone) and by the clock on a GPU. Whether the
segments are pyannote's is counted too. `--resnet34` puts a WeSpeaker ResNet34 of full size with random weights in the
place of the synthetic checkpoint's small embedding network: the work of a real one, and segments that mean nothing.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.long_calls import PARTS, RATE, _joined, _read
from pipeline.diarization import DiarizationOptions, load
from pipeline.domain.speech import SAMPLE_RATE
from tests import fixture_checkpoints

Samples = npt.NDArray[np.float32]
WAYS = ("pyannote, call by call", "steps, call by call", "steps, calls together")


def calls_of(number: int, seconds: float) -> list[Samples]:
    """Mixed calls at 16 kHz, of `seconds` and up to a fifth more."""
    from scipy.signal import resample_poly

    parts = [_read(name) for name in PARTS]
    lengths = [seconds * (1 + 0.2 * i / max(1, number - 1)) for i in range(number)]
    mixed = [_joined(parts, i, length / 60).mean(axis=1) for i, length in enumerate(lengths)]
    return [resample_poly(one, SAMPLE_RATE // RATE, 1).astype(np.float32) for one in mixed]


def give_resnet34(pipeline: Any) -> None:
    """Replace the embedding network by one of the size that pyannote's published pipelines have."""
    import torch
    from pyannote.audio import Audio
    from pyannote.audio.models.embedding import WeSpeakerResNet34
    from pyannote.audio.pipelines.speaker_verification import PyannoteAudioPretrainedSpeakerEmbedding

    torch.manual_seed(1)
    pipeline._embedding = PyannoteAudioPretrainedSpeakerEmbedding(WeSpeakerResNet34(), pipeline._embedding.device)
    pipeline._audio = Audio(sample_rate=SAMPLE_RATE, mono="downmix")


def call_by_call(engine: Any, calls: Sequence[Samples]) -> list[Any]:
    return [engine._pipeline.finalize(_hear(engine, engine.parts(one)), 1, None) for one in calls]


def together(engine: Any, calls: Sequence[Samples]) -> list[Any]:
    """Windows of the calls in turn, as the Diarizer's queue has them, a batch of one call at a time until it ends."""
    heard: list[list[Any]] = [[] for _ in calls]
    order = _in_turn([zip(repeat(number), engine.parts(one)) for number, one in enumerate(calls)], engine)
    while batch := list(islice(order, engine.batch_size)):
        for (number, _), found in zip(batch, engine.infer([part for _, part in batch]), strict=True):
            heard[number].append(found)
    return [engine._pipeline.finalize(one, 1, None) for one in heard]


def _in_turn(waiting: list[Iterator[Any]], engine: Any) -> Iterator[Any]:
    while waiting:
        for one in list(waiting):
            bite = list(islice(one, engine.batch_size))
            yield from bite
            if len(bite) < engine.batch_size:
                waiting.remove(one)


def _hear(engine: Any, parts: Iterator[Any]) -> list[Any]:
    heard: list[Any] = []
    while batch := list(islice(parts, engine.batch_size)):
        heard += engine.infer(batch)
    return heard


def stock(pipeline: Any, calls: Sequence[Samples]) -> list[Any]:
    import torch

    return [pipeline({"waveform": torch.from_numpy(one)[None], "sample_rate": SAMPLE_RATE}) for one in calls]


def segments(output: Any) -> list[Any]:
    return list(output.exclusive_speaker_diarization.itertracks(yield_label=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the shortest call")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, help="windows; as the engine has it by itself if not given")
    parser.add_argument("--resnet34", action="store_true")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    folder = str(fixture_checkpoints.DIARIZATION)
    engine: Any = load(DiarizationOptions(pipeline=folder, device=options.device, threads=1, batch_size=options.batch))
    reference = stock_pipeline(engine, options.device)
    if options.resnet34:
        for one in (engine._pipeline, reference):
            give_resnet34(one)
    calls = calls_of(options.calls, options.seconds)
    rows = measure(engine, reference, calls, options)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def stock_pipeline(engine: Any, device: str) -> Any:
    import torch
    from pyannote.audio import Pipeline

    made: Any = Pipeline.from_pretrained(fixture_checkpoints.DIARIZATION)
    made.segmentation_batch_size = engine.batch_size
    made.embedding_batch_size = engine._pipeline.embedding_batch_size
    return made.to(torch.device(device))


def measure(engine: Any, reference: Any, calls: Sequence[Samples], options: argparse.Namespace) -> list[dict[str, Any]]:
    ways: dict[str, Callable[[], list[Any]]] = {
        WAYS[0]: lambda: stock(reference, calls),
        WAYS[1]: lambda: call_by_call(engine, calls),
        WAYS[2]: lambda: together(engine, calls),
    }
    clock = time.perf_counter if options.device == "cuda" else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[Any]] = {}
    for number in range(options.rounds + 1):
        for name, run in ways.items():
            began = clock()
            found[name] = run()
            taken[name].append(clock() - began)
        print(f"\rround {number} of {options.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    audio = sum(map(len, calls)) / SAMPLE_RATE
    wanted = [segments(one) for one in found[WAYS[0]]]
    return [
        {
            "way": name,
            "calls": len(calls),
            "audio_s": round(audio, 1),
            "batch": engine.batch_size,
            "ms_per_second_of_audio": round(1000 * statistics.median(times[1:]) / audio, 2),  # the first warms up
            "of_pyannote": round(
                statistics.median(a / b for a, b in zip(times[1:], taken[WAYS[0]][1:], strict=True)), 3
            ),
            "same_segments": sum(segments(one) == was for one, was in zip(found[name], wanted, strict=True)),
        }
        for name, times in taken.items()
    ]


def show(rows: Sequence[dict[str, Any]]) -> None:
    first = rows[0]
    print(f"{first['calls']} calls, {first['audio_s']:.0f} s of audio, batches of {first['batch']} windows")
    print(f"{'':26}{'ms a second':>12}{'of pyannote':>13}{'same segments':>15}")
    for row in rows:
        same = f"{row['same_segments']} of {row['calls']}"
        print(f"{row['way']:26}{row['ms_per_second_of_audio']:12.1f}{row['of_pyannote']:13.2f}{same:>15}")


if __name__ == "__main__":
    main()
