"""What the call was about, in its own sentences and words, and how it ended."""

from dataclasses import asdict
from typing import Any

from pipeline.analysis.rules.summary.outcome import outcome
from pipeline.analysis.rules.summary.topics import topics
from pipeline.analysis.talk import Said, Sentence, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.language.pack import missing

AT_MOST = 4  # sentences: the reason and three more
ENDINGS = frozenset({"refused", "wrong_number"})  # outcomes whose sentence belongs into a summary


class Summary:
    """Extractive: every sentence was said, and points at its turn: the reason, what was agreed, how it ended."""

    name = "summary"
    version = 2

    def run(self, material: Material) -> Finding:
        said = read(material, machines=True)
        if not said:
            return Finding(
                self.name,
                self.version,
                {"text": "", "sentences": [], "outcome": "no_speech", "outcome_evidence": None, "topics": []},
                note="nobody speaks in this call",
            )
        tasks = material.findings["tasks"].value.get("tasks", []) if "tasks" in material.findings else []
        how, reason = outcome(said, tasks), _reason(said)
        ending = how.evidence if how and how.name in ENDINGS else None
        picked = _picked(said, reason, tasks, ending)
        value = {
            "text": " ".join(f"{sentence['speaker']}: {sentence['text']}" for sentence in picked),
            "sentences": picked,
            "outcome": how.name if how else None,
            "outcome_evidence": asdict(how.evidence) if how and how.evidence else None,
            "topics": topics(said, reason, tasks, _names(material)),
        }
        known = any(turn.pack.known for turn in said)
        note = None if known else missing(material.transcript.language) + ": the longest early sentences, no outcome"
        return Finding(self.name, self.version, value, tuple(Evidence(**s["evidence"]) for s in picked), note=note)


def _names(material: Material) -> frozenset[str]:
    """The parts of the names that the workspace knows, in lower case."""
    members = (name for member in material.roster.members for name in (member.name, *member.aliases))
    contacts = (contact.name for contact in material.roster.contacts if contact.name)
    return frozenset(part.lower() for name in (*members, *contacts) for part in name.split())


def _picked(
    said: tuple[Said, ...], reason: Sentence | None, tasks: list[dict[str, Any]], ending: Evidence | None
) -> list[dict[str, Any]]:
    """The reason for the call, the sentences of its surest tasks and its ending, in the order they were said."""
    turns = {turn.turn.index: turn.turn for turn in said}
    found: dict[tuple[int, float], dict[str, Any]] = {}
    surest = sorted(tasks, key=lambda task: -task["confidence"])
    agreed = (Evidence(**task["evidence"]) for task in surest)
    for evidence in [*([reason.evidence()] if reason else []), *([ending] if ending else []), *agreed]:
        if len(found) < AT_MOST:
            speaker = turns[evidence.turn].speaker
            sentence = {
                "text": evidence.quote,
                "speaker": speaker,
                "turns": [evidence.turn],
                "evidence": asdict(evidence),
            }
            found.setdefault((evidence.turn, evidence.start), sentence)
    return [found[at] for at in sorted(found)]


def _reason(said: tuple[Said, ...]) -> Sentence | None:
    """The first sentence that tells why there is a call; else the longest statement of the first third."""
    people = [turn for turn in said if not turn.turn.machine]
    for turn in people[: max(8, len(people) // 2)]:
        for sentence in turn.sentences:
            if sentence.pack.matches("summary", "reason", sentence.text):
                return sentence
    early = [s for turn in people[: max(4, len(people) // 3)] for s in turn.sentences if not s.text.endswith("?")]
    return max(early, key=lambda sentence: len(sentence.text.split()), default=None)
