"""The cases of bench/analysis_cases are well formed: each due date follows from the call's date and its `due_rule`."""

import calendar
import json
import re
from datetime import date, datetime, timedelta
from typing import Any

from pipeline.domain.vocabulary import CallOutcome
from tests.paths import ROOT

CASES = ROOT / "bench" / "analysis_cases"
SPLITS = ("dev", "held_out")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OWNERS = {"rep", "customer", "other"}
TONES = {"negative", "neutral", "positive"}
KINDS = {"hypothetical", "refused", "past", "rhetorical", "in_call", "idiom", "other"}
OUTCOMES = {*CallOutcome, None} - {CallOutcome.NO_SPEECH}
AGENT_BY = {"own_words", "addressed", None}
TURN_KEYS = {"index", "speaker", "start", "end", "text"}
TASK_KEYS = {
    *("id", "optional", "owner", "owner_alternatives", "beneficiary", "text", "turn"),
    *("due_expression", "due_turn", "due_rule", "due_date", "due_time", "due_date_alternatives"),
}


def step(day: date, rule: str) -> date:
    """One step of a due rule, from `day`; raises ValueError for a rule that does not exist."""
    if match := re.fullmatch(r"day([+-]\d+)", rule):
        return day + timedelta(days=int(match[1]))
    if match := re.fullmatch(r"work\+(\d+)", rule):
        for _ in range(int(match[1])):
            day += timedelta(days=3 if day.weekday() == 4 else 2 if day.weekday() == 5 else 1)
        return day
    if match := re.fullmatch(r"(mon|tue|wed|thu|fri|sat|sun)(>|\+\d)?", rule):
        weekday = WEEKDAYS.index(match[1])
        if match[2] == ">":
            return day + timedelta(days=7 - day.weekday() + weekday)
        ahead = (weekday - day.weekday() - 1) % 7 + 1
        return day + timedelta(days=ahead + 7 * int(match[2] or 0))
    if rule in ("week", "week>"):
        return day + timedelta(days=4 - day.weekday() + 7 * (rule == "week>"))
    if rule == "month-end":
        return day.replace(day=calendar.monthrange(day.year, day.month)[1])
    if match := re.fullmatch(r"dom(\d+)", rule):
        while day.day != int(match[1]):
            day += timedelta(days=1)
        return day
    if match := re.fullmatch(r"(\d\d)-(\d\d)", rule):
        that = date(day.year, int(match[1]), int(match[2]))
        return that if that >= day else that.replace(year=day.year + 1)
    raise ValueError(f"unknown due rule {rule!r}")


def due(start: date, rule: str) -> date | None:
    """Return the date of a rule for a call of that date; None for `event`: a deadline without a date."""
    if rule == "event":
        return None
    day = start
    for part in rule.split():
        day = step(day, part)
    return day


def turn_faults(turns: list[dict[str, Any]], duration: float) -> list[str]:
    faults, before = [], None
    if not 8 <= len(turns) <= 45:
        faults.append(f"{len(turns)} turns")
    for position, turn in enumerate(turns):
        seconds, words = turn["end"] - turn["start"], len(turn["text"].split())
        if set(turn) != TURN_KEYS or turn["index"] != position or turn["speaker"] not in ("rep", "customer"):
            faults.append(f"turn {position}: keys, index or speaker")
        if not 0 <= turn["start"] < turn["end"] <= duration or not words or not 0.5 <= words / seconds <= 4:
            faults.append(f"turn {position}: {words} words in {seconds:.2f} s")
        if before and not turn["start"] >= max(before["start"], before["end"] - 1.5):
            faults.append(f"turn {position}: starts too early")
        before = turn
    return faults


def task_faults(task: dict[str, Any], start: date, turns: list[dict[str, Any]]) -> list[str]:
    faults, name = [], task["id"]
    if set(task) != TASK_KEYS:
        faults.append(f"{name}: keys {sorted(set(task) ^ TASK_KEYS)}")
    if not {task["owner"], task["beneficiary"], *task["owner_alternatives"]} <= OWNERS:
        faults.append(f"{name}: owner or beneficiary")
    if not 0 <= task["turn"] < len(turns):
        return [*faults, f"{name}: turn {task['turn']}"]
    expression, rule = task["due_expression"], task["due_rule"]
    if (expression is None) != (rule is None) or (expression is None) != (task["due_turn"] is None):
        return [*faults, f"{name}: expression, rule and turn go together"]
    if expression is None:
        return faults if task["due_date"] is None else [*faults, f"{name}: a date from nothing"]
    if expression not in turns[task["due_turn"]]["text"]:
        faults.append(f"{name}: {expression!r} is not in turn {task['due_turn']}")
    expected = due(start, rule)
    if task["due_date"] != (expected and expected.isoformat()):
        faults.append(f"{name}: {rule} from {start:%a %d %b %Y} gives {expected}, gold has {task['due_date']}")
    for other in [task["due_date"], *task["due_date_alternatives"]]:
        if other and date.fromisoformat(other) < start:
            faults.append(f"{name}: {other} is before the call")
    if task["due_time"] and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", task["due_time"]):
        faults.append(f"{name}: time {task['due_time']}")
    return faults


