import io
import struct
from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np
import pytest

from pipeline.audio.analyze import Loaded, analyze_audio
from pipeline.audio.channels.arrange import Arranged, ArrangedTrack
from pipeline.audio.chunks import cut
from pipeline.audio.decode import wav
from pipeline.audio.decode.channel_selection import SelectedChannels
from pipeline.audio.decode.decoder import Decoded, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.labeling import gaps_of, label
from pipeline.domain.speech import SAMPLE_RATE, AudioInMemory, LabelKind, Layout, LayoutKind, Span
from tests.paths import FIXTURES
from tests.support.lossy_files import FRAGMENTS, without_packets
from tests.unit.pipeline.audio.test_decode import encode, loudest, tones
from tests.unit.pipeline.audio.test_decode import wav as wav_file

pytestmark = pytest.mark.cases(4)

MEDIA = FIXTURES / "media"
MARK = 9.0  # seconds at which a tone begins, after everything that gets lost


def lossy(
    container: str, codec: str, rate: int, is_lost: Callable[[float], bool], settings: dict[str, str] | None = None
) -> bytes:
    """Return 12 s with a tone of 700 Hz for half a second from `MARK` on, without the lost packets."""
    times = np.arange(12 * rate) / rate
    tone = np.sin(2 * np.pi * 700 * times) * 12000 * ((times >= MARK) & (times < MARK + 0.5))
    sound = (tone + np.random.default_rng(0).normal(0, 60, len(times))).astype(np.int16)
    return without_packets(sound, rate, container, codec, is_lost, settings)


def decoded(data: bytes) -> Decoded:
    return decode_file(io.BytesIO(data), DecodeOptions())


def marked(sound: Decoded) -> float:
    """Return the second at which the tone begins."""
    width = SAMPLE_RATE // 50
    samples = sound.samples[0]
    windows = samples[: len(samples) // width * width].reshape(-1, width).astype(float)
    power = np.abs(windows @ np.exp(-2j * np.pi * 700 * np.arange(width) / SAMPLE_RATE)) / width
    return float(np.argmax(power > 2500)) * width / SAMPLE_RATE


KEEP_TIME: list[tuple[str, str, int, dict[str, str]]] = [
    ("ogg", "libopus", 48000, {}),
    ("ogg", "flac", 16000, {}),
    ("mp4", "aac", 16000, {}),
    ("mp4", "aac", 16000, FRAGMENTS),
    ("ipod", "aac", 16000, {}),
    ("mp4", "libopus", 48000, {}),
    ("3gp", "libopencore_amrnb", 8000, {}),
    ("mpegts", "aac", 16000, {}),
    ("mpegts", "mp2", 16000, {}),
    ("flac", "flac", 16000, {}),
    ("matroska", "libopus", 48000, {}),
    ("webm", "libopus", 48000, {}),
]


@pytest.mark.parametrize(("container", "codec", "rate", "settings"), KEEP_TIME)
def test_what_follows_a_gap_keeps_its_time_and_the_gap_is_named(
    container: str, codec: str, rate: int, settings: dict[str, str]
) -> None:
    result = decoded(lossy(container, codec, rate, lambda time: 3 <= time < 6, settings))
    assert marked(result) == pytest.approx(MARK, abs=0.08)  # ADTS in a transport stream brings AAC's own delay
    (gap,) = result.audio.gaps(0)
    assert (gap.start, gap.end) == pytest.approx((3, 6), abs=0.15)
    inside = result.samples[0, round((gap.start + 0.1) * SAMPLE_RATE) : round((gap.end - 0.1) * SAMPLE_RATE)]
    assert np.abs(inside).max() == 0
    (warning,) = result.warnings
    assert warning.endswith(f"({gap.start:.1f} to {gap.end:.1f} s); silence replaces them.")


@pytest.mark.parametrize(("container", "codec", "rate", "settings"), KEEP_TIME)
def test_single_packets_that_get_lost_add_up(container: str, codec: str, rate: int, settings: dict[str, str]) -> None:
    """Each loss is shorter than a gap; in WebM they shortened the call by their sum."""
    result = decoded(
        lossy(container, codec, rate, lambda time: 1 < time < 8.5 and round(time * 1000) % 7 == 0, settings)
    )
    assert marked(result) == pytest.approx(MARK, abs=0.16)
    assert result.audio.gaps(0)


def test_a_gap_in_a_track_is_a_gap_in_its_channel_alone() -> None:
    buffer, rate = io.BytesIO(), 16000
    with av.open(buffer, "w", format="matroska") as output:
        streams = [output.add_stream("pcm_s16le", rate=rate, layout="mono") for _ in range(2)]
        for start in range(0, 8 * rate, 1600):
            for track, stream in enumerate(streams):
                if track == 1 and 2 * rate <= start < 5 * rate:
                    continue
                frame = av.AudioFrame.from_ndarray(np.full((1, 1600), 900 + track, np.int16), "s16", "mono")
                frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), start
                output.mux(stream.encode(frame))
        for stream in streams:
            output.mux(stream.encode(None))
    audio = decoded(buffer.getvalue()).audio
    (gap,) = audio.gaps(1)
    assert (gap.start, gap.end) == pytest.approx((2.0, 5.0), abs=0.001)
    assert audio.gaps(0) == ()


