import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from pipeline.analysis.evidence import quote
from pipeline.analysis.llm.answer import Quote
from pipeline.analysis.llm.commitment import Commitments
from pipeline.analysis.llm.wording import CallWording
from pipeline.analysis.rules import dates
from pipeline.analysis.rules.dates.expressions import Due
from pipeline.analysis.rules.people.addresses import in_figures
from pipeline.analysis.talk import Sentence, read, roles
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.speech import Role, Turn
from pipeline.language.pack import Pack, available, pack, straighten
from pipeline.language.spoken.emails import emails
from pipeline.language.spoken.numbers import digit_runs
from pipeline.language.spoken.phonetics import folded
from pipeline.language.spoken.spelling import spelled_words

PARTIES = frozenset({"rep", "customer"})
MAX_WORD_TOKENS = 30  # of a word spelled letter by letter


class Grounding:
    """Checks the statements of a model against a transcript."""

    def __init__(self, material: Material, language: str | None = None) -> None:
        """Prepare the checks; `language` is that of titles and sentences (None: the call's language)."""
        self._turns = {turn.index: turn for turn in material.transcript.turns}
        self._roles = roles(material.transcript)
        self._whole = pack(material.transcript.language, material.roster.default_country)
        self._sentences = {turn.turn.index: turn.sentences for turn in read(material, machines=True)}
        self._start = material.call.start_time
        self._zone = material.roster.time_zone
        self._spoken_turns, spoken = read(material), material.transcript.language
        self._translated = language is not None and language[:2] != (spoken or "")[:2]

    @cached_property
    def committed(self) -> Commitments:
        """The commitments of the call. Raises ZoneInfoNotFoundError for an unknown zone."""
        return Commitments(self._spoken_turns, self.now)

    @cached_property
    def wording(self) -> CallWording:
        return CallWording(self._spoken_turns, self._translated)

    @property
    def labels(self) -> frozenset[str]:
        """The labels of the speakers, without machines."""
        return frozenset(turn.speaker for turn in self._turns.values() if not turn.machine)

    @property
    def now(self) -> datetime:
        """The call's start in the workspace's time zone. Raises ZoneInfoNotFoundError for an unknown zone."""
        return dates.local(self._start, self._zone)

    def turn(self, evidence: Evidence) -> Turn:
        return self._turns[evidence.turn]

    def evidence(self, stated: Quote) -> Evidence | None:
        """Return the quoted words of the stated turn; see `spoken_words`. Other turns are not searched."""
        turn = self._turns.get(stated.turn)
        return None if turn is None else spoken_words(turn, stated.text)

    def party(self, stated: str | None) -> str | None:
        """Return a stated party if it has a speaker in this call, else "unknown"."""
        present = {role.value for role in self._roles.values()}
        return "unknown" if stated in PARTIES and stated not in present else stated

    def is_supported(self, sentence: str, evidence: Evidence) -> bool:
        """Return whether a sentence of a summary is about this call, and the agreement it states is one."""
        if not self.wording.sentence_supported(sentence, evidence):
            return False
        texts = [straighten(text) for text in (sentence, evidence.quote)]  # the model may write in any language
        if not any(pack(language).matches("summary", "agreed", text) for language in available() for text in texts):
            return True
        is_supported = self.wording.title_supported(sentence, self.wording.role(evidence), evidence)
        return is_supported and self.committed.by_anybody(evidence)

    def due(self, stated: Quote) -> Due | None:
        """Resolve the quote by rule: the expression that contains it, else the quote alone, else what it overlaps.

        None if the quote does not occur; without a day if the words are not definite.
        """
        evidence = self.evidence(stated)
        if evidence is None:
            return None
        words, turn = self._pack(evidence), self.turn(evidence)
        text = straighten(evidence.quote).rstrip(" .,;:!?…")
        first = straighten(turn.text).find(text)
        near = list(self._expressions(turn, words, first, first + len(text)))
        whole = next((due for due in near if due.first <= first and first + len(text) <= due.last), None)
        alone = dates.find(text, words, self.now)
        if whole or (alone and alone.day):
            return whole or alone
        return near[0] if near else Due(text, first, first + len(text), None)

    def _expressions(self, turn: Turn, words: Pack, first: int, last: int) -> Iterator[Due]:
        for sentence in self._sentences.get(turn.index, ()):
            due = dates.find(sentence.text, words, self.now)
            if due and sentence.first + due.first < last and first < sentence.first + due.last:
                expression = sentence.verbatim[due.first : due.last]
                yield replace(
                    due, expression=expression, first=sentence.first + due.first, last=sentence.first + due.last
                )

    def fact(self, field: str, value: str, quotes: Sequence[Evidence]) -> str | None:
        """Return a fact in its written form; None if the quotes do not contain it."""
        words, text = self._pack(quotes[0]), straighten(" ".join(evidence.quote for evidence in quotes))
        if field == "email":
            return value.lower() if value.lower() in {address.text for address in emails(text, words)} else None
        if field == "phone":
            digits = re.sub(r"\D", "", value)
            runs = [run.text for run in digit_runs(text, words)]
            return next((run for run in runs if digits and digits.endswith(run.lstrip("+").lstrip("0") or "-")), None)
        return value if self._is_spoken(value, text, self.turn(quotes[0]), words) else None

    def _is_spoken(self, value: str, text: str, turn: Turn, words: Pack) -> bool:
        """Return whether each word of a value occurs: as a word, letter by letter, or in figures."""
        sentence = Sentence(turn, self._roles.get(turn.speaker, Role.UNKNOWN), 0, len(text), text, words)
        spoken = [*_tokens(text), "", *_tokens(in_figures(text, sentence))]
        spelled = {folded(word.text) for word in spelled_words(text, words)}
        expected = _tokens(value)
        return bool(expected) and all(word in spelled or _occurs(word, spoken) for word in expected)

    def _pack(self, evidence: Evidence) -> Pack:
        turn_pack = pack(self.turn(evidence).language, self._whole.country)
        return turn_pack if turn_pack.known else self._whole


def spoken_words(turn: Turn, stated: str) -> Evidence | None:
    """Return the whole words of the turn that a stated text consists of, with their times; None if it does not occur.

    Only white space and the form of apostrophes may differ.
    """
    words = " ".join(straighten(stated).split())
    if not any(sign.isalnum() for sign in words):
        return None
    text = straighten(turn.text)
    for match in re.finditer(re.escape(words), text):
        first, last = match.span()
        inside = text[first - 1 : first].isalnum() and words[0].isalnum()
        if not inside and not (text[last : last + 1].isalnum() and words[-1].isalnum()):
            return quote(turn, first, last)
    return None


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+", folded(straighten(text)).lower())


def _occurs(word: str, tokens: Iterable[str]) -> bool:
    """Return whether consecutive tokens form the word: "miller", or "m", "i", "l", "l", "e", "r"."""
    tokens = list(tokens)
    for at in range(len(tokens)):
        joined = ""
        for token in tokens[at : at + MAX_WORD_TOKENS]:
            if not token or not word.startswith(joined + token):
                break
            joined += token
            if joined == word:
                return True
    return False
