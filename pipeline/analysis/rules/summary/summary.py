from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.summary.outcome import outcome
from pipeline.analysis.rules.summary.reason import introduction, reason
from pipeline.analysis.rules.summary.template import SummaryPart, Wording, done, fill, lines_of, steps
from pipeline.analysis.rules.summary.topics import topics
from pipeline.analysis.talk import Sentence, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.vocabulary import ActionKind, CallOutcome
from pipeline.language.pack import missing, pack

ENDINGS = frozenset({CallOutcome.REFUSED, CallOutcome.WRONG_NUMBER})  # outcomes whose sentence belongs in a summary
REASON_ALONE = ("{reason}.",)  # the template of a language without a pack


class SummaryStep:
    """Summary by template, the workspace's or the language's: reason, agreements, open tasks, next step."""

    name = "summary"
    version = 6

    def run(self, material: Material) -> Finding:
        turns = read(material, machines=True)
        if not turns:
            return Finding(
                self.name,
                self.version,
                {
                    "text": "",
                    "sentences": [],
                    "outcome": CallOutcome.NO_SPEECH.value,
                    "outcome_evidence": None,
                    "topics": [],
                },
                note="no speech in this call",
            )
        tasks = material.value_of("tasks").get("tasks", [])
        promises = frozenset(Evidence(**task["evidence"]) for task in tasks)
        names = _names(material)
        outgoing = material.value_of("direction").get("outgoing")
        how = outcome(turns, tasks, outgoing)
        template = material.roster.summary
        alone = template is not None and template.most("reason") == 1
        why = reason(turns, outgoing, promises, names, alone)
        ending = how.evidence if how and how.name in ENDINGS else None
        usual = pack(material.transcript.language).get("summary", "template", REASON_ALONE)
        lines = lines_of(template, usual) if template else usual
        parts = fill(lines, _parts(material, why, ending, tasks))
        value = {
            "text": " ".join(line for line, _ in parts),
            "sentences": [_sentence(*item) for item in parts],
            "outcome": how.name.value if how else None,
            "outcome_evidence": asdict(how.evidence) if how and how.evidence else None,
            "topics": topics(turns, why, tasks, names),
        }
        has_pack = any(turn.pack.known for turn in turns)
        note = None if has_pack else missing(material.transcript.language) + ": most likely early sentences, no outcome"
        evidence = tuple(Evidence(**item) for _, part in parts for item in part.evidence)
        return Finding(self.name, self.version, value, evidence, note=note)


def _names(material: Material) -> frozenset[str]:
    members = (name for member in material.roster.members for name in (member.name, *member.aliases))
    contacts = (contact.name for contact in material.roster.contacts if contact.name)
    spoken = material.value_of("contacts").get("heard", {}).get("name")
    names = (*members, *contacts, *([spoken["value"]] if spoken else []))
    return frozenset(part.lower() for name in names for part in name.split())


def _parts(
    material: Material, why: tuple[Sentence, ...], ending: Evidence | None, tasks: list[dict[str, Any]]
) -> list[SummaryPart]:
    words, template, names = pack(material.transcript.language), material.roster.summary, _known_names(material)
    parties = {**words.get("summary", "parties", {}), **names}
    actions = material.value_of("actions").get("actions", [])
    tasks = [task for task in tasks if not any(_is_done(task, action) for action in actions)]
    wording = Wording(words, parties, names)
    parts = done(actions, wording, template) + steps(tasks, wording, template)
    if why:
        parts.append(_quoted("reason", [_without_introduction(sentence) for sentence in why], parties, material))
    if ending and ending not in [sentence.evidence() for sentence in why]:
        parts.append(_quoted("ending", [ending], parties, material))
    return parts


def _is_done(task: dict[str, Any], action: dict[str, Any]) -> bool:
    """Return whether an action already says what a task says: an appointment made in the call, or the same words."""
    promised, done_by = task["evidence"], action["evidence"]
    if (
        promised["turn"] == done_by["turn"]
        and promised["start"] < done_by["end"]
        and done_by["start"] < promised["end"]
    ):
        return bool(task["due_date"] == action["date"])
    is_same_time = task["due_time"] is None or action["time"] is None or task["due_time"] == action["time"]
    is_appointment = task["kind"] == "appointment" and action["kind"] == ActionKind.APPOINTMENT.value
    return is_appointment and task["due_date"] == action["date"] and is_same_time


def _without_introduction(sentence: Sentence) -> Evidence:
    first = introduction(sentence)
    return sentence.evidence((first, len(sentence.text)) if first < len(sentence.text) else None)


def _quoted(part: str, quotes: list[Evidence], parties: dict[str, str], material: Material) -> SummaryPart:
    label = next(turn.speaker for turn in material.transcript.turns if turn.index == quotes[0].turn)
    role = next((speaker.role.value for speaker in material.transcript.speakers if speaker.label == label), "")
    text = " ".join(evidence.quote for evidence in quotes).rstrip(" ,;")
    sentence = pack(material.transcript.language).get("summary", "quoted", "{owner}: {quote}")
    line = sentence.format(owner=parties.get(role, label), quote=text[:1].upper() + text[1:])
    return SummaryPart(part, line, tuple(asdict(evidence) for evidence in quotes), text, label)


def _known_names(material: Material) -> dict[str, str]:
    """Return the known names of the parties by role."""
    agent = material.value_of("agent")
    spoken = material.value_of("contacts").get("heard", {}).get("name")
    names = {"rep": agent.get("name") or agent.get("spoken_name"), "customer": spoken and spoken["value"]}
    return {role: name for role, name in names.items() if name}


def _sentence(line: str, part: SummaryPart) -> dict[str, Any]:
    """Return a sentence of the summary; a quote omits its speaker's name, which the label gives."""
    turns = sorted({item["turn"] for item in part.evidence})
    text = part.quote or line
    return {"part": part.part, "text": text, "speaker": part.speaker, "turns": turns, "evidence": part.evidence[0]}
