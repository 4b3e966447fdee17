import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.analyze import Loaded
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import Audio, Chunk, Layout, LayoutKind
from pipeline.errors import EngineError, StorageError
from pipeline.runtime import replica as replicas
from pipeline.runtime.actors import TranscriberReplica
from tests import fixture_checkpoints
from tests.synthetic_calls import FOLDER

CHUNKS = [Chunk(0, float(start), start + 3.0, "en") for start in range(1, 21, 3)]


@pytest.fixture(scope="module")
def replica() -> TranscriberReplica:
    return TranscriberReplica({"model": str(fixture_checkpoints.RECOGNITION), "device": "cpu", "cpu_threads": 1})


def load(scratch: Path) -> Loaded:
    folder = sound.join(scratch.as_uri(), sound.new_name())
    audio = decode_file(FOLDER / "03_repair_mono" / "call.flac", DecodeOptions(), folder=folder).audio
    return Loaded(audio, Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand"), folder=folder)


def reference(loaded: Any) -> Any:
    """Wrap a value as a reference into the object store arrives: in a list, to be awaited."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(loaded)
    return [future]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def at_work(replica: TranscriberReplica) -> bool:
    assert replica._exclusive is not None
    return any(queue.busy for queue in replica._exclusive.queues)


@dataclass(eq=False)
class Watched(Audio):
    """Sound that knows how much of it was read."""

    inside: Audio
    seconds: list[float] = field(default_factory=list)

    @property
    def channels(self) -> int:
        return self.inside.channels

    @property
    def length(self) -> int:
        return self.inside.length

    def read(self, channel: int, first: int, last: int) -> np.ndarray:
        self.seconds.append((last - first) / 16000)
        return self.inside.read(channel, first, last)


async def test_a_chunk_whose_sound_is_gone_fails_alone(replica: TranscriberReplica, tmp_path: Path) -> None:
    there, canceled = load(tmp_path), load(tmp_path)
    sound.discard(canceled.folder)
    good, bad = await asyncio.gather(
        replica.transcribe(reference(there), CHUNKS[:2]),
        replica.transcribe(reference(canceled), CHUNKS[:2]),
        return_exceptions=True,
    )
    assert isinstance(bad, StorageError)
    assert not isinstance(good, BaseException)
    assert [text.chunk for text in good] == CHUNKS[:2]


async def test_the_next_full_batch_is_prepared_while_the_device_is_busy(
    replica: TranscriberReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Chunk] = []
    features = replica._engine._features

    def watched(samples: Any, chunk: Chunk) -> Any:
        prepared.append(chunk)
        return features(samples, chunk)

    monkeypatch.setattr(replica._engine, "_features", watched)
    many = [*CHUNKS, *CHUNKS]  # 14: three batches of 4, and two
    with replica._engine._device:
        asked = asyncio.create_task(replica.transcribe(reference(load(tmp_path)), many))
        await until(lambda: len(prepared) >= 8)
        await asyncio.sleep(0.3)  # and no more
        assert sorted(chunk.start for chunk in prepared) == sorted(chunk.start for chunk in many[:8])
    assert [text.chunk for text in await asked] == many


async def test_a_chunk_that_breaks_its_batch_fails_alone(
    replica: TranscriberReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(tmp_path)
    poison = replace(CHUNKS[1], language="tlh")
    bad, good = await asyncio.gather(
        replica.transcribe(reference(loaded), [CHUNKS[0], poison]),
        replica.transcribe(reference(loaded), CHUNKS[2:5]),
        return_exceptions=True,
    )
    assert isinstance(bad, EngineError)
    assert not isinstance(good, BaseException)
    assert [text.chunk for text in good] == CHUNKS[2:5]


async def test_sound_is_read_when_its_batch_is_formed(replica: TranscriberReplica, tmp_path: Path) -> None:
    loaded = load(tmp_path)
    audio = Watched(loaded.audio)
    asked = asyncio.create_task(replica.transcribe(reference(Loaded(audio, loaded.layout)), CHUNKS))
    with replica._engine._device:  # the first batch waits for it, and nothing of the rest, no full batch, is read
        await until(lambda: len(audio.seconds) >= 4)
        await asyncio.sleep(0.3)
        assert audio.seconds == [3.0] * 4
    assert [text.chunk for text in await asked] == CHUNKS
    assert audio.seconds == [3.0] * len(CHUNKS)


async def test_careful_recognition_is_asked_for_one_chunk_at_a_time(
    replica: TranscriberReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    transcribe = replica._engine.transcribe

    def watched(samples: Any, chunks: Any, vocabularies: Any = (), with_fallback: bool = False) -> Any:
        asked.append((len(samples), vocabularies, with_fallback))
        return transcribe(samples, chunks, vocabularies, with_fallback)

    monkeypatch.setattr(replica._engine, "transcribe", watched)
    loaded = reference(load(tmp_path))
    again = await replica.transcribe(loaded, CHUNKS[:3], ("Weber",), with_fallback=True)
    assert [text.chunk for text in again] == CHUNKS[:3]
    assert asked == [(1, [("Weber",)], True)] * 3
    await replica.transcribe(loaded, CHUNKS[:3], ("Weber",))
    assert asked[3:] == [(3, [("Weber",)] * 3, False)]


async def test_memory_is_given_back_after_work_and_not_again_before_more(
    replica: TranscriberReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[bool] = []
    real = replicas.give_back
    monkeypatch.setattr(replicas, "give_back", lambda: times.append(real()))
    loaded = load(tmp_path)
    await replica.transcribe(reference(loaded), CHUNKS)
    for _ in range(2):
        await replica.check_health()
    assert times == [True], "the C library of this machine had memory to give back, and was asked once"
    with replica._engine._device:
        working = asyncio.create_task(replica.transcribe(reference(loaded), CHUNKS))
        await until(lambda: at_work(replica))
        await replica.check_health()
        assert len(times) == 1, "no batch waits for it"
    await working
    with replica._engine._device:
        working = asyncio.create_task(replica.transcribe(reference(loaded), CHUNKS))
        await until(lambda: at_work(replica))
        monkeypatch.setattr(replicas, "TIDY_SECONDS", 0.0)
        await replica.check_health()
        assert len(times) == 2, "but work that never ends does not put it off for ever"
    await working
    times.pop()
    await replica.check_health()
    assert len(times) == 2
