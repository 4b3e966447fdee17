"""One run over one call: the stages that need sound. `process.py` has their order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipeline.audio import prosody
from pipeline.audio.analyze import analyze_audio, load
from pipeline.audio.decode import sound
from pipeline.domain.access import Access
from pipeline.domain.call import Call
from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    CUSTOMER,
    REP,
    AudioAnalysis,
    Diarization,
    Prosody,
    Recognized,
    Recording,
    Slices,
    Span,
    Voiceprint,
)
from pipeline.domain.stage import NOT_RECORDED, Recall, Record, Stage
from pipeline.errors import (
    CheckpointDamaged,
    CheckpointMissing,
    EngineUnavailable,
    NotFetched,
    RecordingError,
    StorageError,
    WorkerLost,
    told,
)
from pipeline.fetch.storage import all_stored, flaw_of
from pipeline.observability.spans import observed
from pipeline.options import ProcessOptions
from pipeline.runtime.deadlines import deadline
from pipeline.runtime.workers import RemoteRef, Workers
from pipeline.speakers import gate
from pipeline.speakers.channel_voices import needs_voice_check
from pipeline.speakers.machines import Voices, refine
from pipeline.speakers.reclustering import pieces_to_embed, reclustered, with_margin
from pipeline.steps.machine_voices import cluster_voices
from pipeline.steps.recognize import recognize, with_sound
from pipeline.steps.recordings import RecordingFetcher
from pipeline.steps.vocabulary import vocabulary

T = TypeVar("T")
NO_ENGINE = (EngineUnavailable, CheckpointMissing, CheckpointDamaged, WorkerLost)
"""An engine has no model, or this call kills it: another try does not help."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class CallRun:
    """One run of the stages that need sound over one call."""

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
    may_fetch: bool = True
    seconds: float = 0.0  # of the call's audio, once it is known
    _loading: asyncio.Task[RemoteRef] | None = field(default=None)
    _decoding: asyncio.Future[RemoteRef] | None = field(default=None)
    _verified: bool = False  # this run has fetched the recordings
    _name: str = field(default_factory=sound.new_name)  # of its folder of decoded sound

    async def stage(
        self, stage: Stage, work: Callable[[], Awaitable[T]], seconds: Callable[[], float] | None = None
    ) -> T:
        """Return what `work` returns, or what an earlier attempt recorded.

        The deadline follows from `seconds` of audio; left out, the call's.
        """
        known = await self.recall(stage)
        if known is not NOT_RECORDED:
            return known  # type: ignore[no-any-return]
        if stage is Stage.FETCH:  # each recording has a deadline of its own
            with observed(stage.display_name):
                result = await work()
        else:
            async with self.deadline(stage, self.seconds if seconds is None else seconds()):
                result = await work()
        await self.record(stage, result)
        return result

    def deadline(self, stage: Stage, seconds: float) -> AbstractAsyncContextManager[None]:
        """The deadline of a stage for so many seconds of audio."""
        return deadline(stage, self.options.deadlines.of(stage, seconds))

    def max_audio_seconds(self) -> float:
        """The most seconds of audio that the recordings can hold, by their size."""
        sizes = [recording.size_bytes for recording in self.recordings]
        return sum(self.options.decode.most_seconds(size) for size in sizes)

    async def fetch(self) -> tuple[Recording, ...]:
        if not self.may_fetch:
            raise NotFetched
        known = await self.recall(Stage.LEG)
        return await self._fetched(() if known is NOT_RECORDED else known)

    async def _fetched(self, stored: Sequence[Recording]) -> tuple[Recording, ...]:
        """All recordings; those of `stored` that are intact are not requested again."""

        async def keep(recording: Recording) -> None:
            await self.record(Stage.LEG, recording)

        options = self.options
        legs = RecordingFetcher(
            self.call, self.workers, keep, options.storage, options.fetch, self.access, options.handed_in
        )
        found = await legs.all(stored)
        fetched = tuple(leg for leg in found if isinstance(leg, Recording))
        failures = [leg for leg in found if isinstance(leg, BaseException)]
        for failure in failures:
            if not self._is_final(failure):
                raise failure  # of two legs, one that may still come decides, even if the other never will
        if not fetched:
            raise failures[0] if failures else RecordingError("The call has no recording to fetch.")
        self.warnings += legs.warnings
        self.warnings += tuple(f"One of the two recordings could not be fetched: {told(one)}" for one in failures)
        self._verified = True
        return fetched

    def _is_final(self, failure: BaseException) -> bool:
        """Whether the recording will not be requested again."""
        return isinstance(failure, RecordingError) and (self.last_try or not failure.retryable)

    async def analyze_audio(self) -> AudioAnalysis:
        recognition = await self.workers.recognition()
        return await self.workers.compute(  # type: ignore[no-any-return]
            analyze_audio,
            await self.sound(),
            self.options.speech,
            recognition.max_chunk_seconds,
            recognition.packing,
            self.roster.keep_digits,
        )

    async def recognize(self, audio: AudioAnalysis) -> Recognized:
        recognition = await self.workers.recognition()
        if not audio.chunks:
            return Recognized((), recognition.engine)
        too_long = max(chunk.seconds for chunk in audio.chunks) > recognition.max_chunk_seconds + 0.1
        if too_long or (not recognition.packing and any(chunk.pieces for chunk in audio.chunks)):
            audio = await self.analyze_audio()  # an earlier attempt cut the chunks for another model
        words = vocabulary(self.call, self.roster)
        return await recognize(
            self.workers,
            await self.sound(),
            audio,
            recognition.engine,
            words,
            self.options.safety.second_pass,
        )

    async def diarize(self, audio: AudioAnalysis) -> Diarization:
        if not audio.chunks:
            return Diarization((), {}, "none: no speech was found")
        return await self.workers.diarize(await self.sound())

    async def refine_labels(
        self, audio: AudioAnalysis, recognized: Recognized, diarization: Diarization | None = None
    ) -> AudioAnalysis:
        """Return `audio` with labels that name what machines say. Every later stage reads these."""
        voices = await self._machine_voices(audio, recognized, diarization)
        async with self.deadline(Stage.SPEAKERS, audio.duration):
            labels = await self.workers.compute(refine, audio.labels, recognized.texts, voices)
        return replace(audio, labels=labels)

    async def _machine_voices(
        self, audio: AudioAnalysis, recognized: Recognized, diarization: Diarization | None
    ) -> Voices:
        """The voice of each piece, in channels whose words suggest a machine; no stage in other calls.

        Nor if the stored sound of a call that was processed before this stage existed is gone: words decide then.
        """
        spans = diarization.spans if diarization else ()
        stretches = await self.workers.compute(needs_voice_check, recognized.texts, len(audio.labels), spans)
        if not any(stretches):
            return ()
        if await self._out_of_reach(Stage.VOICES):
            return ()
        try:
            return await self.stage(Stage.VOICES, lambda: self._cluster_voices(stretches))
        except NO_ENGINE as error:
            self.warnings += (f"Announcements were told from people by their words alone: {told(error)}",)
            return ()

    async def _cluster_voices(self, stretches: Sequence[Sequence[Span]]) -> Voices:
        return await cluster_voices(self.workers, await self.sound(), stretches, self.options.roles)

    async def recluster(self, recognized: Recognized, diarization: Diarization) -> Diarization:
        """The diarization with each piece of the call judged by its own voice.

        The same diarization if no calibration says from which cosine pieces are one voice, or if the sound is gone.
        """
        calibration = self.options.roles.calibration_of(diarization.engine)
        min_cosine = calibration.pieces if calibration else None
        if min_cosine is None or await self._out_of_reach(Stage.RECLUSTERING):
            return diarization
        return await self.stage(Stage.RECLUSTERING, lambda: self._recluster(recognized, diarization, min_cosine))

    async def _recluster(self, recognized: Recognized, diarization: Diarization, min_cosine: float) -> Diarization:
        pieces = await self.workers.compute(pieces_to_embed, recognized.texts, diarization.spans)
        wide = with_margin(pieces)
        voiceprints = await self.workers.voices(await self.sound(), 0, wide) if wide else []
        return await self.workers.compute(reclustered, diarization, pieces, voiceprints, min_cosine)  # type: ignore[no-any-return]

    async def _out_of_reach(self, stage: Stage) -> bool:
        """Whether a stage is not recorded and the stored sound is gone: the call is from before the stage existed."""
        if self._loading is not None or await self.recall(stage) is not NOT_RECORDED:
            return False
        return not await self.workers.compute(all_stored, self.recordings)

    async def rep_voiceprint(self, audio: AudioAnalysis) -> Voiceprint | None:
        """The voiceprint of the rep's channel. No call waits for it if the diarizer, which makes it, is missing."""
        try:
            return await self.stage(Stage.VOICEPRINT, lambda: self._rep_voiceprint(audio))
        except NO_ENGINE as error:
            self.warnings += (f"The voice of the rep was not compared: {told(error)}",)
            return None

    async def _rep_voiceprint(self, audio: AudioAnalysis) -> Voiceprint | None:
        clean = gate.clean_speech(audio)
        if not clean:
            return None
        made = await self.workers.voiceprint(await self.sound(), REP, clean)
        if made is None:
            return None
        return gate.judged(made, audio, self.options.roles.calibration_of(made.model))

    async def prosody(self, audio: AudioAnalysis) -> Prosody | None:
        """A failure is a warning: no call waits for its tone. It is not recorded then, so another job tries again."""
        known = await self.recall(Stage.PROSODY)
        if known is not NOT_RECORDED:
            return known  # type: ignore[no-any-return]
        try:
            async with self.deadline(Stage.PROSODY, audio.duration):
                found = await self._measure_prosody(audio)
        except Exception as error:
            log.warning("call %s: prosody failed", self.call.call_id, exc_info=True)
            self.warnings += (f"The prosody of the voices could not be measured: {told(error)}",)
            return None
        if found is not None:
            await self.record(Stage.PROSODY, found)
        return found

    async def _measure_prosody(self, audio: AudioAnalysis) -> Prosody | None:
        """None if the stored sound is gone: no recording is requested again for the sake of its tone."""
        judged = self._judged_speech(audio)
        if not any(judged):
            return Prosody(prosody.SLICE, (Slices(),) * len(judged))
        if self._loading is None and not await self.workers.compute(all_stored, self.recordings):
            return None
        return await self.workers.compute(with_sound, await self.sound(), prosody.measure, judged)  # type: ignore[no-any-return]

    def _judged_speech(self, audio: AudioAnalysis) -> tuple[tuple[Span, ...], ...]:
        """The speech of each channel whose voice may be judged: nothing else is measured."""
        whose = self.options.analysis.tone_by_voice
        if whose == "nobody":
            return ((),) * len(audio.speech)
        if whose == "customers" and audio.layout.kind.separated:
            return tuple(spans if channel == CUSTOMER else () for channel, spans in enumerate(audio.speech))
        return audio.speech

    async def sound(self) -> RemoteRef:
        """The decoded samples, loaded once and only when a stage needs them."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> RemoteRef:
        await self.restore_recordings()
        files = 2 if self.call.recording_url2 else 1
        with observed("decoding"):
            held = self.workers.hold(
                load,
                self.recordings,
                self.options.decode,
                files,
                self.options.scratch_folder,
                self._name,
                self.roster.channels_swapped,
            )
            self._decoding = asyncio.ensure_future(held)  # of a canceled run it ends when nothing more is written
            return await asyncio.shield(self._decoding)

    async def restore_recordings(self) -> None:
        """Fetch again what the store has lost since an earlier attempt. Recorded results hold for the same content."""
        if self._verified or not any(await asyncio.gather(*(self._flaw(one) for one in self.recordings))):
            return
        if not self.may_fetch:
            raise NotFetched
        before = [(recording.channel, recording.sha256) for recording in self.recordings]
        self.recordings = await self._fetched(self.recordings)
        await self.record(Stage.FETCH, self.recordings)
        if [(recording.channel, recording.sha256) for recording in self.recordings] != before:
            raise StorageError("The stored recording is gone, and the sender's recording has changed since.")

    async def _flaw(self, recording: Recording) -> str | None:
        return await self.workers.compute(flaw_of, recording)  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Remove the decoded sound. Nothing waits for the removal, and its failure fails no call.

        A decoder that is still running is stopped; what it has written is removed when it has ended.
        """
        if self._loading is None:
            return
        self._loading.cancel()
        self._remove_sound()
        if self._decoding is not None and not self._decoding.done():
            self._decoding.cancel()
            self._decoding.add_done_callback(self._remove_sound)

    def _remove_sound(self, decoded: "asyncio.Future[RemoteRef] | None" = None) -> None:
        if decoded is not None and not decoded.cancelled():
            decoded.exception()  # mark it as retrieved
        folder = sound.join(self.options.scratch_folder, self._name)
        asyncio.get_running_loop().run_in_executor(None, _remove, folder)


def _remove(folder: str) -> None:
    try:
        sound.discard(folder)
    except StorageError as error:
        log.warning("%s It is removed after a day.", error)
