"""Who is the rep and who the customer.

With separated channels the channel says it. In a mixed recording a voice known from the roster says it, else what is
said; who spoke first says nothing by itself. Where neither is clear the role stays unknown.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.insight import Roster
from pipeline.domain.speech import CUSTOMER, REP, Role, Speaker, Turn, Voiceprint
from pipeline.speakers.gate import PrintOptions
from pipeline.speakers.profile import ProfileOptions
from pipeline.speakers.voiceprint import Match, MatchOptions, match

PHRASES = Path(__file__).parent / "phrases"
WEIGHTS = {"welcome": 2.5, "presents_company": 2.0, "asks_particulars": 1.2, "promises": 0.8, "customer": -1.0}
"""Evidence for "this is the rep" in log odds, per kind of phrase; each kind counts at most `REPEATS` times."""
REPEATS = 3


class RoleOptions(BaseModel):
    """When a role in a mixed recording counts as clear."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clear: float = Field(0.75, gt=0.5, le=1, description="Probability from which the rep is named rather than unknown.")
    voice: MatchOptions = Field(default_factory=MatchOptions, description="When a voice of the roster is recognised.")
    prints: PrintOptions = Field(default_factory=PrintOptions, description="What a voiceprint is made of.")
    profile: ProfileOptions = Field(default_factory=ProfileOptions, description="When voiceprints make a profile.")


@dataclass(frozen=True, slots=True)
class Talk:
    """Evidence from what one speaker says. `score` is in log odds for the rep."""

    score: float
    kinds: tuple[str, ...]  # the kinds of phrase that were found


def by_channel(user_id: str | None) -> tuple[Speaker, Speaker]:
    """Separated channels: the speakers of channel 0 and channel 1."""
    rep = Speaker("rep", Role.REP, 1.0, "channel", user_id)
    customer = Speaker("customer", Role.CUSTOMER, 1.0, "channel")
    return (rep, customer) if (REP, CUSTOMER) == (0, 1) else (customer, rep)


def assign(
    turns: Sequence[Turn],
    voiceprints: Mapping[str, Voiceprint],
    roster: Roster,
    user_id: str | None = None,
    options: RoleOptions | None = None,
) -> tuple[Speaker, ...]:
    """Roles in a mixed recording, for every speaker who has a turn, in order of first appearance.

    `voiceprints` holds them by the turns' speaker labels; `user_id` is the member who handled the call, if
    the sender said so.
    """
    options = options or RoleOptions()
    labels = list(dict.fromkeys(turn.speaker for turn in turns))
    recognised = _recognised(labels, voiceprints, roster, user_id, options)
    if recognised is not None:
        label, found = recognised
        return tuple(_beside_known_voice(each, label, found, user_id, len(labels)) for each in labels)
    said = [turn for turn in turns if not turn.machine]  # an announcement welcomes callers as a rep does
    talk = {label: judge([turn for turn in said if turn.speaker == label]) for label in labels}
    return _by_talk(labels, talk, user_id, options)


def judge(turns: Sequence[Turn]) -> Talk:
    """How much the words of one speaker are those of a rep. Turns in a language without phrases say nothing."""
    score, kinds = 0.0, []
    for kind, weight in WEIGHTS.items():
        count = sum(len(_found(kind, plain(turn.text), turn.language)) for turn in turns)
        if count:
            score += weight * min(count, REPEATS)
            kinds.append(kind)
    return Talk(score, tuple(kinds))


def plain(text: str) -> str:
    """Lower case, no accents, no punctuation but apostrophes, single spaces."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))
    return " ".join(re.sub(r"[^\w' ]", " ", text.replace("’", "'")).split())


def _recognised(
    labels: Sequence[str],
    voiceprints: Mapping[str, Voiceprint],
    roster: Roster,
    user_id: str | None,
    options: RoleOptions,
) -> tuple[str, Match] | None:
    """The speaker whose voice is a member's, and whose; the member who handled the call goes before others."""
    known: dict[str, list[Voiceprint]] = {}
    for entry in roster.voiceprints:
        known.setdefault(entry.user_id, []).append(entry.voiceprint)
    if user_id in known:
        known = {user_id: known[user_id]} if user_id is not None else known
    found = {label: match(voiceprints.get(label), known, options.voice) for label in labels}
    matches = sorted(((m.similarity, label, m) for label, m in found.items() if m), key=lambda t: (-t[0], t[1]))
    if not matches:
        return None
    # two voices of one call that both fit: clear only if one fits better by the margin
    if len(matches) > 1 and matches[0][0] - matches[1][0] < options.voice.margin:
        return None
    return matches[0][1], matches[0][2]


