from itertools import chain, islice
from typing import Any

import numpy as np
import pytest

from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory
from pipeline.errors import EngineError
from tests import fixture_checkpoints


@pytest.fixture(scope="module")
def stock(diarizer: Any) -> Any:
    """Load pyannote's unchanged pipeline, a window at a time."""
    from pyannote.audio import Pipeline

    pipeline = Pipeline.from_pretrained(fixture_checkpoints.DIARIZATION)
    pipeline.segmentation_batch_size = pipeline.embedding_batch_size = 1
    return pipeline


@pytest.fixture(scope="module")
def calls(sample_call: Any) -> list[np.ndarray]:
    """Return calls of two parties, of one, shorter than a window, with a silent middle, and silent; exact in int16."""
    mono, german, stereo = (sample_call(name).samples for name in ("03", "06", "07"))
    gap = np.zeros(SAMPLE_RATE * 12, np.float32)
    sounds = [mono[0, : 14 * SAMPLE_RATE + 777], german[0, -20 * SAMPLE_RATE :], stereo[0, : 6 * SAMPLE_RATE]]
    sounds += [np.concatenate([mono[0, : 5 * SAMPLE_RATE], gap, german[0, : 4 * SAMPLE_RATE]]), gap]
    return [np.round(sound * 32768).clip(-32768, 32767).astype(np.float32) / 32768 for sound in sounds]


@pytest.fixture(scope="module")
def expected(stock: Any, calls: list[np.ndarray]) -> list[Any]:
    import torch

    return [stock({"waveform": torch.from_numpy(sound)[None], "sample_rate": SAMPLE_RATE}) for sound in calls]


def outputs(diarizer: Any, calls: list[np.ndarray], order: list[tuple[int, Any]], size: int) -> list[Any]:
    """Return pyannote's output per call, with windows inferred in `order` in batches of `size`."""
    inferred: list[list[Any]] = [[] for _ in calls]
    rest = iter(order)
    while batch := list(islice(rest, size)):
        for (call, _), result in zip(batch, diarizer.infer([window for _, window in batch]), strict=True):
            inferred[call].append(result)
    return [diarizer._pipeline.finalize(results, 1, None) for results in inferred]


def windows_of(diarizer: Any, calls: list[np.ndarray]) -> list[list[tuple[int, Any]]]:
    return [[(number, window) for window in diarizer.parts(sound)] for number, sound in enumerate(calls)]


def assert_same(actual: Any, expected: Any) -> None:
    for name in ("speaker_diarization", "exclusive_speaker_diarization"):
        assert list(getattr(actual, name).itertracks(yield_label=True)) == list(
            getattr(expected, name).itertracks(yield_label=True)
        )
    np.testing.assert_allclose(actual.speaker_embeddings, expected.speaker_embeddings, atol=1e-4)


@pytest.mark.slow
def test_each_call_by_itself_is_what_the_stock_pipeline_says(diarizer: Any, calls: Any, expected: Any) -> None:
    assert [bool(output.speaker_diarization) for output in expected] == [True] * 4 + [False]
    order = list(chain.from_iterable(windows_of(diarizer, calls)))
    for actual, reference in zip(outputs(diarizer, calls, order, 4), expected, strict=True):
        assert_same(actual, reference)


@pytest.mark.slow
def test_so_it_is_when_every_batch_holds_windows_of_several_calls(diarizer: Any, calls: Any, expected: Any) -> None:
    waiting = [iter(windows) for windows in windows_of(diarizer, calls)]
    order = []
    while waiting:  # a window of each call in turn
        taken = [(rest, next(rest, None)) for rest in waiting]
        waiting = [rest for rest, window in taken if window]
        order += [window for _, window in taken if window]
    assert len({call for call, _ in order[:7]}) == len(calls)
    for actual, reference in zip(outputs(diarizer, calls, order, 7), expected, strict=True):
        assert_same(actual, reference)


def test_windows_hold_what_pyannote_cuts_and_resamples_one_by_one(stock: Any, diarizer: Any, calls: Any) -> None:
    import torch
    from pyannote.core import Segment

    sound = np.tile(calls[0], 4)[: 45 * SAMPLE_RATE + 321]  # more than one block
    file = {"waveform": torch.from_numpy(sound)[None], "sample_rate": SAMPLE_RATE}
    windows = list(diarizer.parts(sound))
    assert len(windows) == 37
    for number in (0, 1, 31, 32, 36):
        segment = Segment(number, number + 10)
        at_16k, _ = stock._segmentation.model.audio.crop(file, segment, mode="pad")
        at_8k, _ = stock._audio.crop(file, segment, mode="pad")
        assert torch.equal(windows[number].samples, at_16k[0])
        torch.testing.assert_close(windows[number].voice, at_8k[0], atol=1e-6, rtol=0)


