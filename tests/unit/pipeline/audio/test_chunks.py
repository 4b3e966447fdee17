import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import chunks
from pipeline.audio.chunks import cut, find_speech
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels import detector
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.domain.spans import union
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, Chunk, Span
from pipeline.voice import activity
from pipeline.voice.activity import FRAME
from tests.synthetic_calls import FOLDER

pytestmark = pytest.mark.cases(2)


def legs() -> list[tuple[str, np.ndarray, list[Span]]]:
    """Return (name, int16 samples, spoken words) of each channel of each separated or mono sample call."""
    spans = []
    for folder in sorted(FOLDER.iterdir()):
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        if expected["layout"] == "identical":
            continue
        files = [folder / f"{leg}.flac" for leg in ("rep", "customer")]
        paths = files if expected["layout"] == "two_files" else [folder / "call.flac"]
        channels = [channel for path in paths for channel in decode_file(path, DecodeOptions()).samples]
        parties = [("rep",), ("customer",)] if len(channels) == 2 else [("rep", "customer")]
        for channel, party in zip(channels, parties, strict=True):
            segments = [s for s in expected["segments"] if s["speaker"] in party]
            words = [Span(word["start"], word["end"]) for segment in segments for word in segment["words"]]
            spans.append((f"{folder.name} {party[0]}", channel, words))
    return spans


def covered(word: Span, speech: tuple[Span, ...]) -> bool:
    """Return whether at least half of the word is in speech."""
    inside = sum(max(0.0, min(word.end, span.end) - max(word.start, span.start)) for span in speech)
    return inside >= word.duration / 2


def test_nearly_every_word_of_telephone_speech_is_found() -> None:
    speech_of, words_found, words_in_all = {}, 0, 0
    for name, channel, words in legs():
        speech = find_speech(AudioInMemory(channel[None]), SpeechOptions())[0]
        hits = sum(covered(word, speech) for word in words)
        speech_of[name] = hits / max(1, len(words))
        words_found, words_in_all = words_found + hits, words_in_all + len(words)
        assert all(0 <= span.start < span.end <= len(channel) / SAMPLE_RATE for span in speech)
        assert all(span.end <= other.start for span, other in itertools.pairwise(speech))
    assert words_in_all > 400
    assert words_found / words_in_all >= 0.99, speech_of
    assert min(speech_of.values()) >= 0.9, speech_of


def test_silence_and_line_noise_hold_no_speech() -> None:
    generator = np.random.default_rng(0)
    quiet = np.zeros(SAMPLE_RATE * 5)
    hum = 500 * np.sin(2 * np.pi * 50 * np.arange(SAMPLE_RATE * 5) / SAMPLE_RATE)
    channels = np.stack([quiet, generator.normal(0, 200, quiet.shape), hum]).astype(np.int16)
    assert find_speech(AudioInMemory(channels), SpeechOptions()) == ((), (), ())
    assert find_speech(AudioInMemory(np.zeros((1, 0), np.int16)), SpeechOptions()) == ((),)


