"""Words that announce a value: "card number", "three digits on the back", on any channel."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rapidfuzz import fuzz, process

from pipeline.language.pack import pack
from pipeline.language.spoken.numbers import number_at
from pipeline.language.spoken.phonetics import folded
from pipeline.redaction.lines import Line

OTHER = "other"
"""The cue of a number that is not personal: an order, an invoice, a tracking number."""
KINDS = (
    "card", "card_code", "card_expiry", "iban", "account", "national_id", "phone", "birth_date", "password", "email",
    "spelled_name", "address", "person", OTHER,
)  # fmt: skip
"""Keys of the section `redaction` of a language pack that hold patterns of cues, by value of `EntityKind`."""
MAX_LOOK = 16  # tokens after a cue that are counted
MAX_TO_CARD = 8  # tokens from the cue of a code to the end of its card's
MAX_GARBLED = 4  # tokens of a cue that is written as similar words
MIN_GARBLED = 8  # its letters
LIKE_ENOUGH = 82  # percent of the letters of both, in order
MAX_SECONDS = 30.0  # from a cue to its value


@dataclass(frozen=True, slots=True)
class Cue:
    kind: str
    channel: int
    first: int  # token
    last: int
    start: float
    end: float
    to_end: int  # tokens from it to the end of its turn


@dataclass(frozen=True, slots=True)
class Cues:
    """All cues of a call by their end."""

    cues: Sequence[Cue]
    ends: Sequence[float]

    def before(self, channel: int, token: int, start: float) -> Iterator[Cue]:
        """Yield the cues before a value, the latest first."""
        at = bisect_right(self.ends, start + 0.5)
        for cue in reversed(self.cues[:at]):
            if start - cue.end > MAX_SECONDS:
                return
            if cue.channel != channel or cue.last < token:
                yield cue

    def code_on(self, card: Cue) -> Cue | None:
        """Return the cue of a code that a card's cue only completes: "the security code on the card is"."""
        at = bisect_right(self.ends, card.end)
        for cue in reversed(self.cues[max(0, at - MAX_LOOK) : at]):
            tokens = card.last - cue.last
            if cue.kind == "card_code" and cue.channel == card.channel and 0 <= tokens <= min(cue.to_end, MAX_TO_CARD):
                return cue
        return None

    def after(self, line: Line, token: int, max_tokens: int = 5) -> Iterator[Cue]:
        """Yield the cues that follow a value in the same turn: "4 1 1 1 is my card number"."""
        at = bisect_right(self.ends, line.words[token].end)
        for cue in self.cues[at : at + 8]:
            follows = cue.channel == line.channel and token < cue.first <= token + max_tokens
            if follows and line.words[cue.first].text == line.words[token].text and not _announces(line, cue):
                yield cue


def _announces(line: Line, cue: Cue) -> bool:
    """Return whether digits follow a cue: "extension 1234 and password 4242"."""
    after = range(cue.last + 1, min(cue.last + 4, len(line.tokens)))
    return any(number_at(line.tokens, at, line.packs[at])[0] for at in after)


def cues_of(lines: Sequence[Line]) -> Cues:
    """Return the cues of all channels, without those in others of nothing personal, and of "address" in an email's."""
    cues: list[Cue] = []
    for line in lines:
        spoken = list(_of_line(line))
        exact = {token for cue in spoken for token in range(cue.first, cue.last + 1)}
        spoken += _garbled(line, exact)
        inside = {token for cue in spoken if cue.kind != OTHER for token in range(cue.first, cue.last + 1)}
        of_email = {token for cue in spoken if cue.kind == "email" for token in range(cue.first, cue.last + 1)}
        around = {OTHER: inside, "address": of_email}
        cues += [cue for cue in spoken if cue.last not in around.get(cue.kind, ())]
    cues.sort(key=lambda cue: (cue.end, cue.first, cue.kind == "card_code"))
    return Cues(cues, [cue.end for cue in cues])


def _of_line(line: Line) -> Iterator[Cue]:
    for language in dict.fromkeys(each.language for each in line.packs):
        for kind in KINDS:
            for pattern in pack(language).patterns("redaction", kind):
                for match in pattern.finditer(line.text):
                    first = line.token_at(match.start())
                    last = max(first, line.token_at(match.end()) - 1)
                    if first < len(line.words) and line.packs[first].language == language:
                        yield cue_at(kind, line, first, last)


def _garbled(line: Line, exact: Collection[int]) -> Iterator[Cue]:
    """Yield the cues that a recognizer wrote as similar words: "the free digit code", "Ablaufmatum"."""
    for first, place in enumerate(line.words):
        phrases = _phrases(line.packs[first].language)
        joined = ""
        for last in range(first, min(first + MAX_GARBLED, len(line.words))):
            if last in exact or line.words[last].text != place.text or not line.lower[last].isalpha():
                break
            joined += folded(line.lower[last])
            if len(joined) < MIN_GARBLED:
                continue
            best = process.extractOne(joined, phrases.keys(), scorer=fuzz.ratio, score_cutoff=LIKE_ENOUGH)
            if best:
                yield cue_at(phrases[best[0]], line, first, last)
                break


@cache
def _phrases(language: str | None) -> dict[str, str]:
    """Return the kinds of phrases, which have no spaces."""
    kinds = pack(language).get("redaction", "phrases", {})
    return {folded(phrase).replace(" ", ""): kind for kind, phrases in kinds.items() for phrase in phrases}


def cue_at(kind: str, line: Line, first: int, last: int) -> Cue:
    return Cue(kind, line.channel, first, last, line.words[first].start, line.words[last].end, _to_end(line, last))


def _to_end(line: Line, at: int) -> int:
    turn = line.words[at].text
    return sum(line.words[token].text == turn for token in range(at + 1, min(at + MAX_LOOK, len(line.words))))
