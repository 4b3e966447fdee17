"""What `pipeline.process` hands to its stages."""

from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    Chunk,
    ChunkText,
    Diarization,
    Heard,
    Layout,
    LayoutKind,
    Recognized,
    Role,
    Span,
    SpeakerSpan,
    Word,
)
from pipeline.process import ProcessOptions, Spoken, conclude
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.turns import TurnOptions
from pipeline.workers import LocalWorkers
from tests.unit.calls_by_hand import call

LINES = ((0.0, "Good morning, how can I help you?"), (5.0, "Yes, thank you."))


def spoken() -> Spoken:
    """One voice of a mono call, which pauses for about four seconds."""
    chunk = Chunk(0, 0.0, 8.0, "en")
    words = tuple(
        Word(start + at * 0.2, start + at * 0.2 + 0.1, text, 0.9)
        for start, said in LINES
        for at, text in enumerate(said.split())
    )
    heard = Heard(Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"), 8.0, ((Span(0, 8),),), (chunk,))
    recognized = Recognized((ChunkText(chunk, "en", 1.0, words, -0.1, 0.0),), "by hand")
    return Spoken(heard, recognized, Diarization((SpeakerSpan(0, 8, "A"),), {}, "by hand"), None)


async def conclusion(options: ProcessOptions | None = None):
    workers = LocalWorkers(None, None)
    return (await conclude(call().call, workers, Roster(), spoken(), options=options)).transcript


async def test_a_pause_ends_a_turn_as_the_options_say() -> None:
    assert len((await conclusion()).turns) == 2
    patient = ProcessOptions(turns=TurnOptions(pause_seconds=10))
    assert len((await conclusion(patient)).turns) == 1


async def test_a_role_is_clear_as_the_options_say() -> None:
    assert (await conclusion()).speakers[0].role is Role.REP
    strict = ProcessOptions(roles=RoleOptions(clear=1.0))
    assert (await conclusion(strict)).speakers[0].role is Role.UNKNOWN
