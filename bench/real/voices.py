"""Are people known by their voice over telephone lines, and strangers not?

    python -m bench.real voices run HALF FILE.json [--librispeech FOLDER]
    python -m bench.real voices show FILE.json

`run` makes voiceprints of every voice of a half that speaks for 8 s or more, by the engine that the service uses: of
the first and of the second part of what it says, whole (about 7 s; 12 s of the two speakers with several utterances)
and of 3 s, over five lines at levels of -32 to -16 dBFS with pink noise 20 to 40 dB below. Besides, two voices in one
print. Both parts of most voices are cut from one utterance: same session, same microphone. Calls of other days are
not measured. `show` counts: every figure comes from the file.
"""

import argparse
import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.real.lines import LINES, energy, level, noise
from bench.real.sources import RATE, Half, Sound, Sources
from pipeline.domain.speech import Voiceprint
from pipeline.domain.voices import VoiceSample
from pipeline.speakers.profile import learn
from pipeline.speakers.voiceprint import match
from pipeline.voice.calibration import VoiceCalibration, calibration_of

OVER = ("mulaw", "gsm", "amr-4.75", "amr-12.2", "g722")
ENROLLED = ("mulaw", "gsm", "amr-12.2")  # lines of the three calls that are enrolled
SHORT, MAX_PART, MIN_SPEECH = 3.0, 12.0, 8.0  # seconds: of a short print, of a part, of what a voice says
ENOUGH = 10.0  # seconds of speech that make a profile: the parts are shorter than calls
Row = dict[str, Any]


def run(half: Half, sources: Sources, pipeline: str) -> Iterator[Row]:
    """Voiceprints as rows: speaker, part, line, kind, seconds, agreement, vector."""
    from pipeline.diarization import DiarizationOptions, load

    engine = load(DiarizationOptions(pipeline=pipeline, device="cpu", threads=1))
    parts = spoken(half, sources)
    names = sorted(parts)
    for line in OVER:
        for number, name in enumerate(names):
            first, second = (on_line(part, line, f"{name}/{line}") for part in parts[name])
            other = on_line(parts[names[number - 1]][1], line, f"{name}/{line}/other")
            pieces = {
                ("a", "whole"): [first],
                ("b", "whole"): [second],
                ("a", "short"): [first[: round(SHORT * RATE)]],
                ("b", "short"): [second[: round(SHORT * RATE)]],
                ("ab", "one voice"): [first, second],
                ("ab", "two voices"): [first, other],
            }
            for (part, kind), sound in pieces.items():
                voiceprint = engine.voiceprint(sound)
                if voiceprint is not None and (line == OVER[0] or "voice" not in kind):
                    yield {"speaker": name, "part": part, "line": line, "kind": kind} | written(voiceprint)


