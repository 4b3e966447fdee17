"""The stages of a call, in order: the pipeline's table of contents.

fetch -> audio -> recognition and redaction, in parallel with prosody and diarization -> machine voices -> the rep's
voiceprint (of separated channels) -> speakers -> analysis

This module knows every step (`steps/`); no step knows another or the order. Each stage is looked up in the `Journal`
before it runs, and recorded after it. Of two recordings each is recorded by itself as well (`Stage.LEG`), so that
neither is requested twice. Samples stay with the workers.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar

from pipeline.asr import doubt
from pipeline.audio.labels.detector import PADDING
from pipeline.domain.call import Call
from pipeline.domain.credentials import Access
from pipeline.domain.insight import Finding, Material, Roster
from pipeline.domain.redaction import RedactionState
from pipeline.domain.speech import (
    AudioAnalysis,
    Diarization,
    Prosody,
    Recognized,
    RedactedRecording,
    Transcript,
    Voiceprint,
)
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import CallWarning
from pipeline.errors import TimedOut
from pipeline.journal import Journal, MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.record_texts import warning_text
from pipeline.runtime.deadlines import deadline
from pipeline.runtime.workers import Workers
from pipeline.speakers.attribute import attribute
from pipeline.speakers.seconds import speech_by_speaker
from pipeline.steps.analysis import CallAnalysis
from pipeline.steps.audio import analyze_recordings, duration_warnings, measure_prosody
from pipeline.steps.call_run import CallRun, RedactedFiles
from pipeline.steps.llm_requests import LlmClient, LlmScheduler
from pipeline.steps.machine_voices import refine_labels
from pipeline.steps.recordings import RecordingFetcher
from pipeline.steps.redact import recognize_words, redact_recordings, without_keys
from pipeline.steps.voices import diarize, recluster, rep_voiceprint

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class RecognizedCall:
    """The words and voices of a call: all that needs its sound."""

    audio: AudioAnalysis  # its labels name what machines say, as the transcript's do
    recognized: Recognized
    diarization: Diarization | None
    voiceprint: Voiceprint | None
    warnings: tuple[str, ...] = ()
    prosody: Prosody | None = None
    recordings: tuple[RedactedRecording, ...] | None = None  # replace the stored ones


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of processing a call."""

    transcript: Transcript
    findings: tuple[Finding, ...]
    recognized_call: RecognizedCall  # with the rep's voiceprint
    warnings: tuple[str, ...]
    late: TimedOut | None = None  # why there are no findings: the analysis missed its deadline
    analysis_warnings: tuple[str, ...] = ()  # which the next analysis of the call replaces


async def process(
    call: Call,
    workers: Workers,
    roster: Roster,
    journal: Journal | None = None,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    llm: LlmClient | None = None,
) -> Outcome:
    """Fetch the recordings of a call, without credentials, and run every other stage.

    `journal`: left out, nothing is resumed. `last_try`: of two recordings, one that still cannot be fetched is left
    out, and the other is processed alone. `llm`: see `conclude`.
    Raises `CallError`: its class says whether another attempt can help.
    """
    journal, options = journal or MemoryJournal(), options or ProcessOptions()
    fetcher = RecordingFetcher(call, workers, journal, options, last_try)
    return await _run(CallRun(call, workers, roster, journal, options, fetcher), llm)


async def fetch_recordings(
    call: Call,
    workers: Workers,
    journal: Journal | None = None,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    access: Access | None = None,
    key: bytes | None = None,
    keep_source: bool = False,
) -> tuple[str, ...]:
    """Fetch the recordings of a call, except those that an earlier attempt stored and that are still intact.

    `access`: the credentials of the workspace for recording servers; they never leave this process. `key` seals the
    files. `keep_source`: a file that was handed in stays, so that it can be fetched again; no part of an interrupted
    transfer is kept. Returns the warnings for `process_fetched`. Otherwise as `process`.
    """
    journal, options = journal or MemoryJournal(), options or ProcessOptions()
    fetcher = RecordingFetcher(call, workers, journal, options, last_try, access, key, keep_source)
    run = CallRun(call, workers, Roster(), journal, options, fetcher)
    run.recordings.stored = await run.stage(Stage.FETCH, run.recordings.fetch)
    await run.recordings.restore()
    return tuple(run.warnings)


async def process_fetched(
    call: Call,
    workers: Workers,
    roster: Roster,
    journal: Journal,
    fetch_warnings: tuple[str, ...] = (),
    options: ProcessOptions | None = None,
    llm: LlmClient | None = None,
    redacted_files: RedactedFiles | None = None,
) -> Outcome:
    """Run every stage after `fetch_recordings`, whose warnings are `fetch_warnings`; request no recording.

    `redacted_files`: how recordings are stored without what a policy hides; None: no recording is changed.
    Raises `NotFetched` if the store has lost a recording. Otherwise as `process`.
    """
    run = CallRun(call, workers, roster, journal, options or ProcessOptions(), None, fetch_warnings, redacted_files)
    return await _run(run, llm)


async def _run(run: CallRun, llm: LlmClient | None) -> Outcome:
    try:
        recognized_call = await _recognize(run)
        recordings = await redact_recordings(run, recognized_call.audio, recognized_call.recognized)
        recognized_call = replace(recognized_call, recordings=recordings)
    finally:
        run.sound.discard()
    return await conclude(run.call, run.workers, run.roster, recognized_call, run.journal, run.options, llm)


