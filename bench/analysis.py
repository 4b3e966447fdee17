"""How well and how fast does the analysis interpret calls with known answers?

    python -m bench.analysis CASES [CASES ...] [--language en] [--names "*_a?"] [--uncased] [--detail]
                             [--predictions OUT] [--json FILE]
                             [--base-url http://127.0.0.1:8000/v1 --model NAME --answers FILE]

CASES are folders of JSON files with `input` (language, startTime, durationSeconds, roster, contacts, turns) and `gold`;
analysis_cases/README.md describes them, lib/analysis_score.py defines the figures. Figures are by language and for all
languages, with 95 % intervals by bootstrap over calls. With an endpoint the script scores three variants of the same
calls: rules and model combined as in the service, the model alone (only what the transcript supports), and the rules
alone. SWITCHBOARD_ANALYSIS__API_KEY holds the key. The notes of --detail say where the model failed and the findings of
the rules were scored instead.
"""

import argparse
import json
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.lib import analysis_score, model_answers
from pipeline.analysis import analyze
from pipeline.domain.call import Call
from pipeline.domain.insight import Contact, Finding, Material, Member, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word

RESAMPLES, SEED = 1000, 23
_MARKS = re.compile(r"[.,!?;:¿¡…]+(?=\s|$)|(?<!\S)[¿¡]|[“”„«»\"]|(?<=\s)[-–—](?=\s)")


def material(case: dict[str, Any]) -> Material:
    """Return a case as the analysis receives it; word times are spread evenly over a turn, numbers withheld."""
    call_input = case["input"]
    start = datetime.fromisoformat(call_input["startTime"])
    offset = start.utcoffset()
    assert offset is not None and offset.seconds % 3600 == 0, "whole hours only"
    hours = int(offset.total_seconds() // 3600)
    roster = Roster(
        members=tuple(Member(m["userId"], m["name"], tuple(m["aliases"])) for m in call_input["roster"]),
        contacts=tuple(
            Contact(c["contactId"], c["name"], c["company"], c["email"], c["phone"]) for c in call_input["contacts"]
        ),
        time_zone=f"Etc/GMT{-hours:+d}",
    )
    turns = tuple(turn(item, call_input["language"]) for item in call_input["turns"])
    transcript = Transcript(
        language=call_input["language"],
        language_probability=1.0,
        duration=float(call_input["durationSeconds"]),
        speakers=(Speaker("rep", Role.REP, 1.0, "channel"), Speaker("customer", Role.CUSTOMER, 1.0, "channel")),
        turns=turns,
        layout=Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "given"),
        engine="given",
    )
    return Material(Call(UUID(int=1), "anonymous", "anonymous", start), transcript, roster)


