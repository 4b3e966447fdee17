"""Do the words of a chunk depend on what else is in its batch?

    python bench/batch_words.py --librispeech FOLDER [--model tiny.en] [--threads 1] [--json FILE]

Real speech, clean and in noise, is recognized chunk by chunk, then in full batches of chunks in random orders:
what differs is the arithmetic (a matrix product of another shape adds up in another order), for nothing of one chunk
reaches another. Counted per order: chunks with other words, words that differ (edits), and the largest change of a
word's probability where the words are the same. `alone again` is the same chunk alone once more, the noise floor.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.real.sources import RATE, Sources
from pipeline.asr import AsrOptions, load
from pipeline.domain.speech import Chunk, ChunkText

SEED = 7
ORDERS = 2
LONGEST = 28.0  # seconds of a chunk
NOISE_DB = -12.0  # beside the speech, of the noisy half


def chunks_of(sources: Sources) -> list[np.ndarray]:
    """The development half's utterances and voices, each clean and in white noise."""
    random = np.random.default_rng(SEED)
    clips = [clip for own in sources.utterances("development").values() for clip in own]
    clean = [clip.load()[: int(LONGEST * RATE)] for clip in (*clips, *sources.voices("development"))]
    level = 10 ** (NOISE_DB / 20)
    noisy = [one + level * one.std() * random.standard_normal(len(one)).astype(np.float32) for one in clean]
    return [*clean, *noisy]


def recognized(engine: Any, sounds: Sequence[np.ndarray], orders: Sequence[Sequence[int]]) -> list[ChunkText]:
    """The text of each sound, asked for in requests of the given indices."""
    texts: dict[int, ChunkText] = {}
    for order in orders:
        chunks = [Chunk(0, 0.0, len(sounds[at]) / RATE, "en") for at in order]
        texts.update(zip(order, engine.transcribe([sounds[at] for at in order], chunks), strict=True))
    return [texts[at] for at in range(len(sounds))]


def compared(name: str, one: Sequence[ChunkText], other: Sequence[ChunkText]) -> dict[str, Any]:
    said = [([word.text for word in a.words], [word.text for word in b.words]) for a, b in zip(one, other, strict=True)]
    changes = [
        abs(first.confidence - second.confidence)
        for a, b, (left, right) in zip(one, other, said, strict=True)
        if left == right
        for first, second in zip(a.words, b.words, strict=True)
    ]
    return {
        "way": name,
        "chunks": len(said),
        "chunks_with_other_words": sum(left != right for left, right in said),
        "words": sum(len(left) for left, _ in said),
        "words_that_differ": sum(Levenshtein.distance(left, right) for left, right in said),
        "largest_change_of_confidence": round(max(changes, default=0.0), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--librispeech", type=Path, help="LibriSpeech's folder (or LIBRISPEECH)")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    options = AsrOptions.model_validate(
        {
            "model": args.model,
            "device": "cpu",
            "cpu_threads": args.threads,
            "batch_size": args.batch_size,
            "compute_type": args.compute_type,
        }
    )
    engine, sounds = load(options), chunks_of(Sources(args.librispeech))
    alone = [[at] for at in range(len(sounds))]
    reference = recognized(engine, sounds, alone)
    rows = [compared("alone again", reference, recognized(engine, sounds, alone))]
    for seed in range(ORDERS):
        order = [int(at) for at in np.random.default_rng(seed).permutation(len(sounds))]
        batches = [order[at : at + args.batch_size] for at in range(0, len(order), args.batch_size)]
        rows.append(compared(f"order {seed + 1}", reference, recognized(engine, sounds, batches)))
        print(rows[-1], flush=True)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if args.json:
        args.json.write_text(json.dumps({"engine": engine.name, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
