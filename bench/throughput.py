"""How much audio does the service process in an hour, and how does it compare with the bare engines?

    python -m bench.throughput [--calls 8] [--minutes 4] [--layout separate|mixed|both] [--size base]
                               [--repetitions 3] [--whisperx FOLDER [--only-whisperx]] [--seal | --redact]
                               [--json FILE]

The script starts the service as `switchboard up` does, with a Whisper of full size whose output is scripted
(`lib/scripted_whisper.py`: the same number of tokens per window in every engine) and with the synthetic diarizer.
It submits all calls at once. The clock runs from the first submission to the last complete record. `both` mixes every
second call. Several `--minutes` run in turn. The references run in turn with the service:

- `faster-whisper`: BatchedInferencePipeline on the same files, one after the other, with its own speech detection and
  word times. Separate parties are separate files. Mixed calls also go through pyannote's own pipeline.
- `whisperx`, with `--whisperx FOLDER` (an empty folder receives an environment): recognition and diarization, without
  forced alignment, whose weights are not in the package. WhisperX therefore does less work than usual.

`--seal` and `--redact` compare the service with itself instead, in pairs of runs: throughput with sealed calls, or with
a policy that keeps nothing, over that without. For `--redact` a card number is in each window of 30 seconds, so that
the sound of every call is hidden and stored again. The interval is Student's, of the logarithms of the pairs' ratios.

Each ratio has two forms. Elapsed seconds need an idle machine; other load hardly changes processor seconds.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from bench.lib import long_calls, scripted_whisper
from bench.lib.intervals import mean_ratio
from bench.lib.long_calls import LongCall
from tests.fixture_checkpoints import DIARIZATION

GOALS = {"seal": 0.97, "redact": 0.95}  # throughput with over without
CARD = "card number four one two three five six seven eight nine zero one two three four five six"
BATCH = 8  # windows in one forward pass, for every engine
WHISPERX = ("whisperx==3.8.*", "torch==2.8.*", "torchaudio==2.8.*")
SERVICE_PARTS = {  # by what the title of a process contains; the first match counts
    "recognition (Transcriber)": (":Transcriber",),
    "diarization, voices (Diarizer)": (":Diarizer",),
    "fetch, bookkeeping (Conductor)": (":Conductor",),
    "submissions (Intake)": (":Intake",),
    "audio, speakers, analysis (tasks)": ("ray::_run", "ray::IDLE"),
    "PostgreSQL": ("postgres",),
    "Serve": ("ray::Serve", "ray::Proxy", "ray::HAProxy", "haproxy"),
}
OF_RAY = "Ray itself"  # its daemons, and whatever ended during the run


def service_settings(model: Path, threads: int) -> dict[str, str]:
    """Return settings of the service without a second decoding."""
    return {
        "SWITCHBOARD_ASR__MODEL": str(model),
        "SWITCHBOARD_ASR__BATCH_SIZE": str(BATCH),
        "SWITCHBOARD_ASR__CPU_THREADS": str(threads),
        "SWITCHBOARD_PROCESSING__CONCURRENCY": "8",
        "SWITCHBOARD_SAFETY__SECOND_PASS": "false",  # a scripted model: all its words look invented
    }


@dataclass(frozen=True)
class Used:
    """Elapsed seconds and processor seconds of some work."""

    seconds: float
    processor: float

    def __add__(self, other: "Used") -> "Used":
        return Used(self.seconds + other.seconds, self.processor + other.processor)


class Stopwatch:
    """Measures from its creation; processor seconds are those of this process."""

    def __init__(self) -> None:
        self._seconds, self._processor = time.perf_counter(), time.process_time()

    def used(self) -> Used:
        return Used(time.perf_counter() - self._seconds, time.process_time() - self._processor)


@dataclass(frozen=True)
class Ran:
    """Seconds until all calls were complete, processor seconds by part of the service, and the transcripts."""

    seconds: float
    processor: dict[str, float]
    transcripts: list[Any]

    @property
    def words(self) -> int:
        return sum(len(turn.words) for transcript in self.transcripts for turn in transcript.turns)


class Whole:
    """The running service, and the processor seconds that its processes have used."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        from db.server import embedded, migrate
        from serve_app.service.ports import free_port
        from tests.acceptance.running import RunningService

        folder.mkdir(exist_ok=True)
        self._state = folder / "state"
        url = embedded.start(self._state)
        migrate.migrate(url)
        self._service = RunningService(url, folder, free_port(), settings)
        self._service.start()

    def stop(self) -> None:
        from db.server import embedded

        self._service.stop()
        embedded.stop(self._state)

    def run(self, recordings: Sequence[Path], redacts: bool = False) -> "Ran":
        """Submit all at once, and wait until they are complete; `redacts`: under a policy of redaction."""
        return asyncio.run(self._run(recordings, redacts))

    async def _run(self, recordings: Sequence[Path], redacts: bool) -> "Ran":
        from tests.acceptance.running import Client
        from tests.file_server import FileServer

        client = await Client.of(self._service)
        if redacts:
            await _set_policy(client)
        with FileServer() as files:
            bodies = [_body(files.add(path)) for path in recordings]
            before, started = self._used(), time.perf_counter()
            await asyncio.gather(*(client.accepted(body) for body in bodies))
            records = await client.ended([body["callId"] for body in bodies], timeout=3600)
            seconds, after = time.perf_counter() - started, self._used()
        await client.close()
        bad = [record.call.failure for record in records if record.call.state != "completed"]
        if bad:
            raise SystemExit(f"{len(bad)} of {len(records)} calls failed: {bad[0]}")
        if redacts and not all(record.redaction and record.redaction.spans for record in records):
            raise SystemExit("nothing was redacted in some calls")
        parts = {part: round(after[part] - before.get(part, 0.0), 1) for part in after}
        return Ran(seconds, parts, [record.transcript for record in records if record.transcript])

    def _used(self) -> dict[str, float]:
        assert self._service.process is not None
        used: dict[str, float] = defaultdict(float)
        family = psutil.Process(self._service.process.pid).children(recursive=True)
        postmaster = next(self._state.rglob("postmaster.pid")).read_text().split("\n", 1)[0]
        database = psutil.Process(int(postmaster))
        for process in {*family, database, *database.children()}:
            try:
                title, times = " ".join(process.cmdline()), process.cpu_times()
            except psutil.Error:
                continue
            part = next((n for n, marks in SERVICE_PARTS.items() if any(mark in title for mark in marks)), OF_RAY)
            used[part] += times.user + times.system + times.children_user + times.children_system
        return used


