"""Does a run over stored calls slow live calls, and do promotion and rollback restore every record?

    python -m bench.runs [--calls 100] [--live 12] [--rounds 4] [--seconds 10] [--gap 2] [--model whisper-tiny.en]
                         [--service whisper-base] [--minutes 14] [--json FILE]

The script starts the service on real weights and stores short calls of real speech. Each round sends live calls one
after another, `--gap` seconds apart, alone and while a run recognizes the round's share of the stored calls with
`--model`. The words are the same in the same order with different noise, so that nothing is reused. Every other round
begins with the run. The result is the ratio of the medians from submission to completed record by the database's clock,
with a 95 % interval over pairs of calls. Finally one run of all stored calls, which reuses what the rounds recognized,
is promoted, read, rolled back and read again.

After `--minutes` no further round begins, and calls not stored within a third of that time are omitted; the report says
so. The default ends within 15 minutes on two cores.
"""

import argparse
import asyncio
import io
import json
import statistics
import sys
import tempfile
import time
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import soundfile

from db.experiments import promotion, run_results, runs
from db.experiments.run_calls import digest_of
from db.server import embedded, migrate
from serve_app.service.ports import free_port
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer

SAMPLES = Path(__file__).resolve().parents[1] / "serve_app" / "demo" / "samples"
SPOKEN = ("01_help_line", "02_two_strangers")  # utterances of real speech
RATE = 16_000
OLD = "2026-10-01T09:00:00Z"  # ended long before they were submitted: backfill
MAX_RATIO = 1.10  # times as long as alone
AHEAD = 16  # calls that wait while they are stored
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Answered:
    """A live call: seconds from its submission until it was claimed, and until its record was complete."""

    claimed: float
    completed: float


def recording(number: int, text: int, seconds: float) -> bytes:
    """Return two parties in separate channels, one after the other, `seconds` in all, with a quiet hiss.

    The hiss follows from `number`, the words from `text`.
    """
    pieces = sorted(path for folder in SPOKEN for path in (SAMPLES / folder).glob("[0-9]*.flac"))
    half = int(seconds / 2 * RATE)
    sound = np.random.default_rng(number).normal(0, 2e-4, (2 * half, 2))
    for channel in (0, 1):
        samples, rate = soundfile.read(pieces[(2 * text + channel) % len(pieces)], dtype="float32")
        samples = samples if samples.ndim == 1 else samples[:, 0]
        samples = np.interp(np.arange(int(len(samples) * RATE / rate)) * rate / RATE, np.arange(len(samples)), samples)
        spoken = samples[:half]
        sound[channel * half : channel * half + len(spoken), channel] += spoken
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def body(url: str, start: str | None = None) -> dict[str, Any]:
    return {
        "callId": str(uuid4()),
        "from": "+12025550101",
        "to": "+12025550102",
        "startTime": start or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "recordingUrl": url,
    }


@asynccontextmanager
async def stand(folder: Path, model: str) -> AsyncIterator[Client]:
    url = embedded.start(folder / "state")
    migrate.migrate(url)
    more = {
        "SWITCHBOARD_ASR__MODEL": model,
        "SWITCHBOARD_DIARIZATION__PIPELINE": "segmentation-3.0+campplus",
        "SWITCHBOARD_PROCESSING__RETRY_WINDOW_SECONDS": "600",
        "SWITCHBOARD_PROCESSING__LEASE_SECONDS": "10",
    }
    service = RunningService(url, folder, free_port(), more)
    try:
        service.start()
        client = await Client.of(service, "lab")
        yield client
        await client.close()
    finally:
        if service.process is not None:
            service.stop()
        embedded.stop(folder / "state")


