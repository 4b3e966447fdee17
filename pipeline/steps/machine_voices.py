"""The voices of a call's pieces, where words suggest a machine (`speakers/channel_voices.py`)."""

from collections.abc import Sequence

from pipeline.domain.speech import Span, SpeakerSpan
from pipeline.runtime.workers import RemoteRef, Workers
from pipeline.speakers.channel_voices import by_voice
from pipeline.speakers.machines import Voices
from pipeline.speakers.roles import RoleOptions


async def cluster_voices(
    workers: Workers, audio: RemoteRef, stretches: Sequence[Sequence[Span]], options: RoleOptions
) -> Voices:
    """Return the voice of each of a channel's `stretches`, by channel.

    A channel has none if its embedder has no calibration for pieces.
    """
    found: list[tuple[SpeakerSpan, ...]] = []
    for channel, spans in enumerate(stretches):
        prints = await workers.voices(audio, channel, spans) if spans else []
        model = next((made.model for made in prints if made), "")
        calibration = options.calibration_of(model)
        least = calibration.pieces if calibration else None
        found.append(() if least is None else await workers.compute(by_voice, spans, prints, least))
    return tuple(found)
