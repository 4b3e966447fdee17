import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio.channels.arrange import Arranged, ArrangedTrack
from pipeline.audio.channels.suppress import BANDS, BLOCK, Path
from pipeline.audio.decode.sound import everything
from pipeline.domain.speech import AudioInMemory

RNG = np.random.default_rng(0)
SOUND = RNG.normal(0, 3000, (2, 5 * BLOCK // 2 + 777)).clip(-32768, 32767).astype(np.int16)
STEREO = Arranged((AudioInMemory(SOUND),), (ArrangedTrack(((0, 0),)), ArrangedTrack(((0, 1),))))
VIEWS = {
    "as it is": STEREO,
    "without bleed both ways": Arranged(
        STEREO.sources, STEREO.tracks, (Path(0, 1, 37, (0.3,) * BANDS), Path(1, 0, -5, (0.1,) * BANDS, 9000, 50000))
    ),
    "a late second file": Arranged(
        (AudioInMemory(SOUND[:1]), AudioInMemory(SOUND[1:])), (ArrangedTrack(((0, 0),)), ArrangedTrack(((1, 0),), 4321))
    ),
    "a second file at another pace": Arranged(
        (AudioInMemory(SOUND[:1]), AudioInMemory(SOUND[1:])),
        (ArrangedTrack(((0, 0),), 99), ArrangedTrack(((1, 0),), 0, 0.9998)),
    ),
    "two rows as one": Arranged(STEREO.sources, (ArrangedTrack(((0, 0), (0, 1))),)),
}
WHOLE = {name: everything(view) for name, view in VIEWS.items()}


@given(st.sampled_from(sorted(VIEWS)), st.integers(0, 1), st.integers(-900, 90_000), st.integers(-900, 90_000))
def test_any_range_is_a_piece_of_the_whole(name: str, channel: int, first: int, last: int) -> None:
    view, whole = VIEWS[name], WHOLE[name]
    channel = min(channel, view.channels - 1)
    assert np.array_equal(view.read(channel, first, last), whole[channel, max(0, first) : max(0, last)])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_travels_small_and_reads_the_same_elsewhere(name: str) -> None:
    view = VIEWS[name]
    there = pickle.loads(pickle.dumps(view))
    assert np.array_equal(everything(there), WHOLE[name])
    sound = sum(len(pickle.dumps(source)) for source in view.sources)
    assert len(pickle.dumps(view)) < sound + 3000


def test_a_second_file_lies_where_it_begins_with_silence_around_it() -> None:
    whole = WHOLE["a late second file"]
    assert not whole[1, :4321].any()
    assert np.array_equal(whole[1, 4321:], SOUND[1])
    assert np.array_equal(whole[0, : SOUND.shape[1]], SOUND[0])
    assert not whole[0, SOUND.shape[1] :].any()


def test_two_rows_are_added_and_clipped() -> None:
    assert np.array_equal(
        WHOLE["two rows as one"][0], np.clip(SOUND.sum(axis=0, dtype=int), -32768, 32767).astype(np.int16)
    )


def test_another_pace_moves_a_tone_to_its_place_without_changing_it() -> None:
    n = np.arange(160_000)
    tone = (10_000 * np.sin(2 * np.pi * 3000 * n / 16000)).astype(np.int16)
    view = Arranged((AudioInMemory(tone[None]),), (ArrangedTrack(((0, 0),), 0, 1.0001),))
    expected = 10_000 * np.sin(2 * np.pi * 3000 * (n * 1.0001) / 16000)
    read = view.read(0, 100, 150_000).astype(float)
    error = read - expected[100:150_000]
    assert 10 * np.log10(np.mean(error**2) / np.mean(read**2)) < -25
    assert view.length == int(160_000 / 1.0001)


@pytest.mark.parametrize("length", [0, 1, 255, 256, BLOCK, BLOCK + 1])
def test_short_sound_is_read_without_a_fault(length: int) -> None:
    view = Arranged((AudioInMemory(SOUND[:, :length]),), STEREO.tracks, (Path(0, 1, 8000, (0.5,) * BANDS),))
    assert view.length == length
    assert view.read(1, 0, 10**9).shape == (length,)
    assert view.read(1, 5, 2).shape == (0,)
