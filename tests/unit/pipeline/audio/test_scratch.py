import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.audio import analyze
from pipeline.audio.decode import sound
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.insight import Roster
from pipeline.domain.speech import Recording
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost, NotAudio, RecordingTooLong, StorageError
from pipeline.journal import MemoryJournal
from pipeline.options import ProcessOptions
from pipeline.process import process
from pipeline.runtime.workers import LocalWorkers
from pipeline.scratch import OWNER
from tests.recordings import stored
from tests.support.calls_by_hand import call
from tests.synthetic_calls import FOLDER

pytestmark = pytest.mark.cases(2)


def recordings(*names: str) -> tuple[Recording, ...]:
    return tuple(stored(FOLDER / name, at) for at, name in enumerate(names))


STEREO = recordings("02_callback_stereo/call.flac")
TWO = recordings("04_contract_two_files/rep.flac", "04_contract_two_files/customer.flac")


def files(folder: Path) -> list[Path]:
    """List files while others remove folders: `Path.rglob` raises for a folder removed in between."""
    return sorted(
        Path(where) / name for where, _, names in os.walk(folder) for name in names if not name.endswith(OWNER)
    )


@pytest.mark.parametrize("of", [STEREO, TWO], ids=["one file", "two files"])
def test_a_load_has_a_folder_of_its_own_until_it_is_discarded(of: tuple[Recording, ...], tmp_path: Path) -> None:
    first, second = (analyze.load(of, DecodeOptions(), None, tmp_path.as_uri()) for _ in range(2))
    assert len(list(tmp_path.iterdir())) == 2
    sound.discard(first.folder)
    assert len(files(tmp_path)) == 2
    assert second.audio.cut(1, 5.0, 9.0).any()
    sound.discard(second.folder)
    sound.discard(second.folder)
    assert list(tmp_path.iterdir()) == []


def test_it_does_not_matter_where_the_sound_lies(tmp_path: Path) -> None:
    results = [
        analyze.analyze_audio(analyze.load(STEREO, DecodeOptions(), None, scratch), SpeechOptions(), 30.0)
        for scratch in (None, tmp_path.as_uri(), "memory://scratch")
    ]
    assert results[0].chunks
    assert results[0] == results[1] == results[2]


def test_a_short_call_can_stay_in_memory() -> None:
    loaded = analyze.load(STEREO, DecodeOptions())
    assert loaded.folder is None
    assert loaded.audio.cut(0, 1.0, 2.0).any()


