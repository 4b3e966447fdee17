"""Which words of calls with announcements were labeled a machine's: kept, and scored without recordings or models."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.real.intervals import RESAMPLES, SEED
from bench.real.outputs import FOLDER, read_rows, write_rows

FILE = FOLDER / "announcements.jsonl.gz"
MOST = 0.8  # share of its words from which a prompt counts as labeled
FEW = 0.2  # share of its words from which a person's turn counts as labeled
PLACES = ("begin", "after_music", "between", "end")


@dataclass(frozen=True)
class SpokenPart:
    """What lies where in a call: `kind` is prompt or turn, `place` one of `PLACES`."""

    kind: str
    channel: int
    start: float
    end: float
    place: str = ""
    text: str = ""


@dataclass(frozen=True)
class LabeledWord:
    """A recognized word, and whether it was labeled a machine's."""

    channel: int
    start: float
    end: float
    text: str
    machine: bool


@dataclass(frozen=True)
class Labeled:
    """A call as it came out, separated or mixed (`form`)."""

    case: str
    form: str
    parts: tuple[SpokenPart, ...]
    words: tuple[LabeledWord, ...]

    @property
    def language(self) -> str:
        """The language of its prompts, with which its name begins."""
        return self.case[:2]


@dataclass(frozen=True)
class PartVerdict:
    """The share of the words of one part that were labeled as a machine's. `words` holds their text."""

    case: str
    form: str
    part: SpokenPart
    share: float
    words: str

    @property
    def labeled(self) -> bool:
        """Whether the part counts as labeled a machine's."""
        return self.share >= (MOST if self.part.kind == "prompt" else FEW)


def verdicts(made: Labeled) -> Iterator[PartVerdict]:
    """A verdict for each part of which a word was recognized."""
    for part in made.parts:
        own = [
            word
            for word in made.words
            if part.start <= (word.start + word.end) / 2 <= part.end
            and (made.form == "mixed" or word.channel == part.channel)
        ]
        if own:
            share = sum(word.machine for word in own) / len(own)
            yield PartVerdict(made.case, made.form, part, share, " ".join(word.text for word in own))


def keep(made: Sequence[Labeled], path: Path = FILE) -> None:
    """Write calls, ordered by name and form, beside those of other languages that `path` holds already."""
    languages = {one.language for one in made}
    others = [one for one in read(path) if one.language not in languages] if path.is_file() else []
    rows = []
    for one in sorted([*others, *made], key=lambda one: (one.case, one.form)):
        parts = [[round(v, 2) if isinstance(v, float) else v for v in asdict(part).values()] for part in one.parts]
        words = [[w.channel, round(w.start, 2), round(w.end, 2), w.text, int(w.machine)] for w in one.words]
        rows.append({"case": one.case, "form": one.form, "parts": parts, "words": words})
    write_rows(path, rows)


def read(path: Path = FILE) -> list[Labeled]:
    """What `keep` wrote."""
    return [
        Labeled(
            row["case"],
            row["form"],
            tuple(SpokenPart(*part) for part in row["parts"]),
            tuple(LabeledWord(at, start, end, text, bool(machine)) for at, start, end, text, machine in row["words"]),
        )
        for row in read_rows(path)
    ]


def figures(made: Sequence[Labeled]) -> dict[str, Any]:
    """Prompts and turns of people labeled a machine's, in per cent, by language, form and place."""
    languages = sorted({one.language for one in made})
    return {language: _figures([one for one in made if one.language == language]) for language in languages}


def _figures(made: Sequence[Labeled]) -> dict[str, Any]:
    found = [verdict for one in made for verdict in verdicts(one)]
    prompts = [one for one in found if one.part.kind == "prompt"]
    turns = [one for one in found if one.part.kind == "turn"]
    groups = {"prompts": prompts}
    for form in ("separated", "mixed"):
        groups[f"prompts, {form}"] = [one for one in prompts if one.form == form]
        for place in PLACES:
            groups[f"prompts, {form}, {place}"] = [one for one in groups[f"prompts, {form}"] if one.part.place == place]
    groups["turns of people"] = turns
    for form in ("separated", "mixed"):
        groups[f"turns of people, {form}"] = [one for one in turns if one.form == form]
    return {name: _share(own) for name, own in groups.items() if own}


def _share(own: Sequence[PartVerdict]) -> dict[str, float]:
    """With an interval of 95 % from resampling calls: a call's parts, in both its forms, stand and fall together."""
    cases = sorted({one.case for one in own})
    table = np.array([[sum(o.labeled for o in own if o.case == c), sum(o.case == c for o in own)] for c in cases])
    drawn = table[np.random.default_rng(SEED).integers(0, len(cases), (RESAMPLES, len(cases)))].sum(axis=1)
    low, high = np.quantile(100 * drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    hits, of = table.sum(axis=0)
    value, low, high = (round(float(share), 2) for share in (100 * hits / of, low, high))
    return {"value": value, "low": low, "high": high, "of": int(of)}
