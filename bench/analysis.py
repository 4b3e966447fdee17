"""How well, and how fast, does the analysis read calls whose truth is known?

    python bench/analysis.py CASES [CASES ...] [--language en] [--detail] [--predictions OUT] [--json FILE]
                             [--base-url http://127.0.0.1:8000/v1 --model NAME]

CASES are folders of JSON files: `input` (language, startTime, durationSeconds, roster, contacts, turns) and `gold`;
analysis_cases/README.md says what they hold. Figures by language and of all, with 95 % intervals over calls drawn anew
(in the file those of each language too); `analysis_score.py` defines them. With an endpoint the language model's
findings are judged (a key is taken from SWITCHBOARD_ANALYSIS__API_KEY); the notes of --detail say where it failed and
the rules' were judged in their place.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import analysis_score
from pipeline.analysis import AnalysisOptions, analyze
from pipeline.domain.call import Call
from pipeline.domain.insight import Contact, Finding, Material, Member, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word

RESAMPLES, SEED = 1000, 23


def material(case: dict[str, Any]) -> Material:
    """A case as the analysis gets it; word times spread evenly over a turn, numbers withheld."""
    given = case["input"]
    start = datetime.fromisoformat(given["startTime"])
    offset = start.utcoffset()
    assert offset is not None and offset.seconds % 3600 == 0, "whole hours only"
    hours = int(offset.total_seconds() // 3600)
    roster = Roster(
        members=tuple(Member(m["userId"], m["name"], tuple(m["aliases"])) for m in given["roster"]),
        contacts=tuple(
            Contact(c["contactId"], c["name"], c["company"], c["email"], c["phone"]) for c in given["contacts"]
        ),
        time_zone=f"Etc/GMT{-hours:+d}",
    )
    turns = tuple(turn(item, given["language"]) for item in given["turns"])
    transcript = Transcript(
        language=given["language"],
        language_probability=1.0,
        duration=float(given["durationSeconds"]),
        speakers=(Speaker("rep", Role.REP, 1.0, "channel"), Speaker("customer", Role.CUSTOMER, 1.0, "channel")),
        turns=turns,
        layout=Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "given"),
        engine="given",
    )
    return Material(Call(UUID(int=1), "anonymous", "anonymous", start), transcript, roster)


def turn(item: dict[str, Any], language: str) -> Turn:
    texts = item["text"].split()
    step = (item["end"] - item["start"]) / len(texts)
    words = tuple(
        Word(item["start"] + at * step, item["start"] + (at + 1) * step, text, 1.0) for at, text in enumerate(texts)
    )
    return Turn(item["index"], item["speaker"], item["start"], item["end"], words, language)


def prediction(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """The findings in the scorer's form."""
    of = {finding.step: finding.value for finding in findings}
    contact, parties = of["contacts"], of["tone"]["parties"]
    match = {"matched": contact["contact_id"], "new": "new"}.get(contact["match"])
    heard = {field: fact and fact["value"] for field, fact in contact["heard"].items()}
    return {
        "outgoing": of["direction"]["outgoing"],
        "agent": {"userId": of["agent"]["user_id"], "name": of["agent"]["spoken_name"]},
        "tasks": [scored(task) for task in of["tasks"]["tasks"]],
        "contact": {**heard, "match": match},
        "tone": {
            **{label: party and party["label"] for label, party in parties.items()},
            "turning_point": turning_point(of["tone"].get("turning_points") or []),
        },
        "topics": [topic["text"] for topic in of["summary"]["topics"]],
        "summary": of["summary"]["text"],
        "outcome": of["summary"]["outcome"],
    }


