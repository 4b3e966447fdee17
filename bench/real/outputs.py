"""What a system makes of a call, compact enough to be kept: one JSON line each, gzipped.

The folder outputs/ holds, for the report half, truths.jsonl.gz (`calls.Truth`), and a file of `SystemOutput`s for the
raw ways and for each revision of the pipeline. `figures.py` re-scores them without any recording or model.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.real.calls import Truth

FOLDER = Path(__file__).parent / "outputs"


@dataclass(frozen=True, slots=True)
class RecognizedWord:
    """A word as the system wrote it; its text begins with a space where the system says that a word begins."""

    start: float  # seconds
    end: float
    text: str
    confidence: float  # 0..1
    doubtful: bool = False
    channel: int = 0
    turn: int = -1  # index in `SystemOutput.turns`; -1: the system has no turns


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """Whom the system gives a turn to, and in which language."""

    speaker: str
    language: str
    machine: bool = False


@dataclass(frozen=True, slots=True)
class Doubted:
    """A stretch that the system marks: its text may be wrong, or speech may be missing."""

    channel: int
    start: float
    end: float
    kept: bool = True  # language: ok
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeardLabel:
    """What the system takes a stretch of a channel for: a `LabelKind`."""

    channel: int
    start: float
    end: float
    kind: str


@dataclass(frozen=True, slots=True)
class SystemOutput:
    """All that is scored. `seconds`: of a processor, by part; of a raw way "audio" (it is read) and "recognition"."""

    call: str
    system: str  # "switchboard", "plain", "vad", "batched"
    model: str  # "tiny.en", "base"
    words: tuple[RecognizedWord, ...]
    seconds: dict[str, float]
    language: str | None = None
    turns: tuple[HeardTurn, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)  # role by speaker
    doubts: tuple[Doubted, ...] = ()
    labels: tuple[HeardLabel, ...] = ()
    layout: str = ""
    layout_confidence: float = 1.0  # that it says of itself
    engine: str = ""

    def row(self) -> dict[str, Any]:
        """Return the stored form: tuples instead of objects, times and confidence in hundredths."""
        data = asdict(self)
        for name in ("words", "turns", "doubts", "labels"):
            data[name] = [[_short(value) for value in item.values()] for item in data[name]]
        data["seconds"] = {part: round(value, 2) for part, value in self.seconds.items()}
        return data

    @classmethod
    def of(cls, row: dict[str, Any]) -> "SystemOutput":
        """From what `row` yields."""
        return cls(
            **{
                **row,
                "words": tuple(RecognizedWord(w[0], w[1], w[2], w[3], bool(w[4]), *w[5:]) for w in row["words"]),
                "turns": tuple(HeardTurn(t[0], t[1], bool(t[2])) for t in row["turns"]),
                "doubts": tuple(Doubted(d[0], d[1], d[2], bool(d[3]), tuple(d[4])) for d in row["doubts"]),
                "labels": tuple(HeardLabel(*label) for label in row["labels"]),
            }
        )


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Gzipped JSON lines, the same bytes for the same rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read what `write_rows` wrote."""
    return (json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines())


def write(path: Path, outputs: Iterable[SystemOutput]) -> None:
    """Gzipped JSON lines, ordered by call, model and system; the same bytes for the same outputs."""
    rows = sorted((output.row() for output in outputs), key=lambda row: (row["call"], row["model"], row["system"]))
    write_rows(path, rows)


def read(path: Path) -> Iterator[SystemOutput]:
    """Read what `write` wrote."""
    return (SystemOutput.of(row) for row in read_rows(path))


def write_truths(path: Path, truths: Iterable[dict[str, object]]) -> None:
    """Gzipped JSON lines of `calls.Call.truth`."""
    write_rows(path, sorted(truths, key=lambda truth: str(truth["name"])))


def read_truths(path: Path) -> dict[str, Truth]:
    """Truths by call."""
    return {truth.name: truth for truth in map(Truth.of, read_rows(path))}


def _short(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return round(value, 2) if isinstance(value, float) else value