def uncased(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case as an engine without capitals and punctuation writes it."""
    turns = [{**item, "text": _without_marks(item["text"])} for item in case["input"]["turns"]]
    return {**case, "input": {**case["input"], "turns": turns}}


def _without_marks(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text.lower()).split()) or "uh"


def turn(item: dict[str, Any], language: str) -> Turn:
    texts = item["text"].split()
    step = (item["end"] - item["start"]) / len(texts)
    words = tuple(
        Word(item["start"] + at * step, item["start"] + (at + 1) * step, text, 1.0) for at, text in enumerate(texts)
    )
    return Turn(item["index"], item["speaker"], item["start"], item["end"], words, language)


def prediction(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Convert findings to the scorer's form."""
    of = {finding.step: finding.value for finding in findings}
    contact, parties = of["contacts"], of["tone"]["parties"]
    match = {"matched": contact["contact_id"], "new": "new"}.get(contact["match"])
    contact_fields = {field: fact and fact["value"] for field, fact in contact["heard"].items()}
    return {
        "outgoing": of["direction"]["outgoing"],
        "agent": {"userId": of["agent"]["user_id"], "name": of["agent"]["spoken_name"]},
        "tasks": [scored(task) for task in of["tasks"]["tasks"]],
        "contact": {**contact_fields, "match": match},
        "tone": {
            **{label: party and party["label"] for label, party in parties.items()},
            "turning_point": turning_point(of["tone"].get("turning_points") or []),
        },
        "topics": [topic["text"] for topic in of["summary"]["topics"]],
        "summary": of["summary"]["text"],
        "outcome": of["summary"]["outcome"],
    }


def turning_point(points: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first turning point: a case has no more than one."""
    return {key: points[0][key] for key in ("turn", "speaker", "from", "to")} if points else None


def scored(task: dict[str, Any]) -> dict[str, Any]:
    """Convert a task of a finding to the scorer's form."""
    task_fields = {"text": task["title"], "owner": task["owner"], "due_date": task["due_date"]}
    return {**task_fields, "turn": task["evidence"]["turn"]}


Judged = tuple[str, dict[str, int], analysis_score.Answers]
"""A call's language, its counts of found, known and right tasks, and which answers were right."""


def judged(cases: list[dict[str, Any]], predictions: dict[str, Any], detail: bool) -> list[Judged]:
    """Score each call."""
    judged_calls = []
    for case in cases:
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        notes = analysis_score.tasks(case, predictions[case["id"]]["tasks"], counts, answers)
        notes += analysis_score.the_rest(case["gold"], predictions[case["id"]], answers)
        if detail:
            print(*(f"{case['id']}: {note}" for note in notes), sep="\n", end="\n" if notes else "")
        judged_calls.append((case["input"]["language"], counts, answers))
    return judged_calls


def by_language(calls: list[Judged]) -> dict[str, dict[str, float | int]]:
    """Return the figures by language, and of "all"."""
    figures = {}
    for language in (*sorted({language for language, _, _ in calls}), "all"):
        counts, answers = dict.fromkeys(("found", "known", "right"), 0), analysis_score.Answers(list)
        for _, counted, call_answers in (call for call in calls if language in ("all", call[0])):
            for name in counts:
                counts[name] += counted[name]
            for name, right in call_answers.items():
                answers[name] += right
        figures[language] = analysis_score.figures(counts, answers)
    return figures


Intervals = dict[str, dict[str, tuple[float, float]]]
"""By language, and of "all", the ends of each figure's 95 % interval."""


def intervals(calls: list[Judged], without: list[Judged] | None = None) -> Intervals:
    """Return 95 % bootstrap intervals by language of each share, or of its difference to `without`."""
    samples: dict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for chosen in draws([language for language, _, _ in calls]):
        less = by_language([without[at] for at in chosen]) if without else {}
        for language, figures in by_language([calls[at] for at in chosen]).items():
            for name, value in figures.items():
                if isinstance(value, float):
                    samples[language][name].append(value - less.get(language, {}).get(name, 0.0))
    return {
        language: {name: _middle(sorted(values)) for name, values in figures.items()}
        for language, figures in samples.items()
    }


def draws(languages: list[str]) -> Iterator[list[int]]:
    """Yield positions of calls, with the original number of calls per language."""
    rng = random.Random(SEED)
    of: defaultdict[str, list[int]] = defaultdict(list)
    for at, language in enumerate(languages):
        of[language].append(at)
    for _ in range(RESAMPLES):
        yield [at for those in of.values() for at in rng.choices(those, k=len(those))]


def _middle(values: list[float]) -> tuple[float, float]:
    outside = round(len(values) * 0.025)
    return values[outside], values[-1 - outside]


def table(figures: dict[str, dict[str, float | int]], ends: Intervals | None = None) -> str:
    """Format one line per figure, one column per language, and the interval of "all" if there are `ends`."""
    lines = [f"{'':28}" + "".join(f"{language:>14}" for language in figures) + (f"{'all, 95 %':>16}" if ends else "")]
    for name in figures["all"]:
        if name.endswith(", of"):
            continue
        cells = "".join(f"{_cell(of.get(name), of.get(f'{name}, of')):>14}" for of in figures.values())
        low, high = ends["all"].get(name, (None, None)) if ends else (None, None)
        lines.append(f"{name:28}{cells}" + ("" if low is None else f"{f'{low:.2f} to {high:.2f}':>16}"))
    return "\n".join(lines)


def _cell(value: float | None, answers: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}" + (f" ({answers})" if answers else "")


def report(calls: list[Judged], hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """Print the figures, except the hidden ones."""
    figures, ends = by_language(calls), intervals(calls)
    for of in figures.values():
        for name in hidden:
            of.pop(name, None)
    print(table(figures, ends))
    return {"by_language": figures, "intervals": ends}


def with_model(
    cases: list[dict[str, Any]], answers: model_answers.StoredAnswers, joined: list[Judged], rules: list[Judged]
) -> dict[str, Any]:
    """Print the comparison of rules, model and both, and the cost of the model."""
    calls = [material(case) for case in cases]
    readings = [answers.reading(call) for call in calls]
    predictions = {case["id"]: model_answers.alone(reading) for case, reading in zip(cases, readings, strict=True)}
    alone = judged(cases, predictions, False)
    reports: dict[str, Any] = {}
    for name, those, hidden in (("rules", rules, ()), ("model alone", alone, model_answers.NOT_ITS_OWN)):
        print(f"\n{name}")
        reports[name] = report(those, hidden)
    ends = intervals(joined, rules)
    print("\njoined less rules, 95 %")
    for name in ends["all"]:
        print(f"{name:28}" + "".join(f"{_range(of.get(name)):>18}" for of in ends.values()))
    cost, dropped = answers.cost(calls), model_answers.dropped(readings)
    print("\na call:", ", ".join(f"{name} {value:g}" for name, value in cost.items()))
    print("not borne out:", ", ".join(f"{kind} {refused} of {of}" for kind, (refused, of) in dropped.items()))
    return {**reports, "joined less rules": ends, "cost": cost, "not borne out": dropped}


def _range(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path, nargs="+", help="folders of cases")
    parser.add_argument("--language", help="only cases in this language")
    parser.add_argument("--names", default="*", help="only cases whose names fit this pattern")
    parser.add_argument("--uncased", action="store_true", help="without capitals and punctuation")
    parser.add_argument("--detail", action="store_true", help="print every mistake, and the notes of findings")
    parser.add_argument("--predictions", type=Path, help="write the predictions to this file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    model_answers.add_arguments(parser)
    arguments = parser.parse_args()
    paths = [path for folder in arguments.cases for path in sorted(folder.glob(f"{arguments.names}.json"))]
    cases = [json.loads(path.read_text()) for path in paths]
    cases = [case for case in cases if arguments.language in (None, case["input"]["language"])]
    if not cases:
        parser.error("no cases match")
    cases = [uncased(case) for case in cases] if arguments.uncased else cases
    options = model_answers.options_of(arguments)
    answers = model_answers.StoredAnswers(options, arguments.answers) if arguments.base_url else None
    if answers:
        answers.ask_all([material(case) for case in cases], at_once=arguments.at_once)
    predictions: dict[str, Any] = {}
    by_rule: dict[str, Any] = {}
    milliseconds = []
    analyze(material(cases[0]))  # imports and packs
    for case in cases:
        started = time.perf_counter()
        by_rule[case["id"]] = prediction(findings := analyze(material(case)))
        milliseconds.append((time.perf_counter() - started) * 1000)
        if answers:
            findings = answers.findings(material(case))
        predictions[case["id"]] = prediction(findings)
        for finding in findings:
            if finding.note and arguments.detail:
                print(f"{case['id']}: {finding.step}: {finding.note}")
    calls = judged(cases, predictions, arguments.detail)
    figures = {"calls": len(cases), "median_ms": statistics.median(milliseconds), "slowest_ms": max(milliseconds)}
    results = report(calls)
    print("{calls} calls, by rules median {median_ms:.1f} ms, slowest {slowest_ms:.1f} ms".format(**figures))
    if answers:
        results |= with_model(cases, answers, calls, judged(cases, by_rule, False))
    if arguments.json:
        arguments.json.write_text(json.dumps({**figures, **results}, indent=2) + "\n")
    if arguments.predictions:
        arguments.predictions.write_text(json.dumps(predictions, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