def turning_point(points: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first one: a case has one at most."""
    return {key: points[0][key] for key in ("turn", "speaker", "from", "to")} if points else None


def scored(task: dict[str, Any]) -> dict[str, Any]:
    """A task of the finding in the scorer's form."""
    named = {"text": task["title"], "owner": task["owner"], "due_date": task["due_date"]}
    return {**named, "turn": task["evidence"]["turn"]}


Judged = tuple[str, dict[str, int], analysis_score.Answers]
"""A call's language, how many tasks were found, known and right, and which answers were."""


def judged(cases: list[dict[str, Any]], found: dict[str, Any], detail: bool) -> list[Judged]:
    """Each call."""
    made = []
    for case in cases:
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        notes = analysis_score.tasks(case, found[case["id"]]["tasks"], counts, answers)
        notes += analysis_score.the_rest(case["gold"], found[case["id"]], answers)
        if detail:
            print(*(f"{case['id']}: {note}" for note in notes), sep="\n", end="\n" if notes else "")
        made.append((case["input"]["language"], counts, answers))
    return made


def by_language(calls: list[Judged]) -> dict[str, dict[str, float | int]]:
    """The figures by language, and of "all"."""
    made = {}
    for language in (*sorted({language for language, _, _ in calls}), "all"):
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        for _, counted, given in (call for call in calls if language in ("all", call[0])):
            for name in counts:
                counts[name] += counted[name]
            for name, right in given.items():
                answers[name] += right
        made[language] = analysis_score.figures(counts, answers)
    return made


def intervals(calls: list[Judged]) -> dict[str, dict[str, tuple[float, float]]]:
    """The middle 95 % of each share when the calls of each language are drawn anew, by language and of "all"."""
    rng = random.Random(SEED)
    drawn: dict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    of = {language: [call for call in calls if call[0] == language] for language, _, _ in calls}
    for _ in range(RESAMPLES):
        again = [call for those in of.values() for call in rng.choices(those, k=len(those))]
        for language, figures in by_language(again).items():
            for name, value in figures.items():
                if isinstance(value, float):
                    drawn[language][name].append(value)
    return {
        language: {name: _middle(sorted(values)) for name, values in figures.items()}
        for language, figures in drawn.items()
    }


def _middle(values: list[float]) -> tuple[float, float]:
    outside = round(len(values) * 0.025)
    return values[outside], values[-1 - outside]


def table(
    made: dict[str, dict[str, float | int]], ends: dict[str, dict[str, tuple[float, float]]] | None = None
) -> str:
    """One line for each figure, one column for each language, and the interval of "all" where there are `ends`."""
    lines = [f"{'':28}" + "".join(f"{language:>14}" for language in made) + (f"{'all, 95 %':>16}" if ends else "")]
    for name in made["all"]:
        if name.endswith(", of"):
            continue
        cells = "".join(f"{_cell(of.get(name), of.get(f'{name}, of')):>14}" for of in made.values())
        low, high = ends["all"].get(name, (None, None)) if ends else (None, None)
        lines.append(f"{name:28}{cells}" + ("" if low is None else f"{f'{low:.2f} to {high:.2f}':>16}"))
    return "\n".join(lines)


def _cell(value: float | None, answers: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}" + (f" ({answers})" if answers else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+", help="folders of cases")
    parser.add_argument("--language", help="only cases in this language")
    parser.add_argument("--detail", action="store_true", help="print every mistake, and the notes of findings")
    parser.add_argument("--predictions", type=Path, help="keep what was found in this file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint: judge a language model")
    parser.add_argument("--model", help="its name there")
    given = parser.parse_args()
    cases = [json.loads(path.read_text()) for folder in given.cases for path in sorted(folder.glob("*.json"))]
    cases = [case for case in cases if given.language in (None, case["input"]["language"])]
    if not cases:
        parser.error("no cases there")
    options = AnalysisOptions()
    if given.base_url:
        key = os.environ.get("SWITCHBOARD_ANALYSIS__API_KEY")
        options = AnalysisOptions(engine="llm", base_url=given.base_url, model=given.model, api_key=key)
    predictions, milliseconds = {}, []
    analyze(material(cases[0]))  # imports and packs
    for case in cases:
        started = time.perf_counter()
        findings = analyze(material(case), options)
        milliseconds.append((time.perf_counter() - started) * 1000)
        predictions[case["id"]] = prediction(findings)
        for finding in findings:
            if finding.note and given.detail:
                print(f"{case['id']}: {finding.step}: {finding.note}")
    calls = judged(cases, predictions, given.detail)
    made, ends = by_language(calls), intervals(calls)
    figures = {"calls": len(cases), "median_ms": statistics.median(milliseconds), "slowest_ms": max(milliseconds)}
    print(table(made, ends))
    print("{calls} calls, median {median_ms:.1f} ms, slowest {slowest_ms:.1f} ms".format(**figures))
    if given.json:
        given.json.write_text(json.dumps({**figures, "by_language": made, "intervals": ends}, indent=2) + "\n")
    if given.predictions:
        given.predictions.write_text(json.dumps(predictions, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
