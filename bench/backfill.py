"""Is a recording lost or done twice when a backfill is killed half-way?

    python -m bench.backfill --recordings 1000 --json build/backfill.json

Puts N short recordings of real speech (prompts of Debian's Asterisk packages in five languages, see
`bench/real/sources.py`) and a few files that are no audio into a folder, runs `switchboard backfill` on it, kills the
process with SIGKILL when half of the rows are there, runs the same command again at once, and audits the output: every
recording once, every bad file with an error, nothing done again. Speed depends on the machine; it is told.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.dataset as ds

from bench.real.sources import PROMPT_VOICES, SourceMissing, Sources

ROOT = Path(__file__).parents[1]
BAD = {"bad/empty.wav": b"", "bad/page.wav": b"<html>not found</html>", "bad/noise.mp3": b"\x00\x01\x02" * 999}
POLL_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=1000)
    parser.add_argument("--model", default="tiny.en", help="a Whisper size; prompts of other languages are words too")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--asterisk", type=Path, help="folder of the unpacked packages; else fetched")
    parser.add_argument("--keep", type=Path, help="folder for recordings and output, which stay")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.keep:
        found = measure(arguments.keep, arguments)
    else:
        with TemporaryDirectory(prefix="switchboard-bench-") as folder:
            found = measure(Path(folder), arguments)
    for name, value in found.items():
        print(f"{name:24} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    sound = not (found["lost"] or found["twice"] or found["strangers"] or found["bad_without_error"])
    raise SystemExit(0 if sound and found["done_by_third_run"] == 0 else 1)


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    source, output = folder / "recordings", folder / "texts"
    expected = compose(source, arguments.recordings, Sources(asterisk=arguments.asterisk))
    command = [
        *(sys.executable, "-m", "serve_app.cli", "backfill", str(source), "--out", str(output), "--json"),
        *("--address", "local", "--model", arguments.model, "--pipeline", "segmentation-3.0+campplus"),
        *("--workers", str(arguments.workers)),
    ]
    began = time.monotonic()
    at_kill = until_killed(command, output, len(expected) // 2)
    first = time.monotonic() - began
    began = time.monotonic()
    second = answer(command)
    resumed = time.monotonic() - began
    third = answer(command)
    rows = ds.dataset(output, format="parquet").to_table(["path", "state", "code", "duration", "text"]).to_pylist()
    times = Counter(row["path"] for row in rows)
    failed = {row["path"]: row["code"] for row in rows if row["state"] == "failed"}
    audio = sum(row["duration"] or 0.0 for row in rows)
    return {
        "recordings": len(expected),
        "audio_minutes": round(audio / 60, 1),
        "model": arguments.model,
        "workers": arguments.workers,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
        "rows_at_kill": at_kill["rows"],
        "started_and_lost_by_kill": at_kill["in_flight"],
        "done_by_second_run": second["done"],
        "done_by_third_run": third["done"],
        "lost": len(expected - set(times)),
        "twice": sum(many > 1 for many in times.values()),
        "strangers": len(set(times) - expected),
        "bad_without_error": len(BAD.keys() - failed.keys()),
        "failed": dict(Counter(failed.values())),
        "with_words": sum(bool(row["text"]) for row in rows),
        "seconds": [round(first, 1), round(resumed, 1)],
        "recordings_per_hour": round(second["done"] / second["seconds"] * 3600) if second["seconds"] else None,
        "audio_per_second": round(second["audioSeconds"] / second["seconds"], 2) if second["seconds"] else None,
    }


def compose(folder: Path, many: int, sources: Sources) -> set[str]:
    """The paths of `many` recordings in `folder`, bad ones included; the same ones each time."""
    try:
        sources.prompts("report")
        sounds = sources._asterisk / "share/asterisk/sounds"
    except SourceMissing as error:
        raise SystemExit(str(error)) from None
    prompts = sorted(path for voice in PROMPT_VOICES.values() for path in (sounds / voice).rglob("*.wav"))
    wanted = many - len(BAD)
    if wanted > len(prompts):
        raise SystemExit(f"There are {len(prompts)} prompts; --recordings {len(prompts) + len(BAD)} at most.")
    chosen = random.Random(21).sample(prompts, wanted)
    expected = {str(path.relative_to(sounds)) for path in chosen} | BAD.keys()
    for path in chosen:
        target = folder / path.relative_to(sounds)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for name, content in BAD.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return expected


def until_killed(command: list[str], output: Path, rows: int) -> dict[str, int]:
    """Kill the command when its output has so many rows; tell how many there were, and what was lost with it."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while rows_of(output) < rows:
        if process.poll() is not None:
            raise SystemExit(f"The first run ended by itself, with exit code {process.returncode}.")
        time.sleep(POLL_SECONDS)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = {path.stem for path in output.glob("*.parquet")}
    begun = {path.stem for path in (output / "_started").glob("*.json")}
    return {"rows": rows_of(output), "in_flight": len(begun - there) * 16}


def rows_of(output: Path) -> int:
    return ds.dataset(output, format="parquet").count_rows() if output.is_dir() else 0


def answer(command: list[str]) -> dict[str, Any]:
    """What a run that is left alone tells."""
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}\n{ended.stderr}")
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


if __name__ == "__main__":
    main()
