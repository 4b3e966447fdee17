"""Who is the rep and who the customer.

With separated channels the channel says it. In a mixed recording a voice known from the roster says it, else what is
said; who spoke first says nothing by itself. Where neither is clear the role stays unknown.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.insight import Roster
from pipeline.domain.speech import BY_VOICE, CUSTOMER, REP, Role, Speaker, Turn, Voiceprint
from pipeline.language.pack import pack
from pipeline.speakers import named
from pipeline.speakers.plain import plain
from pipeline.speakers.voiceprint import VoiceMatch, clearest, match
from pipeline.voice.calibration import VoiceCalibration, calibration_of

WEIGHTS = {
    "welcome": 1.6,
    "presents_company": 1.0,
    "asks_particulars": 0.6,
    "promises": 0.4,
    "customer": -0.5,
    "gives_members_name": 3.0,
    "gives_contacts_name": -3.3,
    "addresses_member": -0.5,
    "addresses_contact": 0.7,
}
"""Evidence for "this is the rep" in log odds, per kind of phrase; each kind counts at most `REPEATS` times."""
REPEATS = 2
HABITS = {"yours": 0.5, "mine": -0.1, "ours": 0.45}
"""Log odds for each such word among 100, at most `MOST_HABIT` of a kind: reps speak of what is yours and ours."""
MOST_HABIT = 6.0
VOICE = 5.0
"""Log odds for a recognized voice: more than any one thing that is said, and less than all of it together."""
FEW_OF_OTHERS = 0.05  # share of the words that further voices say, beside two parties
FEW_WORDS = 50  # added to what somebody says, so that few words tell little


CLEAR = 0.75  # probability from which the rep is named rather than unknown


class RoleOptions(BaseModel):
    """How voices are matched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calibration: Path | None = Field(
        None,
        description="File that `switchboard voiceprints calibrate` wrote for an embedder, or a folder of them; left "
        "out: calibration.toml in the diarization pipeline's folder, if it has one.",
    )

    def calibration_of(self, model: str) -> VoiceCalibration | None:
        """The calibration for a model's voiceprints, or None. Raises `CalibrationInvalid`."""
        return calibration_of(model, self.calibration)


@dataclass(frozen=True, slots=True)
class Talk:
    """Evidence from what one speaker says. `score` is in log odds for the rep."""

    score: float
    kinds: tuple[str, ...]  # the kinds of phrase that were found
    habit: float = 0.0  # log odds more, to be compared with another speaker's


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
    said = [turn for turn in turns if not turn.machine]  # an announcement welcomes callers as a rep does
    names = named.names_of(roster)
    words = _words_by_speaker(said)
    parties = _parties(words)
    talk = {label: judge([turn for turn in said if turn.speaker == label], names) for label in parties}
    recognized = member_by_voice(parties, voiceprints, roster, user_id, options)
    decided = {speaker.label: speaker for speaker in _decided(parties, talk, recognized, user_id)}
    return tuple(decided.get(label) or _no_party(label, words) for label in labels)


def _words_by_speaker(turns: Sequence[Turn]) -> Counter[str]:
    """In order of first appearance."""
    words: Counter[str] = Counter()
    for turn in turns:
        words[turn.speaker] += len(turn.words)
    return words


def _parties(words: Counter[str]) -> list[str]:
    """The speakers between whom roles are decided: all, or the two who say nearly everything.

    A diarizer makes a voice of its own out of a laugh or a cough with a word in it.
    """
    two = [label for label, _ in words.most_common(2)]
    rest = words.total() - sum(words[label] for label in two)
    if len(words) > 2 and rest <= FEW_OF_OTHERS * words.total() and rest < min(words[label] for label in two):
        return [label for label in words if label in two]
    return list(words)


def _no_party(label: str, words: Mapping[str, int]) -> Speaker:
    return Speaker(label, Role.UNKNOWN, 0.0, "too few words beside the others'" if label in words else "a machine")


def judge(turns: Sequence[Turn], names: named.Names | None = None) -> Talk:
    """How much the words of one speaker are those of a rep. Turns in a language without phrases say nothing."""
    counts: Counter[str] = Counter()
    for turn in turns:
        text = plain(turn.text)
        for kind, patterns in _patterns(turn.language).items():
            counts[kind] += sum(1 for pattern in patterns for _ in pattern.finditer(text))
    if names is not None:
        phrases_of = {turn.language: _words(turn.language) for turn in turns}
        counts.update(named.evidence(turns, names, phrases_of))
    kinds = tuple(kind for kind in WEIGHTS if counts[kind])
    score = sum(WEIGHTS[kind] * min(counts[kind], REPEATS) for kind in kinds)
    return Talk(score, kinds, _habit(turns))


def _habit(turns: Sequence[Turn]) -> float:
    """Log odds by how often somebody says "your", "my", "our" and the like; means something only beside another's."""
    counts: Counter[str] = Counter()
    total = FEW_WORDS
    for turn in turns:
        lists, words = _words(turn.language), plain(turn.text).split()
        total += len(words)
        for kind in HABITS:
            counts[kind] += sum(word in lists.get(kind, ()) for word in words)
    return sum(weight * min(MOST_HABIT, 100 * counts[kind] / total) for kind, weight in HABITS.items())


