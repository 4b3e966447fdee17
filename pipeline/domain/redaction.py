"""What is hidden in a call, and by which policy (docs/decisions/0042-redaction-of-timed-words.md)."""

from dataclasses import dataclass, field
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


NEEDS_ENGINE = frozenset({EntityKind.ORGANIZATION, EntityKind.PLACE})
"""Kinds that no rule detects: without an engine for names, redaction cannot look for them."""


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


MAX_LAST_DIGITS, MAX_GUARD_SECONDS = 4, 2


@dataclass(frozen=True, slots=True)
class RedactionPolicy:
    """What a team, or else its workspace, hides in its calls.

    The API and the command line have these options, with these defaults and limits; a test compares them.
    """

    mode: RedactionMode = RedactionMode.OFF
    kinds: tuple[EntityKind, ...] = ()  # sorted
    patterns: tuple[Pattern, ...] = ()
    last_digits: int = 0  # of cards, accounts and phone numbers, that stay readable; never of codes
    agents_exempt: bool = False  # names of members stay
    guard_seconds: float = 0.25  # of sound hidden before and after each span
    hold: bool = True  # a call fails where redaction could not look; False: it is shown with a warning

    @property
    def hides_keys(self) -> bool:
        """Whether keys pressed on the keypad are hidden, in labels and in sound."""
        return bool(self.patterns) or not TYPED_KINDS.isdisjoint(self.kinds)


@dataclass(frozen=True, slots=True)
class NamedPolicy(RedactionPolicy):
    """A policy as it was set, in a form that is stored with each call."""

    mode: RedactionMode
    name: str = field(kw_only=True)  # its presets and further kinds, for people: "pci", "privacy+health"
    version: int = field(kw_only=True)  # grows with each change of the workspace's or team's; 0: it was not set


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


class RedactionPreset(StrEnum):
    """A named set of kinds."""

    PCI = "pci"
    PRIVACY = "privacy"
    HEALTH = "health"

    @property
    def kinds(self) -> frozenset[EntityKind]:
        return _PRESETS[self]


_CARD = frozenset({EntityKind.CARD, EntityKind.CARD_CODE, EntityKind.CARD_EXPIRY})
_PRESETS = {
    RedactionPreset.PCI: _CARD,
    RedactionPreset.PRIVACY: frozenset(EntityKind) - NEEDS_ENGINE - {EntityKind.HEALTH, EntityKind.CUSTOM},
    RedactionPreset.HEALTH: frozenset({EntityKind.HEALTH}),
}
NEVER_SEALED = frozenset({EntityKind.CARD_CODE})  # PCI DSS 3.3.1: not kept, even encrypted
TYPED_KINDS = _CARD | {
    *(EntityKind.ACCOUNT, EntityKind.NATIONAL_ID, EntityKind.PHONE),
    *(EntityKind.BIRTH_DATE, EntityKind.PASSWORD),
}
"""Kinds that callers type, as well as patterns. Keys do not tell which: under a policy with one, no key stays."""


@dataclass(frozen=True, slots=True)
class RedactedSpan:
    """Where something is hidden: seconds of a channel, without the words."""

    kind: EntityKind
    channel: int
    start: float
    end: float
    confidence: float  # 0..1
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class CallRedaction:
    """What was hidden in a call, by which policy. `reason`: why redaction could not look."""

    state: RedactionState
    policy: NamedPolicy
    counts: dict[str, int] = field(default_factory=dict)  # entities by kind
    spans: tuple[RedactedSpan, ...] = ()  # by time
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OriginalPiece:
    """The original words of one piece of an entity, with their times."""

    kind: EntityKind
    channel: int
    words: tuple[tuple[float, float, str], ...]  # start, end, text


@dataclass(frozen=True, slots=True)
class Originals:
    """What `mask` seals of a call. `adds`: to what an earlier policy has sealed."""

    pieces: tuple[OriginalPiece, ...] = ()
    adds: bool = False
