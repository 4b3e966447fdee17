import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.audio import analyze
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    AudioAnalysis,
    Chunk,
    ChunkText,
    Diarization,
    Label,
    LabelKind,
    Layout,
    LayoutKind,
    Recognized,
    Recording,
    Span,
    SpeakerSpan,
    Word,
)
from pipeline.domain.stage import Stage
from pipeline.errors import (
    CheckpointMissing,
    LeaseLost,
    RecordingError,
    RecordingGone,
    RecordingNotReady,
    StorageError,
    TimedOut,
)
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import RecognizedCall, conclude, fetch_recordings, process
from pipeline.runtime.deadlines import DeadlineOptions
from pipeline.runtime.workers import LocalWorkers, RemoteRef
from pipeline.speakers import machines
from tests.recording_server import AUDIO, reply, serving, stored_files
from tests.recording_server import options as fetch_options
from tests.support.calls_by_hand import call
from tests.synthetic_calls import FOLDER

LINES = ((0.0, "Good morning, how can I help you?"), (5.0, "Yes, thank you."))


def spoken() -> RecognizedCall:
    """One voice of a mono call, which pauses for about four seconds."""
    chunk = Chunk(0, 0.0, 8.0, "en")
    words = tuple(
        Word(start + at * 0.2, start + at * 0.2 + 0.1, text, 0.9)
        for start, line in LINES
        for at, text in enumerate(line.split())
    )
    audio = AudioAnalysis(Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"), 8.0, ((Span(0, 8),),), (chunk,))
    recognized = Recognized((ChunkText(chunk, "en", 1.0, words, -0.1, 0.0),), "faster-whisper by hand")
    return RecognizedCall(audio, recognized, Diarization((SpeakerSpan(0, 8, "A"),), {}, "by hand"), None)


async def conclusion(options: ProcessOptions | None = None):
    workers = LocalWorkers(None, None)
    return (await conclude(call().call, workers, Roster(), spoken(), options=options)).transcript


async def test_a_pause_ends_a_turn() -> None:
    assert len((await conclusion()).turns) == 2


GONE, NOT_YET = reply(b"", "410 Gone"), reply(b"", "404 Not Found")


async def two_files(first: bytes, second: bytes, folder: Path, last_try: bool = False) -> Any:
    """Return what is recorded of the fetch of a call whose two files are served like this; the run ends there."""

    class StopAfterFetch(MemoryJournal):
        async def record(self, stage: Stage, result: Any) -> None:
            await super().record(stage, result)
            if stage is Stage.FETCH:
                raise LeaseLost

    journal = StopAfterFetch()
    options = ProcessOptions(storage=folder.as_uri(), fetch=fetch_options())
    async with serving(first) as first_server, serving(second) as right:
        both = replace(call().call, recording_url=first_server.url(), recording_url2=right.url())
        with pytest.raises(LeaseLost):
            await process(both, LocalWorkers(None, None), Roster(), journal, options, last_try=last_try)
    return journal.results[Stage.FETCH]


async def test_of_two_files_one_that_is_gone_is_not_the_end_while_the_other_may_still_come(tmp_path: Path) -> None:
    for first, second in ((GONE, NOT_YET), (NOT_YET, GONE)):
        with pytest.raises(RecordingNotReady):
            await two_files(first, second, tmp_path)


async def test_of_two_files_that_cannot_be_had_the_first_one_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecordingGone):
        await two_files(GONE, GONE, tmp_path)
    with pytest.raises(RecordingNotReady):
        await two_files(NOT_YET, GONE, tmp_path, last_try=True)


async def test_of_two_files_one_that_is_gone_is_left_out(tmp_path: Path) -> None:
    assert [recording.channel for recording in await two_files(GONE, reply(), tmp_path)] == [1]


async def test_of_two_files_one_that_may_still_come_is_waited_for_until_the_last_try(tmp_path: Path) -> None:
    with pytest.raises(RecordingNotReady):
        await two_files(reply(), NOT_YET, tmp_path)
    assert [recording.channel for recording in await two_files(reply(), NOT_YET, tmp_path, last_try=True)] == [0]


