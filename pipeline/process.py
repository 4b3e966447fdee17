"""The stages of a call, in order: the pipeline's table of contents.

fetch -> audio -> asr beside prosody and diarization -> the rep's voiceprint (separated) -> speakers -> analysis

`process` knows every stage and no stage knows another. After each stage it calls `record(stage, result)`; before it,
`recall(stage)` may hand back what an earlier attempt recorded (else `NOT_RECORDED`), and the stage is skipped. Of two
recordings each is recorded by itself as well (`LEGS`), so that neither is asked for twice. It never looks inside audio:
samples stay with the workers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pipeline import analysis
from pipeline.analysis import AnalysisOptions
from pipeline.asr.safety import SafetyOptions
from pipeline.audio import hear, prosody, sound
from pipeline.audio.chunks import SpeechOptions
from pipeline.audio.decode import DecodeOptions
from pipeline.audio.fetch import FetchOptions
from pipeline.audio.storage import all_stored, flaw_of
from pipeline.deadlines import DeadlineOptions, deadline
from pipeline.domain.access import Access
from pipeline.domain.call import Call
from pipeline.domain.insight import Finding, Material, Roster
from pipeline.domain.speech import (
    CUSTOMER,
    REP,
    Diarization,
    Heard,
    Prosody,
    Recognized,
    Recording,
    Slices,
    Span,
    Transcript,
    Voiceprint,
)
from pipeline.errors import NotFetched, RecordingError, StorageError, TimedOut, told
from pipeline.language.identification import LanguageOptions
from pipeline.legs import LEGS, Legs
from pipeline.recognise import recognise, with_sound
from pipeline.speakers import gate
from pipeline.speakers.attribute import attribute
from pipeline.speakers.channel_voices import worth_asking
from pipeline.speakers.machines import Voices, refine
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.seconds import speech_by_speaker
from pipeline.speakers.turns import TurnOptions
from pipeline.tell_voices import tell_voices
from pipeline.vocabulary import vocabulary
from pipeline.workers import Held, Workers

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
Record = Callable[[str, Any], Awaitable[None]]
Recall = Callable[[str], Awaitable[Any]]
log = logging.getLogger(__name__)
NOT_RECORDED = object()  # what `recall` answers where there is nothing: None is what some stages yield


class ProcessOptions(BaseModel):
    """What the stages need to know beside the call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: str = Field("file://.data/recordings", description="Fsspec folder that keeps fetched recordings.")
    scratch: str | None = Field(
        None,
        description="Fsspec folder that keeps decoded sound while a call is worked on; every node must see it. Left "
        "out: decoded/ in `storage`.",
    )
    fetch: FetchOptions = Field(default_factory=FetchOptions)
    decode: DecodeOptions = Field(default_factory=DecodeOptions)
    speech: SpeechOptions = Field(default_factory=SpeechOptions)
    turns: TurnOptions = Field(default_factory=TurnOptions)
    roles: RoleOptions = Field(default_factory=RoleOptions)
    language: LanguageOptions = Field(default_factory=LanguageOptions)
    safety: SafetyOptions = Field(default_factory=SafetyOptions)
    analysis: AnalysisOptions = Field(default_factory=AnalysisOptions)
    deadlines: DeadlineOptions = Field(default_factory=DeadlineOptions)

    @property
    def scratch_folder(self) -> str:
        """The fsspec address of the folder that keeps decoded sound."""
        return self.scratch or sound.join(self.storage, "decoded")


@dataclass(frozen=True, slots=True)
class Spoken:
    """Everything that was heard; what remains is to say who it was and what it means."""

    heard: Heard
    recognized: Recognized
    diarization: Diarization | None
    voiceprint: Voiceprint | None
    warnings: tuple[str, ...] = ()
    prosody: Prosody | None = None
    voices: Voices = ()  # by channel, where words suggest a machine


