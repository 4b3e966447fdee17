import io
import struct
from fractions import Fraction

import av
import numpy as np
import pytest

from pipeline.audio.decode import mp4
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.errors import NotAudio, RecordingTooLong

LIES = "declares more pieces of sound than it has bytes"


def box(name: bytes, *inside: bytes) -> bytes:
    content = b"".join(inside)
    return struct.pack(">I", len(content) + 8) + name + content


def many(count: int, fields: str, *values: int) -> bytes:
    return struct.pack(">II" + fields, 0, count, *values)


def m4a(times: int = 1, chunks: int = 1, samples: int = 1, first: bytes = b"") -> bytes:
    """Build an MP4 of one track whose tables declare the given number of entries."""
    entry = box(b"mp4a", bytes(6) + b"\0\1" + bytes(8) + struct.pack(">HHHHI", 1, 16, 0, 0, 8000 << 16))
    table = box(
        b"stbl",
        box(b"stsd", many(1, ""), entry),
        box(b"stts", many(times, "II", samples, 1024)),
        box(b"stsc", many(1, "III", 1, samples, 1)),
        box(b"stsz", bytes(4), struct.pack(">II", 1, samples)),
        box(b"stco", many(chunks, "I", 700)),
    )
    media = box(
        b"mdia",
        box(b"mdhd", bytes(12), struct.pack(">III", 8000, 0xFFFFFFFF, 0)),
        box(b"hdlr", bytes(8), b"soun", bytes(13)),
        box(b"minf", box(b"smhd", bytes(8)), table),
    )
    track = box(b"trak", box(b"tkhd", b"\0\0\0\7", bytes(80)), media)
    return first + box(b"ftyp", b"M4A \0\0\2\0isomM4A ") + box(b"moov", track) + box(b"mdat", bytes(64))


def chunked(chunks: int, samples: int) -> bytes:
    """Build an MP4 of uncompressed sound whose chunks declare the given number of samples."""
    entry = box(b"ulaw", bytes(6) + b"\0\1" + bytes(8) + struct.pack(">HHHHI", 1, 16, 0, 0, 8000 << 16))
    table = box(
        b"stbl",
        box(b"stsd", many(1, ""), entry),
        box(b"stts", many(1, "II", 100, 1)),
        box(b"stsc", many(1, "III", 1, samples, 1)),
        box(b"stsz", bytes(4), struct.pack(">II", 1, 100)),
        box(b"stco", struct.pack(">II", 0, chunks), struct.pack(">I", 700) * chunks),
    )
    return box(b"ftyp", b"M4A \0\0\2\0isomM4A ") + box(b"moov", box(b"trak", box(b"mdia", box(b"minf", table))))


def fragments(runs: int, samples: int) -> bytes:
    """Build runs of fragments, each of equally long samples."""
    run = box(b"trun", struct.pack(">II", 0, samples))
    return m4a() + box(b"moof", box(b"traf", box(b"tfhd", bytes(8)), run * runs))


@pytest.mark.parametrize(
    "file",
    [
        m4a(samples=100_000_000),
        chunked(chunks=20, samples=0x7FFFFFF0),
        chunked(chunks=1, samples=100_000_000),
        fragments(runs=100, samples=1000),
        m4a(samples=0xFFFFFFFF),
        m4a(times=0x10000000),
        m4a(chunks=0x10000000),
        m4a(samples=100_000_000, first=box(b"junk", bytes(40)) * 3),
        m4a(samples=100_000_000, first=box(b"what", bytes(8))),
        m4a(samples=100_000_000).replace(struct.pack(">I", 92) + b"mdat", struct.pack(">I", 0) + b"mdat"),
    ],
)
def test_an_mp4_with_tables_that_cannot_be_true_is_refused_before_it_is_opened(file: bytes) -> None:
    """FFmpeg rejects some of these too, but only after allocating memory for them."""
    with pytest.raises(NotAudio, match=LIES):
        decode_file(io.BytesIO(file), DecodeOptions())


def written(container: str, codec: str, seconds: float, **options: str) -> bytes:
    output = io.BytesIO()
    with av.open(output, "w", format=container, options=options) as file:
        stream = file.add_stream(codec, rate=8000, layout="mono")
        samples = (np.sin(np.arange(int(8000 * seconds)) / 3) * 9000).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = 8000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    return output.getvalue()


@pytest.mark.parametrize(("container", "codec"), [("mp4", "aac"), ("mov", "pcm_mulaw"), ("mov", "pcm_s16le")])
def test_true_tables_are_no_obstacle(container: str, codec: str) -> None:
    file = written(container, codec, 3.0)
    assert not mp4.has_absurd_tables(io.BytesIO(file), len(file))
    assert decode_file(io.BytesIO(file), DecodeOptions()).duration == pytest.approx(3.0, abs=0.3)  # AAC adds its delay


