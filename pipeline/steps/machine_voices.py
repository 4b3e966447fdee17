"""Labels of announcements, by the words and by the voices of a call (`speakers/machines.py`)."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.domain.speech import AudioAnalysis, Diarization, Recognized, Span, SpeakerSpan
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import public_message
from pipeline.record_texts import warning_text
from pipeline.runtime.workers import RemoteRef, Workers
from pipeline.speakers.channel_voices import by_voice, needs_voice_check
from pipeline.speakers.machines import Voices, refine
from pipeline.speakers.roles import RoleOptions
from pipeline.steps.call_run import NO_ENGINE, CallRun


async def refine_labels(
    run: CallRun, audio: AudioAnalysis, recognized: Recognized, diarization: Diarization | None = None
) -> AudioAnalysis:
    """Return `audio` with refined labels of machines, which every later stage reads."""
    voices = await _machine_voices(run, audio, recognized, diarization)
    async with run.deadline(Stage.SPEAKERS, audio.duration):
        labels = await run.workers.compute(refine, audio.labels, recognized.texts, voices)
    return replace(audio, labels=labels)


async def _machine_voices(
    run: CallRun, audio: AudioAnalysis, recognized: Recognized, diarization: Diarization | None
) -> Voices:
    """Return the voice of each piece in channels whose words suggest a machine; nothing for other calls.

    Nothing either if the stored sound of a call that was processed before this stage existed is gone.
    """
    spans = diarization.spans if diarization else ()
    stretches = await run.workers.compute(needs_voice_check, recognized.texts, len(audio.labels), spans)
    if not any(stretches) or await run.is_out_of_reach(Stage.VOICES):
        return ()
    try:
        return await run.stage(Stage.VOICES, lambda: _cluster_call_voices(run, stretches))
    except NO_ENGINE as error:
        run.warnings.append(warning_text(CallWarning.MACHINES_BY_WORDS, problem=public_message(error)))
        return ()


async def _cluster_call_voices(run: CallRun, stretches: Sequence[Sequence[Span]]) -> Voices:
    return await cluster_voices(run.workers, await run.sound.get(), stretches, run.options.roles)


async def cluster_voices(
    workers: Workers, audio: RemoteRef, stretches: Sequence[Sequence[Span]], options: RoleOptions
) -> Voices:
    """Return the voice of each of a channel's `stretches`, by channel.

    A channel has none if its embedder has no calibration for pieces.
    """
    voices: list[tuple[SpeakerSpan, ...]] = []
    for channel, spans in enumerate(stretches):
        voiceprints = await workers.voices(audio, channel, spans) if spans else []
        model = next((voiceprint.model for voiceprint in voiceprints if voiceprint), "")
        calibration = options.calibration_of(model)
        min_cosine = calibration.pieces if calibration else None
        clustered = () if min_cosine is None else await workers.compute(by_voice, spans, voiceprints, min_cosine)
        voices.append(clustered)
    return tuple(voices)
