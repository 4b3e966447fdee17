"""Findings out of a reading, in the built-in engine's form; what the model did not give stays as that engine has it."""

from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from pipeline.analysis.llm.grounding import Grounding
from pipeline.analysis.llm.reading import GroundedText, ReadAnswer
from pipeline.analysis.rules.people.contacts import Contacts
from pipeline.analysis.rules.sentiment.sentiment import tone
from pipeline.domain.insight import Evidence, Finding, Material

VERSION = 1  # raise it whenever instructions, schema or checks may give other findings


def tasks(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """None where the model stated tasks and the transcript bears none of them out."""
    if reading.stated["tasks"] and not reading.tasks:
        return None
    agent = material.findings["agent"].value.get("user_id") if "agent" in material.findings else None
    listed = []
    for one in reading.tasks:
        day, owned = one.task.due_date, agent if one.task.owner == "rep" else None
        plain = {**asdict(one.task), "owner_user_id": owned, "due_date": day.isoformat() if day else None}
        listed.append({**plain, "due_time": one.due_time})
    by_rule = len(built.value.get("tasks", ()))
    note = f"the model states no task; by rule there would be {by_rule}" if by_rule and not listed else None
    evidence = tuple(one.task.evidence for one in reading.tasks)
    return replace(built, value={"tasks": listed}, evidence=evidence, note=note)


def contacts(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """The model's facts before the rules' own; who that makes the other party is decided by rule."""
    if not reading.facts:
        return None
    found = Contacts().run(material, reading.facts)
    heard = {
        field: {**fact, "engine": "llm" if field in reading.facts else "rules"} if fact else None
        for field, fact in found.value["heard"].items()
    }
    return replace(found, value={**found.value, "heard": heard}, note=None)


def summary(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """Sentences in the model's words, each with the words that bear it out; topics and outcome where it gave them."""
    if not reading.sentences:
        return None
    outcome = reading.outcome
    value = {
        **built.value,
        "text": " ".join(told.text for told in reading.sentences),
        "sentences": [
            {"text": told.text, "speaker": None, "turns": [told.evidence.turn], "evidence": asdict(told.evidence)}
            for told in reading.sentences
        ],
    }
    if outcome:
        value |= {"outcome": outcome.text, "outcome_evidence": asdict(outcome.evidence)}
    if reading.topics:
        value["topics"] = [_topic(told) for told in reading.topics]
    return replace(built, value=value, evidence=tuple(told.evidence for told in reading.sentences), note=None)


def _topic(told: GroundedText) -> dict[str, Any]:
    return {"text": told.text, "turns": [told.evidence.turn], "evidence": asdict(told.evidence)}


def tone_of_voice(reading: ReadAnswer, built: Finding, material: Material) -> Finding | None:
    """The labels of the parties and of the call; everything else in it is the rules'."""
    if not reading.tones:
        return None
    said = Grounding(material).labels
    parties = dict(built.value.get("parties") or dict.fromkeys(sorted(said)))
    for label, (_, score) in reading.tones.items():
        parties[label] = {**(parties.get(label) or {}), **_plain(score), "confidence": None}  # a model gives none
    scores = [party["score"] for party in parties.values() if party]
    value = {"turns": [], "trend": None, **built.value, "parties": parties, "overall": _plain(fmean(scores))}
    evidence: tuple[Evidence, ...] = tuple(told.evidence for told, _ in reading.tones.values())
    return replace(built, value=value, evidence=evidence, confidence=0.5)


def _plain(score: float) -> dict[str, Any]:
    made = tone(score)
    return {**asdict(made), "basis": list(made.basis)}


MAKERS: dict[str, Callable[[ReadAnswer, Finding, Material], Finding | None]] = {
    "tone": tone_of_voice,
    "contacts": contacts,
    "tasks": tasks,
    "summary": summary,
}
"""By step, what the model has a say in. A maker that answers None leaves the built-in finding as it is."""
