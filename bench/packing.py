"""What do the two channels of a call cost to recognise, beside the same call mixed, and beside faster-whisper?

    python bench/packing.py [--calls 2] [--minutes 4] [--size base] [--threads 1] [--repetitions 3]
                            [--unpacked] [--json FILE]

The calls of `long_calls.py`, a Whisper of full size that says a script (`scripted_whisper.py`: the same number of
tokens for every window, whoever decodes). Counted are windows (rows that the encoder was given, those to detect a
language and second decodings included), encoder passes, seconds, and processor seconds, which other work on the machine
disturbs less. Ours is `recognise` as a served call has it, with the sound labelled beforehand; `--unpacked` adds the
same with no pause left out. faster-whisper's own batched pipeline has the same files, a file for each channel, and its
seconds hold its speech detection, which is a few percent of them. Everything in turn, in one process.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import long_calls, scripted_whisper
from bench.long_calls import LongCall
from pipeline.asr import AsrOptions, load
from pipeline.asr.safety import SafetyOptions
from pipeline.audio import chunks, hear
from pipeline.audio.decode import DecodeOptions
from pipeline.audio.detector import SpeechOptions
from pipeline.audio.hear import Loaded
from pipeline.domain.speech import Heard, Recording
from pipeline.language.identification import LanguageOptions
from pipeline.recognise import recognise
from pipeline.workers import Held, LocalWorkers

BATCH = 8  # windows in one forward pass, for every engine
NOTHING_SUSPECT = SafetyOptions(  # the model says nonsense at nonsensical times: nothing of it is to be decoded twice
    log_probability=-1000,
    compression=1000,
    no_speech=1,
    words_per_second=1000,
    impossible_words_per_second=1000,
    fewest_words_per_second=0,
    missing_seconds=1000,
    quiet_db=1000,
    not_on_speech_share=2,
    far_seconds=1000,
)


@dataclass
class Cost:
    """Of all calls in one repetition."""

    windows: int = 0
    passes: int = 0
    seconds: float = 0.0
    processor: float = 0.0


class Counted:
    """A faster-whisper model whose encoder counts what it is given."""

    def __init__(self, model: Any) -> None:
        self.windows = self.passes = 0
        self._encode = model.encode
        model.encode = self._counted

    def _counted(self, features: Any) -> Any:
        self.windows += features.shape[0] if features.ndim == 3 else 1
        self.passes += 1
        return self._encode(features)


def cost_of(work: Callable[[], Any], counted: Counted) -> Cost:
    windows, passes = counted.windows, counted.passes
    began, used = time.perf_counter(), time.process_time()
    work()
    return Cost(
        counted.windows - windows,
        counted.passes - passes,
        time.perf_counter() - began,
        time.process_time() - used,
    )


class Ours:
    """The recognition stage in this process."""

    def __init__(self, model: Path, threads: int) -> None:
        self._engine = load(AsrOptions(model=str(model), device="cpu", cpu_threads=threads, batch_size=BATCH))
        self.counted = Counted(self._engine._model)  # type: ignore[attr-defined]
        self._workers = LocalWorkers(self._engine, None)

    def listen(self, path: Path) -> tuple[Loaded, Heard, Heard]:
        """A recording, what is heard in it with pauses left out of its chunks, and without."""
        loaded = hear.load([Recording(0, path.as_uri(), "00" * 32, path.stat().st_size)], DecodeOptions())
        heard = hear.examine(loaded, SpeechOptions(), self._engine.max_chunk_seconds, self._engine.packing)
        close = chunks.cut(heard.speech, self._engine.max_chunk_seconds, loaded.audio)
        return loaded, heard, replace(heard, chunks=close)

    def recognise(self, calls: Sequence[tuple[Loaded, Heard]]) -> None:
        for loaded, heard in calls:
            work = recognise(
                self._workers, Held(loaded), heard, self._engine.name, (), LanguageOptions(), NOTHING_SUSPECT
            )
            asyncio.run(work)


class Theirs:
    """faster-whisper's own batched pipeline, file by file, speech detection included."""

    def __init__(self, model: Path, threads: int) -> None:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        whisper = WhisperModel(
            str(model), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
        self.counted = Counted(whisper)
        self._batched = BatchedInferencePipeline(whisper)

    def recognise(self, files: Sequence[Path]) -> None:
        for file in files:
            segments, _ = self._batched.transcribe(str(file), batch_size=BATCH, word_timestamps=True)
            list(segments)


def repetitions(options: argparse.Namespace, folder: Path) -> tuple[dict[str, list[Cost]], dict[str, float]]:
    """Costs by name, and the seconds of speech in the channels and in the mix."""
    model = scripted_whisper.write(folder / "model", options.size, options.words)
    calls = long_calls.make(folder / "calls", options.calls, options.minutes)
    ours, theirs = Ours(model, options.threads), Theirs(model, options.threads)
    apart = [ours.listen(call.separate) for call in calls]
    mixed = [ours.listen(call.mixed) for call in calls]
    speech = {
        name: sum(span.duration for _, heard, _ in heards for spans in heard.speech for span in spans)
        for name, heards in (("channels", apart), ("mixed", mixed))
    }
    works = cases(ours, theirs, calls, apart, mixed, options.unpacked)
    ours.recognise([(mixed[0][0], mixed[0][1])])  # warm
    theirs.recognise([calls[0].mixed])
    found: dict[str, list[Cost]] = {name: [] for name in works}
    for number in range(options.repetitions):
        for name, (work, counted) in works.items():
            found[name].append(cost_of(work, counted))
            cost = found[name][-1]
            print(f"{number + 1}: {name}: {cost.windows} windows, {cost.processor:.1f} s of processor", flush=True)
    return found, speech


Case = tuple[Callable[[], Any], Counted]
Listened = Sequence[tuple[Loaded, Heard, Heard]]


def cases(
    ours: Ours, theirs: Theirs, calls: Sequence[LongCall], apart: Listened, mixed: Listened, unpacked: bool
) -> dict[str, Case]:
    channels = [file for call in calls for file in call.channels]
    found = {
        "channels": (lambda: ours.recognise([(loaded, packed) for loaded, packed, _ in apart]), ours.counted),
        "mixed": (lambda: ours.recognise([(loaded, packed) for loaded, packed, _ in mixed]), ours.counted),
        "faster-whisper, channels": (lambda: theirs.recognise(channels), theirs.counted),
        "faster-whisper, mixed": (lambda: theirs.recognise([call.mixed for call in calls]), theirs.counted),
    }
    if unpacked:
        found["channels, unpacked"] = (lambda: ours.recognise([(x, close) for x, _, close in apart]), ours.counted)
    return found


RATIOS = (
    ("channels / mixed", "channels", "mixed"),
    ("channels / faster-whisper, channels", "channels", "faster-whisper, channels"),
    ("mixed / faster-whisper, mixed", "mixed", "faster-whisper, mixed"),
    ("channels unpacked / channels", "channels, unpacked", "channels"),
)


def report(found: dict[str, list[Cost]], speech: dict[str, float]) -> dict[str, Any]:
    """Print medians; every repetition has a ratio of its own."""
    print("\n" + " " * 30 + "windows    passes   seconds  processor s")
    rows = {}
    for name, costs in found.items():
        rows[name] = {key: statistics.median(getattr(cost, key) for cost in costs) for key in vars(costs[0])}
        cells = (rows[name]["windows"], rows[name]["passes"], rows[name]["seconds"], rows[name]["processor"])
        print(f"{name:<28}{cells[0]:>9.0f}{cells[1]:>10.0f}{cells[2]:>10.1f}{cells[3]:>13.1f}")
    print(f"seconds of speech: channels {speech['channels']:.0f}, mixed {speech['mixed']:.0f}")
    ratios = {}
    for name, above, below in RATIOS:
        if above not in found:
            continue
        each = [a.processor / b.processor for a, b in zip(found[above], found[below], strict=True)]
        ratios[name] = {"median": round(statistics.median(each), 3), "each": [round(one, 3) for one in each]}
        print(f"{name}: {statistics.median(each):.2f} of the processor seconds ({min(each):.2f} to {max(each):.2f})")
    return {"rows": rows, "ratios": ratios, "speech": speech}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--size", choices=scripted_whisper.SIZES, default="base")
    parser.add_argument("--words", type=int, default=60, help="words said of every window")
    parser.add_argument("--threads", type=int, default=1, help="of CTranslate2")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--unpacked", action="store_true", help="add the channels with no pause left out")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"{options.calls} calls of {options.minutes:g} min, Whisper {options.size} (scripted), {machine}")
    with tempfile.TemporaryDirectory(prefix="switchboard-packing-") as folder:
        found, speech = repetitions(options, Path(folder))
    figures = report(found, speech)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, **figures}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
