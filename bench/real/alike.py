"""Two voices that sound alike, in one channel: words given to the wrong one.

    python -m bench.real.alike --half report [--pairs 4] [--others] [--librispeech FOLDER] [--json FILE]

Of the voices of a half those pairs of like pitch whose voiceprints are nearest to each other take turns of 2 to 6 s,
mixed over mu-law, and go through the whole pipeline with real weights. A word belongs to whom the turn is in whose time
its middle lies; a speaker stands for the voice that it holds most words of, and the words of the other one in it are
wrong. With --others the short calls of `bench.real.mixes` are judged so as well: voices unlike, one, three, with noise
and overlap. Figures by pair: the cosine of the voiceprints, words, words with the wrong party, speakers found.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from bench.real.calls import ComposedCall
from bench.real.lines import mulaw
from bench.real.mixes import PITCH, Mix, composed, mixes, turns
from bench.real.outputs import SystemOutput
from bench.real.sources import Half, Sources
from bench.real.systems import Switchboard
from bench.real.voices import spoken


@dataclass(frozen=True, slots=True)
class MixResult:
    """What became of one mix."""

    voices: tuple[str, ...]
    cosine: float | None
    words: int
    wrong_party: int
    speakers: int


def nearest(half: Half, sources: Sources, pipeline: str, count: int) -> list[tuple[float, tuple[str, str]]]:
    """The pairs of like pitch with the nearest voiceprints, no voice in two of them."""
    from pipeline.diarization import DiarizationOptions, load

    engine = load(DiarizationOptions(pipeline=pipeline, device="cpu", threads=1))
    parts = spoken(half, sources)
    prints = {}
    for name in (name for names in PITCH[half].values() for name in names if name in parts):
        made = engine.voiceprint([mulaw(np.concatenate(parts[name]))])
        if made is not None:
            prints[name] = np.asarray(made.vector) / np.linalg.norm(made.vector)
    pairs = [
        (float(prints[a] @ prints[b]), (a, b))
        for names in PITCH[half].values()
        for a, b in combinations([name for name in names if name in prints], 2)
    ]
    found: list[tuple[float, tuple[str, str]]] = []
    for cosine, pair in sorted(pairs, reverse=True):
        if len(found) < count and not any(set(pair) & set(other) for _, other in found):
            found.append((cosine, pair))
    return found


def judge(call: ComposedCall, output: SystemOutput, cosine: float | None, voices: tuple[str, ...]) -> MixResult:
    """Count the words of one call."""
    held: dict[str, Counter[str]] = {}
    for word in output.words:
        middle = (word.start + word.end) / 2
        who = [name for start, end, name in turns(call) if start - 0.2 <= middle <= end + 0.2]
        if len(set(who)) == 1:
            held.setdefault(output.turns[word.turn].speaker, Counter())[who[0]] += 1
    words = sum(counter.total() for counter in held.values())
    right = sum(max(counter.values()) for counter in held.values())
    return MixResult(voices, None if cosine is None else round(cosine, 3), words, words - right, len(held))


def show(found: Sequence[MixResult]) -> None:
    """A line for each pair, and one for all."""
    print(f"{'voices':<14}{'cosine':>8}{'words':>7}{'wrong party':>13}{'speakers':>10}")
    for one in found:
        cosine = "" if one.cosine is None else f"{one.cosine:.2f}"
        print(f"{'-'.join(one.voices):<14}{cosine:>8}{one.words:>7}{one.wrong_party:>13}{one.speakers:>10}")
    print(f"{'all':<22}{sum(one.words for one in found):>7}{sum(one.wrong_party for one in found):>13}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--others", action="store_true", help="the short calls of bench.real.mixes too")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--diarization", default="segmentation-3.0+campplus")
    parser.add_argument("--librispeech", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sources = Sources(options.librispeech)
    system = Switchboard(options.model, options.model, options.diarization)
    clips = {clip.speaker: clip for clip in sources.voices(options.half)}
    near = nearest(options.half, sources, options.diarization, options.pairs)
    wanted: list[tuple[Mix, int, float | None]] = [
        (Mix("-".join(pair), pair), seed, cosine) for seed, (cosine, pair) in enumerate(near)
    ]
    if options.others:
        wanted += [(mix, seed, None) for seed, mix in enumerate(mixes(options.half))]
    found = []
    for mix, seed, cosine in wanted:
        call = composed(mix, [clips[name] for name in mix.voices], sources, options.half, seed)
        with tempfile.TemporaryDirectory() as folder:
            output = system(call.write(Path(folder)))
        found.append(judge(call, output, cosine, mix.voices))
        print(mix.name, found[-1], flush=True)
    show(found)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
