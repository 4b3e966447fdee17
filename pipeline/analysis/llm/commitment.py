"""Whether a party committed to what a quote says: in their words, or by assent to the other party's proposal.

The rules and their fitted weights decide, whatever the model states. A caller's claim about the agent ("the agent will
wire me 500 dollars") binds the agent only if the agent agrees right after.
"""

from collections.abc import Sequence
from datetime import datetime

from pipeline.analysis.llm.wording import proposes, stems
from pipeline.analysis.rules.commitments.classifier import CLASSES, shipped_weights
from pipeline.analysis.rules.commitments.clauses import FREE, LISTENER, SPEAKER, THIRD, Candidate
from pipeline.analysis.rules.commitments.commitments import commitments
from pipeline.analysis.rules.commitments.features import RuleVerdict, features, tokens
from pipeline.analysis.rules.commitments.replies import REPLY_WITHIN
from pipeline.analysis.rules.commitments.signatures import signature
from pipeline.analysis.talk import Sentence, SpokenTurn, Turns
from pipeline.domain.insight import Evidence
from pipeline.domain.speech import Role

MIN_PROBABILITY = 0.07
"""That a sentence is a commitment, by the rules: 96 % of the fitted tasks reach it, 9 % of other turns."""
MIN_UNNAMED = 0.4
"""The same for a caller's clause without "I" or "we", as an order to the model is: 2 % of callers' tasks are lost."""
_PARTIES = {Role.REP: "rep", Role.CUSTOMER: "customer"}


class Commitments:
    """Probabilities that the sentences of a call commit their speaker, their listener or a third person."""

    def __init__(self, turns: Turns, now: datetime) -> None:
        """Classify all clauses of `turns`, which exclude machines: they commit to nothing."""
        self._turns = turns
        self._place = {turn.turn.index: at for at, turn in enumerate(turns)}
        self._has_pack = any(turn.pack.known for turn in turns)
        self._sentences: dict[tuple[int, int], dict[str, float]] = {}
        weights = shipped_weights()

        def judge(candidate: Candidate, around: Turns, verdict: RuleVerdict) -> Candidate | None:
            probabilities = dict(zip(CLASSES, weights.probabilities(features(candidate, around, verdict)), strict=True))
            highest = self._sentences.setdefault((candidate.turn.turn.index, candidate.sentence.first), {})
            if _orders(candidate) or (_names_no_caller(candidate) and probabilities[SPEAKER] < MIN_UNNAMED):
                probabilities[SPEAKER] = 0.0
            for who, probability in probabilities.items():
                highest[who] = max(highest.get(who, 0.0), probability)
            return weights.judge(candidate, around, verdict)

        commitments(turns, now, judge)

    def by(self, owner: str, evidence: Evidence) -> bool:
        """Return whether the transcript shows that `owner` ("rep", "customer", "other", "unknown") committed to the
        quote.

        In a language without a pack assent cannot be recognized: there a party's own words count as commitment.
        """
        at = self._place.get(evidence.turn)
        if at is None:
            return False
        speaker = _PARTIES.get(self._turns[at].role)
        if owner == "unknown":
            return self.by_anybody(evidence) if speaker else self._commits(at, evidence, (SPEAKER, LISTENER, THIRD))
        if owner == "other":  # a third person: the agent speaks for them, or agrees
            by_rep = speaker == "rep"
            return self._commits(at, evidence, (THIRD, SPEAKER)) if by_rep else self._is_accepted(at, evidence)
        if speaker == owner:  # an agent also commits colleagues
            return self._commits(at, evidence, (SPEAKER, THIRD) if owner == "rep" else (SPEAKER,))
        return self._is_accepted(at, evidence)

    def by_anybody(self, evidence: Evidence) -> bool:
        at = self._place.get(evidence.turn)
        return at is not None and (self._commits(at, evidence, (SPEAKER,)) or self._is_accepted(at, evidence))

    def likelihood(self, evidence: Evidence) -> float:
        at = self._place.get(evidence.turn)
        touched = self._touched(at, evidence) if at is not None else []
        return max((1.0 - self._probabilities(sentence).get(CLASSES[0], 1.0) for sentence in touched), default=0.0)

    def _commits(self, at: int, evidence: Evidence, who: tuple[str, ...]) -> bool:
        """Return whether the quoted sentences commit one of `who`, or accept what the turn before proposes."""
        if not self._has_pack:
            return True
        turn = self._turns[at]
        for sentence in self._touched(at, evidence):
            probabilities = self._probabilities(sentence)
            others = [probabilities.get(role, 0.0) for role in (SPEAKER, LISTENER, THIRD) if role not in who]
            likely = sum(probabilities.get(role, 0.0) for role in who)
            if likely >= MIN_PROBABILITY and likely >= max(others, default=0.0):
                return True
        return any(touched.first == 0 for touched in self._touched(at, evidence)) and self._assents(at, turn)

    def _assents(self, at: int, reply: SpokenTurn) -> bool:
        if not at or self._turns[at - 1].turn.speaker == reply.turn.speaker:
            return False
        asked = self._turns[at - 1].sentences[-1:]
        return any(proposes(sentence) for sentence in asked) and (_accepts(reply) or _promises(reply, asked))

    def _is_accepted(self, at: int, evidence: Evidence) -> bool:
        """Return whether the other party agrees right after: by a promise of the same, or by assent to a proposal that
        ends the turn. "Okay" is no assent to a claim about another person.
        """
        turn, touched = self._turns[at], self._touched(at, evidence)
        reply = next((later for later in self._turns[at + 1 : at + 1 + REPLY_WITHIN] if _differ(later, turn)), None)
        if reply is None or not touched:
            return False
        proposed = touched[-1] is turn.sentences[-1] and any(proposes(sentence) for sentence in touched)
        return (proposed and _accepts(reply)) or _promises(reply, touched)

    def _touched(self, at: int, evidence: Evidence) -> list[Sentence]:
        """Return the sentences that overlap the first occurrence of the quote in the turn."""
        turn = self._turns[at]
        first = turn.turn.text.find(evidence.quote)
        last = first + len(evidence.quote)
        return [sentence for sentence in turn.sentences if sentence.places[0] < last and first < sentence.places[1]]

    def _probabilities(self, sentence: Sentence) -> dict[str, float]:
        return self._sentences.get((sentence.turn.index, sentence.first), {})


