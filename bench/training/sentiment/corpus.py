"""What the tone is fitted on: single turns and small calls written for it, and the calls of `analysis_cases/dev`.

`turns/LANGUAGE.txt` and `calls/LANGUAGE.txt` say in their first line how they are written; `turns_of_calls.txt` marks
the turns of the calls in `analysis_cases/dev`.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import analysis
from pipeline.analysis.rules.sentiment.turn import LABELS
from pipeline.analysis.talk import SpokenTurn, read
from pipeline.domain.speech import Role

HERE = Path(__file__).resolve().parent
LANGUAGES = ("de", "en", "es", "fr")
CASES = HERE.parents[1] / "analysis_cases" / "dev"
MARKS = {"-": 0, "0": 1, "+": 2}  # places in LABELS
SPEAKERS = {"r": "rep", "c": "customer"}


@dataclass(frozen=True)
class MarkedCall:
    """`marks`: the place of each turn's tone in `LABELS`; `tones`: that of each party; `written`: for the fit alone."""

    name: str
    language: str
    turns: tuple[SpokenTurn, ...]
    marks: tuple[int, ...]
    tones: dict[str, int]
    doubtful: frozenset[str] = frozenset()
    written: bool = True
    turning: tuple[str, int] | None = None  # party and index of the turn where its tone changes

    def of(self, party: str) -> list[int]:
        """Return the positions of the party's turns in `turns`."""
        role = Role.REP if party == "rep" else Role.CUSTOMER
        return [at for at, turn in enumerate(self.turns) if turn.role is role]


def turns() -> list[tuple[SpokenTurn, int]]:
    """Return every single turn with its label's index in `LABELS`."""
    marked_turns = []
    for language in LANGUAGES:
        for line in _lines(HERE / "turns" / f"{language}.txt"):
            mark, text = line.split(" ", 1)
            (turn,) = _said([("rep" if mark.endswith("r") else "customer", text)], language)
            marked_turns.append((turn, MARKS[mark[0]]))
    return marked_turns


def calls() -> list[MarkedCall]:
    """Return the small calls, then those of `analysis_cases/dev`."""
    return [*(call for language in LANGUAGES for call in _written(language)), *_cases()]


def _written(language: str) -> list[MarkedCall]:
    marked_calls: list[MarkedCall] = []
    blocks: list[list[list[str]]] = []
    for line in _lines(HERE / "calls" / f"{language}.txt"):
        parts = line.split(" ", 2)
        if parts[0] == "=":
            blocks.append([])
        blocks[-1].append(parts)
    for (_, rep, customer), *lines in blocks:
        spoken = _said([(SPEAKERS[who], text) for who, _, text in lines], language)
        marks = tuple(MARKS[mark] for _, mark, _ in lines)
        tones = {"rep": MARKS[rep], "customer": MARKS[customer]}
        marked_calls.append(MarkedCall(f"{language} {len(marked_calls)}", language, spoken, marks, tones))
    return marked_calls


def _cases() -> list[MarkedCall]:
    marked = {line.split()[0]: _marked(line.split()[1:]) for line in _lines(HERE / "turns_of_calls.txt")}
    marked_calls = []
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text())
        spoken, tone = read(analysis.material(case)), case["gold"]["tone"]
        if path.stem not in marked:
            sys.exit(f"{path.name} has no line in turns_of_calls.txt: mark its turns there")
        marks = tuple(marked[path.stem].get(turn.turn.index, 1) for turn in spoken)
        tones = {party: LABELS.index(tone[party]) for party in ("rep", "customer") if tone[party]}
        language = case["input"]["language"]
        point = tone["turning_point"]
        turning = (point["speaker"], point["turn"]) if point else None
        marked_calls.append(
            MarkedCall(path.stem, language, spoken, marks, tones, frozenset(tone["doubtful"]), False, turning)
        )
    return marked_calls


def _marked(parts: list[str]) -> dict[int, int]:
    marks, mark = {}, 1
    for part in parts:
        if part in MARKS and part != "0":
            mark = MARKS[part]
        else:
            marks[int(part)] = mark
    return marks


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def _said(lines: list[tuple[str, str]], language: str) -> tuple[SpokenTurn, ...]:
    """Turns of three seconds, one after another."""
    case_turns = [
        {"index": at, "speaker": speaker, "start": 3.0 * at, "end": 3.0 * at + 2.5, "text": text}
        for at, (speaker, text) in enumerate(lines)
    ]
    case = {
        "input": {
            "language": language,
            "startTime": "2025-01-01T12:00:00+00:00",
            "durationSeconds": 3 * len(lines),
            "roster": [],
            "contacts": [],
            "turns": case_turns,
        }
    }
    return read(analysis.material(case))
