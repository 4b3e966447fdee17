"""Does it help a model to be given names and terms, and does it hurt the other words?

    python bench/vocabulary.py [--model demo] [--calls FOLDER] [--only 01,05] [--json FILE]

Every call is recognised three times by the same model: without vocabulary, with the terms that are said in it, and with
those among the terms of all calls, as a team's list is mostly names that are not said. A call's terms are `terms` of
its expected.json where it has them, else the capitalised words inside its sentences (in German nouns too). A term is
right where all its words are heard in their place. Put `"vocabulary": true` into the checkpoint's switchboard.json (or
set SWITCHBOARD_ASR__VOCABULARY=on) if more terms are right with the team's list and no more words are wrong.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.words import examine, heard_words, known_words, read
from pipeline.asr import AsrOptions, Engine, load
from pipeline.domain.speech import AudioInMemory, Chunk, ChunkText
from serve_app.demo.compare import words_of
from serve_app.demo.samples import FOLDER, Sample, load_samples

WAYS = ("without", "said terms", "team's list")


@dataclass
class Figures:
    """Of one call in one way. `invented`: words of terms heard more often than said."""

    call: str
    way: str
    terms: int = 0
    right: int = 0
    said: int = 0
    wrong: int = 0
    invented: int = 0

    def __add__(self, other: "Figures") -> "Figures":
        counts = {k: getattr(self, k) + getattr(other, k) for k in ("terms", "right", "said", "wrong", "invented")}
        return Figures("all", self.way, **counts)


def terms_of(sample: Sample) -> list[str]:
    """The names and terms of a call, each once; neighbours are one term, and a sentence's first word is none."""
    if "terms" in sample.expected:
        return [str(term) for term in sample.expected["terms"]]
    found: dict[str, None] = {}
    for segment in sample.expected["segments"]:
        term: list[str] = []
        beginning = True
        for word in [*segment["text"].split(), ""]:
            plain = word.strip(".,!?¿¡:;")
            if plain[:1].isupper() and plain != "I" and not beginning:
                term.append(plain)
            else:
                found.update({" ".join(term): None} if term else {})
                term = []
            beginning = not word or word[-1] in ".!?"
            if word and word[-1] in ".,!?" and term:
                found[" ".join(term)] = None
                term = []
    return list(found)


def measure(
    engine: Engine, sample: Sample, audio: AudioInMemory, chunks: Sequence[Chunk], way: str, given: Sequence[str]
) -> Figures:
    """One call recognised with `given` as its vocabulary."""
    samples = [audio.sound(chunk) for chunk in chunks]
    texts = engine.transcribe(samples, chunks, [given] * len(chunks))
    figures = Figures(sample.name, way)
    for channel in range(audio.channels):
        role = ("rep", "customer")[channel] if audio.channels == 2 else None
        figures += count(sample, role, channel, texts, way)
    return replace(figures, call=sample.name)


def count(sample: Sample, role: str | None, channel: int, texts: Sequence[ChunkText], way: str) -> Figures:
    """Known against heard in one channel."""
    from rapidfuzz.distance import Levenshtein

    said = [word for word, _, _ in known_words(sample, role)]
    heard = [word for word, _, _ in heard_words(texts, channel)]
    right = [False] * len(said)
    for part in Levenshtein.opcodes(said, heard):
        if part.tag == "equal":
            right[part.src_start : part.src_end] = [True] * (part.src_end - part.src_start)
    figures = Figures(sample.name, way, said=len(said), wrong=Levenshtein.distance(said, heard))
    terms = [words_of(term) for term in terms_of(sample)]
    for term in terms:
        for at in range(len(said) - len(term) + 1):
            if said[at : at + len(term)] == term:
                figures.terms += 1
                figures.right += all(right[at : at + len(term)])
    for word in {word for term in terms for word in term}:
        figures.invented += max(0, heard.count(word) - said.count(word))
    return figures


def show(results: Sequence[Figures]) -> None:
    print(f"{'call':<30}{'way':<14}{'terms right':>14}{'words wrong':>16}{'terms invented':>16}")
    for one in results:
        print(
            f"{one.call:<30}{one.way:<14}{f'{one.right} of {one.terms}':>14}{f'{one.wrong} of {one.said}':>16}"
            f"{one.invented:>16}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo", help="recognition checkpoint, as SWITCHBOARD_ASR__MODEL")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--calls", type=Path, default=FOLDER, help="folder laid out like serve_app/demo/samples")
    parser.add_argument("--only", default="", help="beginnings of calls' names, comma separated")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    engine = load(AsrOptions(model=options.model, device=options.device, cpu_threads=1, vocabulary="on"))
    chosen = tuple(name for name in options.only.split(",") if name)
    calls = load_samples(options.calls)
    everything = list(dict.fromkeys(term for sample in calls for term in terms_of(sample)))
    results: list[Figures] = []
    for sample in calls:
        if chosen and not sample.name.startswith(chosen):
            continue
        audio = read(sample)
        _, chunks = examine(sample, audio, engine.max_chunk_seconds, engine.packing)
        own = terms_of(sample)
        for way, given in zip(WAYS, ([], own, list(dict.fromkeys([*own, *everything]))), strict=True):
            print(sample.name, way, file=sys.stderr)
            results.append(measure(engine, sample, audio, chunks, way, given))
    if not results:
        raise SystemExit("There is no such call.")
    totals = [sum((r for r in results if r.way == way), Figures("all", way)) for way in WAYS]
    show([*results, *totals])
    if options.json:
        figures = {"engine": engine.name, "terms": everything, "rows": [vars(one) for one in [*results, *totals]]}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
