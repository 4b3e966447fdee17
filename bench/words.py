"""How exact are word times, what does the safety net cost, and which words does it change?

    python bench/words.py [--model demo] [--calls FOLDER] [--only 01,05] [--packing on|off] [--max-seconds 8]
                          [--plain-edges] [--json FILE]

Each call is taken through speech detection, recognition, review, second decoding and settling, as a served call is; the
language is the known one. Heard words are matched with the known ones by alignment (Levenshtein); times are compared
for words that are right. `--calls` takes a folder laid out like serve_app/demo/samples. `--plain-edges` leaves word
times as the aligner gives them, to see what moving them to the sound is worth.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from pipeline.asr import AsrOptions, Engine, edges, load, safety
from pipeline.audio import hear
from pipeline.audio.chunks import SpeechOptions
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Chunk, ChunkText, Heard, Layout, LayoutKind
from serve_app.demo.compare import words_of
from serve_app.demo.samples import FOLDER, Sample, load_samples


@dataclass
class Channel:
    """One channel of one call: errors in seconds (heard less known) and words wrong before and after the net."""

    call: str
    language: str
    channel: str
    said: int = 0
    wrong_first: int = 0
    wrong: int = 0
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


@dataclass
class Net:
    """What the safety net did to all calls, and the seconds that both passes took."""

    windows: int = 0
    suspect: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    doubtful_words: int = 0
    taken_out: int = 0
    first_seconds: float = 0.0
    again_seconds: float = 0.0
    audio_seconds: float = 0.0


def read(sample: Sample) -> AudioInMemory:
    """The call's channels at 16 kHz; one where the layout is not separated."""
    import soundfile
    from scipy.signal import resample_poly

    channels = []
    for path in sample.recordings:
        sound, rate = soundfile.read(path, dtype="float32", always_2d=True)
        channels.append(resample_poly(sound.T, SAMPLE_RATE, rate, axis=1))
    length = min(part.shape[1] for part in channels)
    samples = np.vstack([part[:, :length] for part in channels])
    if not LayoutKind(sample.expected["layout"]).separated:
        samples = samples[:1]
    return AudioInMemory(np.clip(np.round(samples * 32768), -32768, 32767).astype(np.int16))


def examine(sample: Sample, audio: AudioInMemory, longest: float, packing: bool) -> tuple[Heard, list[Chunk]]:
    """What the audio stage makes of a call, and its chunks in the known language."""
    layout = Layout(LayoutKind(sample.expected["layout"]), audio.channels, audio.channels, 1.0, {}, "known")
    heard = hear.examine(hear.Loaded(audio, layout), SpeechOptions(), longest, packing)
    return heard, [replace(chunk, language=sample.expected["language"]) for chunk in heard.chunks]


def recognise(engine: Engine, audio: AudioInMemory, chunks: Sequence[Chunk], careful: bool) -> list[ChunkText]:
    samples = [audio.sound(chunk) for chunk in chunks]
    return engine.transcribe(samples, chunks, careful=careful)


def catch(
    engine: Engine, audio: AudioInMemory, heard: Heard, chunks: Sequence[Chunk], net: Net
) -> tuple[list[ChunkText], tuple[ChunkText, ...]]:
    """First pass and what the net makes of it."""
    began = time.perf_counter()
    texts = recognise(engine, audio, chunks, careful=False)
    net.first_seconds += time.perf_counter() - began
    began = time.perf_counter()
    suspects = safety.review(audio, heard, texts)
    again = recognise(engine, audio, [chunks[suspect.index] for suspect in suspects], careful=True)
    settled, doubts = safety.settle(
        audio, heard, texts, dict(zip([suspect.index for suspect in suspects], again, strict=True))
    )
    net.again_seconds += time.perf_counter() - began
    net.windows += len(texts)
    net.suspect += len(suspects)
    net.audio_seconds += audio.duration
    for suspect in suspects:
        for reason in suspect.reasons:
            net.reasons[reason] = net.reasons.get(reason, 0) + 1
    net.doubtful_words += sum(word.doubtful for text in settled for word in text.words)
    net.taken_out += sum(len(doubt.text.split()) for doubt in doubts if not doubt.kept)
    return texts, settled


def compare(sample: Sample, channels: int, first: Sequence[ChunkText], settled: Sequence[ChunkText]) -> list[Channel]:
    """Known against heard, channel by channel."""
    from rapidfuzz.distance import Levenshtein

    measured = []
    for channel in range(channels):
        role = ("rep", "customer")[channel] if channels == 2 else None
        known = known_words(sample, role)
        result = Channel(sample.name, sample.expected["language"], role or "mixed", said=len(known))
        said = [word for word, _, _ in known]
        result.wrong_first = Levenshtein.distance(said, [word for word, _, _ in heard_words(first, channel)])
        found = heard_words(settled, channel)
        result.wrong = Levenshtein.distance(said, [word for word, _, _ in found])
        for part in Levenshtein.opcodes(said, [word for word, _, _ in found]):
            if part.tag == "equal":
                for i, j in zip(
                    range(part.src_start, part.src_end), range(part.dest_start, part.dest_end), strict=True
                ):
                    result.starts.append(found[j][1] - known[i][1])
                    result.ends.append(found[j][2] - known[i][2])
        measured.append(result)
    return measured