def spoken(half: Half, sources: Sources) -> dict[str, tuple[Sound, Sound]]:
    """Two parts of what each voice says, without its pauses, at one level."""
    clips = {clip.speaker: [clip.load()] for clip in sources.voices(half)}
    clips |= {name: [clip.load() for clip in speaker_clips] for name, speaker_clips in sources.utterances(half).items()}
    parts = {}
    for name, sounds in clips.items():
        leveled = [net(level(sound)) for sound in sounds]
        if len(leveled) > 1:
            parts[name] = (np.concatenate(leveled[: len(leveled) // 2]), np.concatenate(leveled[len(leveled) // 2 :]))
        elif len(leveled[0]) >= MIN_SPEECH * RATE:
            parts[name] = (leveled[0][: len(leveled[0]) // 2], leveled[0][len(leveled[0]) // 2 :])
    return {name: (a[: round(MAX_PART * RATE)], b[: round(MAX_PART * RATE)]) for name, (a, b) in parts.items()}


def net(sound: Sound) -> Sound:
    """Speech without its pauses of more than 0.3 s: frames within 30 dB of the loud ones and what is near them."""
    decibel = energy(sound)
    near = np.convolve(decibel > np.quantile(decibel, 0.95) - 30, np.ones(30), "same") > 0
    return np.asarray(sound[: len(decibel) * 160].reshape(-1, 160)[near].reshape(-1), np.float32)


def on_line(sound: Sound, line: str, seed: str) -> Sound:
    """Speech over a line, with noise, at a level: the same for the same seed."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    beneath = noise(len(sound), 1, rng) * np.float32(10 ** ((-23 - rng.uniform(20, 40)) / 20))
    return LINES[line](level(sound + beneath, rng.uniform(-32, -16)))


def written(voiceprint: Voiceprint) -> Row:
    packed = base64.b64encode(np.asarray(voiceprint.vector, "<f2").tobytes()).decode()
    return {
        "seconds": voiceprint.speech_seconds,
        "agreement": voiceprint.agreement,
        "model": voiceprint.model,
        "vector": packed,
    }


def read(row: Row) -> Voiceprint:
    vector = np.frombuffer(base64.b64decode(row["vector"]), "<f2").astype(np.float64)
    vector /= np.linalg.norm(vector)
    return Voiceprint(tuple(vector.tolist()), row["model"], row["seconds"], row["agreement"])


def figures(rows: Sequence[Row], calibration: VoiceCalibration) -> dict[str, dict[str, float]]:
    """Return every table by its title."""
    prints = [(row, read(row)) for row in rows if row["kind"] in ("whole", "short")]
    tables: dict[str, dict[str, float]] = {}
    for kind in ("whole", "short"):
        kind_prints = [(row, voiceprint) for row, voiceprint in prints if row["kind"] == kind]
        tables[f"pairs, {kind}, any line"] = pairs(kind_prints, None)
        for line in OVER:
            tables[f"pairs, {kind}, {line}"] = pairs(kind_prints, line)
        tables[f"naming, {kind}"] = naming(prints, kind, calibration)
    tables["agreement"] = agreement(rows, calibration)
    return tables


def pairs(prints: Sequence[tuple[Row, Voiceprint]], line: str | None) -> dict[str, float]:
    """Cosines of the first part of a voice to the second part of another or of the same, and the equal error rate."""
    same: list[float] = []
    other: list[float] = []
    for row, a in prints:
        for two, b in prints:
            if (row["part"], two["part"]) != ("a", "b") or (line and {row["line"], two["line"]} != {line}):
                continue
            (same if row["speaker"] == two["speaker"] else other).append(float(np.dot(a.vector, b.vector)))
    rate, at = equal_error(np.array(same), np.array(other))
    return {
        "same": len(same),
        "different": len(other),
        "equal error rate": rate,
        "its cosine": at,
        "same, 5th percentile": float(np.quantile(same, 0.05)),
        "same, median": float(np.median(same)),
        "different, median": float(np.median(other)),
        "different, 99.9th percentile": float(np.quantile(other, 0.999)),
    }


def equal_error(same: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the equal error rate and its cosine threshold."""
    at = np.sort(np.concatenate([same, other]))
    rejected = np.searchsorted(np.sort(same), at) / len(same)
    accepted = 1 - np.searchsorted(np.sort(other), at) / len(other)
    best = int(np.argmin(np.abs(rejected - accepted)))
    return float((rejected[best] + accepted[best]) / 2), float(at[best])


def naming(prints: Sequence[tuple[Row, Voiceprint]], kind: str, calibration: VoiceCalibration) -> dict[str, float]:
    """Measure naming: members are enrolled from the first part over three lines; the second part over every line is the
    query.

    Each voice is once a stranger: all others are members, and both of its parts are queries.
    """
    profiles = {}
    for name in sorted({row["speaker"] for row, _ in prints}):
        samples = [VoiceSample(row["line"], voiceprint) for row, voiceprint in prints if _enrolls(row, name)]
        profiles[name] = [centroid.voiceprint for centroid in learn(samples, {}, calibration, ENOUGH).centroids]
    counts: dict[str, float] = {"members": len(profiles), "members with a profile": sum(map(bool, profiles.values()))}
    tally: dict[str, float] = {"right": 0, "wrong": 0, "not named": 0, "strangers": 0, "strangers named": 0}
    for row, voiceprint in prints:
        if row["kind"] != kind:
            continue
        if row["part"] == "b":
            match_result = match(voiceprint, profiles, calibration)
            tally[
                "not named" if match_result is None else "right" if match_result.name == row["speaker"] else "wrong"
            ] += 1
        others = {name: centroids for name, centroids in profiles.items() if name != row["speaker"]}
        tally["strangers"] += 1
        tally["strangers named"] += match(voiceprint, others, calibration) is not None
    return counts | tally


def _enrolls(row: Row, name: str) -> bool:
    return row["speaker"] == name and row["part"] == "a" and row["kind"] == "whole" and row["line"] in ENROLLED


def agreement(rows: Sequence[Row], calibration: VoiceCalibration) -> dict[str, float]:
    """Are two voices in one print noticed, and one voice not mistaken for two?"""
    genuine, two = (
        np.array([r["agreement"] for r in rows if r["kind"] == kind and r["agreement"] is not None])
        for kind in ("one voice", "two voices")
    )
    return {
        "one voice": len(genuine),
        "taken for two": int((genuine < calibration.agreement).sum()),
        "lowest": float(genuine.min()),
        "two voices": len(two),
        "noticed": int((two < calibration.agreement).sum()),
        "highest": float(two.max()),
    }


def show(tables: Mapping[str, Mapping[str, float]]) -> None:
    """Print the tables."""
    for title, values in tables.items():
        print(title)
        for name, value in values.items():
            print(f"  {name:<34}{value:>10.4g}")


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.real voices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("run")
    making.add_argument("half", choices=("development", "report"))
    making.add_argument("file", type=Path)
    making.add_argument("--librispeech", type=Path)
    making.add_argument("--pipeline", default="segmentation-3.0+campplus", help="as SWITCHBOARD_DIARIZATION__PIPELINE")
    showing = commands.add_parser("show")
    showing.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "run":
        rows = list(run(options.half, Sources(options.librispeech), options.pipeline))
        options.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    calibration = calibration_of(rows[0]["model"])
    if calibration is None:
        raise SystemExit(f"There is no calibration for {rows[0]['model']!r}.")
    show(figures(rows, calibration))
