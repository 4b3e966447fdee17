"""Builds findings from a reading, in the form of the built-in engine; values that the model did not state stay."""

from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.reading import CONFIDENCE, GroundedText, ReadAnswer
from pipeline.analysis.rules.people.contacts import ContactsStep
from pipeline.analysis.rules.sentiment.sentiment import tone
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.vocabulary import CallOutcome

VERSION = 4  # raise with changes of instructions or schema (a test checks these two) or checks that can change findings
MIN_SIMILARITY = 60  # rapidfuzz token_set_ratio, 0..100, of two titles of one task by model and rules
IDENTITY = ("name", "company")  # facts that match a caller to a contact
SURE = 0.8  # min. probability by rule of a task that the model does not state


def tasks(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """Return the model's tasks, and those that are very likely by rule.

    `stated_by` names the source of each; `confidence` is higher where both agree. None if the model stated tasks and
    the transcript supports none of them.
    """
    if reading.stated["tasks"] and not reading.tasks:
        return None
    agent = material.value_of("agent").get("user_id")
    listed = []
    for timed in reading.tasks:
        day, owner_id = timed.task.due_date, agent if timed.task.owner == "rep" else None
        plain = {**asdict(timed.task), "owner_user_id": owner_id, "due_date": day.isoformat() if day else None}
        listed.append({**plain, "due_time": timed.due_time, "stated_by": ["model"]})
    by_rule = built.value.get("tasks", [])
    joined, only = _joined(listed, by_rule)
    note = f"{only} of {len(joined)} tasks come from the rules only" if only else None
    evidence = tuple(Evidence(**task["evidence"]) for task in joined)
    return replace(built, value={"tasks": joined}, evidence=evidence, note=note)


def _joined(stated: list[dict[str, Any]], by_rule: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Merge both lists, in the order of the call, and count the tasks that only the rules state.

    Two sources that agree are wrong only if both are; a task that only the rules state counts half.
    """
    joined, only = list(stated), 0
    for rule in by_rule:
        same = next((at for at, task in enumerate(joined) if _is_same_task(task, rule)), None)
        if same is not None:
            joined[same] = _agreed(joined[same], rule)
        elif rule["confidence"] >= SURE:
            joined.append({**rule, "confidence": round(rule["confidence"] / 2, 2), "stated_by": ["rules"]})
            only += 1
    return sorted(joined, key=lambda task: task["evidence"]["start"]), only


def _is_same_task(task: dict[str, Any], rule: dict[str, Any]) -> bool:
    """Return whether owner and words are the same, or the titles alike in a turn and the reply to it."""
    from rapidfuzz import fuzz

    if task["owner"] != rule["owner"] or "rules" in task["stated_by"]:
        return False
    stated_at, rule_at = task["evidence"], rule["evidence"]
    if stated_at["start"] < rule_at["end"] and rule_at["start"] < stated_at["end"]:
        return True
    near = abs(stated_at["turn"] - rule_at["turn"]) <= 1
    return near and fuzz.token_set_ratio(task["title"].casefold(), rule["title"].casefold()) >= MIN_SIMILARITY


def _agreed(task: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    confidence = round(1 - (1 - CONFIDENCE) * (1 - rule["confidence"]), 2)
    due = {key: rule[key] for key in ("due_expression", "due_date", "due_time")} if task["due_date"] is None else {}
    return {**task, **due, "confidence": max(task["confidence"], confidence), "stated_by": ["model", "rules"]}


def contacts(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """Prefer the model's facts to those of the rules, and match the contact by rule.

    A contact that the rules found stays, unless the model's facts match another one. Facts that match no contact are
    dropped in that case.
    """
    if not reading.facts:
        return None
    facts, contact_id, note = reading.facts, built.value.get("contact_id"), None
    finding = ContactsStep().run(material, facts)
    if contact_id and finding.value["contact_id"] is None:
        facts = {field: fact for field, fact in facts.items() if field not in IDENTITY}
        finding = ContactsStep().run(material, facts)
        note = "the model's name matches no contact; that of the rules does"
        if finding.value["contact_id"] != contact_id:
            return None
    mentioned = {
        field: {**fact, "engine": "llm" if field in facts else "rules"} if fact else None
        for field, fact in finding.value["heard"].items()
    }
    return replace(finding, value={**finding.value, "heard": mentioned}, note=note)


def summary(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """Return the model's sentences with the quotes that support them; topics and outcome if stated.

    With a workspace's template the sentences stay those of `built`, which contains the model's tasks.
    """
    if not reading.sentences:
        return None
    outcome = _outcome(reading, built, material)
    value, evidence = dict(built.value), built.evidence
    if material.roster.summary is None:
        value |= {
            "text": " ".join(sentence.text for sentence in reading.sentences),
            "sentences": [{**_cited(sentence), "speaker": None} for sentence in reading.sentences],
        }
        evidence = tuple(sentence.evidence for sentence in reading.sentences)
    if outcome:
        value |= {"outcome": outcome.text, "outcome_evidence": asdict(outcome.evidence)}
    if reading.topics:
        value["topics"] = [_cited(topic) for topic in reading.topics]
    return replace(built, value=value, evidence=evidence, note=None)


def _outcome(reading: ReadAnswer, built: Finding, material: Material) -> GroundedText | None:
    """Return the model's outcome of the call, unless tasks or the rules contradict it."""
    stated, by_rule = reading.outcome, built.value.get("outcome")
    if stated is None or stated.text == by_rule:
        return stated
    open_tasks = bool(reading.tasks) or by_rule == CallOutcome.FOLLOW_UP
    fits = {
        CallOutcome.FOLLOW_UP: bool(reading.tasks),
        CallOutcome.RESOLVED: not open_tasks and by_rule is None,
    }
    return stated if fits.get(CallOutcome(stated.text), by_rule is None and not open_tasks) else None


def _cited(stated: GroundedText) -> dict[str, Any]:
    return {"text": stated.text, "turns": [stated.evidence.turn], "evidence": asdict(stated.evidence)}


def tone_of_voice(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """Return the model's labels of the parties and of the call; everything else stays by rule."""
    if not reading.tones:
        return None
    labels = Grounding(material).labels
    parties = dict(built.value.get("parties") or dict.fromkeys(sorted(labels)))
    for label, (_, score) in reading.tones.items():
        parties[label] = {**(parties.get(label) or {}), **_plain(score), "confidence": None}  # models state none
    scores = [party["score"] for party in parties.values() if party]
    value = {"turns": [], "trend": None, **built.value, "parties": parties, "overall": _plain(fmean(scores))}
    evidence: tuple[Evidence, ...] = tuple(text.evidence for text, _ in reading.tones.values())
    return replace(built, value=value, evidence=evidence, confidence=0.5)


def _plain(score: float) -> dict[str, Any]:
    mean_tone = tone(score)
    return {**asdict(mean_tone), "basis": list(mean_tone.basis)}


MAKERS: dict[str, Callable[[ReadAnswer, Finding, Material], Finding | None]] = {
    "tone": tone_of_voice,
    "contacts": contacts,
    "tasks": tasks,
    "summary": summary,
}
"""Builders of the findings that the model contributes to, by step. None: the built-in finding stays as it is."""
