"""Small calls for tests: lines of (speaker, text) become a material with evenly spread words."""

from datetime import datetime
from uuid import UUID

from pipeline.domain.call import Call
from pipeline.domain.insight import Contact, Material, Member, Roster
from pipeline.domain.speech import Layout, LayoutKind, Role, Span, Speaker, Transcript, Turn, Word

CALL = UUID("00000000-0000-4000-8000-000000000001")
STEREO = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand")
ROSTER = Roster(
    members=(Member("u1", "Anna Berg"), Member("u2", "Jon Lindqvist", ("Johnny",))),
    contacts=(
        Contact("c1", "Peter Miller", "Miller & Sons", "peter@miller.example", "+12025550143"),
        Contact("c2", "Petra Miller", None, None, None),
    ),
    default_country="US",
    time_zone="America/New_York",
)
START = datetime.fromisoformat("2025-04-16T15:00:00+00:00")  # a Wednesday, 11:00 in New York


def turn(index: int, speaker: str, start: float, end: float, text: str, language: str = "en") -> Turn:
    texts = text.split()
    step = (end - start) / max(1, len(texts))
    words = tuple(Word(start + at * step, start + (at + 1) * step, word, 0.9) for at, word in enumerate(texts))
    return Turn(index, speaker, start, end, words, language)


def speakers(*labels: str, role: Role | None = None) -> tuple[Speaker, ...]:
    roles = {"rep": Role.REP, "customer": Role.CUSTOMER}
    return tuple(Speaker(label, role or roles.get(label, Role.UNKNOWN), 1.0, "by hand") for label in labels)


def call(
    *lines: tuple[str, str],
    language: str | None = "en",
    roster: Roster = ROSTER,
    start: datetime = START,
    outgoing: bool | None = None,
    user_id: UUID | None = None,
    numbers: tuple[str, str] = ("+12025550143", "+12025550100"),
) -> Material:
    """Return a call with three seconds per turn, and half a second between turns."""
    turns = tuple(
        turn(at, speaker, at * 3.5, at * 3.5 + 3, text, language or "und") for at, (speaker, text) in enumerate(lines)
    )
    labels = tuple(dict.fromkeys(speaker for speaker, _ in lines))
    duration = len(lines) * 3.5
    transcript = Transcript(language, 0.99, duration, speakers(*labels), turns, STEREO, "by hand")
    record = Call(CALL, numbers[0], numbers[1], start, outgoing=outgoing, user_id=user_id)
    return Material(record, transcript, roster)


def timeline(duration: float, **spans: list[tuple[float, float]]) -> Material:
    """Return a call with voice activity only, without words."""
    speech = {label: tuple(Span(start, end) for start, end in times) for label, times in spans.items()}
    transcript = Transcript("en", 1.0, duration, speakers(*spans), (), STEREO, "by hand")
    return Material(Call(CALL, "a", "b", START), transcript, ROSTER, speech)
