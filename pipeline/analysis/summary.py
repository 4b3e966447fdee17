"""What the call was about, in its own sentences, and how it ended."""

from dataclasses import asdict
from typing import Any

from pipeline.analysis.language import missing
from pipeline.analysis.talk import Said, Sentence, read
from pipeline.domain.insight import Evidence, Finding, Material
from pipeline.domain.speech import Role

AT_MOST = 3  # sentences


class Summary:
    """Extractive: every sentence was said, and points at its turn. Reason for the call first, then what was agreed."""

    name = "summary"
    version = 1

    def run(self, material: Material) -> Finding:
        said = read(material)
        if not said:
            return Finding(
                self.name,
                self.version,
                {"text": "", "sentences": [], "outcome": "no_speech"},
                note="nobody speaks in this call",
            )
        tasks = material.findings["tasks"].value.get("tasks", []) if "tasks" in material.findings else []
        picked = _picked(said, tasks)
        how = outcome(said, tasks)
        value = {
            "text": " ".join(f"{sentence['speaker']}: {sentence['text']}" for sentence in picked),
            "sentences": picked,
            "outcome": how.name if how else None,
            "outcome_evidence": asdict(how.evidence) if how and how.evidence else None,
        }
        known = any(turn.pack.known for turn in said)
        note = None if known else missing(material.transcript.language) + ": the longest early sentences, no outcome"
        return Finding(self.name, self.version, value, tuple(Evidence(**s["evidence"]) for s in picked), note=note)


def _picked(said: tuple[Said, ...], tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reason for the call and the sentences of its tasks, in the order they were said."""
    turns = {turn.turn.index: turn.turn for turn in said}
    found: dict[tuple[int, float], dict[str, Any]] = {}
    reason = _reason(said)
    for evidence in [*([reason.evidence()] if reason else []), *(Evidence(**task["evidence"]) for task in tasks)]:
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
    for turn in said:
        for sentence in turn.sentences:
            if sentence.pack.matches("summary", "reason", sentence.text):
                return sentence
    early = [s for turn in said[: max(4, len(said) // 3)] for s in turn.sentences if not s.text.endswith("?")]
    return max(early, key=lambda sentence: len(sentence.text.split()), default=None)


class Outcome:
    """`name`: voicemail, wrong_number, refused, follow_up or resolved."""

    def __init__(self, name: str, evidence: Evidence | None = None) -> None:
        self.name, self.evidence = name, evidence


def outcome(said: tuple[Said, ...], tasks: list[dict[str, Any]]) -> Outcome | None:
    """None where the call does not tell."""
    for name in ("voicemail", "wrong_number"):
        cue = _cue(said[:6], name, (Role.CUSTOMER, Role.UNKNOWN))
        if cue:
            return Outcome(name, cue)
    if tasks:
        return Outcome("follow_up", Evidence(**tasks[0]["evidence"]))
    for name in ("refused", "resolved"):
        cue = _cue(said[len(said) // 3 :], name, (Role.CUSTOMER, Role.UNKNOWN))
        if cue:
            return Outcome(name, cue)
    return None


def _cue(said: tuple[Said, ...], key: str, roles: tuple[Role, ...]) -> Evidence | None:
    for turn in said:
        for sentence in turn.sentences if turn.role in roles else ():
            for pattern in turn.pack.patterns("summary", key):
                match = pattern.search(sentence.text)
                if match:
                    return sentence.evidence(match.span())
    return None
