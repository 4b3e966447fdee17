import asyncio
import io
import struct
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from pipeline.audio.decode.decoder import Decoded, decode, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain import sniff
from pipeline.domain.speech import Recording
from pipeline.errors import NotAudio, RecordingEmpty, RecordingTooLong, StorageError

pytestmark = pytest.mark.cases(3)

OPTIONS = DecodeOptions()
SECONDS = 3.0


def tones(rate: int, channels: int = 1, seconds: float = SECONDS) -> np.ndarray:
    """Return int16 (channels, n): 440 Hz on the first channel, 660 Hz on the second, and so on, at a third of full
    scale.
    """
    times = np.arange(round(rate * seconds)) / rate
    return np.stack([np.sin(2 * np.pi * (440 + 220 * c) * times) for c in range(channels)]) * 11000


def encode(
    samples: np.ndarray, rate: int, container: str, codec: str, sample_format: str | None = None, **options: str
) -> bytes:
    """Encode `samples` (channels, n) in int16 range with FFmpeg."""
    layout = {1: "mono", 2: "stereo", 4: "quad", 6: "5.1"}[len(samples)]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout, options=options)
        if codec == "wmav2":
            stream.bit_rate = 128_000
        if sample_format:
            stream.codec_context.format = sample_format
        for start in range(0, samples.shape[1], 1000):
            piece = samples[:, start : start + 1000].astype(np.int16)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece.T.reshape(1, -1)), "s16", layout)
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return buffer.getvalue()


def wav(samples: np.ndarray, rate: int = 8000) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(len(samples))
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.T.astype("<i2").tobytes())
    return buffer.getvalue()


def decoded(data: bytes, options: DecodeOptions = OPTIONS, media_type: str | None = None) -> Decoded:
    return decode_file(io.BytesIO(data), options, media_type)