async def attempts(
    first: bytes, second: bytes, folder: Path, before: Callable[[Recording], None]
) -> tuple[list[int], list[str]]:
    """Return how often each file is requested over two attempts, and the warnings of the second.

    The second file arrives with the second attempt. `before` runs between the two: it may remove or damage stored
    files.
    """
    journal, workers = MemoryJournal(), LocalWorkers(None, None)
    options = ProcessOptions(storage=folder.as_uri(), fetch=fetch_options())
    states = [NOT_YET, second]
    async with serving(first) as first_server, serving(lambda writer: _send(writer, states[0])) as right:
        both = replace(call().call, recording_url=first_server.url(), recording_url2=right.url())
        with pytest.raises(RecordingNotReady):
            await process(both, workers, Roster(), journal, options)
        states.pop(0)
        before(journal.results[Stage.LEG][0])
        warnings = await fetch_recordings(both, workers, journal, options)
    return [first_server.connections, right.connections], list(warnings)


async def _send(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write(answer)
    await writer.drain()


async def test_of_two_files_the_one_that_is_stored_is_not_asked_for_again(tmp_path: Path) -> None:
    assert await attempts(reply(), reply(), tmp_path, lambda leg: None) == ([1, 2], [])


async def test_a_stored_file_that_is_gone_or_damaged_is_fetched_again_with_a_warning(tmp_path: Path) -> None:
    def path(leg: Recording) -> Path:
        return Path(leg.uri.removeprefix("file://"))

    def cut(leg: Recording) -> None:
        path(leg).write_bytes(path(leg).read_bytes()[:-1])

    def change(leg: Recording) -> None:
        content = bytearray(path(leg).read_bytes())
        content[5000] ^= 1
        path(leg).write_bytes(bytes(content))

    message = "The stored recording 1 was gone; it was fetched again."
    damaged = "The stored recording 1 was not what had been stored; it was fetched again."
    for number, (harm, warning) in enumerate(
        ((lambda leg: path(leg).unlink(), message), (cut, damaged), (change, damaged))
    ):
        asked, warnings = await attempts(reply(), reply(AUDIO[:-7]), tmp_path / str(number), harm)
        assert (asked, warnings) == ([2, 2], [warning])
        assert {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in stored_files(tmp_path / str(number))
        } == {hashlib.sha256(body).hexdigest(): hashlib.sha256(body).hexdigest() for body in (AUDIO, AUDIO[:-7])}


async def test_a_call_without_a_recording_cannot_be_processed() -> None:
    with pytest.raises(RecordingError, match="no recording"):
        await process(call().call, LocalWorkers(None, None), Roster())


async def test_a_stage_that_found_nothing_is_not_run_again() -> None:
    audio = replace(spoken().audio, layout=Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand"))
    audio = replace(audio, speech=((Span(0, 8),), ()))
    recordings = (Recording(0, "file:///nowhere", "00" * 32, 1),)
    recorded = {"fetch": recordings, "audio": audio, "asr": spoken().recognized, "voiceprint": None}
    outcome = await process(call().call, LocalWorkers(None, None), Roster(), MemoryJournal(recorded))
    assert outcome.transcript.turns


async def test_a_call_from_before_voices_were_told_apart_is_analyzed_again_though_its_sound_is_gone() -> None:
    """Its words suggest a machine: without the sound they are judged alone."""
    audio, text = spoken().audio, spoken().recognized.texts[0]
    words_ = ["Press", "1", "for", "sales.", "Press", "2", "for", "support."]
    words = tuple(replace(word, text=text_) for word, text_ in zip(text.words, words_, strict=False))
    audio = replace(audio, labels=((Label(0, 8, LabelKind.SPEECH),),))
    recognized = Recognized((replace(text, words=words),), "by hand")
    recordings = (Recording(0, "file:///nowhere", "00" * 32, 1),)
    recorded = {"fetch": recordings, "audio": audio, "asr": recognized, "diarization": spoken().diarization}
    outcome = await process(call().call, LocalWorkers(None, None), Roster(), MemoryJournal(recorded))
    assert outcome.transcript.turns[0].machine
    spans = (SpeakerSpan(0, 3, "voice 1"),)
    recorded["voices"] = (spans,)
    outcome = await process(call().call, LocalWorkers(None, None), Roster(), MemoryJournal(recorded))
    assert outcome.transcript.turns[0].machine


async def test_labels_are_refined_once_and_every_later_stage_reads_the_same() -> None:
    text = spoken().recognized.texts[0]
    greeting = ["You", "have", "reached", "the", "voicemail", "of", "Anna,", "please", "leave", "a", "message."]
    words = tuple(Word(0.5 * at, 0.5 * at + 0.4, word, 0.9) for at, word in enumerate(greeting))
    layout = Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "by hand")
    labels = ((Label(0, 8, LabelKind.SPEECH),), (Label(0, 8, LabelKind.SILENCE),))
    audio = replace(spoken().audio, layout=layout, speech=((Span(0, 8),), ()), labels=labels)
    recognized = Recognized((replace(text, words=words),), "by hand")
    recorded = {Stage.FETCH: (Recording(0, "file:///nowhere", "00" * 32, 1),), Stage.AUDIO: audio}
    recorded |= {Stage.RECOGNITION: recognized, Stage.VOICES: ((), ())}
    asked: list[tuple[Span, ...]] = []
    refinements: list[object] = []

    class Workers(LocalWorkers):
        async def voiceprint(self, audio: RemoteRef, channel: int, speech: Sequence[Span]) -> None:
            asked.append(tuple(speech))

        async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
            refinements.extend([fn] * (fn is machines.refine))
            return await super().compute(fn, *args)

    outcome = await process(call().call, Workers(None, None), Roster(), MemoryJournal(recorded))
    assert LabelKind.VOICEMAIL in {label.kind for label in outcome.transcript.labels[0]}
    assert outcome.recognized_call.audio.labels == outcome.transcript.labels
    assert len(refinements) == 1
    assert asked == [], "a greeting on the rep's channel is nobody's voice"


async def test_that_an_earlier_attempt_gave_up_one_of_two_files_is_still_said() -> None:
    recordings = (Recording(0, "file:///nowhere", "00" * 32, 1),)
    recorded = {"fetch": recordings, "audio": spoken().audio, "asr": spoken().recognized}
    recorded["diarization"] = spoken().diarization
    of_two = replace(call().call, recording_url="https://x.example/a", recording_url2="https://x.example/b")
    outcome = await process(of_two, LocalWorkers(None, None), Roster(), MemoryJournal(recorded))
    assert outcome.warnings == ("One of the two recordings could not be fetched.",)


async def test_a_recording_far_shorter_than_the_declared_call_is_a_warning() -> None:
    warning = "The recording has 8.0 s, and the call lasted {} s as submitted: check the phone system."
    recordings = (Recording(0, "file:///nowhere", "00" * 32, 1),)
    for declared, is_short in ((600, True), (38, True), (37, False), (8, False), (0, False), (None, False)):
        recorded = {"fetch": recordings, "audio": spoken().audio, "asr": spoken().recognized}
        recorded["diarization"] = spoken().diarization
        submitted = replace(call().call, duration=declared)
        outcome = await process(submitted, LocalWorkers(None, None), Roster(), MemoryJournal(recorded))
        assert outcome.warnings == ((warning.format(declared),) if is_short else ()), declared


@pytest.mark.parametrize(("kind", "channels"), [(LayoutKind.MONO, 1), (LayoutKind.STEREO, 2)])
async def test_where_nobody_speaks_no_engine_is_asked(kind: LayoutKind, channels: int, transcriber: Any) -> None:
    silence = AudioAnalysis(Layout(kind, channels, channels, 1.0, {}, "by hand"), 8.0, ((),) * channels, ())
    recorded = {"fetch": (Recording(0, "file:///nowhere", "00" * 32, 1),), "audio": silence}
    outcome = await process(call().call, LocalWorkers(transcriber, no_model), Roster(), MemoryJournal(recorded))
    assert not outcome.transcript.turns
    assert outcome.recognized_call.recognized.engine == transcriber.name
    assert outcome.recognized_call.voiceprint is None


async def test_what_was_heard_in_one_recording_is_never_applied_to_another(tmp_path: Path) -> None:
    before = (Recording(0, (tmp_path / "gone").as_uri(), "00" * 32, 1),)
    recorded = {"fetch": before, "audio": spoken().audio, "asr": spoken().recognized}
    journal = MemoryJournal(recorded)
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=fetch_options())
    async with serving(reply()) as server:
        changed = replace(call().call, recording_url=server.url())
        with pytest.raises(StorageError):
            await process(changed, LocalWorkers(None, None), Roster(), journal, options)
    (recording,) = journal.results[Stage.FETCH]
    assert journal.results == recorded | {"fetch": (recording,)}
    assert recording.sha256 != before[0].sha256


