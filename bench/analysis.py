"""How well, and how fast, does the analysis read calls whose truth is known?

    python bench/analysis.py CASES [--scorer score.py] [--language en] [--detail] [--predictions OUT] [--json FILE]

CASES is a folder of JSON files: `input` (language, startTime, durationSeconds, roster, contacts, turns) and `gold`. The
scorer is a script beside the folder, called as `score.py CASES PREDICTIONS`; without it only the times are printed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.analysis import analyze
from pipeline.domain.call import Call
from pipeline.domain.insight import Contact, Finding, Material, Member, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Speaker, Transcript, Turn, Word


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
        "tasks": [
            {"text": t["title"], "owner": t["owner"], "due_date": t["due_date"], "turn": t["evidence"]["turn"]}
            for t in of["tasks"]["tasks"]
        ],
        "contact": {**heard, "match": match},
        "tone": {label: party and party["label"] for label, party in parties.items()},
        "topics": [],
        "summary": of["summary"]["text"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="folder of cases")
    parser.add_argument("--scorer", type=Path, help="script that compares predictions with `gold`")
    parser.add_argument("--language", help="only cases in this language")
    parser.add_argument("--detail", action="store_true", help="print the notes of findings too")
    parser.add_argument("--predictions", type=Path, help="keep the predictions in this file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    cases = [json.loads(path.read_text()) for path in sorted(given.cases.glob("*.json"))]
    cases = [case for case in cases if given.language in (None, case["input"]["language"])]
    predictions, milliseconds = {}, []
    analyze(material(cases[0]))  # imports and packs
    for case in cases:
        started = time.perf_counter()
        findings = analyze(material(case))
        milliseconds.append((time.perf_counter() - started) * 1000)
        predictions[case["id"]] = prediction(findings)
        for finding in findings:
            if finding.note and given.detail:
                print(f"{case['id']}: {finding.step}: {finding.note}")
    figures = {"calls": len(cases), "median_ms": statistics.median(milliseconds), "slowest_ms": max(milliseconds)}
    print("{calls} calls, median {median_ms:.1f} ms, slowest {slowest_ms:.1f} ms".format(**figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        out = given.predictions or Path(folder) / "predictions.json"
        out.write_text(json.dumps(predictions, ensure_ascii=False, indent=1))
        if given.scorer:
            extra = ["--lang", given.language] if given.language else []
            extra += ["--detail"] if given.detail else []
            subprocess.run([sys.executable, given.scorer, given.cases, out, *extra], check=True)


if __name__ == "__main__":
    main()
