"""What do the checks of the language-model engine let through, of what is true and of what is invented?

    python bench/analysis_cases/model_checks.py CASES [CASES ...] [--json FILE]

No model takes part. A server on loopback answers for one: with the truth of each call (its tasks, each quoted with its
whole turn, and its contact facts, each quoted with the turns in which they are said), then with that of another call of
the same language, in this call's turns. Every true statement that is dropped is a fault of the checks; so is every
foreign one that stays. CASES are folders such as analysis_cases/dev. Says nothing of how well any model reads a call.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.analysis import material
from pipeline.analysis import AnalysisOptions, analyze
from pipeline.analysis.llm.answer import ModelAnswer
from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.reading import ground
from pipeline.domain.insight import Finding
from tests.llm_server import MODEL, running

FIELDS = ("name", "company", "email", "phone", "address")


def answer(tasks: list[dict[str, Any]], contact: dict[str, Any]) -> dict[str, Any]:
    return {
        "tasks": tasks,
        "contact": {field: contact.get(field) for field in FIELDS},
        "summary": [],
        "topics": [],
        "tones": [],
        "outcome": None,
    }


def task(gold: dict[str, Any], turns: dict[int, str], due: bool = True) -> dict[str, Any]:
    stated = {"turn": gold["due_turn"], "text": gold["due_expression"]} if due and gold["due_expression"] else None
    return {
        "title": gold["text"],
        "owner": gold["owner"],
        "beneficiary": gold["beneficiary"],
        "kind": "commitment",
        "due": stated,
        "quote": {"turn": gold["turn"], "text": turns[gold["turn"]]},
    }


def ways(turns: dict[int, str]) -> list[list[dict[str, Any]]]:
    """Quotes that a fact may be given: each turn, each turn with the one after the next, and three such."""
    quotes = {at: {"turn": at, "text": text} for at, text in turns.items()}
    spans = [[0], [0, 2], [0, 2, 4]]
    return [[quotes[at + step] for step in span] for at in quotes for span in spans if at + span[-1] in quotes]


def tasks_kept(case: dict[str, Any], stated: list[dict[str, Any]], ask: Any) -> dict[tuple[int, str], dict[str, Any]]:
    """The stated tasks that stay, by turn and owner: a title may give way to the quote."""
    made = ask(case, answer(stated, {}))["tasks"].value
    listed = made["tasks"] if "engine" in made else []
    return {(one["evidence"]["turn"], one["owner"]): one for one in listed if "model" in one["stated_by"]}


def fact_kept(case: dict[str, Any], field: str, value: str) -> bool:
    """Whether some quotes of the call bear a value out."""
    grounding = Grounding(material(case))
    stated = (answer([], {field: {"value": value, "quotes": quotes}}) for quotes in ways(said(case)))
    return any(ground(ModelAnswer.model_validate(one), grounding).facts for one in stated)


def said(case: dict[str, Any]) -> dict[int, str]:
    return {turn["index"]: turn["text"] for turn in case["input"]["turns"]}


def judge(case: dict[str, Any], other: dict[str, Any], ask: Any, counts: Counter[str]) -> None:
    gold, turns = case["gold"], said(case)
    kept = tasks_kept(case, [task(one, turns) for one in gold["tasks"]], ask)
    for one in gold["tasks"]:
        counts["true tasks"] += 1
        here = kept.get((one["turn"], one["owner"]))
        counts["true tasks kept"] += here is not None
        counts["titles kept"] += here is not None and here["title"] == one["text"]
        if one["due_expression"] and here:
            right = {one["due_date"], *one["due_date_alternatives"]}
            counts["days"] += 1
            counts["days right"] += here["due_date"] in right
    foreign = [task(one, said(other)) for one in other["gold"]["tasks"]]
    counts["foreign tasks"] += len(foreign)
    counts["foreign tasks kept"] += len(tasks_kept(case, foreign, ask))
    for field in FIELDS:
        if gold["contact"][field]:
            counts["true facts"] += 1
            counts["true facts kept"] += fact_kept(case, field, gold["contact"][field])
        if other["gold"]["contact"][field] and other["gold"]["contact"][field] != gold["contact"][field]:
            counts["foreign facts"] += 1
            counts["foreign facts kept"] += fact_kept(case, field, other["gold"]["contact"][field])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+", help="folders of cases")
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    cases = [json.loads(path.read_text()) for folder in given.cases for path in sorted(folder.glob("*.json"))]
    counts: Counter[str] = Counter()
    extra: list[float] = []
    with running() as endpoint:
        options = AnalysisOptions(engine="llm", base_url=endpoint.base_url, model=MODEL)

        def ask(case: dict[str, Any], told: dict[str, Any]) -> dict[str, Finding]:
            endpoint.answers(told)
            return {finding.step: finding for finding in analyze(material(case), options)}

        for at, case in enumerate(cases):
            same = [one for one in cases if one["input"]["language"] == case["input"]["language"]]
            other = same[(same.index(case) + 1) % len(same)]
            judge(case, other, ask, counts)
            extra.append(overhead(case, ask))
            print(f"\r{at + 1} of {len(cases)} calls", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    figures = {**counts, "calls": len(cases), "median_extra_ms": statistics.median(extra)}
    for what in ("true tasks", "true facts", "foreign tasks", "foreign facts"):
        print(f"{what:14} kept {counts[what + ' kept']:4} of {counts[what]:4}")
    print(f"{'titles':14} kept {counts['titles kept']:4} of {counts['true tasks kept']:4}")
    print(f"{'days':14} right {counts['days right']:3} of {counts['days']:4}")
    print(
        f"request, answer and checks beside the rules: median {statistics.median(extra):.1f} ms on {len(cases)} calls"
    )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


def overhead(case: dict[str, Any], ask: Any) -> float:
    """Milliseconds that asking a model that answers at once takes longer than the rules alone."""
    stated = [task(one, said(case)) for one in case["gold"]["tasks"]]
    given, rules, llm = material(case), list[float](), list[float]()
    for _ in range(3):
        started = time.perf_counter()
        analyze(given)
        between = time.perf_counter()
        ask(case, answer(stated, {}))
        rules.append(between - started)
        llm.append(time.perf_counter() - between)
    return (min(llm) - min(rules)) * 1000


if __name__ == "__main__":
    main()
