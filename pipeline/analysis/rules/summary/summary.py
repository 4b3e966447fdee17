"""What the call was about, out of its own sentences and findings, and how it ended."""

from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.summary.outcome import outcome
from pipeline.analysis.rules.summary.reason import reason
from pipeline.analysis.rules.summary.template import SummaryPart, fill, lines_of, steps
from pipeline.analysis.rules.summary.topics import topics
from pipeline.analysis.talk import Sentence, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.language.pack import missing, pack

ENDINGS = frozenset({"refused", "wrong_number"})  # outcomes whose sentence belongs into a summary
REASON_ALONE = ("{reason}.",)  # the template of a language without a pack


class SummaryStep:
    """By template, the workspace's or that of the language: the sentence that tells why there is a call, what was
    agreed, what is open, the next step."""

    name = "summary"
    version = 3

    def run(self, material: Material) -> Finding:
        said = read(material, machines=True)
        if not said:
            return Finding(
                self.name,
                self.version,
                {"text": "", "sentences": [], "outcome": "no_speech", "outcome_evidence": None, "topics": []},
                note="nobody speaks in this call",
            )
        tasks = _value(material, "tasks").get("tasks", [])
        promises = frozenset(Evidence(**task["evidence"]) for task in tasks)
        names = _names(material)
        how = outcome(said, tasks)
        own = material.roster.summary
        alone = own is not None and own.most("reason") == 1
        why = reason(said, _value(material, "direction").get("outgoing"), promises, names, alone)
        ending = how.evidence if how and how.name in ENDINGS else None
        usual = pack(material.transcript.language).get("summary", "template", REASON_ALONE)
        lines = lines_of(own, usual) if own else usual
        told = fill(lines, _told(material, why, ending, tasks))
        value = {
            "text": " ".join(line for line, _ in told),
            "sentences": [_sentence(*one) for one in told],
            "outcome": how.name if how else None,
            "outcome_evidence": asdict(how.evidence) if how and how.evidence else None,
            "topics": topics(said, why, tasks, names),
        }
        known = any(turn.pack.known for turn in said)
        note = None if known else missing(material.transcript.language) + ": its likeliest early sentences, no outcome"
        evidence = tuple(Evidence(**one) for _, part in told for one in part.evidence)
        return Finding(self.name, self.version, value, evidence, note=note)


def _value(material: Material, step: str) -> dict[str, Any]:
    return material.findings[step].value if step in material.findings else {}


def _names(material: Material) -> frozenset[str]:
    """The parts of the names that the workspace knows or that were heard, in lower case."""
    members = (name for member in material.roster.members for name in (member.name, *member.aliases))
    contacts = (contact.name for contact in material.roster.contacts if contact.name)
    heard = _value(material, "contacts").get("heard", {}).get("name")
    known = (*members, *contacts, *([heard["value"]] if heard else []))
    return frozenset(part.lower() for name in known for part in name.split())


def _told(
    material: Material, why: tuple[Sentence, ...], ending: Evidence | None, tasks: list[dict[str, Any]]
) -> list[SummaryPart]:
    names = _parties(material)
    told = [_quoted("reason", [one.evidence() for one in why], names, material)] if why else []
    told += steps(tasks, lambda task: names.get(task["owner"], task["owner"]), material.roster.summary)
    if ending and ending not in [one.evidence() for one in why]:
        told.append(_quoted("ending", [ending], names, material))
    return told


def _quoted(part: str, said: list[Evidence], names: dict[str, str], material: Material) -> SummaryPart:
    """Sentences with who says them."""
    label = next(turn.speaker for turn in material.transcript.turns if turn.index == said[0].turn)
    role = next((speaker.role.value for speaker in material.transcript.speakers if speaker.label == label), "")
    text = " ".join(evidence.quote for evidence in said)
    return SummaryPart(
        part, f"{names.get(role, label)}: {text}", tuple(asdict(evidence) for evidence in said), text, label
    )


def _parties(material: Material) -> dict[str, str]:
    """What the parties are called, by role: by name where it is known, else in words of the call's language. Where
    roles are not known, nothing: then the labels of speakers stand."""
    found = dict(pack(material.transcript.language).get("summary", "parties", {}))
    if name := _value(material, "agent").get("name"):
        found["rep"] = name
    if heard := _value(material, "contacts").get("heard", {}).get("name"):
        found["customer"] = heard["value"]
    return found


def _sentence(line: str, told: SummaryPart) -> dict[str, Any]:
    """What was said stands without its speaker's name, which a reader knows by label."""
    turns = sorted({one["turn"] for one in told.evidence})
    text = told.quote or line
    return {"part": told.part, "text": text, "speaker": told.speaker, "turns": turns, "evidence": told.evidence[0]}