@pytest.mark.parametrize("engine", ["openai whisper-1", "onnx nemo-parakeet-tdt-0.6b-v3"])
async def test_a_record_says_that_words_of_an_engine_without_a_calibration_are_not_marked(engine: str) -> None:
    recognized_call = spoken()
    recognized_call = replace(recognized_call, recognized=replace(recognized_call.recognized, engine=engine))
    outcome = await conclude(call().call, LocalWorkers(None, None), Roster(), recognized_call)
    warning = f"Words are not marked one by one as unsure: there is no calibration for {engine!r}."
    assert outcome.warnings.count(warning) == 1


def no_model() -> Any:
    raise CheckpointMissing("No diarization pipeline here.")


async def test_with_a_channel_for_each_party_no_diarizer_is_needed(transcriber: Any) -> None:
    path = FOLDER / "01_invoice_stereo" / "call.flac"
    recording = Recording(0, path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    journal = MemoryJournal({Stage.FETCH: (recording,)})
    outcome = await process(call().call, LocalWorkers(transcriber, no_model), Roster(), journal)
    assert {turn.speaker for turn in outcome.transcript.turns} >= {"rep", "customer"}
    # "One moment, please." may be a separate turn: the pause after it is at the limit, and comes from word times.
    by_words = "Announcements were detected by their words alone: No diarization pipeline here."
    assert [warning for warning in outcome.warnings if warning != by_words] == [
        "The voice of the rep was not compared: No diarization pipeline here."
    ]
    assert Stage.VOICEPRINT not in journal.results  # the next job of the call tries again


async def test_a_mixed_recording_waits_for_the_diarizer(transcriber: Any) -> None:
    path = FOLDER / "03_repair_mono" / "call.flac"
    recording = Recording(0, path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    journal = MemoryJournal({Stage.FETCH: (recording,)})
    with pytest.raises(CheckpointMissing):
        await process(call().call, LocalWorkers(transcriber, no_model), Roster(), journal)


async def test_a_cancelled_walk_leaves_nobody_at_work(tmp_path: Path) -> None:
    async def silence(_writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.sleep(600)

    asked = asyncio.Event()
    before = (Recording(0, (tmp_path / "gone").as_uri(), "00" * 32, 1),)
    recorded = {"fetch": before, "audio": spoken().audio, "asr": spoken().recognized}
    options = ProcessOptions(storage=tmp_path.as_uri(), fetch=fetch_options())
    async with serving(silence) as server:
        waiting = replace(call().call, recording_url=server.url())
        others = asyncio.all_tasks()
        walk = asyncio.create_task(
            process(waiting, LocalWorkers(None, None), Roster(), MemoryJournal(recorded), options)
        )
        await asked.wait()
        walk.cancel()
        await asyncio.gather(walk, return_exceptions=True)
        async with asyncio.timeout(60):
            while any(at_work(task) for task in asyncio.all_tasks() - others):
                await asyncio.sleep(0.02)


def at_work(task: asyncio.Task[Any]) -> bool:
    return task.get_coro().__qualname__.startswith(("DecodedSound", "CallRecordings", "RecordingFetcher"))  # type: ignore[union-attr]


def stored(name: str) -> tuple[Recording, ...]:
    """Return a sample call's recordings as if they had been fetched."""
    folder = FOLDER / name
    names = json.loads((folder / "submission.json").read_text())["recordings"]
    files = [folder / name for name in names]
    return tuple(
        Recording(at, file.as_uri(), hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
        for at, file in enumerate(files)
    )


@pytest.mark.parametrize("longest, packing", [(30.0, False), (8.0, True)])
async def test_speech_that_was_cut_for_another_model_is_cut_anew(
    longest: float, packing: bool, transcriber: Any
) -> None:
    """Else a call caught by an exchange of models would fail for ever: its recorded chunks are too long to take."""
    recordings = stored("01_invoice_stereo")
    audio = analyze.analyze_audio(analyze.load(recordings, DecodeOptions()), SpeechOptions(), longest, packing)
    assert any(chunk.seconds > transcriber.max_chunk_seconds or chunk.pieces for chunk in audio.chunks)
    recorded = {"fetch": recordings, "audio": audio, "voiceprint": None}
    outcome = await process(call().call, LocalWorkers(transcriber, no_model), Roster(), MemoryJournal(recorded))
    chunks = [text.chunk for text in outcome.recognized_call.recognized.texts]
    assert max(chunk.duration for chunk in chunks) < transcriber.max_chunk_seconds + 0.1
    assert not any(chunk.pieces for chunk in chunks)


async def test_words_of_chunks_without_their_pauses_lie_where_somebody_speaks(
    transcriber: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcriber, "packing", True)
    recordings = stored("01_invoice_stereo")
    recorded = {"fetch": recordings, "voiceprint": None}
    outcome = await process(call().call, LocalWorkers(transcriber, no_model), Roster(), MemoryJournal(recorded))
    texts = outcome.recognized_call.recognized.texts
    assert any(text.chunk.pieces for text in texts)
    for text in texts:
        assert text.words
        for word in text.words:
            assert any(piece.start <= word.start and word.end <= piece.end for piece in text.chunk.sound)


class Hanging(LocalWorkers):
    """A diarizer that never answers."""

    cancellations = 0

    async def hold(self, *_: Any) -> RemoteRef:
        return RemoteRef(None)

    async def diarize(self, audio: Any) -> Any:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancellations += 1
            raise


async def test_a_stage_that_hangs_is_stopped_at_its_deadline_and_may_be_tried_again(transcriber: Any) -> None:
    recordings = stored("03_repair_mono")
    audio = analyze.analyze_audio(analyze.load(recordings, DecodeOptions()), SpeechOptions(), 30.0)
    recorded = {"fetch": recordings, "audio": audio, "asr": spoken().recognized, "prosody": None}
    workers = Hanging(transcriber, None)
    options = ProcessOptions(deadlines=DeadlineOptions(engine_seconds=0.2, engine_per_audio_second=0.001))
    with pytest.raises(TimedOut, match="The diarization stage took longer than 0 s") as failure:
        await process(call().call, workers, Roster(), MemoryJournal(recorded), options)
    assert failure.value.retryable
    assert workers.cancellations == 1


async def test_a_transcript_is_not_withheld_for_an_analysis_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.analysis.analyze", lambda *_: time.sleep(2))
    options = ProcessOptions(deadlines=DeadlineOptions(seconds=0.5, per_audio_second=0))
    outcome = await conclude(call().call, LocalWorkers(None, None), Roster(), spoken(), options=options)
    assert outcome.transcript.turns
    assert outcome.findings == ()
    assert any("The analysis stage took longer" in warning for warning in outcome.warnings)


def test_deadlines_follow_from_the_length_of_the_audio() -> None:
    options = DeadlineOptions()
    assert options.of("audio", 0) < options.of("audio", 60) < options.of("asr", 60) < options.of("asr", 600)