def member_by_voice(
    labels: Sequence[str],
    voiceprints: Mapping[str, Voiceprint],
    roster: Roster,
    user_id: str | None,
    options: RoleOptions,
) -> tuple[str, VoiceMatch] | None:
    """The speaker whose voice is a member's, and whose; the member who handled the call goes before others."""
    known: dict[str, list[Voiceprint]] = {}
    for entry in roster.voiceprints:
        known.setdefault(entry.user_id, []).append(entry.voiceprint)
    if user_id in known:
        known = {user_id: known[user_id]} if user_id is not None else known
    own = {label: voiceprints[label] for label in labels if label in voiceprints}
    calibrations = {label: options.calibration_of(voiceprint.model) for label, voiceprint in own.items()}
    found = {label: match(voiceprint, known, calibrations[label]) for label, voiceprint in own.items()}
    matches = sorted(((m.similarity, label, m) for label, m in found.items() if m), key=lambda t: (-t[0], t[1]))
    if not matches:
        return None
    _, label, best = matches[0]
    # two voices of one call that both fit: clear only if one fits better by the margin
    fits = {one: like for like, one, _ in matches}
    if len(matches) > 1 and clearest(fits, calibrations[label]) is None:
        return None
    return label, best


def _decided(
    labels: Sequence[str],
    talk: Mapping[str, Talk],
    recognized: tuple[str, VoiceMatch] | None,
    user_id: str | None,
) -> tuple[Speaker, ...]:
    """The speaker who is most the rep by voice and words, if that is clear; softmax over the speakers' log odds."""
    known = recognized[0] if recognized else None
    if len(labels) == 1 and known is None:
        return (_alone(labels[0], talk[labels[0]], user_id),)
    if known is None and not any(talk[label].kinds or talk[label].habit for label in labels):
        return tuple(Speaker(label, Role.UNKNOWN, 0.0, "nothing said that tells") for label in labels)
    odds = {label: talk[label].score + talk[label].habit + VOICE * (label == known) for label in labels}
    nobody = 1.0 if len(labels) == 1 else 0.0  # one voice alone may be no rep's
    total = sum(math.exp(value) for value in odds.values()) + nobody
    rep = max(labels, key=lambda label: odds[label])
    confidence = round(math.exp(odds[rep]) / total, 3)
    if confidence < CLEAR:
        why = "what is said is not clear" if known is None else "voice and words disagree"
        return tuple(Speaker(label, Role.UNKNOWN, confidence, why) for label in labels)
    by_voice = recognized[1] if recognized and rep == known else None
    return tuple(_speaker(label, rep, confidence, talk[label], by_voice, user_id, len(labels)) for label in labels)


def _speaker(
    label: str, rep: str, confidence: float, talk: Talk, by_voice: VoiceMatch | None, user_id: str | None, speakers: int
) -> Speaker:
    if label == rep:
        user = user_id or (by_voice.name if by_voice else None)
        return Speaker(label, Role.REP, confidence, BY_VOICE if by_voice else _reason(talk), user)
    if speakers == 2:
        why = "the other voice is the rep's" if by_voice else _reason(talk)
        return Speaker(label, Role.CUSTOMER, confidence, why)
    return Speaker(label, Role.UNKNOWN, 0.0, "several voices beside the rep's")


def _alone(label: str, talk: Talk, user_id: str | None) -> Speaker:
    """One voice only: a voicemail, or two that could not be separated."""
    probability = 1 / (1 + math.exp(-talk.score))
    if not talk.kinds:
        return Speaker(label, Role.UNKNOWN, 0.0, "nothing said that tells")
    if {"customer"} < set(talk.kinds):
        return Speaker(label, Role.UNKNOWN, 0.0, "one voice that says what both would say")
    if probability >= CLEAR:
        return Speaker(label, Role.REP, round(probability, 3), _reason(talk), user_id)
    if 1 - probability >= CLEAR:
        return Speaker(label, Role.CUSTOMER, round(1 - probability, 3), _reason(talk))
    return Speaker(label, Role.UNKNOWN, 0.0, "what is said is not clear")


def _reason(talk: Talk) -> str:
    return f"talk: {', '.join(talk.kinds).replace('_', ' ')}" if talk.kinds else "talk: whose things they speak of"


@cache
def _patterns(language: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    # longer phrases first and one pattern per kind, so that "how can i help you" is not counted as "how can i help" too
    return {
        kind: (re.compile("|".join(sorted((_pattern(kind, p) for p in phrases), key=len, reverse=True))),)
        for kind, phrases in _phrases(language).items()
        if kind in WEIGHTS
    }


@cache
def _words(language: str) -> dict[str, frozenset[str]]:
    """The other lists, plain."""
    return {kind: frozenset(map(plain, phrases)) for kind, phrases in _phrases(language).items() if kind not in WEIGHTS}


def _phrases(language: str) -> dict[str, list[str]]:
    return pack(language).data.get("roles", {})


def _pattern(kind: str, phrase: str) -> str:
    """Phrases are literal but for `presents_company`, which holds regular expressions on plain text."""
    if kind == "presents_company":
        return "".join(c for c in unicodedata.normalize("NFD", phrase) if not unicodedata.combining(c))
    return rf"\b{re.escape(plain(phrase))}\b"
