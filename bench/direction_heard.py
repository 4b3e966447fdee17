"""Does who placed the call survive recognition: the same talks as written, and as Whisper heard them over a telephone?

    python bench/direction_heard.py [--half dev] [--half held_out] [--model tiny.en] [--calls N] [--json FILE]

The English talks of analysis_cases are spoken by flite (Debian package `flite`), each party with a voice and a line of
its own (mu-law, 8 kHz, noise 40 dB below), and go through the whole pipeline on real Whisper weights. What comes out
has a recognizer's errors, though the voices are synthetic. Numbers and `outgoing` are withheld, as in analysis.py.
"""

import argparse
import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile
import soxr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import analysis
from bench.real.normalize import words as normalized
from pipeline import asr, diarization
from pipeline.analysis.rules.direction.direction import Direction
from pipeline.domain.insight import Material
from pipeline.domain.speech import Recording
from pipeline.process import NOT_RECORDED, ProcessOptions, process
from pipeline.workers import LocalWorkers

CASES = Path(__file__).parent / "analysis_cases"
RATE = 8000
VOICES = {"rep": ("rms", "slt"), "customer": ("awb", "rms")}  # by the number of the talk, odd or even
PAUSE = 0.4  # seconds between turns
NOISE = 30.0  # of 16 bits, RMS


def spoken(case: dict[str, Any], number: int, path: Path) -> None:
    """The talk as a stereo WAV, the rep on channel 0."""
    rng = np.random.default_rng(number)
    rows: dict[str, list[np.ndarray]] = {"rep": [], "customer": []}
    for turn in case["input"]["turns"]:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            voice = VOICES[turn["speaker"]][number % 2]
            subprocess.run(["flite", "-voice", voice, "-t", turn["text"], file.name], check=True, timeout=60)
            sound, rate = soundfile.read(file.name)
        told = np.concatenate([soxr.resample(sound, rate, RATE), np.zeros(round(PAUSE * RATE))])
        for who, row in rows.items():
            row.append(told if who == turn["speaker"] else np.zeros(len(told)))
    both = np.stack([np.concatenate(rows["rep"]), np.concatenate(rows["customer"])])
    both = 0.3 * both / np.abs(both).max() + rng.normal(0, NOISE / 32768, both.shape)
    soundfile.write(path, both.T, RATE, subtype="ULAW")


async def heard(path: Path, given: Material, workers: LocalWorkers) -> tuple[bool | None, str]:
    """What the pipeline infers, and the words it heard."""
    content = path.read_bytes()
    recordings = (Recording(0, path.resolve().as_uri(), hashlib.sha256(content).hexdigest(), len(content)),)

    async def recall(stage: str) -> Any:
        return recordings if stage == "fetch" else NOT_RECORDED

    async def record(_: str, __: Any) -> None: ...

    with tempfile.TemporaryDirectory() as folder:
        options = ProcessOptions(scratch=Path(folder).as_uri())
        outcome = await process(given.call, workers, given.roster, record, recall, options)
    (found,) = [finding for finding in outcome.findings if finding.step == "direction"]
    words = [turn.text for turn in sorted(outcome.transcript.turns, key=lambda turn: turn.start)]
    return found.value["outgoing"], " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", action="append", choices=("dev", "held_out"), help="default: both")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--calls", type=int, help="only so many of each half")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if not shutil.which("flite"):
        sys.exit("This needs flite: apt-get install flite")
    engine = asr.load(asr.AsrOptions(model=f"whisper-{options.model}", device="cpu", cpu_threads=1))
    voices = diarization.load(diarization.DiarizationOptions(pipeline="segmentation-3.0+campplus", device="cpu"))
    workers = LocalWorkers(engine, voices)
    loop = asyncio.Runner()  # one for all calls: the workers belong to it
    figures: dict[str, Any] = {"model": options.model}
    for half in options.half or ("dev", "held_out"):
        paths = sorted((CASES / half).glob("*.json"))
        cases = [case for case in (json.loads(path.read_text()) for path in paths) if case["input"]["language"] == "en"]
        judged: dict[str, Counter[str]] = {"written": Counter(), "heard": Counter()}
        errors = words = 0
        for number, case in enumerate(cases[: options.calls]):
            given, gold = analysis.material(case), case["gold"]["outgoing"]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "call.wav"
                spoken(case, number, path)
                answer, text = loop.run(heard(path, given, workers))
            written = Direction().run(given).value["outgoing"]
            for way, told in (("written", written), ("heard", answer)):
                judged[way]["right" if told is gold else "open" if told is None else "wrong"] += 1
            said = normalized(" ".join(turn["text"] for turn in case["input"]["turns"]))
            measured = jiwer.process_words(" ".join(said), " ".join(normalized(text)))
            errors += measured.substitutions + measured.deletions + measured.insertions
            words += len(said)
            print(f"{half} {case['id']}: {gold}, written {written}, heard {answer}", flush=True)
        figures[half] = {way: dict(counts) for way, counts in judged.items()} | {"words_wrong": errors / max(words, 1)}
        print(half, figures[half])
    loop.close()
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
