import os
import pickle
import time
from pathlib import Path
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.audio.decode import sound
from pipeline.audio.decode.sound import ScratchSink, SoundAllowance, StoredAudio
from pipeline.errors import StorageError

SAMPLES = np.random.default_rng(0).integers(-32768, 32767, (2, 50_001)).astype(np.int16)


@pytest.fixture(params=["file", "memory"])
def scratch(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a scratch folder on a local disk, or in an fsspec store like a bucket."""
    return tmp_path.as_uri() if request.param == "file" else f"memory://{uuid4().hex}"


def stored(folder: str, samples: np.ndarray = SAMPLES) -> StoredAudio:
    sink = ScratchSink(folder, len(samples), SoundAllowance(1 << 30))
    for first in range(0, samples.shape[1], 7001):
        sink.write(samples[:, first : first + 7001].T)
    return sink.finish()


@pytest.fixture
def audio(scratch: str) -> StoredAudio:
    return stored(scratch)


def files(folder: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(folder)
    return sorted(fs.find(root))


def test_what_was_written_is_read_also_by_another_process(scratch: str) -> None:
    audio = pickle.loads(pickle.dumps(stored(scratch)))
    assert (audio.channels, audio.length) == SAMPLES.shape
    assert len(pickle.dumps(audio)) < 1000
    assert np.array_equal(sound.everything(audio), SAMPLES)
    assert audio.read(0, 0, 10).dtype == np.int16
    assert audio.cut(1, 1.0, 2.0).dtype == np.float32
    assert np.array_equal(audio.cut(1, 1.0, 2.0) * 32768, SAMPLES[1, 16000:32000])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-100, 60_000), st.integers(-100, 60_000), st.integers(0, 1))
def test_any_range_is_read_and_what_lies_outside_is_left_out(
    audio: StoredAudio, first: int, last: int, channel: int
) -> None:
    assert np.array_equal(audio.read(channel, first, last), SAMPLES[channel, max(0, first) : max(0, last)])


def test_two_loads_of_one_name_do_not_meet(scratch: str) -> None:
    first, second = stored(scratch), stored(scratch, SAMPLES[:, ::-1])
    assert np.array_equal(sound.everything(first), SAMPLES)
    assert np.array_equal(sound.everything(second), SAMPLES[:, ::-1])


def test_no_samples_are_read_as_no_samples(scratch: str) -> None:
    audio = stored(scratch, SAMPLES[:, :0])
    assert (audio.length, audio.duration) == (0, 0.0)
    assert audio.read(0, 0, 100).shape == audio.cut(1, 0.0, 1.0).shape == (0,)
    mono = stored(scratch, SAMPLES[:, :1])
    assert mono.read(1, -5, 100).tolist() == [SAMPLES[1, 0]]


def test_a_file_that_was_cut_short_is_not_taken_for_the_whole(scratch: str) -> None:
    audio = stored(scratch)
    fs, path = fsspec.core.url_to_fs(audio.uris[1])
    data = fs.cat_file(path)
    fs.pipe_file(path, data[: len(data) // 2 + 1])
    assert np.array_equal(audio.read(1, 0, 20_000), SAMPLES[1, :20_000])
    assert np.array_equal(audio.read(0, 0, 50_001), SAMPLES[0])
    for first, last in ((20_000, 50_001), (24_999, 25_002), (40_000, 41_000)):
        with pytest.raises(StorageError, match="shorter"):
            audio.read(1, first, last)


def test_a_file_that_is_gone_is_our_fault(scratch: str) -> None:
    audio = stored(sound.join(scratch, "x"))
    sound.discard(sound.join(scratch, "x"))
    with pytest.raises(StorageError, match="missing"):
        audio.read(0, 0, 1)
    assert audio.read(0, 5, 5).shape == (0,)
    sound.discard(sound.join(scratch, "x"))  # twice is once


def test_what_is_aborted_leaves_nothing(scratch: str) -> None:
    sink = ScratchSink(scratch, 2, SoundAllowance(1 << 30))
    sink.write(SAMPLES[:, :100].T)
    sink.abort()
    assert files(scratch) == []


def test_only_old_loads_are_swept_and_nothing_else(scratch: str) -> None:
    fs, root = fsspec.core.url_to_fs(scratch)
    fs.makedirs(f"{root}/a-folder-of-somebody-else", exist_ok=True)
    fs.pipe_file(f"{root}/a-folder-of-somebody-else/file", b"x")
    fs.pipe_file(f"{root}/file", b"x")
    old = stored(sound.join(scratch, sound.new_name()))
    sound.sweep(scratch)
    assert len(files(scratch)) == 4
    time.sleep(0.01)
    sound.sweep(scratch, age=0.0)
    assert [path.rpartition("/")[2] for path in files(scratch)] == ["file", "file"]
    with pytest.raises(StorageError):
        old.read(0, 0, 1)
    sound.sweep(f"{scratch}/never-there")


def test_an_old_folder_goes_with_its_last_file(tmp_path: Path) -> None:
    folder = sound.join(tmp_path.as_uri(), sound.new_name())
    audio = stored(folder)
    for uri in audio.uris:
        os.utime(uri.removeprefix("file://"), (1, 1))
    sound.sweep(tmp_path.as_uri())
    assert list(tmp_path.iterdir()) == []


def test_a_load_is_as_old_as_the_storage_says_whatever_this_machines_clock_says(
    scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes share a scratch folder; a node whose clock was days ahead removed the files of the others."""
    audio = stored(sound.join(scratch, sound.new_name()))
    ahead = time.time() + 3 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    sound.sweep(scratch)
    assert np.array_equal(audio.read(0, 0, audio.length), SAMPLES[0])
    assert len(files(scratch)) == 2


@pytest.mark.parametrize("folder", ["nonsense://bucket/x", "file:///proc/nowhere"])
def test_a_folder_that_cannot_be_written_is_our_fault(folder: str) -> None:
    with pytest.raises(StorageError, match=r"could not be written: .*\.$"):
        ScratchSink(folder, 1, SoundAllowance(1 << 30))


def test_a_full_disk_is_our_fault() -> None:
    sink = ScratchSink.__new__(ScratchSink)
    sink._samples, sink._allowance = 0, SoundAllowance(1 << 30)
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
        sink._files = [full]
        with pytest.raises(StorageError, match="No space left"):
            sink.write(SAMPLES[:1].T)
