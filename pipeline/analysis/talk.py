import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.analysis.casing import Names, by_first_word, is_uncased, restored
from pipeline.analysis.evidence import quote
from pipeline.domain.insight import Evidence, Material
from pipeline.domain.speech import Role, Transcript, Turn
from pipeline.language.pack import Pack, pack, straighten

_ENDS = re.compile(r"(?<=[.!?…])\s+")
_INITIAL = re.compile(r"\b[A-ZÀ-ÖØ-Þ][a-zß-ÿ]+ [A-ZÀ-ÖØ-Þ]\.$")  # John F. Kennedy


@dataclass(frozen=True, slots=True)
class Sentence:
    """Part of a turn; `first`..`last` are its characters in the turn as read, with straight apostrophes."""

    turn: Turn
    role: Role
    first: int
    last: int
    text: str
    pack: Pack
    origin: tuple[int, ...] | None = None  # of each character of the turn as read, if it is not as transcribed

    def evidence(self, span: tuple[int, int] | None = None) -> Evidence:
        """Return the sentence, or the characters `span` of it, as evidence."""
        first, last = span or (0, len(self.text))
        return quote(self.turn, *_transcribed(self.origin, self.first + first, self.first + last))

    @property
    def places(self) -> tuple[int, int]:
        """The first and last character in `turn.text`."""
        return _transcribed(self.origin, self.first, self.last)

    @property
    def verbatim(self) -> str:
        return self.turn.text[slice(*self.places)]


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A turn with its role, its sentences and its language pack; `text` as read (`casing`)."""

    turn: Turn
    role: Role
    text: str
    sentences: tuple[Sentence, ...]
    pack: Pack
    origin: tuple[int, ...] | None = None

    def evidence(self, first: int, last: int) -> Evidence:
        """Return characters of `text` as evidence."""
        return quote(self.turn, *_transcribed(self.origin, first, last))

    def searches(self, section: str, key: str) -> Iterator[tuple[Sentence, re.Match[str]]]:
        """Yield the first match of each pattern of the pack's list in each sentence."""
        for sentence in self.sentences:
            for pattern in self.pack.patterns(section, key):
                if match := pattern.search(sentence.text):
                    yield sentence, match

    @property
    def by_customer(self) -> bool:
        return self.role is Role.CUSTOMER and not self.turn.machine

    @property
    def by_agent(self) -> bool:
        return self.role is Role.REP and not self.turn.machine


Turns = tuple[SpokenTurn, ...]


def _transcribed(origin: tuple[int, ...] | None, first: int, last: int) -> tuple[int, int]:
    """Return the places of characters of the turn as read in the turn as transcribed."""
    if not origin or last <= first:
        return first, last
    return origin[first], origin[last - 1] + 1


def roles(transcript: Transcript) -> dict[str, Role]:
    return {speaker.label: speaker.role for speaker in transcript.speakers}


_last: list[tuple[Transcript, str | None, Turns]] = []  # max. one: every step reads the same transcript


def read(material: Material, machines: bool = False) -> Turns:
    """Return every turn of a party, in order; with `machines` also those of announcements and recorded greetings.

    A turn in a language without a pack is read with the pack of the call.
    """
    transcript, country = material.transcript, material.roster.default_country
    same = (turns for last, of, turns in _last[:] if last is transcript and of == country)  # equality is slow
    turns = next(same, None)
    if turns is None:
        role_of, whole = roles(transcript), pack(transcript.language, country)
        names = _names(material) if is_uncased(transcript) else None
        spoken: list[SpokenTurn] = []
        for turn in transcript.turns:
            spoken.append(_said(turn, role_of.get(turn.speaker, Role.UNKNOWN), whole, names, spoken[-1:]))
        turns = tuple(spoken)
        _last[:] = [(transcript, country, turns)]
    return turns if machines else tuple(turn for turn in turns if not turn.turn.machine)


def _names(material: Material) -> Names:
    """Return the names of members and contacts, whole and in part, and the companies of contacts."""
    members, contacts = material.roster.members, material.roster.contacts
    whole = [*(member.name for member in members), *(contact.name for contact in contacts if contact.name)]
    aliases = (alias for member in members for alias in member.aliases)
    companies = (contact.company for contact in contacts if contact.company)
    parts = (part for name in whole for part in name.split() if len(part) > 2)
    return by_first_word({*whole, *aliases, *companies, *parts})


def _said(turn: Turn, role: Role, whole: Pack, names: Names | None, before: list[SpokenTurn]) -> SpokenTurn:
    """Return the turn; with `names` its text has no capitals, which are restored."""
    own_pack = pack(turn.language, whole.country)
    turn_pack = own_pack if own_pack.known else whole
    text, origin = straighten(turn.text), None
    if names is not None and turn_pack.known:
        is_answer = any(asking.pack.matches("people", "asked_name", asking.text) for asking in before)
        text, origin = restored(text, turn_pack, names, is_answer)
    sentences = tuple(_sentences(turn, role, text, turn_pack, origin))
    return SpokenTurn(turn, role, text, sentences, turn_pack, origin)


def _sentences(
    turn: Turn, role: Role, text: str, turn_pack: Pack, origin: tuple[int, ...] | None
) -> Iterator[Sentence]:
    first = 0
    short = turn_pack.words("text", "abbreviations")
    for end in _ENDS.finditer(text):
        before = re.split(r"\W+", text[: end.start() - 1].lower())[-1]
        if text[end.start() - 1] == "." and before in short:
            continue
        if turn_pack.get("numbers", "ordinal_digits") == r"\d{1,2}\." and before.isdigit():
            month = re.match(r"\w*", text[end.end() :])
            if month and month.group().lower() in turn_pack.months:
                continue  # "bis 15. Mai"
        if _INITIAL.search(text[: end.start()]) and text[end.end() : end.end() + 1].isupper():
            continue
        yield Sentence(turn, role, first, end.start(), text[first : end.start()], turn_pack, origin)
        first = end.end()
    if first < len(text):
        yield Sentence(turn, role, first, len(text), text[first:], turn_pack, origin)


def other(role: Role) -> str | None:
    return {Role.REP: "customer", Role.CUSTOMER: "rep"}.get(role)


def rounded(number: float | None, digits: int = 3) -> float | None:
    return None if number is None else round(number, digits)