@dataclass(frozen=True, slots=True)
class Outcome:
    """What processing a call yields."""

    transcript: Transcript
    findings: tuple[Finding, ...]
    spoken: Spoken  # what the findings rest on; the rep's voiceprint is in here
    warnings: tuple[str, ...]
    late: TimedOut | None = None  # why there are no findings: there was no end to the analysis


async def _record_nothing(_stage: str, _result: Any) -> None: ...


async def _recall_nothing(_stage: str) -> Any:
    return NOT_RECORDED


async def process(
    call: Call,
    workers: Workers,
    roster: Roster,
    record: Record = _record_nothing,
    recall: Recall = _recall_nothing,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    access: Access | None = None,
    fetched: tuple[str, ...] | None = None,
) -> Outcome:
    """Everything from the recording's address to the findings.

    `last_try`: of two files, one that still cannot be had is given up and the call goes on with the other.
    `access`: the credentials of the workspace for recording servers; they never leave this process.
    `fetched`: the warnings of `fetch_recordings`, which has fetched before; nobody is asked for a recording then.
    Raises `CallError`: its class says whether another attempt can help. `NotFetched` with `fetched` only.
    """
    options = options or ProcessOptions()
    walk = _Walk(call, workers, roster, record, recall, options, last_try, access)
    if fetched is not None:
        walk.may_fetch, walk.warnings = False, fetched
    try:
        spoken = await _listen(walk)
    finally:
        walk.stop()
    return await conclude(call, workers, roster, spoken, record, options)


async def fetch_recordings(
    call: Call,
    workers: Workers,
    record: Record = _record_nothing,
    recall: Recall = _recall_nothing,
    options: ProcessOptions | None = None,
    last_try: bool = False,
    access: Access | None = None,
) -> tuple[str, ...]:
    """Fetch the recordings of a call, those excepted that an earlier attempt stored and that are still whole.

    Returns warnings for the record. See `process`, which does this itself where nobody did so before.
    """
    walk = _Walk(call, workers, Roster(), record, recall, options or ProcessOptions(), last_try, access)
    walk.recordings = await walk.stage("fetch", walk.fetch)
    await walk.make_whole()
    return walk.warnings


async def _listen(walk: "_Walk") -> Spoken:
    """The stages that need sound."""
    walk.recordings = await walk.stage("fetch", walk.fetch)
    if walk.call.recording_url2 and len(walk.recordings) == 1 and not walk.warnings:  # an earlier attempt gave it up
        walk.warnings = ("One of the two recordings could not be had.",)
    heard = await walk.stage("audio", walk.hear, walk.audio_seconds)
    walk.seconds = heard.duration
    words, sound = walk.stage("asr", lambda: walk.recognise(heard)), walk.prosody(heard)
    if heard.layout.kind.separated:
        (recognized, voices, voiceprint), sounded = await _both(_then_voice(walk, heard, words), sound)
        return Spoken(heard, recognized, None, voiceprint, walk.warnings, sounded, voices)
    told_apart = walk.stage("diarization", lambda: walk.diarize(heard))
    (recognized, diarization), sounded = await _both(_both(words, told_apart), sound)
    voices = await walk.voices(heard, recognized, diarization)
    return Spoken(heard, recognized, diarization, None, walk.warnings, sounded, voices)


async def _then_voice(
    walk: "_Walk", heard: Heard, words: Awaitable[Recognized]
) -> tuple[Recognized, Voices, Voiceprint | None]:
    """The rep's voiceprint waits for the words: only they tell an announcement on the rep's line from the rep."""
    recognized = await words
    voices = await walk.voices(heard, recognized)
    made = await walk.stage("voiceprint", lambda: walk.rep_voiceprint(heard, recognized, voices))
    return recognized, voices, made


