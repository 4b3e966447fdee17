import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.domain.speech import Transcript

SHORT = 500  # words that take some 5 ms; a thread waits for longer until it gets Python's lock from a busy loop
STORED_WORD = 64  # characters of the JSON of a transcript
T = TypeVar("T")


async def off_loop(words: int, work: Callable[..., T], *args: Any) -> T:
    """Return the result of work on a transcript of so many words; a long one is left to a thread."""
    return work(*args) if words <= SHORT else await asyncio.to_thread(work, *args)


def words_of(transcript: Transcript | None) -> int:
    return sum(len(turn.words) for turn in transcript.turns) if transcript else 0
