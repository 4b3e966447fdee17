"""Roles of speakers: rep or customer.

With separated channels the channel decides. In a mixed recording a voice in the roster decides, else the words; who
spoke first is no evidence by itself. If neither is clear the role stays unknown.
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
from pipeline.speakers import name_evidence
from pipeline.speakers.announcement_score import plain
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
"""Log odds for the rep per kind of phrase; each kind counts max. `MAX_REPEATS` times."""
MAX_REPEATS = 2
HABITS = {"yours": 0.5, "mine": -0.1, "ours": 0.45}
"""Log odds per such word in 100, max. `MAX_HABIT` of a kind: reps say "your" and "our" more often."""
MAX_HABIT = 6.0
VOICE = 5.0
"""Log odds for a recognized voice: more than any single phrase, and less than all together."""
MAX_OTHERS_SHARE = 0.05  # max. share of words by voices other than the two parties
FEW_WORDS = 50  # added to each speaker's count, so that few words are weak evidence


CLEAR = 0.75  # min. probability of the rep; below it the role is unknown


class RoleOptions(BaseModel):
    """Options of matching voices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calibration: Path | None = Field(
        None,
        description="File of `switchboard voiceprints calibrate`, or a folder of them; unset: calibration.toml of"
        " the diarization pipeline.",
    )

    def calibration_of(self, model: str) -> VoiceCalibration | None:
        """Return the calibration for a model's voiceprints, or None. Raises `CalibrationInvalid`."""
        return calibration_of(model, self.calibration)


@dataclass(frozen=True, slots=True)
class Talk:
    """Evidence in the words of one speaker. `score` is in log odds for the rep."""

    score: float
    kinds: tuple[str, ...]  # kinds of matching phrases
    habit: float = 0.0  # additional log odds, relative to another speaker's


def by_channel(user_id: str | None) -> tuple[Speaker, Speaker]:
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
    """Assign roles in a mixed recording to every speaker with a turn, in order of first appearance.

    `voiceprints` are by the turns' speaker labels; `user_id` is the member who handled the call, if submitted.
    """
    options = options or RoleOptions()
    labels = list(dict.fromkeys(turn.speaker for turn in turns))
    party_turns = [turn for turn in turns if not turn.machine]  # an announcement welcomes callers like a rep
    names = name_evidence.names_of(roster)
    words = _words_by_speaker(party_turns)
    parties = _parties(words)
    talk = {label: judge([turn for turn in party_turns if turn.speaker == label], names) for label in parties}
    recognized = member_by_voice(parties, voiceprints, roster, user_id, options)
    decided = {speaker.label: speaker for speaker in _decided(parties, talk, recognized, user_id)}
    return tuple(decided.get(label) or _no_party(label, words) for label in labels)


def _words_by_speaker(turns: Sequence[Turn]) -> Counter[str]:
    words: Counter[str] = Counter()
    for turn in turns:
        words[turn.speaker] += len(turn.words)
    return words


def _parties(words: Counter[str]) -> list[str]:
    """Return the speakers who may have a role: all, or the two with nearly all words.

    A diarizer makes a separate voice of a laugh, or of a cough with a word in it.
    """
    two = [label for label, _ in words.most_common(2)]
    rest = words.total() - sum(words[label] for label in two)
    if len(words) > 2 and rest <= MAX_OTHERS_SHARE * words.total() and rest < min(words[label] for label in two):
        return [label for label in words if label in two]
    return list(words)


def _no_party(label: str, words: Mapping[str, int]) -> Speaker:
    return Speaker(label, Role.UNKNOWN, 0.0, "too few words next to the others" if label in words else "a machine")


def judge(turns: Sequence[Turn], names: name_evidence.Names | None = None) -> Talk:
    """Score the words of one speaker as those of a rep; turns in a language without phrases do not count."""
    counts: Counter[str] = Counter()
    for turn in turns:
        text = plain(turn.text)
        for kind, patterns in _patterns(turn.language).items():
            counts[kind] += sum(1 for pattern in patterns for _ in pattern.finditer(text))
    if names is not None:
        phrases_of = {turn.language: _words(turn.language) for turn in turns}
        counts.update(name_evidence.evidence(turns, names, phrases_of))
    kinds = tuple(kind for kind in WEIGHTS if counts[kind])
    score = sum(WEIGHTS[kind] * min(counts[kind], MAX_REPEATS) for kind in kinds)
    return Talk(score, kinds, _habit(turns))


def _habit(turns: Sequence[Turn]) -> float:
    """Return log odds by the frequency of "your", "my", "our" and the like; only comparable between speakers."""
    counts: Counter[str] = Counter()
    total = FEW_WORDS
    for turn in turns:
        lists, words = _words(turn.language), plain(turn.text).split()
        total += len(words)
        for kind in HABITS:
            counts[kind] += sum(word in lists.get(kind, ()) for word in words)
    return sum(weight * min(MAX_HABIT, 100 * counts[kind] / total) for kind, weight in HABITS.items())