@pytest.mark.parametrize("container", ["ogg", "mpegts"])
def test_a_container_that_counts_from_the_beginning_again_has_the_gaps_of_both_parts(container: str) -> None:
    codec, rate = ("libopus", 48000) if container == "ogg" else ("mp2", 16000)
    whole, lacking = (
        lossy(container, codec, rate, is_lost) for is_lost in (lambda _: False, lambda time: 3 <= time < 6)
    )
    result = decoded(whole + lacking)
    assert result.duration == pytest.approx(24, abs=0.2)
    (gap,) = result.audio.gaps(0)
    assert (gap.start, gap.end) == pytest.approx((15, 18), abs=0.2)


# Without speech the telephone sends a description of the noise every 160 ms and nothing in between.


def test_amr_keeps_the_pauses_of_discontinuous_transmission() -> None:
    rate, times = 8000, np.arange(30 * 8000) / 8000
    tone = np.sin(2 * np.pi * 700 * times) * 12000 * ((times >= 25) & (times < 26))
    sound = (tone + np.random.default_rng(0).normal(0, 20, len(times)))[None]
    data = encode(sound, rate, "amr", "libopencore_amrnb", b="12200", dtx="1")
    assert len(data) < 20_000  # 48,000 without
    result = decoded(data)
    assert result.duration == pytest.approx(30, abs=0.05)
    assert marked(result) == pytest.approx(25, abs=0.05)
    assert result.warnings == ()


def test_wideband_amr_keeps_them_too() -> None:
    """Ten seconds without transmission between two of speech, from another encoder."""
    data = (MEDIA / "amr-wb.awb").read_bytes()
    head, frames = data[:9], [data[at : at + 33] for at in range(9, len(data), 33)]  # of 12.65 kbit/s
    assert all(frame[0] >> 3 == 2 for frame in frames)
    pause = (bytes([9 << 3 | 4]) + bytes(5) + bytes([15 << 3 | 4]) * 7) * 62 + bytes([15 << 3 | 4]) * 4
    result = decoded(head + b"".join(frames) + pause + b"".join(frames))
    assert result.duration == pytest.approx(2 * 0.02 * len(frames) + 10, abs=0.03)
    assert result.warnings == ()
    first, second = (
        result.samples[0, 16000:30000].astype(float),
        result.samples[0, 16000 + 192000 :][:14000].astype(float),
    )
    assert np.corrcoef(first, second)[0, 1] > 0.9


# Recorders that write a call in pieces put WAV files, or their samples, one behind the other.


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def pitched(frequency: int, rate: int = 8000, seconds: float = 2.0) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate)[None] * 11000


def joined(kind: str) -> bytes:
    first, second = wav_file(pitched(440)), wav_file(pitched(660))
    if kind == "files":
        return first + second
    if kind == "files of other rates":
        return first + wav_file(pitched(660, 16000), 16000)
    if kind == "a file that was never finished":
        return first + second[:40] + b"\xff\xff\xff\xff" + second[44:]
    between = chunk(b"LIST", b"INFO") if kind == "chunks with others between" else b""
    whole = first + between + second[36:]
    return whole[:4] + struct.pack("<I", len(whole) - 8) + whole[8:]


KINDS = ("files", "files of other rates", "a file that was never finished", "chunks", "chunks with others between")


@pytest.mark.parametrize("kind", KINDS)
def test_of_joined_wavs_every_second_is_heard(kind: str) -> None:
    result = decoded(joined(kind))
    assert result.duration == pytest.approx(4.0, abs=0.01)
    assert loudest(result.samples[0, 4000:28000]) == pytest.approx(440, abs=2)
    assert loudest(result.samples[0, 36000:60000]) == pytest.approx(660, abs=2)
    assert result.warnings == ()


def test_a_byte_that_a_writer_left_out_hides_no_file() -> None:
    """Lengths must be even; some writers omit the padding byte after an odd number of mu-law bytes."""
    sound = tones(8000, seconds=1.0)[:, :7999]
    part = encode(sound, 8000, "wav", "pcm_mulaw")
    odd = part[: len(part) - len(part) % 2]
    start = part.index(b"data") + 8
    bare = part[:start] + part[start : start + 7999]
    assert (len(odd), len(bare) % 2) == (len(part), (start + 7999) % 2)
    assert decoded(bare + bare).duration == pytest.approx(2 * 7999 / 8000, abs=0.01)


