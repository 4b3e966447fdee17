"""How well and how fast does the analysis interpret calls with known answers?

    python -m bench.analysis CASES [CASES ...] [--language en] [--names "*_a?"] [--detail] [--predictions OUT]
                             [--json FILE] [--base-url http://127.0.0.1:8000/v1 --model NAME --answers FILE]

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


Intervals = dict[str, dict[str, tuple[float, float]]]
"""By language, and of "all", the ends of each figure's 95 % interval."""


def intervals(calls: list[Judged], without: list[Judged] | None = None) -> Intervals:
    """The middle 95 % of each share when the calls of each language are drawn anew; of the differences, where the same
    calls were judged `without` something."""
    drawn: dict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for chosen in draws([language for language, _, _ in calls]):
        less = by_language([without[at] for at in chosen]) if without else {}
        for language, figures in by_language([calls[at] for at in chosen]).items():
            for name, value in figures.items():
                if isinstance(value, float):
                    drawn[language][name].append(value - less.get(language, {}).get(name, 0.0))
    return {
        language: {name: _middle(sorted(values)) for name, values in figures.items()}
        for language, figures in drawn.items()
    }


def draws(languages: list[str]) -> Iterator[list[int]]:
    """Positions of calls, as many of each language as there are."""
    rng = random.Random(SEED)
    of: defaultdict[str, list[int]] = defaultdict(list)
    for at, language in enumerate(languages):
        of[language].append(at)
    for _ in range(RESAMPLES):
        yield [at for those in of.values() for at in rng.choices(those, k=len(those))]


def _middle(values: list[float]) -> tuple[float, float]:
    outside = round(len(values) * 0.025)
    return values[outside], values[-1 - outside]


def table(made: dict[str, dict[str, float | int]], ends: Intervals | None = None) -> str:
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


def report(calls: list[Judged], hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """Prints the figures, without the hidden ones."""
    made, ends = by_language(calls), intervals(calls)
    for of in made.values():
        for name in hidden:
            of.pop(name, None)
    print(table(made, ends))
    return {"by_language": made, "intervals": ends}


def with_model(
    cases: list[dict[str, Any]], answers: model_answers.KeptAnswers, joined: list[Judged], rules: list[Judged]
) -> dict[str, Any]:
    """Prints how rules, model and both compare, and what the model cost."""
    calls = [material(case) for case in cases]
    readings = [answers.reading(call) for call in calls]
    found = {case["id"]: model_answers.alone(one) for case, one in zip(cases, readings, strict=True)}
    alone = judged(cases, found, False)
    told: dict[str, Any] = {}
    for name, those, hidden in (("rules", rules, ()), ("model alone", alone, model_answers.NOT_ITS_OWN)):
        print(f"\n{name}")
        told[name] = report(those, hidden)
    ends = intervals(joined, rules)
    print("\njoined less rules, 95 %")
    for name in ends["all"]:
        print(f"{name:28}" + "".join(f"{_range(of.get(name)):>18}" for of in ends.values()))
    cost, dropped = answers.cost(calls), model_answers.dropped(readings)
    print("\na call:", ", ".join(f"{name} {value:g}" for name, value in cost.items()))
    print("not borne out:", ", ".join(f"{kind} {refused} of {of}" for kind, (refused, of) in dropped.items()))
    return {**told, "joined less rules": ends, "cost": cost, "not borne out": dropped}


def _range(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path, nargs="+", help="folders of cases")
    parser.add_argument("--language", help="only cases in this language")
    parser.add_argument("--names", default="*", help="only cases whose names fit this pattern")
    parser.add_argument("--detail", action="store_true", help="print every mistake, and the notes of findings")
    parser.add_argument("--predictions", type=Path, help="keep what was found in this file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    model_answers.add_arguments(parser)
    given = parser.parse_args()
    paths = [path for folder in given.cases for path in sorted(folder.glob(f"{given.names}.json"))]
    cases = [json.loads(path.read_text()) for path in paths]
    cases = [case for case in cases if given.language in (None, case["input"]["language"])]
    if not cases:
        parser.error("no cases there")
    options = model_answers.options_of(given)
    answers = model_answers.KeptAnswers(options, given.answers) if given.base_url else None
    if answers:
        answers.ask_all([material(case) for case in cases], at_once=given.at_once)
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
            if finding.note and given.detail:
                print(f"{case['id']}: {finding.step}: {finding.note}")
    calls = judged(cases, predictions, given.detail)
    figures = {"calls": len(cases), "median_ms": statistics.median(milliseconds), "slowest_ms": max(milliseconds)}
    made = report(calls)
    print("{calls} calls, by rules median {median_ms:.1f} ms, slowest {slowest_ms:.1f} ms".format(**figures))
    if answers:
        made |= with_model(cases, answers, calls, judged(cases, by_rule, False))
    if given.json:
        given.json.write_text(json.dumps({**figures, **made}, indent=2) + "\n")
    if given.predictions:
        given.predictions.write_text(json.dumps(predictions, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