async def _recognize(run: CallRun) -> RecognizedCall:
    run.recordings.stored = await run.stage(Stage.FETCH, run.recordings.fetch)
    if run.call.recording_url2 and len(run.recordings.stored) == 1 and not run.warnings:  # in an earlier attempt
        run.warnings.append(warning_text(CallWarning.RECORDING_MISSING))
    audio = await run.stage(Stage.AUDIO, lambda: analyze_recordings(run), run.max_audio_seconds)
    run.seconds = audio.duration
    run.warnings.extend(duration_warnings(run.call.duration, audio.duration))
    audio = await without_keys(run, audio)
    recognition = recognize_words(run, audio)
    prosody = measure_prosody(run, audio)
    if audio.layout.kind.separated:
        (recognized, refined, voiceprint), measured = await _both(_then_voiceprint(run, audio, recognition), prosody)
        return RecognizedCall(refined, recognized, None, voiceprint, tuple(run.warnings), measured)
    diarization = run.stage(Stage.DIARIZATION, lambda: diarize(run, audio))
    (recognized, diarized), measured = await _both(_both(recognition, diarization), prosody)
    reclustered = await recluster(run, recognized, diarized)
    refined = await refine_labels(run, audio, recognized, reclustered)
    return RecognizedCall(refined, recognized, reclustered, None, tuple(run.warnings), measured)


async def _then_voiceprint(
    run: CallRun, audio: AudioAnalysis, recognition: Awaitable[Recognized]
) -> tuple[Recognized, AudioAnalysis, Voiceprint | None]:
    """Take the rep's voiceprint after the words: only they separate an announcement on the rep's line from the rep."""
    recognized = await recognition
    refined = await refine_labels(run, audio, recognized)
    return recognized, refined, await rep_voiceprint(run, refined)


async def conclude(
    call: Call,
    workers: Workers,
    roster: Roster,
    recognized_call: RecognizedCall,
    journal: Journal | None = None,
    options: ProcessOptions | None = None,
    llm: LlmClient | None = None,
) -> Outcome:
    """Run speakers and analysis: they are cheap and depend on metadata, so they run again whenever it changes.

    `llm`: requests answers of a language model that this call does not have yet; left out, it waits for no other call.
    """
    journal, options = journal or MemoryJournal(), options or ProcessOptions()
    audio = recognized_call.audio
    transcript = await _identify_speakers(call, workers, roster, recognized_call, options)
    transcript = replace(transcript, redaction=recognized_call.recognized.redaction)
    await journal.record(Stage.SPEAKERS, transcript)
    speech = speech_by_speaker(audio, transcript, PADDING)
    by_voice = options.analysis.tone_by_voice
    material = Material(call, transcript, roster, speech, prosody=recognized_call.prosody, tone_by_voice=by_voice)
    analysis = CallAnalysis(workers, material, options, audio.duration, journal)
    result = await analysis.run(llm or LlmScheduler().of(None))
    warnings = (*recognized_call.warnings, *audio.warnings, *_skipped_windows(recognized_call.recognized))
    warnings += (result.late.message,) if result.late else ()
    warnings += _not_redacted(recognized_call.recognized)
    warnings += (*_unmarked_words(recognized_call.recognized), *_unmatched_voices(recognized_call, options))
    return Outcome(transcript, result.findings, recognized_call, warnings, result.late, result.warnings)


async def _identify_speakers(
    call: Call, workers: Workers, roster: Roster, recognized_call: RecognizedCall, options: ProcessOptions
) -> Transcript:
    audio = recognized_call.audio
    async with deadline(Stage.SPEAKERS, options.deadlines.of(Stage.SPEAKERS, audio.duration)):
        return await workers.compute(  # type: ignore[no-any-return]
            attribute,
            audio,
            recognized_call.recognized,
            recognized_call.diarization,
            recognized_call.voiceprint,
            roster,
            str(call.user_id) if call.user_id else None,
            options.roles,
        )


def _skipped_windows(recognized: Recognized) -> tuple[str, ...]:
    undone = recognized.undone
    return (warning_text(CallWarning.WINDOWS_NOT_DECODED_AGAIN, count=undone),) if undone else ()


def _not_redacted(recognized: Recognized) -> tuple[str, ...]:
    redaction = recognized.redaction
    if redaction is None or redaction.state is not RedactionState.COULD_NOT_LOOK:
        return ()
    return (warning_text(CallWarning.NOT_REDACTED, reason=redaction.reason),)


def _unmarked_words(recognized: Recognized) -> tuple[str, ...]:
    """Return a warning if the recognizer has no calibration, which says which of its words are probably wrong."""
    if not recognized.texts or doubt.calibration_of(recognized.engine) is not None:
        return ()
    return (warning_text(CallWarning.WORDS_NOT_MARKED, engine=recognized.engine),)


def _unmatched_voices(recognized_call: RecognizedCall, options: ProcessOptions) -> tuple[str, ...]:
    """Return a warning for each embedder without a calibration: its voiceprints recognize no member."""
    voiceprints = [recognized_call.voiceprint] if recognized_call.voiceprint else []
    voiceprints += recognized_call.diarization.voiceprints.values() if recognized_call.diarization else []
    models = {voiceprint.model for voiceprint in voiceprints}
    unknown = sorted(model for model in models if options.roles.calibration_of(model) is None)
    return tuple(warning_text(CallWarning.VOICES_NOT_MATCHED, model=model) for model in unknown)


async def _both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Run two stages in parallel. If one fails, the other is stopped and the error is raised as it is."""
    tasks = (asyncio.ensure_future(first), asyncio.ensure_future(second))
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