def test_the_second_of_two_wavs_may_be_cut_off_and_is_said_to_be() -> None:
    result = decoded(joined("files")[:-8000])
    assert result.duration == pytest.approx(3.5, abs=0.01)
    assert result.warnings == ("The recording is incomplete: it declares 4.0 s and has 3.5 s.",)


def test_a_thousand_pieces_count_and_more_are_said_to_be_missing() -> None:
    many = wav_file(pitched(440, seconds=0.01)) * (wav.MAX_PARTS + 1)
    result = decoded(many)
    assert result.duration == pytest.approx(10, abs=0.01)
    assert result.warnings == ("The recording is damaged: it ends after 10.0 s.",)


# What the record says of a gap, and what it does to words.


def test_a_gap_is_a_label_of_its_own_and_speech_does_not_reach_into_it() -> None:
    words = decode_file(MEDIA / "notice.flac", DecodeOptions()).samples[0]
    half = len(words) // 2
    samples = np.concatenate([words[:half], np.zeros(3 * SAMPLE_RATE, np.int16), words[half:]])
    gap = Span(half / SAMPLE_RATE, half / SAMPLE_RATE + 3)
    audio = AudioInMemory(samples[None], (gap,))
    (labels,) = label(audio, SpeechOptions())
    (gap_label,) = (label for label in labels if label.kind is LabelKind.GAP)
    assert (gap_label.start, gap_label.end) == pytest.approx((gap.start, gap.end), abs=0.02)
    assert gaps_of(labels) == (Span(gap_label.start, gap_label.end),)
    analysis = analyze_audio(
        Loaded(audio, Layout(LayoutKind.MONO, 1, 1, 1.0, {}, "by hand")), SpeechOptions(), 30.0, True
    )
    assert len(analysis.chunks) > 1
    assert not any(chunk.start < gap_label.start and chunk.end > gap_label.end for chunk in analysis.chunks)


@pytest.mark.parametrize("max_skipped_pause", [0.0, 30.0])
def test_no_chunk_goes_on_over_a_gap(max_skipped_pause: float) -> None:
    speech = [[Span(0, 2), Span(3, 5), Span(12, 14)]]
    assert len(cut(speech, 30.0, None, max_skipped_pause)) == (1 if max_skipped_pause else 2)
    apart = cut(speech, 30.0, None, max_skipped_pause, gaps=[[Span(2.1, 2.9), Span(6, 11)]])
    assert [(span.start, span.end) for span in apart] == [(0, 2), (3, 5), (12, 14)]


def test_a_view_has_the_gaps_that_all_of_its_rows_have_at_its_own_time() -> None:
    silence = np.zeros((1, 100 * SAMPLE_RATE), np.int16)
    first = AudioInMemory(silence, (Span(10, 20), Span(40, 50)))
    second = AudioInMemory(silence, (Span(15, 45),))
    both = SelectedChannels((first, second), (((0, 0),), ((0, 0), (1, 0))))
    assert both.gaps(0) == (Span(10, 20), Span(40, 50))
    assert both.gaps(1) == (Span(15, 20), Span(40, 45))
    late = Arranged((first, second), (ArrangedTrack(((1, 0),), start=2 * SAMPLE_RATE, pace=0.5),))
    assert late.gaps(0) == (Span(32, 92),)


@pytest.mark.parametrize("settings", [{}, FRAGMENTS])
@pytest.mark.parametrize("container", ["mp4", "mov"])
def test_an_mp4_behind_another_one_is_heard_too(container: str, settings: dict[str, str]) -> None:
    codec = "aac" if container == "mp4" else "pcm_s16le"
    first, second = (lossy(container, codec, 16000, lambda _: False, settings) for _ in range(2))
    result = decoded(first + second + first)
    assert result.duration == pytest.approx(36, abs=0.3)
    tone = np.abs(result.samples[0].astype(float)).reshape(-1)[: 36 * SAMPLE_RATE]
    assert [tone[round((MARK + 0.25 + later) * SAMPLE_RATE) :][:1000].max() > 5000 for later in (0, 12, 24)] == [
        True
    ] * 3
    assert result.warnings == ()


def test_an_mp4_behind_another_one_that_is_cut_costs_nothing_of_the_first() -> None:
    first = lossy("mp4", "aac", 16000, lambda _: False)
    assert decoded(first + first[: len(first) // 2]).duration == pytest.approx(12, abs=0.1)
