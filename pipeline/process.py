"""The stages of a call, in order: the pipeline's table of contents.

fetch -> audio -> asr beside prosody and diarization -> the rep's voiceprint (separated) -> speakers -> analysis

`process` knows every stage and no stage knows another. It calls `recall(stage)` before a stage: a result that an
earlier attempt recorded takes the stage's place (`NOT_RECORDED`: the stage runs). It calls `record(stage, result)`
after the stage. Of two recordings each is recorded on its own as well (`Stage.LEG`), so that neither is requested
twice. Samples stay with the workers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline import analysis
from pipeline.asr import doubt
from pipeline.audio.labels.detector import PADDING
from pipeline.domain.access import Access
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Material, ModelAnswers, ModelText, ModelTexts, Roster, Unanswered
from pipeline.domain.speech import AudioAnalysis, Diarization, Prosody, Recognized, Transcript, Voiceprint
from pipeline.domain.stage import NOT_RECORDED, Recall, Record, Stage
from pipeline.errors import TimedOut
from pipeline.observability.spans import observed
from pipeline.options import ProcessOptions
from pipeline.runtime.deadlines import deadline
from pipeline.runtime.workers import Workers
from pipeline.speakers.attribute import attribute
from pipeline.speakers.seconds import speech_by_speaker
from pipeline.steps.call_run import CallRun
from pipeline.steps.llm_requests import LlmClient, LlmScheduler

MOST_ANSWERS = 32  # of a language model, kept of a call: more than a call needs: speakers and instructions change

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class RecognizedCall:
    """What was said in a call; what remains is to say who said it and what it means."""

    audio: AudioAnalysis  # its labels name what machines say, as the transcript's do
    recognized: Recognized
    diarization: Diarization | None
    voiceprint: Voiceprint | None
    warnings: tuple[str, ...] = ()
    prosody: Prosody | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What processing a call yields."""

    transcript: Transcript
    findings: tuple[Finding, ...]
    spoken: RecognizedCall  # what the findings rest on, with the rep's voiceprint
    warnings: tuple[str, ...]
    late: TimedOut | None = None  # why there are no findings: the analysis missed its deadline
    analysis_warnings: tuple[str, ...] = ()  # which the next analysis of the call replaces


async def _record_nothing(_stage: Stage, _result: Any) -> None: ...


async def _recall_nothing(_stage: Stage) -> Any:
    return NOT_RECORDED


async def process(
    call: Call,
    workers: Workers,
    roster: Roster,
    record: Record = _record_nothing,
    recall: Recall = _recall_nothing,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    fetched: tuple[str, ...] | None = None,
    asker: LlmClient | None = None,
) -> Outcome:
    """Run every stage, from the recording's address to the findings.

    `last_try`: of two files, one that still cannot be fetched is left out, and the other is processed alone.
    `fetched`: the warnings of an earlier `fetch_recordings`, which has the credentials of recording servers; no server
    is asked for a recording then.
    `asker`: see `conclude`.
    Raises `CallError`: its class says whether another attempt can help. `NotFetched` with `fetched` only.
    """
    options = options or ProcessOptions()
    run = CallRun(call, workers, roster, record, recall, options, last_try)
    if fetched is not None:
        run.may_fetch, run.warnings = False, fetched
    try:
        spoken = await _run_sound_stages(run)
    finally:
        run.stop()
    return await conclude(call, workers, roster, spoken, record, options, recall, asker)


async def fetch_recordings(
    call: Call,
    workers: Workers,
    record: Record = _record_nothing,
    recall: Recall = _recall_nothing,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    access: Access | None = None,
) -> tuple[str, ...]:
    """Fetch the recordings of a call, except those that an earlier attempt stored and that are still intact.

    `access`: the credentials of the workspace for recording servers; they never leave this process. Returns warnings
    for the record. `process` fetches by itself, without credentials, if this has not run before.
    """
    run = CallRun(call, workers, Roster(), record, recall, options or ProcessOptions(), last_try, access)
    run.recordings = await run.stage(Stage.FETCH, run.fetch)
    await run.restore_recordings()
    return run.warnings


async def _run_sound_stages(run: "CallRun") -> RecognizedCall:
    """The stages that need sound."""
    run.recordings = await run.stage(Stage.FETCH, run.fetch)
    if run.call.recording_url2 and len(run.recordings) == 1 and not run.warnings:  # an earlier attempt left it out
        run.warnings = ("One of the two recordings could not be fetched.",)
    audio = await run.stage(Stage.AUDIO, run.analyze_audio, run.max_audio_seconds)
    run.seconds = audio.duration
    recognition, prosody = run.stage(Stage.RECOGNITION, lambda: run.recognize(audio)), run.prosody(audio)
    if audio.layout.kind.separated:
        (recognized, audio, voiceprint), measured = await _both(_then_voiceprint(run, audio, recognition), prosody)
        return RecognizedCall(audio, recognized, None, voiceprint, run.warnings, measured)
    diarized = run.stage(Stage.DIARIZATION, lambda: run.diarize(audio))
    (recognized, diarization), measured = await _both(_both(recognition, diarized), prosody)
    diarization = await run.recluster(recognized, diarization)
    refined = await run.refine_labels(audio, recognized, diarization)
    return RecognizedCall(refined, recognized, diarization, None, run.warnings, measured)