async def _set_policy(client: Any) -> None:
    from db.workspace import redaction_policies
    from pipeline.domain.redaction import RedactionMode, RedactionPreset

    policy = redaction_policies.named(RedactionMode.REDACTED_ONLY, RedactionPreset)
    await redaction_policies.set_policy(client.database, client.workspace_id, policy)


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

    def recognize(self, files: Sequence[Path]) -> tuple[Used, int]:
        """Return the costs and words of recognition, file by file."""
        clock, words = Stopwatch(), 0
        for file in files:
            segments, _ = self._batched.transcribe(str(file), batch_size=BATCH, word_timestamps=True)
            words += sum(len(segment.words or ()) for segment in segments)
        return clock.used(), words

    def diarize(self, files: Sequence[Path]) -> Used:
        """Return the costs of the stock pipeline, with waveforms in memory and max. two speakers as in the service."""
        import soundfile
        import torch

        if self._diarization is None:
            os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
            from pyannote.audio import Pipeline

            self._diarization = Pipeline.from_pretrained(DIARIZATION)
        clock = Stopwatch()
        for file in files:
            sound, rate = soundfile.read(file, dtype="float32")
            self._diarization({"waveform": torch.from_numpy(sound)[None], "sample_rate": rate}, max_speakers=2)
        return clock.used()


class WhisperX:
    """WhisperX in a separate environment, created if missing."""

    def __init__(self, folder: Path, model: Path, threads: int) -> None:
        self._python = folder / "bin" / "python"
        self._model, self._threads = model, threads
        if not self._python.exists():
            print(f"Installing WhisperX into {folder} ...", flush=True)
            subprocess.run([sys.executable, "-m", "uv", "venv", "-q", str(folder)], check=True)
            install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(self._python), *WHISPERX]
            subprocess.run(install, check=True)

    def run(self, files: Sequence[Path]) -> Used:
        """Return the costs of the files, one by one, without loading."""
        script = Path(__file__).parent / "lib" / "throughput_whisperx.py"
        done = subprocess.run(
            [str(self._python), str(script), str(self._model), str(DIARIZATION), str(self._threads), str(BATCH)],
            input="\n".join(map(str, files)),
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"WhisperX failed:\n{done.stderr[-2000:]}")
        return Used(**json.loads(done.stdout.splitlines()[-1]))


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    threads = os.cpu_count() or 1
    model = scripted_whisper.write(folder / "model", options.size, options.words)
    calls = long_calls.make(folder / "calls", options.calls, options.minutes)
    mixed = [options.layout == "mixed" or (options.layout == "both" and i % 2 == 1) for i in range(len(calls))]
    work = SharedWork(calls, mixed)
    bare = None if options.only_whisperx else Bare(model, threads)
    whisperx = WhisperX(options.whisperx, model, threads) if options.whisperx else None
    whole = Whole(folder, service_settings(model, threads))
    try:
        whole.run([*work.recordings[:1], *work.to_diarize[:1]])  # engines loaded, caches and plans warm
        if bare is not None:
            bare.recognize([calls[0].mixed])
            bare.diarize(work.to_diarize[:1])
        print("warm", flush=True)
        rows = []
        for repetition in range(options.repetitions):
            rows.append(measure_once(whole, bare, whisperx, work))
            print(f"repetition {repetition + 1}: " + _as_text(rows[-1]), flush=True)
        return rows
    finally:
        whole.stop()


