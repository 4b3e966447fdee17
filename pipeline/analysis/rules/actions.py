"""What was done or booked during the call: "I've ordered a new card", "you're booked for Tuesday at 8:15".

An action is reported in the perfect or passive, mostly by the agent. History is none: a sentence with a past day, or
with what a party reads on its screen.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from pipeline.analysis.rules import dates
from pipeline.analysis.rules.commitments.titles import content, for_readers, tidy
from pipeline.analysis.rules.people.addresses import place_in
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns, read
from pipeline.domain.insight import Action, Finding, Material
from pipeline.domain.speech import Role
from pipeline.domain.vocabulary import ActionKind
from pipeline.language.pack import Pack, missing
from pipeline.language.spoken.amounts import amounts

TURNS_BACK = 12  # turns in which the amount, day or address of an action was stated
MIN_CONTENT = 2  # content words that name what was done
WITH_AMOUNT = frozenset({ActionKind.PAYMENT, ActionKind.TRANSFER, ActionKind.REFUND})
WITH_DAY = frozenset({ActionKind.APPOINTMENT})


class ActionsStep:
    """Actions reported as done during the call."""

    name = "actions"
    version = 2

    def run(self, material: Material) -> Finding:
        turns = read(material)
        if not any(turn.pack.known for turn in turns):
            note = missing(material.transcript.language) if turns else "no speech in this call"
            return Finding(self.name, self.version, {"actions": []}, note=note)
        now = dates.local(material.call.start_time, material.roster.time_zone)
        address = (material.value_of("contacts").get("heard", {}).get("address") or {}).get("value")
        actions: list[Action] = []
        for action in _actions(turns, now, address):
            if not any(_same(action, earlier) for earlier in actions):
                actions.append(action)
        value = {"actions": [_plain(action) for action in actions]}
        return Finding(self.name, self.version, value, tuple(action.evidence for action in actions))


def _actions(turns: Turns, now: datetime, address: str | None) -> Iterator[Action]:
    for at, turn in enumerate(turns):
        for sentence in turn.sentences:
            for kind, first, last in _reports(sentence):
                text = sentence.text[first:last]
                action = Action(_title(text, turns, at, sentence, now), kind, _party(turn), sentence.evidence())
                yield _with_details(action, text, turns[max(0, at - TURNS_BACK) : at + 1], now, address)


def _party(turn: SpokenTurn) -> str:
    return turn.role.value if turn.role is not Role.UNKNOWN else "unknown"


def _reports(sentence: Sentence) -> Iterator[tuple[ActionKind, int, int]]:
    """Yield kind and characters of each clause that reports an action of this call."""
    words, text = sentence.pack, sentence.text
    keys = ("done_by_customer",) if sentence.role is Role.CUSTOMER else ("passive", "done")
    if text.endswith("?") and not words.matches("tasks", "tag", text):
        return
    ends: list[int] = []
    for pattern in (pattern for key in keys for pattern in words.patterns("actions", key)):
        for match in pattern.finditer(text):
            first, last = _clause(text, match, words)
            kind = _kind(match["verb"], text[first:last], words)
            if kind and not any(first <= end <= last for end in ends) and not _is_history(text, first, last, words):
                ends.append(match.end())
                yield kind, first, last


def _clause(text: str, match: re.Match[str], words: Pack) -> tuple[int, int]:
    """Return the clause of a match: from the joint before it to the one that begins another clause."""
    joints = [joint for pattern in words.patterns("actions", "border") for joint in pattern.finditer(text)]
    first = max((joint.end() for joint in joints if joint.end() <= match.start()), default=0)
    last = min((joint.start() for joint in joints if joint.start() >= match.end()), default=len(text))
    return first, last


def _is_history(text: str, first: int, last: int, words: Pack) -> bool:
    clause = text[first:last]
    ruled_out = (("dates", "past"), ("actions", "not_done"))
    return any(words.matches(*key, clause) for key in ruled_out) or words.matches("tasks", "conditional", text)


def _kind(verb: str, clause: str, words: Pack) -> ActionKind | None:
    """Return the kind by the verb, except that a reset link that is sent is a reset."""
    kinds = words.get("actions", "kinds", {})
    forms = {verb.lower(), verb.lower().removesuffix("s")}
    kind = next((ActionKind(kind) for kind, verbs in kinds.items() if forms & set(verbs.split())), None)
    return ActionKind.RESET if kind is ActionKind.ORDER and words.matches("actions", "resets", clause) else kind


def _title(text: str, turns: Turns, at: int, sentence: Sentence, now: datetime) -> str:
    """Return the clause for readers outside the call, without the day.

    One without a subject or a thing ("That's been sent") gets its topic.
    """
    words, text = sentence.pack, tidy(text)
    for pattern in words.patterns("actions", "opening"):
        text = pattern.sub("", text)
    has_subject = not any(pattern.match(text) for pattern in words.patterns("actions", "passive"))
    if due := dates.find(text, words, now):
        bare = text[: due.first] + text[due.last :]
        text = bare if content(bare, words) >= MIN_CONTENT else text
    listener = words.get("tasks", "listener_is", {}).get(sentence.role.value, "")
    for pattern, replacement in words.rewrites("actions", "reader") if listener else ():
        text = pattern.sub(replacement.replace("{listener}", listener), text)
    title = for_readers(tidy(text), sentence.role, words)
    if has_subject and content(title, words) >= MIN_CONTENT:
        return title
    turn, number = turns[at], turns[at].sentences.index(sentence)
    before = [*turn.sentences[:number][::-1]]
    before += [part for earlier in reversed(turns[max(0, at - 2) : at]) for part in reversed(earlier.sentences)]
    topic = next((tidy(part.text) for part in before if content(part.text, words) >= MIN_CONTENT), "")
    return f"{title} ({topic})" if topic else title


def _with_details(action: Action, text: str, turns: Turns, now: datetime, address: str | None) -> Action:
    """Add amount, day, time and address: those of the clause, else the last that were stated for such an action."""
    words = turns[-1].pack
    amount = _money(text, words)
    due = dates.find(text, words, now)
    day, time = (due.day, due.time) if due else (None, None)
    for turn in reversed(turns[:-1]):
        if action.kind in WITH_AMOUNT and amount is None:
            amount = _money(turn.text, turn.pack)
        if action.kind in WITH_DAY and (day is None or time is None):
            stated = [due for part in turn.sentences if (due := dates.find(part.text, turn.pack, now))]
            day = day or next((due.day for due in stated if due.day), None)
            time = time or next((due.time for due in stated if due.time), None)
    place = place_in(turns[-1].sentences[0], text) or (
        address if words.matches("actions", "to_address", text) else None
    )
    return replace(action, amount=amount, date=day.isoformat() if day else None, time=time, address=place)


def _money(text: str, words: Pack) -> float | None:
    return next((amount.value for amount in amounts(text, words) if amount.money), None)


def _same(action: Action, other: Action) -> bool:
    details = zip((action.amount, action.date, action.time), (other.amount, other.date, other.time), strict=True)
    return action.kind is other.kind and all(a == b or a is None or b is None for a, b in details)


def _plain(action: Action) -> dict[str, Any]:
    return {**asdict(action), "kind": action.kind.value}
