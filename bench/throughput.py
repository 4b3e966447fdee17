"""How much audio does the whole service work off in an hour, beside the bare engines on the same audio?

    python bench/throughput.py [--calls 8] [--minutes 4] [--layout separate|mixed] [--size base] [--repetitions 3]
                               [--whisperx FOLDER] [--json FILE]

The service is started as `switchboard up` starts it, with a Whisper of full size that says a script
(`scripted_whisper.py`: the same number of tokens for every window, whoever decodes) and the demo diarization pipeline.
All calls are submitted at once; the clock runs from the first submission until the last record is complete. References,
in turn with it in the same run:

- `faster-whisper`: its BatchedInferencePipeline on the same files, one after the other, with its own speech detection
  and word times; each channel is a file where the parties are apart. `mixed` adds pyannote's own pipeline on each file.
- `whisperx` (where `--whisperx` names a folder; an environment is made in it if it is empty): recognition and
  diarization, without its forced alignment, whose weights have to be downloaded: it does less than it would.

Besides: processor seconds by part of the service.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from bench import long_calls, scripted_whisper
from bench.long_calls import LongCall

BATCH = 8  # windows in one forward pass, for every engine
DIARIZATION = Path(__file__).resolve().parents[1] / "pipeline" / "checkpoints" / "diarization-demo"
WHISPERX = ("whisperx==3.8.*", "torch==2.8.*", "torchaudio==2.8.*")
SERVICE_PARTS = {  # by what the title of a process holds
    "Transcriber": ":Transcriber",
    "Diarizer": ":Diarizer",
    "Conductor": ":Conductor",
    "Intake": ":Intake",
    "CPU tasks": "ray::",
    "PostgreSQL": "postgres",
}


UNDOUBTED = {  # the model says nonsense at nonsensical times: nothing of it is to be doubtful, or it is decoded twice
    "words_per_second": 1000.0,
    "impossible_words_per_second": 1000.0,
    "fewest_words_per_second": 0.0,
    "missing_seconds": 1000.0,
    "quiet_db": 1000.0,
    "far_seconds": 1000.0,
}


def service_settings(model: Path, threads: int) -> dict[str, str]:
    """As the issue's machine has it, and nothing doubted."""
    return {
        "SWITCHBOARD_ASR__MODEL": str(model),
        "SWITCHBOARD_ASR__BATCH_SIZE": str(BATCH),
        "SWITCHBOARD_ASR__CPU_THREADS": str(threads),
        "SWITCHBOARD_PROCESSING__CONCURRENCY": "8",
        **{f"SWITCHBOARD_SAFETY__{name.upper()}": str(value) for name, value in UNDOUBTED.items()},
    }


class Whole:
    """The running service, and the processor seconds that its processes have used."""

    def __init__(self, folder: Path, model: Path, threads: int) -> None:
        from db import embedded, migrate
        from serve_app.service import free_port
        from tests.acceptance.running import RunningService

        self._state = folder / "state"
        url = embedded.start(self._state)
        migrate.migrate(url)
        self._service = RunningService(url, folder, free_port(), service_settings(model, threads))
        self._service.start()

    def stop(self) -> None:
        from db import embedded

        self._service.stop()
        embedded.stop(self._state)

    def run(self, recordings: Sequence[Path]) -> tuple[float, dict[str, float], int]:
        """Seconds until all calls are complete, processor seconds by part, words recognised."""
        return asyncio.run(self._run(recordings))

    async def _run(self, recordings: Sequence[Path]) -> tuple[float, dict[str, float], int]:
        from serve_app.cli.handout import HandOut
        from tests.acceptance.running import Client

        client = await Client.of(self._service)
        with HandOut() as files:
            bodies = [_body(files.add(path)) for path in recordings]
            before, started = self._used(), time.perf_counter()
            await asyncio.gather(*(client.accepted(body) for body in bodies))
            records = await client.ended([body["callId"] for body in bodies], timeout=3600)
            seconds, after = time.perf_counter() - started, self._used()
        await client.close()
        bad = [record.call.failure for record in records if record.call.state != "completed"]
        if bad:
            raise SystemExit(f"{len(bad)} of {len(records)} calls failed: {bad[0]}")
        words = sum(len(turn.words) for record in records if record.transcript for turn in record.transcript.turns)
        return seconds, {part: round(after[part] - before.get(part, 0.0), 1) for part in after}, words

    def _used(self) -> dict[str, float]:
        assert self._service.process is not None
        used: dict[str, float] = defaultdict(float)
        family = psutil.Process(self._service.process.pid).children(recursive=True)
        database = [p for p in psutil.process_iter(["name"]) if p.info["name"] == "postgres"]
        for process in {*family, *database}:
            try:
                title, times = " ".join(process.cmdline()), process.cpu_times()
            except psutil.Error:
                continue
            part = next((name for name, mark in SERVICE_PARTS.items() if mark in title), "Ray itself")
            used[part] += times.user + times.system + times.children_user + times.children_system
        return used


def _body(url: str) -> dict[str, Any]:
    return {
        "callId": str(uuid4()),
        "from": "+14155550100",
        "to": "+14155550123",
        "startTime": "2026-11-20T09:30:00Z",
        "outgoing": False,
        "recordingUrl": url,
    }