@pytest.mark.parametrize(
    ("content", "options", "error"),
    [
        (b"nothing that is audio\0\xff", DecodeOptions(), NotAudio),
        (None, DecodeOptions(max_seconds=3), RecordingTooLong),
    ],
)
def test_a_load_that_fails_leaves_nothing(
    content: bytes | None, options: DecodeOptions, error: type[Exception], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(content or (FOLDER / "03_repair_mono" / "call.flac").read_bytes())
    with pytest.raises(error):
        analyze.load([Recording(0, source.as_uri(), "00" * 32, 1)], options, 1, (tmp_path / "scratch").as_uri())
    assert files(tmp_path) == [source]


def test_of_two_files_one_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    options = DecodeOptions(max_seconds=38)
    long = recordings("02_callback_stereo/call.flac", "04_contract_two_files/customer.flac")
    loaded = analyze.load(long, options, 2, tmp_path.as_uri())
    assert "longer than the limit" in loaded.warnings[0]
    assert len(files(tmp_path)) == 1


def test_a_scratch_folder_that_cannot_be_written_is_our_fault() -> None:
    with pytest.raises(StorageError):
        analyze.load(STEREO, DecodeOptions(), 1, "file:///proc/nowhere")


class WatchedJournal(MemoryJournal):
    def __init__(self, results: dict[str, Any], on_record: Callable[[str], None]) -> None:
        super().__init__(results)
        self._on_record = on_record

    async def record(self, stage: Stage, result: Any) -> None:
        await super().record(stage, result)
        self._on_record(stage)


async def walk(folder: Path, on_record: Callable[[str], None] | None, workers: LocalWorkers, **known: Any) -> None:
    options = ProcessOptions(storage=folder.as_uri())
    journal = WatchedJournal({"fetch": STEREO, **known}, on_record or (lambda _: None))
    await process(call().call, workers, Roster(), journal, options)


async def gone(folder: Path) -> bool:
    for _ in range(500):  # a busy machine takes its time
        if not files(folder):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_walk_keeps_its_sound_while_it_goes_on_and_removes_it_when_it_ends(
    transcriber: Any, tmp_path: Path
) -> None:
    there: list[int] = []

    def record(stage: str) -> None:
        there.append(len(files(tmp_path / "decoded")))
        if stage == "asr":
            raise LeaseLost

    with pytest.raises(LeaseLost):
        await walk(tmp_path, record, LocalWorkers(transcriber, None), voiceprint=None, voices=())
    assert len(there) >= 2 and set(there) == {2}
    assert await gone(tmp_path)


async def test_a_walk_that_is_cancelled_while_it_decodes_removes_what_it_wrote(
    transcriber: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding, go_on = threading.Event(), threading.Event()
    write = sound.ScratchSink.write

    def slow(sink: sound.ScratchSink, block: Any) -> None:
        write(sink, block)
        decoding.set()
        go_on.wait(300)

    monkeypatch.setattr(sound.ScratchSink, "write", slow)
    task = asyncio.create_task(walk(tmp_path, None, LocalWorkers(transcriber, None)))
    await asyncio.to_thread(decoding.wait, 60)
    task.cancel()
    assert [type(result) for result in await asyncio.gather(task, return_exceptions=True)] == [asyncio.CancelledError]
    assert await gone(tmp_path)
    go_on.set()
    await asyncio.sleep(0.3)
    assert files(tmp_path) == []


async def test_what_a_decoder_writes_after_its_walk_was_cancelled_is_removed_too(
    transcriber: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that waited for its turn starts after the cancellation."""
    waiting, go_on, loaded = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr("pipeline.audio.decode.sandbox.runner.is_cancelled", lambda: False)
    load = analyze.load

    def late(*args: Any) -> Any:
        waiting.set()
        go_on.wait(300)
        loaded_call = load(*args)
        assert files(tmp_path)
        loaded.set()
        return loaded_call

    monkeypatch.setattr("pipeline.steps.decoded_sound.load", late)
    task = asyncio.create_task(walk(tmp_path, None, LocalWorkers(transcriber, None)))
    await asyncio.to_thread(waiting.wait, 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.1)  # the removal finds nothing
    go_on.set()
    assert await asyncio.to_thread(loaded.wait, 60)
    assert await gone(tmp_path)


async def test_sound_that_cannot_be_removed_fails_no_call(
    transcriber: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_folder: str) -> None:
        raise StorageError("Decoded sound could not be removed (PermissionError).")

    monkeypatch.setattr(sound, "discard", broken)
    await walk(tmp_path, None, LocalWorkers(transcriber, None), voiceprint=None, voices=())
    async with asyncio.timeout(60):
        while "removed after a day" not in caplog.text:
            await asyncio.sleep(0.02)


async def test_sound_that_is_lost_on_the_way_is_a_failure_that_another_attempt_mends(
    transcriber: Any, tmp_path: Path
) -> None:
    def record(stage: str) -> None:
        if stage == "audio":
            for file in files(tmp_path / "decoded"):
                file.unlink()

    with pytest.raises(StorageError) as failure:
        await walk(tmp_path, record, LocalWorkers(transcriber, None), voiceprint=None, voices=())
    assert failure.value.retryable


async def test_a_folder_of_scratch_files_can_be_named() -> None:
    assert ProcessOptions(storage="s3://bucket/calls/").scratch_folder == "s3://bucket/calls/decoded"
    assert ProcessOptions(storage="s3://bucket", scratch="file:///mnt/fast").scratch_folder == "file:///mnt/fast"