async def stored(
    client: Client, server: FileServer, folder: Path, options: argparse.Namespace, until: float
) -> list[UUID]:
    """Submit calls, a few ahead of the completed ones, until all are done or time is over."""
    waiting: list[str] = []
    done: list[UUID] = []
    for number in range(options.calls):
        submission = body(server.add(written(folder, number, number, options.seconds)), OLD)
        await client.accepted(submission)
        waiting.append(submission["callId"])
        last = number == options.calls - 1 or time.monotonic() > until
        if last or len(waiting) >= AHEAD:
            due = waiting if last else waiting[: AHEAD // 2]
            for record in await client.ended(due, timeout=600):
                assert record.call.state == "completed", record.call.failure
                done.append(record.call.call_id)
            waiting = waiting[len(due) :]
            show_progress(f"storing: {len(done)} of {options.calls} calls")
        if last:
            break
    return done


def show_progress(progress: str, end: bool = False) -> None:
    """Print progress; on a terminal over the previous line."""
    if end or sys.stderr.isatty():
        print(
            f"\r\033[K{progress}" if sys.stderr.isatty() else progress,
            end="\n" if end else "",
            file=sys.stderr,
            flush=True,
        )


def written(folder: Path, number: int, text: int, seconds: float) -> Path:
    path = folder / f"{number}.wav"
    path.write_bytes(recording(number, text, seconds))
    return path


async def live(
    client: Client, server: FileServer, folder: Path, first: int, options: argparse.Namespace, what: str, count: int = 0
) -> list[Answered]:
    """Calls one after another; `count`: `--live` of them."""
    answered: list[Answered] = []
    for number in range(count or options.live):
        show_progress(f"{what}: live call {number + 1} of {count or options.live}")
        submission = body(server.add(written(folder, first + number, number, options.seconds)))
        await client.accepted(submission)
        (record,) = await client.ended([submission["callId"]], timeout=600)
        assert record.call.state == "completed", record.call.failure
        at = {moment.what: moment.at for moment in record.timeline}
        took = [(at[what] - at["submitted"]).total_seconds() for what in ("process claimed", "completed")]
        answered.append(Answered(*took))
        await asyncio.sleep(options.gap)
    return answered


def ratio(alone: Sequence[float], with_run: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of the medians of `with_run` and `alone`, and its 95 % interval; both are paired."""
    pairs = np.array([alone, with_run])
    drawn = np.random.default_rng(0).integers(0, len(alone), (RESAMPLES, len(alone)))
    medians = np.median(pairs[:, drawn], axis=2)
    low, high = np.quantile(medians[1] / medians[0], (0.025, 0.975))
    return float(np.median(with_run) / np.median(alone)), float(low), float(high)


async def ended(client: Client, run: runs.Run, seconds: float = 36_000) -> runs.Run:
    until = time.monotonic() + seconds
    while run.state == "running":
        show_progress(f"{run.name}: {run.done} of {run.calls} calls recognized again")
        assert time.monotonic() < until, f"the run has not ended: {run}"
        await asyncio.sleep(1)
        run = await runs.find(client.database, client.workspace_id, run.run_id)
    return run


async def digests(client: Client, calls: list[UUID]) -> dict[UUID, str]:
    """Return a digest of each record as a reader receives it."""
    digests_by_call = {}
    for call_id in calls:
        record = await client.record(str(call_id))
        digests_by_call[call_id] = digest_of(record.transcript, record.findings)
    return digests_by_call


async def measured(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="swb-runs-") as name:
        folder, sounds = Path(name), Path(name) / "sounds"
        sounds.mkdir()
        with FileServer() as server:
            async with stand(folder, options.service) as client:
                return await _measured(client, server, sounds, options)


async def _measured(client: Client, server: FileServer, sounds: Path, options: argparse.Namespace) -> dict[str, Any]:
    changes = {"asr": {"model": options.model}}
    begun = time.monotonic()
    limit = 60 * options.minutes
    calls = await stored(client, server, sounds, options, begun + limit / 3)
    show_progress(f"{len(calls)} of {options.calls} calls stored in {time.monotonic() - begun:.0f} s", end=True)
    await live(client, server, sounds, 10_000_000, options, "warming up", count=2)
    rounds: list[dict[str, Any]] = []
    longest = 0.0
    for number in range(options.rounds):
        if time.monotonic() - begun + longest > limit:
            show_progress(f"{len(rounds)} of {options.rounds} rounds within {options.minutes:g} minutes", end=True)
            break
        at = time.monotonic()
        rounds.append(await one_round(client, server, sounds, number, calls[number :: options.rounds], options))
        longest = max(longest, time.monotonic() - at)
    return {"stored": len(calls), "rounds": rounds, **await promoted(client, calls, changes)}


async def one_round(
    client: Client, server: FileServer, sounds: Path, number: int, share: list[UUID], options: argparse.Namespace
) -> dict[str, Any]:
    """Measure live calls alone, and in parallel with a run over `share`."""
    name, first = f"round {number + 1}", 1_000_000 + 10_000 * number

    async def undisturbed() -> list[Answered]:
        return await live(client, server, sounds, first, options, f"{name}, alone")

    alone = await undisturbed() if number % 2 == 0 else []
    changes = {"asr": {"model": options.model}}
    run, _ = await runs.create(client.database, client.workspace_id, f"round-{number + 1}", changes, share)
    with_run = await live(client, server, sounds, first + options.live, options, f"{name}, during a run")
    during = await runs.find(client.database, client.workspace_id, run.run_id)
    run = await ended(client, run)
    alone = alone or await undisturbed()
    times = [[call.completed for call in side] for side in (alone, with_run)]
    show_progress(
        f"{name}: {summary(times)}; {during.done} of {run.calls} calls done, {run.failed} failed",
        end=True,
    )
    return {
        "alone": times[0],
        "with_run": times[1],
        "alone_until_claimed": [call.claimed for call in alone],
        "with_run_until_claimed": [call.claimed for call in with_run],
        "done_during_live": during.done,
        "calls": run.done,
        "failed": run.failed,
        "ratio": ratio(*times)[0],
        "worked_seconds": run.worked_seconds,
        "audio_seconds": run.audio_seconds,
    }


def summary(sides: Sequence[Sequence[float]]) -> str:
    alone, with_run = map(statistics.median, sides)
    return f"alone {alone:.2f} s, with a run {with_run:.2f} s, ratio {with_run / alone:.2f}"


async def promoted(client: Client, calls: list[UUID], changes: Any) -> dict[str, Any]:
    """One run of all calls: promoted, read, rolled back, read."""
    run, _ = await runs.create(client.database, client.workspace_id, "all", changes, calls)
    run = await ended(client, run)
    page = await run_results.list_calls(client.database, client.workspace_id, run.run_id, limit=len(calls))
    run_digests = {item.call_id: item.digest for item in page.items}
    recognized = sum("asr" in (item.seconds or {}) for item in page.items)
    before = await digests(client, calls)
    begun = time.monotonic()
    moved = await promotion.promote(client.database, client.workspace_id, run.run_id)
    promotion_seconds = time.monotonic() - begun
    now = await digests(client, calls)
    begun = time.monotonic()
    await promotion.roll_back(client.database, client.workspace_id, run.run_id)
    rollback_seconds = time.monotonic() - begun
    after = await digests(client, calls)
    return {
        "recognized_again_by_the_last_run": recognized,
        "promoted": moved.calls,
        "promotion_seconds": promotion_seconds,
        "rollback_seconds": rollback_seconds,
        "records_that_are_the_runs": sum(now[call] == run_digests[call] for call in calls),
        "records_that_changed": sum(now[call] != before[call] for call in calls),
        "records_back_as_they_were": sum(after[call] == before[call] for call in calls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=100, help="stored calls")
    parser.add_argument(
        "--live", type=int, default=12, help="live calls alone, and as many during a run, in each round"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each recording")
    parser.add_argument("--gap", type=float, default=2.0, help="seconds between two live calls")
    parser.add_argument("--service", default="whisper-base", help="the service's checkpoint")
    parser.add_argument("--model", default="whisper-tiny.en", help="the run's")
    parser.add_argument("--minutes", type=float, default=14.0, help="after which no further round begins")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    results = asyncio.run(measured(options))
    alone, with_run, alone_claimed, with_run_claimed = (
        [seconds for each in results["rounds"] for seconds in each[what]]
        for what in ("alone", "with_run", "alone_until_claimed", "with_run_until_claimed")
    )
    results["ratio"], *results["interval"] = ratio(alone, with_run)
    ratios = ", ".join(f"{each['ratio']:.2f}" for each in results["rounds"])
    low, high = results["interval"]
    print(
        f"live calls during a run: {results['ratio']:.2f} ({low:.2f} to {high:.2f}) times as long as alone (rounds: "
        f"{ratios}; limit: {MAX_RATIO})\n{summary([alone, with_run])}; "
        f"until claimed: {summary([alone_claimed, with_run_claimed])}"
    )
    print(
        f"promoted {results['promoted']} calls in {results['promotion_seconds']:.1f} s, rolled back in "
        f"{results['rollback_seconds']:.1f} s: {results['records_that_are_the_runs']} records were the run's, "
        f"{results['records_back_as_they_were']} are as before"
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")
    return 0 if results["ratio"] <= MAX_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