class Bare:
    """faster-whisper's own batched pipeline, and pyannote's own, in this process."""

    def __init__(self, model: Path, threads: int) -> None:
        from faster_whisper import BatchedInferencePipeline, WhisperModel

        self._batched = BatchedInferencePipeline(
            WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True)
        )
        self._diarization: Any = None

    def recognise(self, files: Sequence[Path]) -> tuple[float, int]:
        """Seconds, and words, for the files one after the other."""
        started, words = time.perf_counter(), 0
        for file in files:
            segments, _ = self._batched.transcribe(str(file), batch_size=BATCH, word_timestamps=True)
            words += sum(len(segment.words or ()) for segment in segments)
        return time.perf_counter() - started, words

    def diarize(self, files: Sequence[Path]) -> float:
        """Seconds of the stock pipeline, waveforms in memory, two speakers at most as in the service."""
        import soundfile
        import torch

        if self._diarization is None:
            os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
            from pyannote.audio import Pipeline

            self._diarization = Pipeline.from_pretrained(DIARIZATION)
        started = time.perf_counter()
        for file in files:
            sound, rate = soundfile.read(file, dtype="float32")
            self._diarization({"waveform": torch.from_numpy(sound)[None], "sample_rate": rate}, max_speakers=2)
        return time.perf_counter() - started


class WhisperX:
    """WhisperX in an environment of its own, made where there is none."""

    def __init__(self, folder: Path, model: Path, threads: int) -> None:
        self._python = folder / "bin" / "python"
        self._model, self._threads = model, threads
        if not self._python.exists():
            print(f"Installing WhisperX into {folder} ...", flush=True)
            subprocess.run([sys.executable, "-m", "uv", "venv", "-q", str(folder)], check=True)
            install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(self._python), *WHISPERX]
            subprocess.run(install, check=True)

    def run(self, files: Sequence[Path]) -> float:
        """Seconds for the files one after the other, loading not counted."""
        script = Path(__file__).with_name("throughput_whisperx.py")
        done = subprocess.run(
            [str(self._python), str(script), str(self._model), str(DIARIZATION), str(self._threads), str(BATCH)],
            input="\n".join(map(str, files)),
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"WhisperX failed:\n{done.stderr[-2000:]}")
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    threads = os.cpu_count() or 1
    model = scripted_whisper.write(folder / "model", options.size, options.words)
    calls = long_calls.make(folder / "calls", options.calls, options.minutes)
    bare = Bare(model, threads)
    whisperx = WhisperX(options.whisperx, model, threads) if options.whisperx else None
    whole = Whole(folder, model, threads)
    try:
        whole.run([_recording(calls[0], options.layout)])  # engines loaded, caches and plans warm
        bare.recognise([calls[0].mixed])
        print("warm", flush=True)
        rows = []
        for repetition in range(options.repetitions):
            row = one(whole, bare, whisperx, calls, options.layout)
            print(f"repetition {repetition + 1}: " + ", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
            rows.append(row)
        return rows
    finally:
        whole.stop()


def one(whole: Whole, bare: Bare, whisperx: WhisperX | None, calls: Sequence[LongCall], layout: str) -> dict[str, Any]:
    """Everything once."""
    hours = sum(call.seconds for call in calls) / 3600
    files = [file for call in calls for file in (call.channels if layout == "separate" else [call.mixed])]
    seconds, parts, words = whole.run([_recording(call, layout) for call in calls])
    reference, reference_words = bare.recognise(files)
    row: dict[str, Any] = {
        "service_s": round(seconds, 1),
        "audio_hours_per_hour": round(hours * 3600 / seconds, 1),
        "audio_hours_per_core_hour": round(hours * 3600 / seconds / (os.cpu_count() or 1), 1),
        "words": words,
        "faster_whisper_s": round(reference, 1),
        "faster_whisper_words": reference_words,
    }
    if layout == "mixed":
        row["pyannote_s"] = round(bare.diarize(files), 1)
        reference += row["pyannote_s"]
    row["ratio"] = round(reference / seconds, 2)
    if whisperx is not None:
        row["whisperx_s"] = round(whisperx.run([call.mixed for call in calls]), 1)
        row["whisperx_ratio"] = round(row["whisperx_s"] / seconds, 2)
    return row | {"processor_s": parts}


def _recording(call: LongCall, layout: str) -> Path:
    return call.separate if layout == "separate" else call.mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--minutes", type=lambda text: [float(m) for m in text.split(",")], default=[4.0])
    parser.add_argument("--layout", choices=("separate", "mixed"), default="separate")
    parser.add_argument("--size", choices=scripted_whisper.SIZES, default="base")
    parser.add_argument("--words", type=int, default=60, help="words said of every window")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--whisperx", type=Path, help="folder of an environment with WhisperX; made if not there")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    lengths = ", ".join(f"{m:g}" for m in options.minutes)
    print(f"{options.calls} calls of {lengths} min, {options.layout}, Whisper {options.size} (scripted), {machine}")
    with tempfile.TemporaryDirectory(prefix="switchboard-throughput-") as folder:
        rows = measure(options, Path(folder))
    report(rows)
    if options.json:
        figures = {"machine": machine, "layout": options.layout, "size": options.size, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def report(rows: Sequence[dict[str, Any]]) -> None:
    def median(name: str, of: Callable[[dict[str, Any]], float] | None = None) -> float:
        return statistics.median(of(row) if of else row[name] for row in rows)

    print(f"service                   {median('service_s'):8.1f} s   {median('audio_hours_per_hour'):6.1f} x real time")
    print(f"bare engines, one by one  {median('', lambda r: r['ratio'] * r['service_s']):8.1f} s")
    print(f"ratio (1: as fast as the bare engines)  {median('ratio'):.2f}")
    if "whisperx_s" in rows[0]:
        print(f"WhisperX                  {median('whisperx_s'):8.1f} s")
        print(f"the service is {median('whisperx_ratio'):.2f} x as fast as WhisperX")
    for part in rows[0]["processor_s"]:
        print(f"  {part:<14}{median('', lambda r, part=part: r['processor_s'].get(part, 0.0)):8.1f} s of processor")


if __name__ == "__main__":
    main()