@pytest.mark.parametrize("block", [7, 200])
def test_a_call_that_is_read_in_blocks_is_heard_as_one(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from faster_whisper.vad import get_vad_model

    _, channel, _ = legs()[0]
    whole = np.pad(channel, (0, -len(channel) % FRAME)).astype(np.float32) / 32768
    at_once = get_vad_model()(whole.copy()).reshape(-1)
    monkeypatch.setattr(activity, "BLOCK", block)
    in_blocks = detector.activity(AudioInMemory(channel[None]), 0)
    assert np.abs(in_blocks - at_once)[:-1].max() < 1e-4


spans = st.lists(st.tuples(st.floats(0, 600, allow_nan=False), st.floats(0, 90, allow_nan=False)), max_size=12).map(
    lambda pairs: tuple(Span(start, start + length) for start, length in pairs)
)


@given(st.lists(spans, max_size=2), st.floats(1.5, 30), st.floats(0, 5))
def test_chunks_hold_all_speech_and_end_inside_none_but_a_span_too_long(
    speech: list[tuple[Span, ...]], max_seconds: float, max_pause: float
) -> None:
    result = cut(speech, max_seconds, max_pause=max_pause)
    assert result == cut(speech, max_seconds, max_pause=max_pause)
    assert list(result) == sorted(result, key=lambda chunk: (chunk.channel, chunk.start))
    for channel, channel_speech in enumerate(speech):
        mine = [chunk for chunk in result if chunk.channel == channel]
        joined = union(channel_speech)
        assert all(0 < chunk.duration <= max_seconds + 1e-6 for chunk in mine)
        assert all(chunk.end <= other.start for chunk, other in itertools.pairwise(mine))
        for span in joined:
            covered = sum(max(0.0, min(c.end, span.end) - max(c.start, span.start)) for c in mine)
            assert covered == pytest.approx(span.duration, abs=1e-6)
            if span.duration <= max_seconds:
                for chunk in mine:
                    assert not span.start < chunk.start < span.end
                    assert not span.start < chunk.end < span.end
        for chunk in mine:  # no pause longer than allowed inside
            inside = [span for span in joined if span.end > chunk.start and span.start < chunk.end]
            assert all(b.start - a.end <= max_pause + 1e-9 for a, b in itertools.pairwise(inside))


def test_a_span_too_long_is_parted_at_its_quietest_moment() -> None:
    samples = np.random.default_rng(0).normal(0, 5000, 25 * SAMPLE_RATE).astype(np.int16)
    for pause in (7.0, 15.0):
        samples[round(pause * SAMPLE_RATE) : round((pause + 0.2) * SAMPLE_RATE)] //= 100
    result = cut([[Span(0.0, 25.0)]], 10.0, AudioInMemory(samples[None]))
    assert len(result) == 3
    assert 7.0 <= result[0].end <= 7.2
    assert 15.0 <= result[1].end <= 15.2
    assert (result[0].start, result[-1].end) == (0.0, 25.0)
    assert all(chunk.end == other.start for chunk, other in itertools.pairwise(result))
    evenly = cut([[Span(0.0, 25.0)]], 10.0)
    assert [round(chunk.duration, 6) for chunk in evenly] == [8.333333] * 3


def test_neighbouring_spans_share_a_chunk_while_they_fit() -> None:
    speech = [[Span(0, 3), Span(4, 7), Span(7.5, 12), Span(20, 21)], [Span(1, 2)]]
    assert cut(speech, 8.0) == (Chunk(0, 0, 7), Chunk(0, 7.5, 12), Chunk(0, 20, 21), Chunk(1, 1, 2))


@given(spans, st.floats(1.5, 30), st.floats(1.5, 60), spans)
def test_packed_chunks_hold_all_speech_and_little_else(
    speech: tuple[Span, ...], max_seconds: float, longest: float, events: tuple[Span, ...]
) -> None:
    events = tuple(union(events))
    result = cut([speech], max_seconds, None, longest, [events])
    joined = union(speech)
    pieces = [piece for chunk in result for piece in chunk.sound]
    assert all(piece.end <= other.start + 1e-9 for piece, other in itertools.pairwise(pieces))
    for span in joined:
        covered = sum(max(0.0, min(piece.end, span.end) - max(piece.start, span.start)) for piece in pieces)
        assert covered == pytest.approx(span.duration, abs=1e-6)
    for chunk in result:
        assert 0 < chunk.seconds <= max_seconds + 1e-6
        assert (chunk.sound[0].start, chunk.sound[-1].end) == (chunk.start, chunk.end)
        for before, other in itertools.pairwise(chunk.sound):  # pauses left out
            assert chunks.CLOSE_PAUSE < other.start - before.end <= longest
            assert not any(event.start < other.start and event.end > before.end for event in events)
        for piece in chunk.sound:  # pauses kept
            inside = [span for span in joined if span.end > piece.start and span.start < piece.end]
            assert all(b.start - a.end <= chunks.CLOSE_PAUSE + 1e-9 for a, b in itertools.pairwise(inside))


def test_a_party_that_waits_for_the_other_fills_one_chunk() -> None:
    speech = [[Span(0, 3), Span(3.5, 5), Span(12, 14), Span(40, 45), Span(90, 92)]]
    assert cut(speech, 30.0, None, 30.0) == (
        Chunk(0, 0, 45, pieces=(Span(0, 5), Span(12, 14), Span(40, 45))),
        Chunk(0, 90, 92),  # too long a pause
    )
    ringing = [[Span(6, 11), Span(20, 30)]]
    first, second, third, _ = cut(speech, 30.0, None, 30.0, ringing)
    assert [(chunk.start, chunk.end) for chunk in (first, second, third)] == [(0, 5), (12, 14), (40, 45)]
    assert [chunk.seconds for chunk in cut(speech, 8.0, None, 30.0)] == [7, 5, 2]  # no more than fits


def test_the_sound_of_a_chunk_is_its_pieces_and_its_times_are_found_again() -> None:
    samples = np.arange(20 * SAMPLE_RATE, dtype=np.int64).reshape(1, -1) % 32000
    audio = AudioInMemory(samples.astype(np.int16))
    chunk = Chunk(0, 1.0, 9.0, "en", (Span(1.0, 3.0), Span(5.0, 5.5), Span(8.0, 9.0)))
    assert (chunk.duration, chunk.seconds) == (8.0, 3.5)
    assert chunk.parts == (Span(0.0, 2.0), Span(2.0, 2.5), Span(2.5, 3.5))
    assert [chunk.moment(at) for at in (0.0, 1.5, 2.0, 2.25, 2.5, 3.5)] == [1.0, 2.5, 5.0, 5.25, 8.0, 9.0]
    sound = audio.sound(chunk)
    assert len(sound) == 3.5 * SAMPLE_RATE
    for at in (0.25, 2.25, 3.0):  # each sample is the recording's at the moment that it is said to be
        assert sound[round(at * SAMPLE_RATE)] == audio.cut(0, chunk.moment(at), 20)[0]
    assert chunk.between(1.0, 2.25) == Chunk(0, 2.0, 5.25, "en", (Span(2.0, 3.0), Span(5.0, 5.25)))
    assert chunk.between(2.0, 2.5) == Chunk(0, 5.0, 5.5, "en")
    assert chunk.between(0.0, 3.5) == chunk
    assert np.array_equal(audio.sound(chunk.between(1.0, 2.25)), sound[SAMPLE_RATE : round(2.25 * SAMPLE_RATE)])


def test_chunks_too_short_to_recognise_are_refused() -> None:
    with pytest.raises(ValueError):
        cut([[Span(0, 3)]], 1.0)
