"""What is hidden in a call, and by which policy (docs/decisions/0042-redaction-of-timed-words.md)."""

from dataclasses import dataclass
from enum import StrEnum


class EntityKind(StrEnum):
    """A kind of personal data; in upper case and brackets it is the mark in the text: `[CARD]`."""

    CARD = "card"  # 13 to 19 digits of a payment card
    CARD_CODE = "card_code"
    CARD_EXPIRY = "card_expiry"
    IBAN = "iban"
    ACCOUNT = "account"  # bank account or routing number
    NATIONAL_ID = "national_id"
    PHONE = "phone"
    BIRTH_DATE = "birth_date"
    PASSWORD = "password"  # or PIN  # noqa: S105
    EMAIL = "email"
    SPELLED_NAME = "spelled_name"
    ADDRESS = "address"  # postal
    PERSON = "person"
    ORGANIZATION = "organization"
    PLACE = "place"
    HEALTH = "health"
    CUSTOM = "custom"  # a pattern of the workspace, such as its order numbers

    @property
    def mark(self) -> str:
        return f"[{self.upper()}]"


class RedactionMode(StrEnum):
    OFF = "off"
    MASK = "mask"  # the original is sealed, and readable with the scope `unredacted`
    REDACTED_ONLY = "redacted-only"  # the original is never written in a readable form


class RedactionState(StrEnum):
    OFF = "off"
    NOTHING_FOUND = "nothing_found"
    FOUND = "found"
    COULD_NOT_LOOK = "could_not_look"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A shape that a workspace hides, typed or spoken: `A` stands for a letter, `9` for a digit, as in `AB-999999`."""

    name: str
    shape: str


@dataclass(frozen=True, slots=True)
class RedactionPolicy:
    """What a team, or else its workspace, hides in its calls."""

    mode: RedactionMode = RedactionMode.OFF
    kinds: frozenset[EntityKind] = frozenset()
    patterns: tuple[Pattern, ...] = ()
    last_digits: int = 0  # of cards, accounts and phone numbers, that stay readable: 0..4; never of codes
    agents_exempt: bool = False  # names of members stay
    guard_seconds: float = 0.25  # of sound hidden before and after each span: 0..2
    hold: bool = True  # a call fails where redaction could not look; False: it is shown with a warning


@dataclass(frozen=True, slots=True)
class EntityWords:
    """Words of an entity in one chunk: `first` to `last`, both included, of `Recognized.texts[text].words`."""

    text: int
    first: int
    last: int
    channel: int
    start: float  # seconds
    end: float


@dataclass(frozen=True, slots=True)
class Entity:
    """Personal data in the words of a call; over several turns it has several pieces."""

    kind: EntityKind
    pieces: tuple[EntityWords, ...]
    confidence: float  # 0..1
    pattern: str = ""  # name of the workspace's pattern, of `EntityKind.CUSTOM`


@dataclass(frozen=True, slots=True)
class Redaction:
    """Result of looking for entities in a call. `reason`: why it could not look, for people."""

    state: RedactionState
    entities: tuple[Entity, ...] = ()
    reason: str = ""