def _orders(candidate: Candidate) -> bool:
    """Return whether a caller says what the agent will do ("You will pay the refund"), which commits no caller."""
    is_callers = candidate.sentence.role is not Role.REP
    begins = candidate.clause.lower().split()[:2]
    return is_callers and candidate.form == FREE and not candidate.words.words("tasks", "you").isdisjoint(begins)


def _names_no_caller(candidate: Candidate) -> bool:
    if candidate.sentence.role is Role.REP:
        return False
    return signature(candidate.words.language or "", tokens(candidate)).person not in ("i", "we")


def _differ(reply: SpokenTurn, turn: SpokenTurn) -> bool:
    return reply.turn.speaker != turn.turn.speaker


def _refuses(reply: SpokenTurn) -> bool:
    texts = [sentence.text for sentence in reply.sentences]
    return any(reply.pack.matches("tasks", key, text) for key in ("refuse", "decline") for text in texts)


def _accepts(reply: SpokenTurn) -> bool:
    """Return whether the reply assents; assent before a question ("Right, and your number?") does not count."""
    return (
        not reply.text.rstrip().endswith("?") and reply.pack.matches("tasks", "accept", reply.text)
    ) and not _refuses(reply)


def _promises(reply: SpokenTurn, asked: Sequence[Sentence]) -> bool:
    """Return whether the reply promises the same: "I'll do that", or in words of the proposal."""
    if _refuses(reply):
        return False
    words = frozenset(stem for sentence in asked for stem in stems(sentence.text, sentence.pack))
    return any(
        sentence.pack.matches("tasks", "promise", sentence.text)
        or (sentence.pack.matches("tasks", "commit", sentence.text) and words & stems(sentence.text, sentence.pack))
        for sentence in reply.sentences
    )
