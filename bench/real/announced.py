"""Which words of calls with announcements were labeled a machine's: kept, and scored without recordings or models."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.real.intervals import RESAMPLES, SEED
from bench.real.outputs import FOLDER, read_rows, write_rows

FILE = FOLDER / "announcements.jsonl.gz"
MIN_LABELED_SHARE = 0.8  # share of its words from which a prompt counts as labeled
FEW = 0.2  # share of its words from which a person's turn counts as labeled
PLACES = ("begin", "after_music", "between", "end")


@dataclass(frozen=True)
class SpokenPart:
    """A prompt or turn of a call; `place` is one of `PLACES`."""

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
        """Language of its prompts, with which its name begins."""
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
        """Whether enough of the part is labeled as a machine's."""
        return self.share >= (MIN_LABELED_SHARE if self.part.kind == "prompt" else FEW)


def verdicts(labeled_call: Labeled) -> Iterator[PartVerdict]:
    """Yield a verdict for each part with a recognized word."""
    for part in labeled_call.parts:
        part_words = [
            word
            for word in labeled_call.words
            if part.start <= (word.start + word.end) / 2 <= part.end
            and (labeled_call.form == "mixed" or word.channel == part.channel)
        ]
        if part_words:
            share = sum(word.machine for word in part_words) / len(part_words)
            yield PartVerdict(
                labeled_call.case, labeled_call.form, part, share, " ".join(word.text for word in part_words)
            )


def keep(calls: Sequence[Labeled], path: Path = FILE) -> None:
    """Write calls, ordered by name and form; keep those of other languages in `path`."""
    languages = {call.language for call in calls}
    others = [call for call in read(path) if call.language not in languages] if path.is_file() else []
    rows = []
    for call in sorted([*others, *calls], key=lambda call: (call.case, call.form)):
        parts = [[round(v, 2) if isinstance(v, float) else v for v in asdict(part).values()] for part in call.parts]
        words = [[w.channel, round(w.start, 2), round(w.end, 2), w.text, int(w.machine)] for w in call.words]
        rows.append({"case": call.case, "form": call.form, "parts": parts, "words": words})
    write_rows(path, rows)


def read(path: Path = FILE) -> list[Labeled]:
    """Read what `keep` wrote."""
    return [
        Labeled(
            row["case"],
            row["form"],
            tuple(SpokenPart(*part) for part in row["parts"]),
            tuple(LabeledWord(at, start, end, text, bool(machine)) for at, start, end, text, machine in row["words"]),
        )
        for row in read_rows(path)
    ]


def figures(calls: Sequence[Labeled]) -> dict[str, Any]:
    """Prompts and turns of people labeled a machine's, in per cent, by language, form and place."""
    languages = sorted({call.language for call in calls})
    return {language: _figures([call for call in calls if call.language == language]) for language in languages}


def _figures(calls: Sequence[Labeled]) -> dict[str, Any]:
    part_verdicts = [verdict for call in calls for verdict in verdicts(call)]
    prompts = [verdict for verdict in part_verdicts if verdict.part.kind == "prompt"]
    turns = [verdict for verdict in part_verdicts if verdict.part.kind == "turn"]
    groups = {"prompts": prompts}
    for form in ("separated", "mixed"):
        groups[f"prompts, {form}"] = [verdict for verdict in prompts if verdict.form == form]
        for place in PLACES:
            groups[f"prompts, {form}, {place}"] = [
                verdict for verdict in groups[f"prompts, {form}"] if verdict.part.place == place
            ]
    groups["turns of people"] = turns
    for form in ("separated", "mixed"):
        groups[f"turns of people, {form}"] = [verdict for verdict in turns if verdict.form == form]
    return {name: _share(group) for name, group in groups.items() if group}


def _share(group: Sequence[PartVerdict]) -> dict[str, float]:
    """Return the share with a 95 % interval from resampling calls, with all parts of a call in both forms together."""
    cases = sorted({verdict.case for verdict in group})
    table = np.array([[sum(o.labeled for o in group if o.case == c), sum(o.case == c for o in group)] for c in cases])
    drawn = table[np.random.default_rng(SEED).integers(0, len(cases), (RESAMPLES, len(cases)))].sum(axis=1)
    low, high = np.quantile(100 * drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    hits, of = table.sum(axis=0)
    value, low, high = (round(float(share), 2) for share in (100 * hits / of, low, high))
    return {"value": value, "low": low, "high": high, "of": int(of)}
