"""Which member of the team spoke: as sent, else known by voice, else named in the greeting."""

from dataclasses import asdict
from typing import Any

from pipeline.analysis.people import Named, introductions
from pipeline.analysis.talk import read
from pipeline.domain.insight import Finding, Material, Member
from pipeline.domain.speech import Role

FIRST_NAME, FULL_NAME = 0.8, 0.95  # confidence of a name that fits one member exactly
CLOSE = 90  # rapidfuzz ratio, 0..100, from which a misheard full name still fits


class Agent:
    """Abstains where no name fits or several members share it, and then lists them."""

    name = "agent"
    version = 1

    def run(self, material: Material) -> Finding:
        spoken = _spoken(material)
        if material.call.user_id is not None:
            value = _value(str(material.call.user_id), "sender", spoken, material.roster.members)
            return Finding(self.name, self.version, value, _evidence(spoken))
        by_voice = [s for s in material.transcript.speakers if s.role is Role.REP and s.user_id]
        if by_voice:
            value = _value(by_voice[0].user_id, "voice", spoken, material.roster.members)
            return Finding(self.name, self.version, value, _evidence(spoken), by_voice[0].role_confidence)
        if spoken is None:
            return Finding(self.name, self.version, _value(None, None, None, ()), note="nobody of ours says their name")
        return self._by_name(spoken, material.roster.members)

    def _by_name(self, spoken: Named, members: tuple[Member, ...]) -> Finding:
        fitting = [(member, score) for member in members if (score := fit(spoken.name, member)) > 0]
        if len(fitting) == 1:
            member, score = fitting[0]
            value = _value(member.user_id, "greeting", spoken, members)
            return Finding(self.name, self.version, value, _evidence(spoken), score)
        value = _value(None, None, spoken, members)
        value["candidates"] = [asdict(member)["user_id"] for member, _ in fitting]
        note = f"{len(fitting)} members answer to that name" if fitting else "no member answers to that name"
        return Finding(self.name, self.version, value, _evidence(spoken), note=note)


def fit(spoken: str, member: Member) -> float:
    """How well a spoken name fits a member, 0..1; a first name must be that of the member, not merely like it."""
    from rapidfuzz import fuzz

    said = spoken.lower().split()
    for known in (member.name, *member.aliases):
        parts = known.lower().split()
        if said == parts:
            return FULL_NAME
        if len(said) == 1 and said[0] in parts:
            return FIRST_NAME
        if len(said) > 1 and len(parts) > 1 and fuzz.ratio(" ".join(said), " ".join(parts)) >= CLOSE:
            return FIRST_NAME
    return 0.0


def _spoken(material: Material) -> Named | None:
    """The last of our introductions, so after a transfer who handled the matter. Unknown role: members only."""
    ours: list[Named] = []
    for said in read(material):
        for named in introductions(said):
            fits = any(fit(named.name, member) for member in material.roster.members)
            if said.role is Role.REP or (said.role is Role.UNKNOWN and fits):
                ours.append(named)
    return ours[-1] if ours else None


def _evidence(spoken: Named | None) -> tuple[Any, ...]:
    return (spoken.evidence,) if spoken else ()


def _value(
    user_id: str | None, source: str | None, spoken: Named | None, members: tuple[Member, ...]
) -> dict[str, Any]:
    name = next((member.name for member in members if member.user_id == user_id), None)
    said = spoken.name if spoken else None
    return {"user_id": user_id, "name": name, "spoken_name": said, "source": source, "candidates": []}