def loudest(samples: np.ndarray) -> float:
    """Return the frequency in Hz with the highest energy, at 16 kHz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * 16000 / len(samples))


WRITTEN: list[tuple[str, str, int, int, dict[str, Any]]] = [
    ("wav", "pcm_s16le", 8000, 1, {}),
    ("wav", "pcm_s16le", 8000, 2, {}),
    ("wav", "pcm_s16le", 11025, 2, {}),
    ("wav", "pcm_s16le", 16000, 2, {}),
    ("wav", "pcm_s16le", 48000, 2, {}),
    ("wav", "pcm_u8", 8000, 1, {}),
    ("wav", "pcm_s24le", 48000, 2, {}),
    ("wav", "pcm_s32le", 44100, 2, {}),
    ("wav", "pcm_f32le", 48000, 1, {}),
    ("wav", "pcm_f64le", 48000, 1, {}),
    ("wav", "pcm_alaw", 8000, 2, {}),
    ("wav", "pcm_mulaw", 8000, 2, {}),
    ("wav", "adpcm_ima_wav", 8000, 1, {}),
    ("wav", "adpcm_ms", 8000, 2, {}),
    ("wav", "g726", 8000, 1, {}),
    ("w64", "pcm_s16le", 8000, 2, {}),
    ("aiff", "pcm_s16be", 44100, 2, {}),
    ("au", "pcm_mulaw", 8000, 1, {}),
    ("caf", "pcm_s16le", 16000, 2, {}),
    ("mp3", "libmp3lame", 8000, 1, {"b": "16000"}),
    ("mp3", "libmp3lame", 44100, 2, {}),
    ("adts", "aac", 16000, 2, {}),
    ("ipod", "aac", 44100, 2, {}),
    ("mp4", "aac", 8000, 1, {}),
    ("ipod", "alac", 44100, 2, {}),
    ("flac", "flac", 8000, 2, {}),
    ("ogg", "libopus", 48000, 2, {}),
    ("ogg", "libopus", 16000, 1, {"b": "16000"}),
    ("ogg", "vorbis", 48000, 2, {"strict": "experimental"}),
    ("ogg", "flac", 16000, 1, {}),
    ("webm", "libopus", 48000, 2, {}),
    ("matroska", "pcm_s16le", 8000, 2, {}),
    ("asf", "wmav2", 44100, 2, {}),
    ("amr", "libopencore_amrnb", 8000, 1, {"b": "12200"}),
    ("3gp", "libopencore_amrnb", 8000, 1, {"b": "12200"}),
]


@pytest.mark.parametrize(("container", "codec", "rate", "channels", "settings"), WRITTEN)
def test_every_common_codec_and_container_is_decoded(
    container: str, codec: str, rate: int, channels: int, settings: dict[str, Any]
) -> None:
    formats = {
        "pcm_s24le": "s32",
        "libmp3lame": "s16p",
        "aac": "fltp",
        "wmav2": "fltp",
        "vorbis": "fltp",
        "alac": "s16p",
    }
    data = encode(tones(rate, channels), rate, container, codec, formats.get(codec), **settings)
    result = decoded(data)
    assert result.samples.dtype == np.int16
    assert result.samples.shape[0] == result.source_channels == channels
    assert result.source_rate == (48000 if "opus" in codec else rate)
    assert result.duration == pytest.approx(SECONDS, abs=0.12)
    assert result.warnings == ()
    for channel, samples in enumerate(result.samples):
        middle = samples[8000:40000].astype(float)
        assert loudest(middle) == pytest.approx(440 + 220 * channel, abs=3)
        assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(11000, rel=0.25)


@pytest.mark.parametrize(
    ("media_type", "codec"), [("audio/PCMU", "pcm_mulaw"), ("audio/x-alaw; rate=8000", "pcm_alaw")]
)
def test_a_headerless_file_is_read_as_its_declared_type(media_type: str, codec: str) -> None:
    data = encode(tones(8000), 8000, "mulaw" if "mulaw" in codec else "alaw", codec)
    result = decoded(data, media_type=media_type)
    assert (result.codec, result.duration) == (codec, pytest.approx(SECONDS))
    with pytest.raises(NotAudio):
        decoded(data, media_type="audio/wav")


def test_a_headerless_file_of_unspecific_type_is_read_by_the_ending_of_its_name() -> None:
    for path, rate, container, codec in (
        (b"/spool/a.ulaw", 8000, "mulaw", "pcm_mulaw"),
        (b"/a.b/c.PCMA", 8000, "alaw", "pcm_alaw"),
        (b"/a.sln", 8000, "s16le", "pcm_s16le"),
        (b"/a.sln16", 16000, "s16le", "pcm_s16le"),
    ):
        media_type = sniff.media_type("application/octet-stream", path)
        result = decoded(encode(tones(rate), rate, container, codec), media_type=media_type)
        assert (result.codec, result.duration) == (codec, pytest.approx(SECONDS)), path
        assert loudest(result.samples[0][8000:40000].astype(float)) == pytest.approx(440, abs=3), path
    assert sniff.media_type(None, b"/a.ulaw") == "audio/x-mulaw"
    assert sniff.media_type("audio/mpeg", b"/a.ulaw") == "audio/mpeg"  # a declared type stays
    assert sniff.media_type("application/octet-stream", b"/ulaw/a.bin") == "application/octet-stream"
    assert sniff.media_type(None, b"/ulaw") is None


def test_sixteen_kilohertz_samples_come_through_unchanged() -> None:
    samples = np.random.default_rng(1).integers(-32768, 32767, (2, 50000)).astype(np.int16)
    assert np.array_equal(decoded(wav(samples, 16000)).samples, samples)


@pytest.mark.parametrize(("rate", "tone"), [(48000, 12000), (48000, 9000), (44100, 10000), (44100, 20000)])
def test_a_tone_above_half_the_rate_does_not_come_back_as_another(rate: int, tone: int) -> None:
    sound = np.sin(2 * np.pi * tone * np.arange(rate * 2) / rate)[None] * 32000
    result = decoded(encode(sound, rate, "wav", "pcm_s16le")).samples[0, 4000:28000].astype(float)
    assert 20 * np.log10(np.sqrt(np.mean(result**2)) / (32000 / np.sqrt(2)) + 1e-12) < -60


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_a_tone_in_the_speech_band_keeps_its_level_and_place(rate: int) -> None:
    sound = np.sin(2 * np.pi * 1000 * np.arange(rate * 2) / rate)[None] * 20000
    result = decoded(encode(sound, rate, "wav", "pcm_s16le")).samples[0].astype(float)
    expected = np.sin(2 * np.pi * 1000 * np.arange(32000) / 16000) * 20000
    assert len(result) == 32000
    assert np.abs(result - expected)[2000:-2000].max() < 25  # 0.1 % of full scale: neither delayed nor scaled


def test_a_full_scale_recording_is_clipped_and_not_wrapped() -> None:
    square = np.sign(np.sin(2 * np.pi * 300 * np.arange(16000) / 8000))[None] * 32767
    result = decoded(wav(square)).samples[0].astype(float)
    assert result.max() == 32767
    assert result.min() == -32768
    assert np.corrcoef(result[::2][:16000], square[0])[0, 1] > 0.9


@pytest.mark.parametrize("declared", [0, 0xFFFFFFFF, 0x7FFFFFFF, 1000, 12346])
def test_a_wrong_length_in_the_header_costs_no_audio(declared: int) -> None:
    data = bytearray(wav(tones(8000)))
    data[40:44] = struct.pack("<I", declared)
    result = decoded(bytes(data))
    assert result.duration == pytest.approx(SECONDS, abs=0.01)
    assert result.warnings == ()


def test_chunks_behind_the_samples_are_not_heard() -> None:
    data = wav(tones(8000)) + b"LIST" + struct.pack("<I", 4000) + b"INFO" * 1000
    result = decoded(data)
    assert result.duration == pytest.approx(SECONDS)


@pytest.mark.parametrize(
    ("container", "codec"), [("wav", "pcm_s16le"), ("flac", "flac"), ("mp3", "libmp3lame"), ("matroska", "pcm_s16le")]
)
def test_a_truncated_file_keeps_what_is_there_and_says_so(container: str, codec: str) -> None:
    noisy = tones(8000, seconds=10) + np.random.default_rng(0).normal(0, 300, 80000)
    data = encode(noisy, 8000, container, codec, "s16p" if codec == "libmp3lame" else None)
    result = decoded(data[: len(data) // 2])
    assert result.duration == pytest.approx(5, abs=0.8)
    assert any("incomplete: it declares 10" in warning for warning in result.warnings)


def test_damage_in_the_middle_is_passed_over() -> None:
    data = bytearray(encode(tones(16000, seconds=6), 16000, "flac", "flac"))
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    result = decoded(bytes(data))
    assert result.duration > 2
    assert result.warnings


def test_missing_packets_of_a_live_recording_become_silence() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream = output.add_stream("pcm_s16le", rate=8000, layout="mono")
        for start in (0.0, 5.0):
            frame = av.AudioFrame.from_ndarray(tones(8000, seconds=1.0).astype(np.int16), format="s16", layout="mono")
            frame.sample_rate, frame.time_base, frame.pts = 8000, Fraction(1, 8000), int(start * 8000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    result = decoded(buffer.getvalue())
    assert result.duration == pytest.approx(6.0, abs=0.1)
    assert np.abs(result.samples[0, 24000:72000]).max() == 0
    assert np.abs(result.samples[0, 82000:90000]).max() > 9000
    assert any("4.0 s of audio are missing" in warning for warning in result.warnings)


@pytest.mark.parametrize("channels", [4, 6])
def test_of_more_than_two_channels_the_first_two_that_hold_something_are_heard(channels: int) -> None:
    result = decoded(encode(tones(16000, channels), 16000, "wav", "pcm_s16le"))
    assert result.samples.shape[0] == 2
    assert result.source_channels == channels
    assert loudest(result.samples[0]) == pytest.approx(440, abs=1)
    assert loudest(result.samples[1]) == pytest.approx(660, abs=1)
    assert result.warnings == (result.choice,)
    assert "ignored" in (result.choice or "")


def test_more_channels_than_anybody_looks_at_are_said_to_be_left_out() -> None:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(12)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(tones(8000, 12).T.astype("<i2").tobytes())
    result = decoded(buffer.getvalue())
    assert (result.source_channels, result.samples.shape[0]) == (12, 2)
    assert "The recording has 12 channels; only the first 8 are used." in result.warnings


def two_tracks(container: str, codec: str, late: float) -> bytes:
    """Return a file with 440 Hz on the first track and, after a delay, 660 Hz on the second."""
    buffer, rate = io.BytesIO(), 16000
    with av.open(buffer, "w", format=container) as output:
        streams = [output.add_stream(codec, rate=rate, layout="mono") for _ in range(2)]
        for start in range(0, round(SECONDS * rate), 1000):
            for track, stream in enumerate(streams):
                piece = tones(rate, 2)[track : track + 1, start : start + 1000].astype(np.int16)
                frame = av.AudioFrame.from_ndarray(piece, "s16", "mono")
                frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
                frame.pts = start + round(late * rate) * track
                output.mux(stream.encode(frame))
        for stream in streams:
            output.mux(stream.encode(None))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("container", "codec", "late"), [("matroska", "pcm_s16le", 1.0), ("matroska", "flac", 0.0), ("mp4", "aac", 0.5)]
)
def test_two_tracks_are_two_channels_that_begin_when_they_begin(container: str, codec: str, late: float) -> None:
    result = decoded(two_tracks(container, codec, late))
    assert (result.source_channels, result.samples.shape[0]) == (2, 2)
    first, second = result.samples.astype(float)
    assert loudest(first[8000:40000]) == pytest.approx(440, abs=2)
    assert loudest(second[24000:40000]) == pytest.approx(660, abs=2)
    begins = int(np.argmax(np.abs(second) > 2000)) / 16000
    assert begins == pytest.approx(late, abs=0.08)
    assert "two tracks" in (result.choice or "")


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_change_of_channels_on_the_way_costs_no_audio(before: int, after: int) -> None:
    pieces = [encode(tones(16000, channels), 16000, "adts", "aac", "fltp") for channels in (before, after)]
    result = decoded(b"".join(pieces))
    assert result.samples.shape[0] == before
    assert result.duration == pytest.approx(2 * SECONDS, abs=0.3)
    assert all(np.abs(channel[60000:90000]).max() > 3000 for channel in result.samples)
    assert "The number of channels changes within the recording." in result.warnings


def test_a_recording_over_the_time_limit_is_refused() -> None:
    data = encode(tones(8000, seconds=30), 8000, "mp3", "libmp3lame", "s16p")
    with pytest.raises(RecordingTooLong) as failure:
        decoded(data, DecodeOptions(max_seconds=20))
    assert failure.value.message == "The recording is longer than the limit of 20 s."
    assert decoded(data, DecodeOptions(max_seconds=31)).duration == pytest.approx(30, abs=0.2)


def text_files(port: int) -> dict[str, bytes]:
    url = f"http://127.0.0.1:{port}/x".encode()
    return {
        "text": b"This is the recording, honestly. " * 50,
        "html": b"<html><body>not found</body></html>",
        "hls": b"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n" + url + b".ts\n#EXT-X-ENDLIST\n",
        "concat": b"ffconcat version 1.0\nfile " + url + b"\nfile /etc/passwd\n",
        "dash": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>'
        + url
        + b"</BaseURL></MPD>",
        "sdp": b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 5004 RTP/AVP 0\r\n",
        "hls with a byte that hides the text": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n"
        + url
        + b".ts\n\xff\x00" * 9,
        "concat with a byte that hides the text": b"ffconcat version 1.0\nfile " + url + b"\n#\xff\x00\x00" * 9,
    }


@pytest.mark.parametrize("name", list(text_files(0)))
async def test_a_script_or_playlist_is_not_audio_and_reaches_nothing(name: str, tmp_path: Path) -> None:
    connections = []
    server = await asyncio.start_server(lambda reader, writer: connections.append(writer.close()), "127.0.0.1", 0)
    path = tmp_path / "call.wav"
    path.write_bytes(text_files(server.sockets[0].getsockname()[1])[name])
    with pytest.raises(NotAudio):
        await asyncio.to_thread(decode_file, path, OPTIONS)
    await asyncio.sleep(0.02)
    server.close()
    assert connections == []


@pytest.mark.parametrize(
    "data",
    [
        np.random.default_rng(0).bytes(100_000),
        bytes(100_000),
        b"RIFF\x24\x00\x00\x00WAVE",
        b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00",
        b"OggS" + bytes(100),
        b"fLaC" + bytes(100),
        b"ID3\x04\x00\x00\x00\x00\x00\x00",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
    ],
)
def test_what_no_decoder_understands_is_not_audio(data: bytes) -> None:
    with pytest.raises(NotAudio) as failure:
        decoded(data)
    assert not failure.value.retryable
    assert failure.value.message.endswith(".")


@pytest.mark.parametrize("rate", [1, 100, 0x7FFFFFFF])
def test_a_rate_that_no_recording_of_speech_has_is_not_audio(rate: int) -> None:
    data = bytearray(wav(tones(8000)))
    data[24:28] = struct.pack("<I", rate)
    with pytest.raises(NotAudio):
        decoded(bytes(data))


def test_a_film_without_sound_is_not_audio() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        for _ in range(5):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
        output.mux(stream.encode(None))
    with pytest.raises(NotAudio, match="no audio track"):
        decoded(buffer.getvalue())


def test_zero_bytes_are_an_empty_recording() -> None:
    with pytest.raises(RecordingEmpty):
        decoded(b"")


def test_a_stored_recording_is_decoded_from_its_uri_and_its_absence_is_our_fault(tmp_path: Path) -> None:
    path = tmp_path / "stored"
    path.write_bytes(wav(tones(8000)))
    recording = Recording(0, path.as_uri(), "0" * 64, path.stat().st_size)
    assert decode(recording, OPTIONS).duration == pytest.approx(SECONDS)
    path.unlink()
    with pytest.raises(StorageError):
        decode(recording, OPTIONS)


def test_a_store_that_fails_while_it_is_read_is_our_fault() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 20_000:
                raise OSError("connection to the bucket lost")
            return super().read(size)

    with pytest.raises(StorageError):
        decode_file(Failing(wav(tones(8000, seconds=60))), OPTIONS)
