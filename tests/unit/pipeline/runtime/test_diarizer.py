import asyncio
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.analyze import Loaded
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain.speech import AudioInMemory, Diarization, Layout, LayoutKind, Span
from pipeline.errors import EngineError, EngineUnavailable, StorageError
from pipeline.runtime.diarizer import AHEAD, DiarizerReplica
from tests import fixture_checkpoints
from tests.synthetic_calls import FOLDER

LAYOUT = Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")


class ByHand:
    """An engine whose parts are (call, number): the call is the value of its samples, with a part for each sample."""

    name, batch_size = "by hand", 4

    def __init__(self, *_: Any) -> None:
        self.batches: list[list[tuple[int, int]]] = []
        self.free = threading.Event()
        self.free.set()
        self.poison = self.unclear = -1
        self.inside = self.most = 0

    def parts(self, audio: Any) -> Iterator[tuple[int, int]]:
        samples = audio.read(0, 0, audio.length)
        return ((int(value), number) for number, value in enumerate(samples))

    def infer(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.batches.append(list(parts))
        self.free.wait(10)
        self.inside -= 1
        if any(call == self.poison for call, _ in parts):
            raise EngineError("poison")
        return list(parts)

    def finalize(self, results: Sequence[tuple[int, int]]) -> Diarization:
        if results[0][0] == self.unclear:
            raise EngineError("no clusters")
        assert [number for _, number in results] == list(range(len(results)))
        return Diarization((), {}, f"{results[0][0]}: {len(results)}")

    def voiceprint(self, spoken: Any) -> None:
        return None


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("pipeline.diarization.load", ByHand)
    return DiarizerReplica({})


def reference(loaded: Any) -> Any:
    """Wrap a value as a reference into the object store arrives: in a list, to be awaited."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(loaded)
    return [future]


def call(number: int, parts: int) -> Any:
    return reference(Loaded(AudioInMemory(np.full((1, parts), number, np.int16)), LAYOUT))


async def waited_for(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_short_calls_share_a_batch(replica: Any) -> None:
    replica._engine.free.clear()
    first = asyncio.create_task(replica.diarize(call(1, 1)))
    await waited_for(lambda: replica._engine.batches)
    others = [asyncio.create_task(replica.diarize(call(number, 1))) for number in (2, 3, 4)]
    await waited_for(lambda: replica._parts.waiting == 3)
    replica._engine.free.set()
    diarizations = await asyncio.gather(first, *others)
    assert [diarization.engine for diarization in diarizations] == ["1: 1", "2: 1", "3: 1", "4: 1"]
    assert [sorted(batch) for batch in replica._engine.batches] == [[(1, 0)], [(2, 0), (3, 0), (4, 0)]]


async def test_a_short_call_does_not_wait_for_a_long_one_that_came_before(replica: Any) -> None:
    engine = replica._engine
    engine.free.clear()
    long = asyncio.create_task(replica.diarize(call(1, 400)))
    await waited_for(
        lambda: replica._parts.waiting == engine.batch_size
    )  # in addition to the running batch: no more is read
    short = asyncio.create_task(replica.diarize(call(2, 6)))
    await waited_for(lambda: replica._parts.waiting == engine.batch_size + 6)
    engine.free.set()
    assert (await short).engine == "2: 6"
    heard_before = sum(number == 1 for batch in engine.batches for number, _ in batch)
    assert heard_before <= (AHEAD + 4) * engine.batch_size
    assert (await long).engine == "1: 400"
    assert engine.most == 1
    assert len(engine.batches) <= 406 / engine.batch_size + 2


async def test_a_call_that_the_networks_or_the_clustering_refuse_fails_alone(replica: Any) -> None:
    engine = replica._engine
    engine.poison, engine.unclear = 2, 3
    engine.free.clear()
    asked = [asyncio.create_task(replica.diarize(call(number, 7))) for number in (1, 2, 3, 4)]
    await waited_for(lambda: replica._parts.waiting >= 20)
    engine.free.set()
    good, poisoned, unclear, other = await asyncio.gather(*asked, return_exceptions=True)
    assert (good.engine, other.engine) == ("1: 7", "4: 7")
    assert isinstance(poisoned, EngineError)
    assert isinstance(unclear, EngineError)
    assert "clusters" in str(unclear)


async def test_whoever_leaves_takes_the_rest_of_the_call_along(replica: Any) -> None:
    engine = replica._engine
    engine.free.clear()
    canceled = asyncio.create_task(replica.diarize(call(1, 400)))
    await waited_for(lambda: replica._parts.waiting == engine.batch_size)
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    engine.free.set()
    assert (await replica.diarize(call(2, 5))).engine == "2: 5"
    assert sum(number == 1 for batch in engine.batches for number, _ in batch) == engine.batch_size


async def test_a_call_that_has_the_replica_to_itself_waits_for_no_other(replica: Any) -> None:
    engine = replica._engine
    async with replica._exclusive.alone():
        other = asyncio.create_task(replica.diarize(call(1, 9)))
        await waited_for(lambda: replica._parts.waiting == 2 * engine.batch_size)
        assert (await replica.diarize(call(2, 9), alone=True)).engine == "2: 9"
        assert {number for batch in engine.batches for number, _ in batch} == {2}
    assert (await other).engine == "1: 9"
    assert engine.most == 1


async def test_the_real_engine_gives_each_of_several_calls_its_own(diarizer: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("pipeline.diarization.load", lambda *_: diarizer)
    replica = DiarizerReplica({})
    audio = decode_file(FOLDER / "03_repair_mono" / "call.flac", DecodeOptions()).audio
    cuts = [AudioInMemory(audio.read(0, first, first + 190_000)[None]) for first in (0, 300_000)]
    diarizations = await asyncio.gather(*(replica.diarize(reference(Loaded(cut, LAYOUT))) for cut in cuts))
    for diarization, cut in zip(diarizations, cuts, strict=True):
        alone = diarizer.diarize(cut)
        assert diarization.spans == alone.spans
        assert diarization.spans
    print_of_all = await replica.voiceprint(reference(Loaded(audio, LAYOUT)), 0, [Span(0.5, 8.0), Span(9.0, 14.0)])
    assert print_of_all is not None
    short = [Span(0.5, 1.5), Span(2.0, 3.0), Span(9.0, 9.01)]
    vectors = [
        voiceprint and voiceprint.vector
        for voiceprint in await replica.voices(reference(Loaded(audio, LAYOUT)), 0, short)
    ]
    pieces = [audio.cut(0, span.start, span.end) for span in short]
    assert vectors == [voiceprint and voiceprint.vector for voiceprint in diarizer.voices(pieces)]
    assert vectors[0] and vectors[1] and vectors[2] is None


async def test_a_replica_without_its_model_lives_and_takes_it_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    replica = DiarizerReplica({"pipeline": str(folder), "device": "cpu"})
    audio = reference(Loaded(decode_file(FOLDER / "03_repair_mono" / "call.flac", DecodeOptions()).audio, LAYOUT))
    await replica.check_health()
    assert str(folder) in str(await replica.problem())
    for asked in (
        replica.diarize(audio),
        replica.voiceprint(audio, 0, [Span(0.5, 8.0)]),
        replica.voices(audio, 0, [Span(0.5, 1.5)]),
        anext(replica.alone("diarize", audio)),
    ):
        with pytest.raises(EngineUnavailable) as caught:
            await asked
        assert str(tmp_path) not in caught.value.message  # it is stored with the call
    shutil.copytree(fixture_checkpoints.DIARIZATION, folder)
    with pytest.raises(EngineUnavailable):
        await replica.diarize(audio)  # it was looked for a moment ago
    assert replica._loading is None
    monkeypatch.setattr("pipeline.runtime.replica.LOAD_AGAIN_SECONDS", 0.0)
    with pytest.raises(EngineUnavailable):
        await replica.diarize(audio)
    await replica._loading
    assert await replica.problem() is None
    assert (await replica.diarize(audio)).spans


async def test_sound_that_is_gone_is_said_to_be(replica: Any, tmp_path: Path) -> None:
    folder = sound.join(tmp_path.as_uri(), sound.new_name())
    audio = decode_file(FOLDER / "03_repair_mono" / "call.flac", DecodeOptions(), folder=folder).audio
    loaded = Loaded(audio, LAYOUT, folder=folder)
    sound.discard(folder)
    with pytest.raises(StorageError):
        await replica.diarize(reference(loaded))
    with pytest.raises(StorageError):
        await replica.voiceprint(reference(loaded), 0, [Span(0.5, 8.0)])