async def conclude(
    call: Call,
    workers: Workers,
    roster: Roster,
    spoken: Spoken,
    record: Record = _record_nothing,
    options: ProcessOptions | None = None,
) -> Outcome:
    """Speakers and analysis: cheap, and depending on metadata, so they run anew whenever metadata changes."""
    options = options or ProcessOptions()
    async with deadline("speakers", options.deadlines.of("speakers", spoken.heard.duration)):
        transcript: Transcript = await workers.compute(
            attribute,
            spoken.heard,
            spoken.recognized,
            spoken.diarization,
            spoken.voiceprint,
            roster,
            str(call.user_id) if call.user_id else None,
            options.turns,
            options.roles,
            options.language,
            spoken.voices,
        )
    await record("speakers", transcript)
    speech = speech_by_speaker(spoken.heard, transcript, options.speech.padding_ms / 1000)
    material = Material(
        call, transcript, roster, speech, prosody=spoken.prosody, tone_by_voice=options.analysis.tone_by_voice
    )
    findings, late = await _analyzed(workers, material, options, spoken.heard.duration)
    undone = spoken.recognized.undone
    left = (f"{undone} doubtful windows were not decoded again: too many of this call are.",) if undone else ()
    unfinished = (late.message,) if late else ()
    warnings = (*spoken.warnings, *spoken.heard.warnings, *left, *unfinished, *_unmatched(spoken, options))
    return Outcome(transcript, findings, spoken, warnings, late)


async def _analyzed(
    workers: Workers, material: Material, options: ProcessOptions, seconds: float
) -> tuple[tuple[Finding, ...], TimedOut | None]:
    """The findings, or why there are none: the transcript is not withheld for that."""
    try:
        async with deadline("analysis", options.deadlines.of("analysis", seconds)):
            return await workers.compute(analysis.analyze, material, options.analysis), None
    except TimedOut as error:
        return (), error


def _unmatched(spoken: Spoken, options: ProcessOptions) -> tuple[str, ...]:
    """Why nobody is recognized by voice, where that is for want of a calibration."""
    made = [spoken.voiceprint] if spoken.voiceprint else []
    made += spoken.diarization.voiceprints.values() if spoken.diarization else []
    unknown = sorted({one.model for one in made if options.roles.calibration_of(one.model) is None})
    return tuple(f"Voices are not matched: there is no calibration for {model!r}." for model in unknown)