def tone_faults(tone: dict[str, Any], turns: list[dict[str, Any]]) -> list[str]:
    faults = []
    spoke = {turn["speaker"] for turn in turns}
    for party in ("rep", "customer"):
        if tone[party] not in TONES and tone[party] is not None:
            faults.append(f"tone of {party}: {tone[party]}")
        if tone[party] and party not in spoke:
            faults.append(f"tone of {party}, who never speaks")
    if not {party for party in tone["doubtful"] if tone[party]} == set(tone["doubtful"]) <= {"rep", "customer"}:
        faults.append(f"doubtful tone of {tone['doubtful']}")
    turning = tone["turning_point"]
    if turning and (turns[turning["turn"]]["speaker"] != turning["speaker"] or turning["from"] == turning["to"]):
        faults.append("turning point is not a change in a turn of its speaker")
    return faults


def contact_faults(contact: dict[str, Any], known_ids: set[str]) -> list[str]:
    faults = []
    if contact["match"] not in {*known_ids, "new", None}:
        faults.append(f"contact: match {contact['match']}")
    if contact["email"] and not re.fullmatch(r"[a-z0-9._-]+@[a-z0-9-]+(\.[a-z0-9-]+)+", contact["email"]):
        faults.append(f"contact: e-mail {contact['email']}")
    if contact["phone"] and len(re.sub(r"\D", "", contact["phone"])) < 7:
        faults.append(f"contact: phone {contact['phone']}")
    return faults


def case_faults(case: dict[str, Any]) -> list[str]:
    call_input, gold = case["input"], case["gold"]
    turns, start = call_input["turns"], datetime.fromisoformat(call_input["startTime"])
    faults = turn_faults(turns, call_input["durationSeconds"])
    offset = start.utcoffset()
    if offset is None or offset.seconds % 3600:
        faults.append("startTime: an offset of whole hours is needed (bench/analysis.py)")
    if not 30 <= call_input["durationSeconds"] <= 360 or not call_input["durationSeconds"] - 5 <= turns[-1]["end"]:
        faults.append(f"{call_input['durationSeconds']} s long, last turn ends at {turns[-1]['end']}")
    if not 2 <= len(call_input["roster"]) <= 6 or len(call_input["contacts"]) > 8:
        faults.append("size of roster or contacts")
    if gold["agent"]["userId"] not in {None, *(member["userId"] for member in call_input["roster"])}:
        faults.append("agent is not in the roster")
    if (
        gold["outcome"] not in OUTCOMES
        or gold["agent_by"] not in AGENT_BY
        or gold["outgoing"] not in (True, False, None)
    ):
        faults.append("outcome, agent_by or outgoing")
    for task in gold["tasks"]:
        faults += task_faults(task, start.date(), turns)
    for negative in gold["negatives"]:
        if negative["kind"] not in KINDS or not 0 <= negative["turn"] < len(turns) or not negative["note"]:
            faults.append(f"{negative['id']}: kind, turn or note")
    faults += tone_faults(gold["tone"], turns)
    faults += contact_faults(gold["contact"], {contact["contactId"] for contact in call_input["contacts"]})
    if not gold["topics"] or not gold["summary"] or not gold["domain"]:
        faults.append("topics, summary or domain are empty")
    return faults


def test_every_case_is_well_formed() -> None:
    faults: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path in sorted(path for split in SPLITS for path in (CASES / split).glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        problems = case_faults(case)
        problems += ["id is not the file's name"] * (case["id"] != path.stem) + ["id twice"] * (case["id"] in seen)
        seen.add(case["id"])
        if problems:
            faults[f"{path.parent.name}/{path.stem}"] = problems
    assert faults == {}
    assert len(seen) == 560


def test_a_wrong_date_is_a_fault() -> None:
    case = json.loads(next((CASES / "dev").glob("en_gym_45.json")).read_text(encoding="utf-8"))
    dated = next(task for task in case["gold"]["tasks"] if task["due_date"])
    dated["due_date"] = "2031-01-01"
    assert any("gold has 2031-01-01" in fault for fault in case_faults(case))
