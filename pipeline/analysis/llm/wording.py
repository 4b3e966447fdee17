"""Whether the words of a title or a sentence are those of the call.

A model writes them, and it may obey a speaker. So a commitment must be in the words of the party who made it, or of the
proposal they accepted: never in words that only the other party uses elsewhere.
"""

import re
from collections.abc import Iterable

from pipeline.analysis.rules.commitments.clauses import AGREED_FORMS
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.language.pack import Pack, straighten
from pipeline.language.spoken.numbers import TOKEN, number_at
from pipeline.language.spoken.phonetics import folded

STEM = 5  # letters that identify forms of one word
SHORT = 3  # letters of a word without content
ENOUGH = 0.5  # min. share of the words of a title; the model may choose the rest
SOME = 0.33  # the same for a sentence, which paraphrases many words
COUNTED = 2  # up to this a number is an article ("one") or a pair
_WORD = re.compile(r"[^\W\d_]+")
_THOUSANDS = re.compile(r"(?<=\d)[,.'](?=\d{3}\b)")


def proposes(sentence: Sentence) -> bool:
    """Return whether a sentence requests, offers or arranges something."""
    return any(sentence.pack.matches("tasks", form, sentence.text) for form in AGREED_FORMS)


def stems(text: str, pack: Pack) -> frozenset[str]:
    stop = pack.words("text", "stopwords")
    words = (word for word in _WORD.findall(straighten(text).lower()) if len(word) > SHORT and word not in stop)
    return frozenset(folded(word).lower()[:STEM] for word in words)


def figures(text: str, pack: Pack) -> frozenset[str]:
    """Return the numbers above two, in figures or words, as digits."""
    tokens = list(TOKEN.finditer(_THOUSANDS.sub("", straighten(text).lower())))
    numbers, at = set(), 0
    while at < len(tokens):
        spoken, length = number_at(tokens, at, pack)
        if spoken and spoken.isdigit() and int(spoken) > COUNTED:
            numbers.add(str(int(spoken)))
        at += max(1, length)
    return frozenset(numbers)


class CallWording:
    """Compares a model's wording with that of a call; `turns` exclude machines.

    `translated`: titles are in another language than the call, so that only figures can be compared.
    """

    def __init__(self, turns: Turns, translated: bool) -> None:
        self._turns, self._translated = turns, translated
        self._place = {turn.turn.index: at for at, turn in enumerate(turns)}

    def title_supported(self, title: str, owner: str, evidence: Evidence) -> bool:
        """Return whether the call supports a title: half of its words, and every number, occur in the quoted turn, in
        the proposal that it accepts, or in the owner's words; and no word is used only by other speakers.
        """
        at = self._place.get(evidence.turn)
        if at is None:
            return False
        quoted = self._turns[at]
        near, supporting = [quoted, *self._accepted_proposal(at)], self._supporting_turns(at, owner)
        if not figures(title, quoted.pack) <= _figures(supporting):
            return False
        words = stems(title, quoted.pack)
        if self._translated or not quoted.pack.known or not words:
            return True
        theirs, there = _stems(self._turns) - _stems(supporting), _stems(near)
        about_it = bool(words & there) or not there  # "I will do that" has no content
        return about_it and not words & theirs and _share(words, _stems(supporting)) >= ENOUGH

    def sentence_supported(self, sentence: str, evidence: Evidence) -> bool:
        """Return whether a sentence is about its quote and this call: one of its words is in the quoted turn, a third
        of them in the call, every number in words of the quoted speaker.
        """
        at = self._place.get(evidence.turn)
        if at is None:
            return False
        quoted = self._turns[at]
        if not figures(sentence, quoted.pack) <= _figures(self._supporting_turns(at)):
            return False
        words, there = stems(sentence, quoted.pack), _stems([quoted, *self._accepted_proposal(at)])
        if self._translated or not quoted.pack.known:
            return True
        return bool(words & there) and _share(words, _stems(self._turns)) >= SOME

    def role(self, evidence: Evidence) -> str:
        at = self._place.get(evidence.turn)
        return self._turns[at].role.value if at is not None else "unknown"

    def _supporting_turns(self, at: int, owner: str | None = None) -> list[SpokenTurn]:
        """Return the quoted turn, the proposal that it accepts, and all turns of the owner (default: the speaker)."""
        quoted = self._turns[at]
        role = owner or quoted.role.value
        same = (turn for turn in self._turns if turn.role.value == role and role != "unknown")
        return [quoted, *self._accepted_proposal(at), *same]

    def _accepted_proposal(self, at: int) -> list[SpokenTurn]:
        before = self._turns[at - 1] if at else None
        if before is None or before.turn.speaker == self._turns[at].turn.speaker:
            return []
        return [before] if any(proposes(sentence) for sentence in before.sentences[-1:]) else []


def _stems(turns: Iterable[SpokenTurn]) -> frozenset[str]:
    return frozenset(stem for turn in turns for stem in stems(turn.text, turn.pack))


def _figures(turns: Iterable[SpokenTurn]) -> frozenset[str]:
    return frozenset(figure for turn in turns for figure in figures(turn.text, turn.pack))


def _share(sentence_stems: frozenset[str], call_stems: frozenset[str]) -> float:
    return len(sentence_stems & call_stems) / len(sentence_stems)