def member_by_voice(
    labels: Sequence[str],
    voiceprints: Mapping[str, Voiceprint],
    roster: Roster,
    user_id: str | None,
    options: RoleOptions,
) -> tuple[str, VoiceMatch] | None:
    """Return the speaker with a member's voice, and the match; prefer the member who handled the call."""
    enrolled: dict[str, list[Voiceprint]] = {}
    for entry in roster.voiceprints:
        enrolled.setdefault(entry.user_id, []).append(entry.voiceprint)
    if user_id is not None and user_id in enrolled:
        enrolled = {user_id: enrolled[user_id]}
    candidates = {label: voiceprints[label] for label in labels if label in voiceprints}
    calibrations = {label: options.calibration_of(voiceprint.model) for label, voiceprint in candidates.items()}
    matched = {label: match(voiceprint, enrolled, calibrations[label]) for label, voiceprint in candidates.items()}
    matches = sorted(((m.similarity, label, m) for label, m in matched.items() if m), key=lambda t: (-t[0], t[1]))
    if not matches:
        return None
    _, label, best = matches[0]
    # if two voices of a call match, one must match better by the margin
    fits = {label: similarity for similarity, label, _ in matches}
    if len(matches) > 1 and clearest(fits, calibrations[label]) is None:
        return None
    return label, best


def _decided(
    labels: Sequence[str],
    talk: Mapping[str, Talk],
    recognized: tuple[str, VoiceMatch] | None,
    user_id: str | None,
) -> tuple[Speaker, ...]:
    """Choose the rep by voice and words, if that is clear; softmax over the speakers' log odds."""
    recognized_label = recognized[0] if recognized else None
    if len(labels) == 1 and recognized_label is None:
        return (_alone(labels[0], talk[labels[0]], user_id),)
    if recognized_label is None and not any(talk[label].kinds or talk[label].habit for label in labels):
        return tuple(Speaker(label, Role.UNKNOWN, 0.0, "no evidence in the words") for label in labels)
    odds = {label: talk[label].score + talk[label].habit + VOICE * (label == recognized_label) for label in labels}
    other_odds = 1.0 if len(labels) == 1 else 0.0  # a single voice may not be a rep's
    total = sum(math.exp(value) for value in odds.values()) + other_odds
    rep = max(labels, key=lambda label: odds[label])
    confidence = round(math.exp(odds[rep]) / total, 3)
    if confidence < CLEAR:
        reason = "the words are ambiguous" if recognized_label is None else "voice and words disagree"
        return tuple(Speaker(label, Role.UNKNOWN, confidence, reason) for label in labels)
    by_voice = recognized[1] if recognized and rep == recognized_label else None
    return tuple(_speaker(label, rep, confidence, talk[label], by_voice, user_id, len(labels)) for label in labels)


def _speaker(
    label: str, rep: str, confidence: float, talk: Talk, by_voice: VoiceMatch | None, user_id: str | None, speakers: int
) -> Speaker:
    if label == rep:
        user = user_id or (by_voice.name if by_voice else None)
        return Speaker(label, Role.REP, confidence, BY_VOICE if by_voice else _reason(talk), user)
    if speakers == 2:
        reason = "the other voice is the rep's" if by_voice else _reason(talk)
        return Speaker(label, Role.CUSTOMER, confidence, reason)
    return Speaker(label, Role.UNKNOWN, 0.0, "several voices other than the rep's")


def _alone(label: str, talk: Talk, user_id: str | None) -> Speaker:
    """Decide for a single voice: a voicemail, or two parties that could not be separated."""
    probability = 1 / (1 + math.exp(-talk.score))
    if not talk.kinds:
        return Speaker(label, Role.UNKNOWN, 0.0, "no evidence in the words")
    if {"customer"} < set(talk.kinds):
        return Speaker(label, Role.UNKNOWN, 0.0, "one voice with phrases of both parties")
    if probability >= CLEAR:
        return Speaker(label, Role.REP, round(probability, 3), _reason(talk), user_id)
    if 1 - probability >= CLEAR:
        return Speaker(label, Role.CUSTOMER, round(1 - probability, 3), _reason(talk))
    return Speaker(label, Role.UNKNOWN, 0.0, "the words are ambiguous")


def _reason(talk: Talk) -> str:
    return f"talk: {', '.join(talk.kinds).replace('_', ' ')}" if talk.kinds else "talk: possessive pronouns"


@cache
def _patterns(language: str) -> dict[str, tuple[re.Pattern[str], ...]]:
    # longer phrases first and one pattern per kind, so that "how can i help you" is not also "how can i help"
    return {
        kind: (re.compile("|".join(sorted((_pattern(kind, p) for p in phrases), key=len, reverse=True))),)
        for kind, phrases in _phrases(language).items()
        if kind in WEIGHTS
    }


@cache
def _words(language: str) -> dict[str, frozenset[str]]:
    return {kind: frozenset(map(plain, phrases)) for kind, phrases in _phrases(language).items() if kind not in WEIGHTS}


def _phrases(language: str) -> dict[str, list[str]]:
    return pack(language).data.get("roles", {})


def _pattern(kind: str, phrase: str) -> str:
    """Return the pattern of a literal phrase; `presents_company` has regular expressions on plain text."""
    if kind == "presents_company":
        return "".join(c for c in unicodedata.normalize("NFD", phrase) if not unicodedata.combining(c))
    return rf"\b{re.escape(plain(phrase))}\b"
