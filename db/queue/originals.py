"""The original words of calls under the policy `mask`, always sealed by the call's key."""

from collections import defaultdict
from dataclasses import replace

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from db.core.tables import unredacted_words
from db.queue.jobs import Lease
from db.secrets import call_keys
from pipeline.domain.redaction import Originals
from pipeline.domain.speech import CUSTOMER, REP, Role, Transcript, Turn, Word

_ORIGINALS = TypeAdapter(Originals)


async def keep(connection: AsyncConnection, lease: Lease, originals: Originals) -> None:
    """Store the original words of a call, sealed by its key; `originals.adds`: besides those that are stored."""
    key = await call_keys.key_for_writing(connection, lease.call_pk, lease.workspace_id, force=True)
    assert key is not None
    if originals.adds:
        before = await load(connection, lease.call_pk)
        originals = replace(originals, pieces=(*before.pieces, *originals.pieces))
    values = {"content": call_keys.seal(key, originals), "written_at": sa.func.now()}
    new = insert(unredacted_words).values(call_pk=lease.call_pk, **values)
    await connection.execute(new.on_conflict_do_update(index_elements=["call_pk"], set_=values))


async def load(connection: AsyncConnection, call_pk: int) -> Originals:
    """Return the sealed words of a call; none if nothing is sealed. Raises `SecretSealed`."""
    content = call_keys.readable(unredacted_words.c.content, unredacted_words.c.call_pk)
    stored = await connection.scalar(sa.select(content).where(unredacted_words.c.call_pk == call_pk))
    return Originals() if stored is None else _ORIGINALS.validate_python(call_keys.of(connection).open(stored))


def restored(transcript: Transcript, originals: Originals) -> Transcript:
    """Return the transcript with the original words in place of masked ones; what was never sealed stays masked."""
    texts: dict[tuple[float, float], list[tuple[int, str]]] = defaultdict(list)
    for piece in originals.pieces:
        for start, end, text in piece.words:
            texts[start, end].append((piece.channel, text))
    channels = {
        speaker.label: {Role.REP: REP, Role.CUSTOMER: CUSTOMER}.get(speaker.role) for speaker in transcript.speakers
    }
    separated = transcript.layout.kind.separated

    def original(turn: Turn, word: Word) -> Word:
        candidates = texts.get((word.start, word.end), ()) if _is_masked(word) else ()
        channel = channels.get(turn.speaker) if separated else None
        text = next((text for at, text in candidates if channel in (None, at)), None)
        return word if text is None else replace(word, text=text)

    turns = (replace(turn, words=tuple(original(turn, word) for word in turn.words)) for turn in transcript.turns)
    return replace(transcript, turns=tuple(turns))


def _is_masked(word: Word) -> bool:
    return not word.text or "[" in word.text