def known_words(sample: Sample, role: str | None) -> list[tuple[str, float, float]]:
    segments = sorted(sample.expected["segments"], key=lambda segment: float(segment["start"]))
    return [
        (plain, word["start"], word["end"])
        for segment in segments
        if role in (None, segment["speaker"])
        for word in segment["words"]
        for plain in words_of(word["text"])
    ]


def heard_words(texts: Iterable[ChunkText], channel: int) -> list[tuple[str, float, float]]:
    in_channel = sorted((t for t in texts if t.chunk.channel == channel), key=lambda text: text.chunk.start)
    return [
        (plain, word.start, word.end) for text in in_channel for word in text.words for plain in words_of(word.text)
    ]


def row(name: str, channels: Sequence[Channel]) -> dict[str, float | int | str]:
    """Median and 95th percentile of the absolute errors, and the median error itself, in milliseconds."""
    starts, ends = ([e for channel in channels for e in getattr(channel, edge)] for edge in ("starts", "ends"))
    figures: dict[str, float | int | str] = {
        "name": name,
        "said": sum(channel.said for channel in channels),
        "wrong_first": sum(channel.wrong_first for channel in channels),
        "wrong": sum(channel.wrong for channel in channels),
        "compared": len(starts),
    }
    for edge, errors in (("start", starts), ("end", ends)):
        if errors:
            figures[f"{edge}_median_ms"] = round(1000 * float(np.median(np.abs(errors))))
            figures[f"{edge}_p95_ms"] = round(1000 * float(np.percentile(np.abs(errors), 95)))
            figures[f"{edge}_bias_ms"] = round(1000 * float(np.median(errors)))
    return figures


def table(channels: Sequence[Channel]) -> list[dict[str, float | int | str]]:
    rows = [row(f"{channel.call} {channel.channel}", [channel]) for channel in channels]
    for language in sorted({channel.language for channel in channels}):
        rows.append(row(f"language {language}", [c for c in channels if c.language == language]))
    for name in ("rep", "customer", "mixed"):
        rows.append(row(f"channel {name}", [c for c in channels if c.channel == name]))
    return [*rows, row("all", channels)]


def show(rows: Sequence[dict[str, float | int | str]], net: Net) -> None:
    heads = ("said", "wrong 1st", "wrong", "start p50", "p95", "bias", "end p50", "p95", "bias")
    print(f"{'':<36}" + "".join(f"{head:>10}" for head in heads) + "   (times in ms)")
    edges_of = [f"{edge}_{what}_ms" for edge in ("start", "end") for what in ("median", "p95", "bias")]
    for figures in rows:
        cells = [figures.get(key, "-") for key in ("said", "wrong_first", "wrong", *edges_of)]
        print(f"{figures['name']:<36}" + "".join(f"{cell:>10}" for cell in cells))
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(net.reasons.items())) or "none"
    print(f"\n{net.suspect} of {net.windows} windows suspect ({reasons}); decoded again")
    print(
        f"{net.audio_seconds:.0f} s of audio: first pass {net.first_seconds:.1f} s, "
        f"review and second pass {net.again_seconds:.1f} s ({net.again_seconds / net.first_seconds:.2f} of the first)"
    )
    print(f"{net.doubtful_words} words marked as doubtful, {net.taken_out} taken out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo", help="recognition checkpoint, as SWITCHBOARD_ASR__MODEL")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--calls", type=Path, default=FOLDER, help="folder laid out like serve_app/demo/samples")
    parser.add_argument("--only", default="", help="beginnings of calls' names, comma separated")
    parser.add_argument("--packing", default="auto", choices=("auto", "on", "off"), help="pauses left out of windows")
    parser.add_argument("--max-seconds", type=float, help="longest window; left out, the checkpoint's")
    parser.add_argument("--plain-edges", action="store_true", help="word times as the aligner gives them")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.plain_edges:
        edges.snapped = lambda words, *_: tuple(words)  # type: ignore[assignment]
    engine = load(
        AsrOptions(
            model=options.model,
            device=options.device,
            cpu_threads=1,
            packing=options.packing,
            max_chunk_seconds=options.max_seconds,
        )
    )
    chosen = tuple(name for name in options.only.split(",") if name)
    net, channels = Net(), list[Channel]()
    for sample in load_samples(options.calls):
        if chosen and not sample.name.startswith(chosen):
            continue
        print(sample.name, file=sys.stderr)
        audio = read(sample)
        heard, chunks = examine(sample, audio, engine.max_chunk_seconds, engine.packing)
        channels += compare(sample, audio.channels, *catch(engine, audio, heard, chunks, net))
    if not channels:
        raise SystemExit("There is no such call.")
    rows = table(channels)
    show(rows, net)
    if options.json:
        figures = {"engine": engine.name, "rows": rows, "net": vars(net), "plain_edges": options.plain_edges}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