async def _both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Stages side by side; when one fails the other is stopped and the failure passed on as it is."""
    tasks = (asyncio.ensure_future(first), asyncio.ensure_future(second))
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


@dataclass(slots=True)
class _Walk:
    """One walk through the stages that need sound."""

    call: Call
    workers: Workers
    roster: Roster
    record: Record
    recall: Recall
    options: ProcessOptions
    last_try: bool
    access: Access | None = None
    recordings: tuple[Recording, ...] = ()
    warnings: tuple[str, ...] = ()
    _audio: asyncio.Task[Held] | None = field(default=None)
    _decoding: asyncio.Future[Held] | None = field(default=None)
    may_fetch: bool = True
    _fresh: bool = False  # the recordings were fetched, or looked at, on this walk
    _name: str = field(default_factory=sound.new_name)  # of its folder of decoded sound
    seconds: float = 0.0  # of the call's audio, once it is known

    async def stage(self, name: str, run: Callable[[], Awaitable[T]], seconds: Callable[[], float] | None = None) -> T:
        """`seconds`: of the audio, where it is not the call's; the deadline follows from it."""
        known = await self.recall(name)
        if known is not NOT_RECORDED:
            return known  # type: ignore[no-any-return]
        if name == "fetch":  # has its own, for each recording
            result = await run()
        else:
            async with deadline(name, self.options.deadlines.of(name, self.seconds if seconds is None else seconds())):
                result = await run()
        await self.record(name, result)
        return result

    def audio_seconds(self) -> float:
        """The most that the recordings can hold, before anybody has looked inside."""
        sizes = [recording.size_bytes for recording in self.recordings]
        return sum(self.options.decode.most_seconds(size) for size in sizes)

    async def fetch(self) -> tuple[Recording, ...]:
        if not self.may_fetch:
            raise NotFetched
        known = await self.recall(LEGS)
        return await self._fetched(() if known is NOT_RECORDED else known)

    async def _fetched(self, stored: Sequence[Recording]) -> tuple[Recording, ...]:
        """All recordings; what is in `stored` and still whole is not asked for again."""

        async def keep(recording: Recording) -> None:
            await self.record(LEGS, recording)

        asked = Legs(self.call, self.workers, keep, self.options.storage, self.options.fetch, self.access)
        legs = await asked.all(stored)
        fetched = tuple(leg for leg in legs if isinstance(leg, Recording))
        failures = [leg for leg in legs if isinstance(leg, BaseException)]
        for failure in failures:
            if not self.given_up(failure):
                raise failure  # of two legs the one that may still come decides, also where the other never will
        if not fetched:
            raise failures[0] if failures else RecordingError("The call has no recording to fetch.")
        self.warnings += asked.warnings
        self.warnings += tuple(f"One of the two recordings could not be had: {told(failure)}" for failure in failures)
        self._fresh = True
        return fetched

    def given_up(self, failure: BaseException) -> bool:
        """Whether a recording will not be asked for again."""
        return isinstance(failure, RecordingError) and (self.last_try or not failure.retryable)

    async def hear(self) -> Heard:
        recognition = await self.workers.recognition()
        return await self.workers.compute(  # type: ignore[no-any-return]
            hear.examine,
            await self.audio(),
            self.options.speech,
            recognition.max_chunk_seconds,
            recognition.packing,
            self.roster.keep_digits,
        )

    async def recognise(self, heard: Heard) -> Recognized:
        recognition = await self.workers.recognition()
        if not heard.chunks:
            return Recognized((), recognition.engine)
        too_long = max(chunk.seconds for chunk in heard.chunks) > recognition.max_chunk_seconds + 0.1
        if too_long or (not recognition.packing and any(chunk.pieces for chunk in heard.chunks)):
            heard = await self.hear()  # what an earlier attempt recorded was cut for another model
        words = vocabulary(self.call, self.roster)
        return await recognise(
            self.workers,
            await self.audio(),
            heard,
            recognition.engine,
            words,
            self.options.language,
            self.options.safety,
        )

    async def diarize(self, heard: Heard) -> Diarization:
        if not heard.chunks:
            return Diarization((), {}, "none: no speech was found")
        return await self.workers.diarize(await self.audio())

    async def voices(self, heard: Heard, recognized: Recognized, diarization: Diarization | None = None) -> Voices:
        """Whose voice says each piece, in channels whose words suggest a machine; in other calls no stage.

        Nor where the stored sound is gone, of a call from before there was this stage: its words are judged alone.
        """
        spans = diarization.spans if diarization else ()
        stretches = await self.workers.compute(worth_asking, recognized.texts, len(heard.labels), spans)
        if not any(stretches):
            return ()
        lacking = await self.recall("voices") is NOT_RECORDED and self._audio is None
        if lacking and not await self.workers.compute(all_stored, self.recordings):
            return ()
        return await self.stage("voices", lambda: self._tell_voices(stretches))

    async def _tell_voices(self, stretches: Sequence[Sequence[Span]]) -> Voices:
        return await tell_voices(self.workers, await self.audio(), stretches, self.options.roles)

    async def rep_voiceprint(self, heard: Heard, recognized: Recognized, voices: Voices) -> Voiceprint | None:
        labels = await self.workers.compute(refine, heard.labels, recognized.texts, voices)
        heard = replace(heard, labels=labels)
        clean = gate.clean_speech(heard, self.options.roles.prints)
        if not clean:
            return None
        made = await self.workers.voiceprint(await self.audio(), REP, clean)
        if made is None:
            return None
        roles = self.options.roles
        return gate.judged(made, heard, roles.calibration_of(made.model), roles.prints)

    async def prosody(self, heard: Heard) -> Prosody | None:
        """A failure is a warning: no call waits for its tone. Not recorded then, so that another job tries again."""
        known = await self.recall("prosody")
        if known is not NOT_RECORDED:
            return known  # type: ignore[no-any-return]
        try:
            async with deadline("prosody", self.options.deadlines.of("prosody", heard.duration)):
                found = await self._measure_prosody(heard)
        except Exception as error:
            log.warning("call %s: prosody failed", self.call.call_id, exc_info=True)
            self.warnings += (f"How the voices sounded could not be measured: {told(error)}",)
            return None
        if found is not None:
            await self.record("prosody", found)
        return found

    async def _measure_prosody(self, heard: Heard) -> Prosody | None:
        """None where the stored sound is gone: nobody is asked for a recording again for the sake of its tone."""
        judged = self._judged_speech(heard)
        if not any(judged):
            return Prosody(prosody.SLICE, (Slices(),) * len(judged))
        if self._audio is None and not await self.workers.compute(all_stored, self.recordings):
            return None
        return await self.workers.compute(with_sound, await self.audio(), prosody.measure, judged)  # type: ignore[no-any-return]

    def _judged_speech(self, heard: Heard) -> tuple[tuple[Span, ...], ...]:
        """The speech of each channel whose voice may be judged: nothing else is measured."""
        whose = self.options.analysis.tone_by_voice
        if whose == "nobody":
            return ((),) * len(heard.speech)
        if whose == "customers" and heard.layout.kind.separated:
            return tuple(spans if channel == CUSTOMER else () for channel, spans in enumerate(heard.speech))
        return heard.speech

    async def audio(self) -> Held:
        """The decoded samples, loaded once and only when a stage needs them."""
        if self._audio is None:
            self._audio = asyncio.create_task(self._load())
        return await asyncio.shield(self._audio)

    async def _load(self) -> Held:
        await self.make_whole()
        files = 2 if self.call.recording_url2 else 1
        held = self.workers.hold(
            hear.load, self.recordings, self.options.decode, files, self.options.scratch_folder, self._name
        )
        self._decoding = asyncio.ensure_future(held)  # ends, where the walk is cancelled, when nothing more is written
        return await asyncio.shield(self._decoding)

    async def make_whole(self) -> None:
        """Fetch again what the store has lost since an earlier attempt fetched it."""
        if not self._fresh and any(await asyncio.gather(*(self._flaw(one) for one in self.recordings))):
            if not self.may_fetch:
                raise NotFetched
            await self._fetch_again()

    async def _flaw(self, recording: Recording) -> str | None:
        return await self.workers.compute(flaw_of, recording)  # type: ignore[no-any-return]

    async def _fetch_again(self) -> None:
        """The store has lost something since an earlier attempt fetched. What is recorded holds for that content
        alone."""
        before = [(recording.channel, recording.sha256) for recording in self.recordings]
        self.recordings = await self._fetched(self.recordings)
        await self.record("fetch", self.recordings)
        if [(recording.channel, recording.sha256) for recording in self.recordings] != before:
            raise StorageError("The stored recording was gone and its sender's is another one by now.")

    def stop(self) -> None:
        """Nobody waits for the samples any longer. Their removal is not waited for, and its failure fails no call.

        A decoder that is still at work is stopped; what it wrote until then is removed when it has ended.
        """
        if self._audio is None:
            return
        self._audio.cancel()
        self._remove_sound()
        if self._decoding is not None and not self._decoding.done():
            self._decoding.cancel()
            self._decoding.add_done_callback(self._remove_sound)

    def _remove_sound(self, decoded: "asyncio.Future[Held] | None" = None) -> None:
        if decoded is not None and not decoded.cancelled():
            decoded.exception()  # nobody is left who would want it
        folder = sound.join(self.options.scratch_folder, self._name)
        asyncio.get_running_loop().run_in_executor(None, _remove, folder)


def _remove(folder: str) -> None:
    try:
        sound.discard(folder)
    except StorageError as error:
        log.warning("%s It is swept after a day.", error)
