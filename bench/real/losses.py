"""How many packets that were lost inside speech are labeled as a gap, and how much sound that was not lost is?

    python -m bench.real.losses --half development [--librispeech FOLDER] [--json FILE]

One utterance of each voice of the half over mu-law, stored at 8 kHz, with 5 % of its packets zero, in bursts of 20, 60,
100 and 200 ms; and with none, which is the reference. A loss counts where the 20 ms before it are speech within 15 dB
of the voice's loud moments; it is found if a gap covers half of it. Bursts of 20 ms are
not looked for: mouths close so long too.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import soxr

from bench.real.layouts import PACKET, STORED, coded, lossy
from bench.real.lines import energy, level
from bench.real.sources import RATE, Sources
from pipeline.audio.labels import lost
from pipeline.domain.speech import AudioInMemory

BURSTS = (1, 3, 5, 10)  # packets of 20 ms
STRONG_DB = 15.0  # below the loud moments


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--librispeech", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clips = Sources(options.librispeech).voices(options.half)
    rows = []
    for burst in (0, *BURSTS):
        counts = np.zeros(4)
        for seed, clip in enumerate(clips):
            whole = coded(level(clip.load(), -23.0))
            kept = lossy(whole, burst, np.random.default_rng(seed)) if burst else whole
            counts += _judged(whole, kept, max(1, burst) * PACKET)
        lost_ones, found, seconds, false_gaps = counts
        rows.append(
            {
                "burst_ms": burst * 20,
                "losses_in_speech": int(lost_ones),
                "found": int(found),
                "minutes": round(float(seconds) / 60, 1),
                "gaps_elsewhere": int(false_gaps),
            }
        )
        print(rows[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))


def _judged(whole: np.ndarray, kept: np.ndarray, length: int) -> np.ndarray:
    """Losses in speech, those found, seconds, and gaps where nothing was lost."""
    samples = soxr.resample(kept, STORED, RATE)
    gaps = lost.find(AudioInMemory(np.round(np.clip(samples, -1, 1) * 32767).astype(np.int16)[None]), 0)
    decibel = energy(np.asarray(soxr.resample(whole, STORED, RATE), np.float32))
    strong = np.quantile(decibel, 0.95) - STRONG_DB
    zeroed = [
        at for at in range(0, len(kept), length) if not kept[at : at + length].any() and whole[at : at + length].any()
    ]
    truth = [(at / STORED, min(len(kept), at + length) / STORED) for at in zeroed]
    in_speech = [(a, b) for a, b in truth if a >= 0.02 and decibel[int(a * 100) - 2 : int(a * 100)].max() >= strong]
    covered = [
        sum(max(0.0, min(b, gap.end) - max(a, gap.start)) for gap in gaps) >= 0.5 * (b - a) for a, b in in_speech
    ]
    elsewhere = [gap for gap in gaps if not any(gap.start < b + 0.03 and gap.end > a - 0.03 for a, b in truth)]
    return np.array([len(in_speech), sum(covered), len(kept) / STORED, len(elsewhere)], float)


if __name__ == "__main__":
    main()