def _beside_known_voice(label: str, rep: str, found: Match, user_id: str | None, speakers: int) -> Speaker:
    confidence = round(max(0.0, min(1.0, found.similarity)), 3)
    if label == rep:
        return Speaker(label, Role.REP, confidence, "voiceprint", user_id or found.name)
    if speakers == 2:
        return Speaker(label, Role.CUSTOMER, confidence, "the other voice is the rep's")
    return Speaker(label, Role.UNKNOWN, 0.0, "several voices beside the rep's")


def _by_talk(
    labels: Sequence[str], talk: Mapping[str, Talk], user_id: str | None, options: RoleOptions
) -> tuple[Speaker, ...]:
    """The speaker whose words are most a rep's, if that is clear; softmax over the speakers' log odds."""
    if not any(talk[label].kinds for label in labels):
        return tuple(Speaker(label, Role.UNKNOWN, 0.0, "nothing said that tells") for label in labels)
    if len(labels) == 1:
        return (_alone(labels[0], talk[labels[0]], user_id, options),)
    total = sum(math.exp(talk[label].score) for label in labels)
    probability = {label: math.exp(talk[label].score) / total for label in labels}
    rep = max(labels, key=lambda label: probability[label])
    confidence = round(probability[rep], 3)
    if confidence < options.clear:
        return tuple(Speaker(label, Role.UNKNOWN, confidence, "what is said is not clear") for label in labels)
    speakers = []
    for label in labels:
        if label == rep:
            speakers.append(Speaker(label, Role.REP, confidence, _reason(talk[label]), user_id))
        elif len(labels) == 2:
            speakers.append(Speaker(label, Role.CUSTOMER, confidence, _reason(talk[label])))
        else:
            speakers.append(Speaker(label, Role.UNKNOWN, 0.0, "several voices beside the rep's"))
    return tuple(speakers)


def _alone(label: str, talk: Talk, user_id: str | None, options: RoleOptions) -> Speaker:
    """One voice only: a voicemail, or two that could not be told apart."""
    probability = 1 / (1 + math.exp(-talk.score))
    if {"customer"} < set(talk.kinds):
        return Speaker(label, Role.UNKNOWN, 0.0, "one voice that says what both would say")
    if probability >= options.clear:
        return Speaker(label, Role.REP, round(probability, 3), _reason(talk), user_id)
    if 1 - probability >= options.clear:
        return Speaker(label, Role.CUSTOMER, round(1 - probability, 3), _reason(talk))
    return Speaker(label, Role.UNKNOWN, 0.0, "what is said is not clear")


def _reason(talk: Talk) -> str:
    return f"talk: {', '.join(talk.kinds).replace('_', ' ')}" if talk.kinds else "talk: the other speaker's words"


def _found(kind: str, text: str, language: str) -> list[str]:
    return [match.group() for pattern in _patterns(language).get(kind, ()) for match in pattern.finditer(text)]


@cache
def _patterns(language: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    path = PHRASES / f"{language}.json"
    if not path.is_file():
        return {}
    lists: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    # longer phrases first and one pattern per kind, so that "how can i help you" is not counted as "how can i help" too
    return {
        kind: (re.compile("|".join(sorted((_pattern(kind, p) for p in phrases), key=len, reverse=True))),)
        for kind, phrases in lists.items()
    }


def _pattern(kind: str, phrase: str) -> str:
    """Phrases are literal but for `presents_company`, which holds regular expressions on plain text."""
    if kind == "presents_company":
        return "".join(c for c in unicodedata.normalize("NFD", phrase) if not unicodedata.combining(c))
    return rf"\b{re.escape(plain(phrase))}\b"