def test_the_tables_of_an_mp4_in_fragments_are_not_absurd() -> None:
    """The tables before the fragments are empty."""
    file = written("mp4", "aac", 3.0, movflags="frag_keyframe+empty_moov")
    assert not mp4.has_absurd_tables(io.BytesIO(file), len(file))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_no_mp4_has_no_absurd_tables(seed: int) -> None:
    chance = np.random.default_rng(seed)
    file = chance.integers(0, 4 if seed % 2 else 256, 50_000).astype(np.uint8).tobytes()
    assert not mp4.has_absurd_tables(io.BytesIO(file), len(file))
    assert not mp4.has_absurd_tables(io.BytesIO(bytes(50_000)), 50_000)


def far(tracks: int, late: float) -> bytes:
    """Build a Matroska file with late second packets in each track."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as container:
        streams = [container.add_stream("pcm_s16le", rate=16000) for _ in range(tracks)]
        for track in streams:
            track.layout = "mono"
        for at in (0.0, late):
            for track in streams:
                frame = av.AudioFrame.from_ndarray(np.full((1, 1600), 900, np.int16), format="s16", layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = 16000, round(at * 16000), Fraction(1, 16000)
                container.mux(track.encode(frame))
        for track in streams:
            container.mux(track.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("tracks", [1, 9])
def test_a_kilobyte_does_not_become_half_an_hour_of_silence_that_others_work_through(tracks: int) -> None:
    """Two hundred bytes of sound, and a gap that every later stage would have to process."""
    decoded = decode_file(io.BytesIO(far(tracks, 1700.0)), DecodeOptions())
    assert decoded.duration < 300
    assert any("timestamps" in warning for warning in decoded.warnings)


def test_a_kilobyte_that_would_be_hours_of_silence_is_stopped_at_the_limit() -> None:
    file = far(1, 290.0)
    assert len(file) < 8000
    with pytest.raises(RecordingTooLong):
        decode_file(io.BytesIO(file), DecodeOptions(max_seconds=60))


def transport_stream(seconds: float = 3.0) -> bytes:
    """Build an MPEG transport stream with one track."""
    file = io.BytesIO()
    with av.open(file, "w", format="mpegts") as container:
        track = container.add_stream("mp2", rate=16000)
        track.layout = "mono"
        for at in range(0, int(seconds * 16000), 1152):
            tone = (8000 * np.sin(np.arange(at, at + 1152) * 0.2)).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(tone[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts = 16000, at
            container.mux(track.encode(frame))
        container.mux(track.encode(None))
    return file.getvalue()


def test_a_track_that_begins_in_the_middle_of_a_file_is_passed_over() -> None:
    """A stream that was cut and joined; PyAV raised an IndexError, which failed the call as an internal error."""
    whole = transport_stream()
    packets = [bytearray(whole[at : at + 188]) for at in range(0, len(whole), 188)]
    begins = [packet for packet in packets if packet[1] == 0x41]  # of a piece of sound, on track 0x100
    for packet in begins[len(begins) // 2 : len(begins) // 2 + 2]:
        packet[1:3] = b"\x4b\x00"  # said to be of track 0xb00, which no table names
    decoded = decode_file(io.BytesIO(b"".join(map(bytes, packets))), DecodeOptions())
    assert 2.0 < decoded.audio.length / 16000 < 3.2
    assert any("begins in the middle" in warning for warning in decoded.warnings)


def test_a_far_timestamp_does_not_become_hours_of_silence() -> None:
    """30 KB with nine tracks and one far timestamp kept two cores busy for minutes."""
    decoded = decode_file(io.BytesIO(far(9, 20_000.0)), DecodeOptions())
    assert decoded.audio.length / 16000 == pytest.approx(0.2, abs=0.05)
    assert any("timestamps" in warning for warning in decoded.warnings)


def test_a_gap_that_a_call_may_have_is_kept() -> None:
    decoded = decode_file(io.BytesIO(far(1, 100.0)), DecodeOptions())
    assert decoded.audio.length / 16000 == pytest.approx(100.1, abs=0.05)


def test_every_track_counts_toward_the_longest_recording() -> None:
    """Ignored tracks count too, since their decoding costs as much."""
    with pytest.raises(RecordingTooLong):
        decode_file(io.BytesIO(far(4, 50.0)), DecodeOptions(max_seconds=90.0))