async def _then_voiceprint(
    run: "CallRun", audio: AudioAnalysis, recognition: Awaitable[Recognized]
) -> tuple[Recognized, AudioAnalysis, Voiceprint | None]:
    """The rep's voiceprint waits for the words: only they separate an announcement on the rep's line from the rep."""
    recognized = await recognition
    refined = await run.refine_labels(audio, recognized)
    return recognized, refined, await run.rep_voiceprint(refined)


async def conclude(
    call: Call,
    workers: Workers,
    roster: Roster,
    spoken: RecognizedCall,
    record: Record = _record_nothing,
    options: ProcessOptions | None = None,
    recall: Recall = _recall_nothing,
    asker: LlmClient | None = None,
) -> Outcome:
    """Run speakers and analysis: they are cheap and depend on metadata, so they run again whenever it changes.

    A language model is asked only what it has not answered for this call; through `asker` where other calls ask it too.
    """
    options = options or ProcessOptions()
    audio = spoken.audio
    async with deadline(Stage.SPEAKERS, options.deadlines.of(Stage.SPEAKERS, audio.duration)):
        transcript: Transcript = await workers.compute(
            attribute,
            audio,
            spoken.recognized,
            spoken.diarization,
            spoken.voiceprint,
            roster,
            str(call.user_id) if call.user_id else None,
            options.roles,
        )
    await record(Stage.SPEAKERS, transcript)
    speech = speech_by_speaker(audio, transcript, PADDING)
    material = Material(
        call, transcript, roster, speech, prosody=spoken.prosody, tone_by_voice=options.analysis.tone_by_voice
    )
    analyzing = Analyzing(workers, material, options, audio.duration)
    findings, unasked, late = await _analyzed(analyzing, record, recall, asker or LlmScheduler().of(None))
    undone = spoken.recognized.undone
    skipped = (f"{undone} doubtful windows were not decoded again: the call has too many of them.",) if undone else ()
    unfinished = (late.message,) if late else ()
    uncalibrated = (*_unmarked(spoken.recognized), *_unmatched(spoken, options))
    warnings = (*spoken.warnings, *audio.warnings, *skipped, *unfinished, *uncalibrated)
    return Outcome(transcript, findings, spoken, warnings, late, unasked)


@dataclass(frozen=True, slots=True)
class Analyzing:
    """A call that is analyzed."""

    workers: Workers
    material: Material
    options: ProcessOptions
    seconds: float  # of audio

    async def compute(self, stage: Stage, fn: Callable[..., Any], *args: Any) -> Any:
        """What a CPU function of the analysis returns. Raises `TimedOut`."""
        async with deadline(stage, self.options.deadlines.of(Stage.ANALYSIS, self.seconds)):
            return await self.workers.compute(fn, self.material, self.options.analysis, *args)


async def _analyzed(
    analyzing: Analyzing, record: Record, recall: Recall, asker: LlmClient
) -> tuple[tuple[Finding, ...], tuple[str, ...], TimedOut | None]:
    """The findings with warnings, or why there are none: that does not withhold the transcript."""
    try:
        if analysis.asks_model(analyzing.options.analysis):
            return *await _asking(analyzing, record, recall, asker), None
        return await analyzing.compute(Stage.ANALYSIS, analysis.analyze), (), None
    except TimedOut as error:
        return (), (), error


def _unmarked(recognized: Recognized) -> tuple[str, ...]:
    """A warning where the recognizer has no calibration: nobody knows which of its words are probably wrong."""
    if not recognized.texts or doubt.calibration_of(recognized.engine) is not None:
        return ()
    return (f"Words are not marked one by one as unsure: there is no calibration for {recognized.engine!r}.",)


async def _asking(
    analyzing: Analyzing, record: Record, recall: Recall, asker: LlmClient
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """With what a language model has answered for this call before: it is asked nothing again, whenever this process
    ends. It is waited for in the event loop; what it answers in the workers."""
    recalled = await recall(Stage.ANSWERS)
    texts: ModelTexts = {} if recalled is NOT_RECORDED else dict(recalled)

    async def keep(key: str, text: ModelText) -> None:
        texts[key] = text
        await record(Stage.ANSWERS, dict([*texts.items()][-MOST_ANSWERS:]))

    requests = await analyzing.compute(Stage.ANSWERS, analysis.model_requests, texts)
    unanswered: dict[str, Unanswered] = {}
    if requests:
        with observed(Stage.ANSWERS.display_name):
            unanswered = await asker.ask(requests, analyzing.options.analysis, keep)
    answers = ModelAnswers(texts, unanswered)
    held_back = dict.fromkeys(one.reason for one in unanswered.values() if one.not_asked)
    unasked = tuple(f"The findings are by rules, not by the language model: {why}." for why in held_back)
    return await analyzing.compute(Stage.ANALYSIS, analysis.conclude, answers), unasked


def _unmatched(spoken: RecognizedCall, options: ProcessOptions) -> tuple[str, ...]:
    """A warning for each embedder without a calibration: its voiceprints recognize no member."""
    made = [spoken.voiceprint] if spoken.voiceprint else []
    made += spoken.diarization.voiceprints.values() if spoken.diarization else []
    unknown = sorted({one.model for one in made if options.roles.calibration_of(one.model) is None})
    return tuple(f"Voices are not matched: there is no calibration for {model!r}." for model in unknown)


async def _both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Run stages side by side. If one fails, the other is stopped and the error is raised as it is."""
    tasks = (asyncio.ensure_future(first), asyncio.ensure_future(second))
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
