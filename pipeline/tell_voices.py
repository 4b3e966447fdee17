"""Asks the engine for the voices of a call's pieces, where words suggest a machine: `speakers/channel_voices.py`."""

from collections.abc import Sequence

from pipeline.domain.speech import Span, SpeakerSpan
from pipeline.speakers.channel_voices import told_apart
from pipeline.speakers.machines import Voices
from pipeline.speakers.roles import RoleOptions
from pipeline.workers import Held, Workers


async def tell_voices(
    workers: Workers, audio: Held, stretches: Sequence[Sequence[Span]], options: RoleOptions
) -> Voices:
    """Whose voice is heard in each of a channel's `stretches`, by channel; nobody's where the embedder has no
    calibration for it."""
    found: list[tuple[SpeakerSpan, ...]] = []
    for channel, spans in enumerate(stretches):
        prints = await workers.voices(audio, channel, spans) if spans else []
        model = next((made.model for made in prints if made), "")
        calibration = options.calibration_of(model)
        least = calibration.pieces if calibration else None
        found.append(() if least is None else await workers.compute(told_apart, spans, prints, least))
    return tuple(found)