def compare(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure the service without and with sealed or redacted calls, in pairs of runs that begin with either."""
    threads = os.cpu_count() or 1
    says = CARD.split() if options.redact else []
    model = scripted_whisper.write(folder / "model", options.size, options.words, says)
    calls = long_calls.make(folder / "calls", options.calls, options.minutes)
    work = SharedWork(calls, [options.layout == "mixed"] * len(calls))
    settings = service_settings(model, threads)
    services = [Whole(folder / "without", settings)]
    try:
        if options.seal:
            services.append(Whole(folder / "with", settings | {"SWITCHBOARD_SEAL_CALLS": "true"}))
        sides: tuple[Callable[[Sequence[Path]], Ran], ...] = (
            services[0].run,
            lambda recordings: services[-1].run(recordings, redacts=options.redact),
        )
        for side in sides:
            side(work.recordings[:1])  # engines loaded, caches and plans warm
        return [_pair(sides, work, number) for number in range(options.repetitions)]
    finally:
        for service in services:
            service.stop()


def _pair(sides: Sequence[Callable[[Sequence[Path]], Ran]], work: "SharedWork", number: int) -> dict[str, Any]:
    used = {}
    for side in (0, 1) if number % 2 == 0 else (1, 0):
        ran = sides[side](work.recordings)
        used[side] = Used(ran.seconds, sum(ran.processor.values()))
    row = {
        **{"without_s": round(used[0].seconds, 1), "with_s": round(used[1].seconds, 1)},
        "without_processor_s": round(used[0].processor, 1),
        "with_processor_s": round(used[1].processor, 1),
        "ratio": round(used[0].seconds / used[1].seconds, 3),
        "processor_ratio": round(used[0].processor / used[1].processor, 3),
    }
    print(f"pair {number + 1}: {_as_text(row)}, load {os.getloadavg()[0]:.1f}", flush=True)
    return row


class SharedWork:
    """The calls as the service gets them, and as the bare engines do."""

    def __init__(self, calls: Sequence[LongCall], mixed: Sequence[bool]) -> None:
        pairs = list(zip(calls, mixed, strict=True))
        self.hours = sum(call.seconds for call in calls) / 3600
        self.recordings = [call.mixed if as_one else call.separate for call, as_one in pairs]
        self.files = [file for call, as_one in pairs for file in ([call.mixed] if as_one else call.channels)]
        self.to_diarize = [call.mixed for call, as_one in pairs if as_one]
        self.mixed = [call.mixed for call in calls]


def measure_once(whole: Whole, bare: Bare | None, whisperx: WhisperX | None, work: SharedWork) -> dict[str, Any]:
    """Measure the service and the references once; return the figures."""
    ran = whole.run(work.recordings)
    seconds, parts = ran.seconds, ran.processor
    service = Used(seconds, sum(parts.values()))
    print(f"  service: {seconds:.0f} s, {service.processor:.0f} of processors: {parts}", flush=True)
    row: dict[str, Any] = {
        "audio_hours_per_hour": round(work.hours * 3600 / seconds, 1),
        "audio_hours_per_core_hour": round(work.hours * 3600 / seconds / (os.cpu_count() or 1), 1),
        "words": ran.words,
        **_figures("service", service, service),
    }
    if bare is not None:
        row |= _bare(bare, work, service)
    if whisperx is not None:
        row |= _figures("whisperx", whisperx.run(work.mixed), service)
    by_core = {part: round(work.hours * 3600 / used, 1) if used else None for part, used in parts.items()}
    return row | {"processor_s": parts, "audio_hours_per_core_hour_by_part": by_core}


def _bare(bare: Bare, work: SharedWork, service: Used) -> dict[str, Any]:
    """Measure faster-whisper's pipeline and then pyannote's."""
    recognition, words = bare.recognize(work.files)
    print(f"  faster-whisper: {recognition.seconds:.0f} s, {recognition.processor:.0f} of processors", flush=True)
    diarization = bare.diarize(work.to_diarize) if work.to_diarize else Used(0.0, 0.0)
    return {
        "faster_whisper_words": words,
        **_figures("faster_whisper", recognition, service),
        **_figures("pyannote", diarization, service),
        **_figures("bare", recognition + diarization, service),
    }


def _figures(name: str, used: Used, service: Used) -> dict[str, float]:
    """Return seconds and ratios of the reference over the service: above 1 the service is faster."""
    return {
        f"{name}_s": round(used.seconds, 1),
        f"{name}_processor_s": round(used.processor, 1),
        f"{name}_ratio": round(used.seconds / service.seconds, 2),
        f"{name}_processor_ratio": round(used.processor / service.processor, 2),
    }


def _as_text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if not isinstance(value, dict))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.throughput", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--minutes", type=lambda text: [float(m) for m in text.split(",")], default=[4.0])
    parser.add_argument("--layout", choices=("separate", "mixed", "both"), default="separate")
    parser.add_argument("--size", choices=scripted_whisper.SIZES, default="base")
    parser.add_argument("--words", type=int, default=60, help="words said of every window")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--whisperx", type=Path, help="folder of an environment with WhisperX; made if not there")
    parser.add_argument("--only-whisperx", action="store_true", help="leave the other references out")
    compared = parser.add_mutually_exclusive_group()
    compared.add_argument("--seal", action="store_true", help="compare the service with and without sealed calls")
    compared.add_argument("--redact", action="store_true", help="compare the service with and without redaction")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.only_whisperx and not options.whisperx:
        parser.error("--only-whisperx needs --whisperx FOLDER")
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    lengths = ", ".join(f"{m:g}" for m in options.minutes)
    print(
        f"{options.calls} calls of {lengths} min, {options.layout}, Whisper {options.size} (scripted), {machine}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="switchboard-throughput-") as folder:
        rows = (compare if options.seal or options.redact else measure)(options, Path(folder))
    figures: dict[str, Any] = {"machine": machine, "layout": options.layout, "size": options.size, "rows": rows}
    if options.seal or options.redact:
        figures |= report_pairs(rows, "seal" if options.seal else "redact")
    else:
        report(rows)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def report_pairs(rows: Sequence[dict[str, Any]], compared: str) -> dict[str, Any]:
    """Print and return the ratios of throughput, with over without, with their intervals."""
    figures = {name: mean_ratio([row[name] for row in rows]) for name in ("ratio", "processor_ratio")}
    for name, (mean, low, high) in figures.items():
        print(f"{name}: {mean:.3f} (95 % interval {low:.3f} to {high:.3f}), {len(rows)} pairs; goal {GOALS[compared]}")
    return figures


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print the medians over the repetitions."""

    def figure(name: str) -> float:
        return float(statistics.median(row[name] for row in rows))

    rate, per_core = figure("audio_hours_per_hour"), figure("audio_hours_per_core_hour")
    print(f"\nhours of audio in an hour {rate:.1f}, of each core {per_core:.1f}")
    print(f"{'':<28}{'elapsed s':>11}{'processor s':>13}{'over the service':>18}{'in processor s':>16}")
    for name in ("service", "faster_whisper", "pyannote", "bare", "whisperx"):
        if f"{name}_s" in rows[0] and rows[0][f"{name}_s"]:
            label = {"bare": "bare engines together"}.get(name, name.replace("_", "-"))
            print(
                f"{label:<28}{figure(f'{name}_s'):>11.1f}{figure(f'{name}_processor_s'):>13.1f}"
                f"{figure(f'{name}_ratio'):>18.2f}{figure(f'{name}_processor_ratio'):>16.2f}"
            )
    print(f"\n{'part of the service':<36}{'processor s':>12}{'audio h per core h':>20}")
    hours = rows[0]["audio_hours_per_hour"] * rows[0]["service_s"]
    for part in rows[0]["processor_s"]:
        seconds = statistics.median(row["processor_s"].get(part, 0.0) for row in rows)
        print(f"{part:<36}{seconds:>12.1f}{hours / seconds if seconds else float('inf'):>20.0f}")


if __name__ == "__main__":
    main()