def test_stored_sound_is_read_once_and_a_block_at_a_time(diarizer: Any) -> None:
    asked: list[tuple[int, int]] = []

    class Watched(AudioInMemory):
        def read(self, channel: int, first: int, last: int) -> Any:
            asked.append((first, last))
            return super().read(channel, first, last)

    samples = np.random.default_rng(0).integers(-9000, 9000, (1, 90 * SAMPLE_RATE)).astype(np.int16)
    parts = diarizer.parts(Watched(samples))
    taken = [next(parts)]
    assert asked == [(0, 41 * SAMPLE_RATE)]
    taken += parts
    assert [first for first, _ in asked[1:]] == [last for _, last in asked[:-1]]
    assert asked[-1][1] == 90 * SAMPLE_RATE
    np.testing.assert_array_equal(taken[80].samples, samples[0, 80 * SAMPLE_RATE :].astype(np.float32) / 32768)


def test_what_is_no_number_in_one_call_is_refused_there_and_does_not_reach_others(diarizer: Any, calls: Any) -> None:
    import torch

    from pipeline.diarization.windows import Window

    with pytest.raises(EngineError, match="finite"):
        list(diarizer.parts(np.full(SAMPLE_RATE, np.nan, np.float32)))
    good = list(diarizer.parts(calls[0]))[:2]
    bad = Window(torch.full_like(good[0].samples, torch.nan), torch.full_like(good[0].voice, torch.nan))
    alone, beside = diarizer.infer(good), diarizer.infer([good[0], bad, good[1]])
    for output, other in zip(alone, [beside[0], beside[2]], strict=True):
        np.testing.assert_array_equal(output.scores, other.scores)
        np.testing.assert_allclose(output.embeddings, other.embeddings, atol=1e-4)


def test_reconstruction_a_window_at_a_time_is_the_stock_one(stock: Any, diarizer: Any) -> None:
    from pyannote.core import SlidingWindow, SlidingWindowFeature

    random = np.random.default_rng(3)
    frames = stock._segmentation.model.receptive_field
    length = len(diarizer.infer(list(diarizer.parts(np.zeros(SAMPLE_RATE, np.float32))))[0].scores)
    for clusters in (1, 2, 5):
        scores = SlidingWindowFeature(
            random.integers(0, 2, (40, length, 3)).astype(np.uint8), SlidingWindow(start=0.0, duration=10.0, step=1.0)
        )
        count = stock.speaker_count(scores, frames, warm_up=(0.0, 0.0))
        count.data = count.data.astype(np.int8)
        local_clusters = random.integers(-2, clusters, (40, 3)).clip(-2)
        local_clusters[local_clusters == -1] = -2
        local_clusters[0, 0] = clusters - 1
        actual, expected = (
            diarizer._pipeline.reconstruct(scores, local_clusters, count),
            stock.reconstruct(scores, local_clusters, count),
        )
        np.testing.assert_array_equal(actual.data, expected.data)
        assert actual.sliding_window.start == expected.sliding_window.start
        assert actual.sliding_window.step == expected.sliding_window.step


def test_a_very_long_call_is_clustered_by_voices_spread_over_all_of_it(
    diarizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.diarization import batched_diarization

    monkeypatch.setattr(batched_diarization, "MAX_CLUSTERED", 50)
    random = np.random.default_rng(5)
    voices = np.eye(2, 16)[np.repeat([0, 1], 100)] + random.normal(0, 0.01, (200, 16))
    embeddings = np.repeat(voices[:, None], 3, axis=1).astype(np.float32)
    scores = np.zeros((200, 30, 3), np.uint8)
    scores[:, :, 0] = 1
    from pyannote.core import SlidingWindow, SlidingWindowFeature

    segmentations = SlidingWindowFeature(scores, SlidingWindow(start=0.0, duration=10.0, step=1.0))
    clustering = diarizer._pipeline.clustering
    chosen, windows, _ = clustering.filter_embeddings(embeddings, segmentations=segmentations)
    assert len(chosen) == 50
    assert (windows[0], windows[-1]) == (0, 199)
    hard, _, centroids = clustering(embeddings, segmentations, min_clusters=1, max_clusters=np.inf)
    assert len(centroids) == 2
    assert len({*hard[:100, 0]}) == len({*hard[100:, 0]}) == 1
    assert hard[0, 0] != hard[-1, 0]
