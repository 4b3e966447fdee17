import logging
from collections.abc import Callable
from typing import Any

from pipeline.audio import prosody
from pipeline.audio.analyze import Loaded, analyze_audio
from pipeline.domain.speech import CUSTOMER, AudioAnalysis, Prosody, Slices, Span
from pipeline.domain.stage import NOT_RECORDED, Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import public_message
from pipeline.record_texts import warning_text
from pipeline.steps.call_run import CallRun

log = logging.getLogger(__name__)

MIN_SHARE_OF_CALL, MIN_MISSING_SECONDS = 0.5, 30.0  # of a recording that fits the declared duration


async def analyze_recordings(run: CallRun) -> AudioAnalysis:
    """Return the analysis of the call's audio, with chunks cut for the recognizer in use."""
    recognition = await run.workers.recognition()
    return await run.workers.compute(  # type: ignore[no-any-return]
        analyze_audio,
        await run.sound.get(),
        run.options.speech,
        recognition.max_chunk_seconds,
        recognition.packing,
        run.roster.keep_digits,
    )


def duration_warnings(declared: int | None, seconds: float) -> tuple[str, ...]:
    """Return a warning if the recording is far shorter than the declared duration of the call, in seconds.

    A duration may include ringing and hold, so that a smaller difference says nothing.
    """
    if declared is None or seconds >= MIN_SHARE_OF_CALL * declared or declared - seconds < MIN_MISSING_SECONDS:
        return ()
    return (warning_text(CallWarning.RECORDING_SHORTER_THAN_CALL, seconds=seconds, declared=declared),)


async def measure_prosody(run: CallRun, audio: AudioAnalysis) -> Prosody | None:
    """Return the prosody of the voices; None if it cannot be measured.

    A failure is a warning and is not recorded: another job tries again.
    """
    recorded = await run.journal.recall(Stage.PROSODY)
    if recorded is not NOT_RECORDED:
        return recorded  # type: ignore[no-any-return]
    try:
        async with run.deadline(Stage.PROSODY, audio.duration):
            measured = await _measure(run, audio)
    except Exception as error:
        log.warning("call %s: prosody failed", run.call.call_id, exc_info=True)
        run.warnings.append(warning_text(CallWarning.PROSODY_FAILED, problem=public_message(error)))
        return None
    if measured is not None:
        await run.journal.record(Stage.PROSODY, measured)
    return measured


async def _measure(run: CallRun, audio: AudioAnalysis) -> Prosody | None:
    """Return None if the stored sound is gone: no recording is requested again only for its prosody."""
    speech = _judged_speech(audio, run.options.analysis.tone_by_voice)
    if not any(speech):
        return Prosody(prosody.SLICE, (Slices(),) * len(speech))
    if not run.sound.is_requested and not await run.recordings.are_in_store():
        return None
    return await run.workers.compute(with_sound, await run.sound.get(), prosody.measure, speech)  # type: ignore[no-any-return]


def _judged_speech(audio: AudioAnalysis, voices: str) -> tuple[tuple[Span, ...], ...]:
    """Return the speech of each channel whose voice may be judged: nothing else is measured."""
    if voices == "nobody":  # language: ok
        return ((),) * len(audio.speech)
    if voices == "customers" and audio.layout.kind.separated:
        return tuple(spans if channel == CUSTOMER else () for channel, spans in enumerate(audio.speech))
    return audio.speech


def with_sound(loaded: Loaded, fn: Callable[..., Any], *args: Any) -> Any:
    """Run `fn` on loaded sound: steps know sound, and only `Workers` knows where it is."""
    return fn(loaded.audio, *args)
