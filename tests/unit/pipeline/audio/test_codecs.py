"""Speech in the codecs of telephony, compared with its source; `fixtures/README.md` has the origin of the files."""

import io
import struct

import numpy as np
import pytest
from scipy.signal import butter, correlate, sosfiltfilt

from pipeline.audio.decode.decoder import Decoded, decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.errors import NotAudio, RecordingEmpty
from tests.paths import FIXTURES
from tests.synthetic_calls import FOLDER
from tests.unit.pipeline.audio.test_decode import encode

pytestmark = pytest.mark.cases(4)

MEDIA = FIXTURES / "media"
CALL = FOLDER / "02_callback_stereo" / "call.flac"
OPTIONS = DecodeOptions()
BAND = butter(4, (300, 3000), "bandpass", fs=16000, output="sos")
SPEECH = decode_file(CALL, OPTIONS).samples[0, 16000:48000].astype(np.float64)

# file, codec, lowest correlation with the source (a little below what was measured), media type
FILES = [
    ("gsm.wav", "gsm_ms", 0.93, None),
    ("gsm.gsm", "gsm", 0.93, None),
    ("amr-wb.awb", "amrwb", 0.95, None),
    ("g729.g729", "g729", 0.87, "audio/G729"),
    ("g723.wav", "g723_1", 0.93, None),
    ("speex.ogg", "speex", 0.89, None),
    ("vorbis.ogg", "vorbis", 0.97, None),
    ("vorbis.webm", "vorbis", 0.97, None),
    ("opus-live.webm", "opus", 0.96, None),
    ("mulaw-pipe.wav", "pcm_mulaw", 0.999, None),
    ("alaw-rf64.wav", "pcm_alaw", 0.999, None),
]


def likeness(decoded: Decoded, channel: int = 0) -> tuple[float, float]:
    """Return the correlation with the source from 300 to 3000 Hz at the best lag, and that lag in ms."""
    source, output = (sosfiltfilt(BAND, samples) for samples in (SPEECH, decoded.samples[channel].astype(np.float64)))
    products = correlate(output, source, "full", method="fft")
    best = int(np.argmax(np.abs(products)))
    return float(products[best] / np.sqrt((source @ source) * (output @ output))), (best - len(source) + 1) / 16


@pytest.mark.parametrize(("name", "codec", "least", "media_type"), FILES, ids=[file[0] for file in FILES])
def test_speech_comes_back_from_a_file_that_another_encoder_wrote(
    name: str, codec: str, least: float, media_type: str | None
) -> None:
    decoded = decode_file(MEDIA / name, OPTIONS, media_type)
    value, lag = likeness(decoded)
    assert decoded.codec == codec
    assert decoded.duration == pytest.approx(2.0, abs=0.03)
    assert decoded.warnings == ()
    assert value > least
    assert 0 <= lag < 11  # a codec's own delay, which no container of these says


@pytest.mark.parametrize(
    ("container", "codec", "rate", "least", "settings"),
    [
        ("wav", "pcm_u8", 8000, 0.99, {}),
        ("wav", "pcm_s24le", 48000, 0.999, {}),
        ("wav", "pcm_f32le", 44100, 0.999, {}),
        ("wav", "pcm_alaw", 8000, 0.999, {}),
        ("wav", "pcm_mulaw", 8000, 0.999, {}),
        ("flac", "flac", 11025, 0.999, {}),
        ("mp3", "libmp3lame", 8000, 0.97, {"b": "16000"}),
        ("ipod", "aac", 16000, 0.97, {"b": "32000"}),
        ("ogg", "libopus", 16000, 0.95, {"b": "12000"}),
        ("webm", "libopus", 48000, 0.97, {"b": "24000"}),
        ("amr", "libopencore_amrnb", 8000, 0.91, {"b": "12200"}),
        ("3gp", "libopencore_amrnb", 8000, 0.83, {"b": "4750"}),
    ],
)
def test_speech_comes_back_from_a_codec(
    container: str, codec: str, rate: int, least: float, settings: dict[str, str]
) -> None:
    import soxr

    formats = {"pcm_u8": "u8", "pcm_s24le": "s32", "pcm_f32le": "flt", "libmp3lame": "s16p", "aac": "fltp"}
    speech = soxr.resample(SPEECH, 16000, rate)[None]
    decoded = decode_file(io.BytesIO(encode(speech, rate, container, codec, formats.get(codec), **settings)), OPTIONS)
    assert likeness(decoded)[0] > least


@pytest.mark.parametrize("name", ["gsm.wav", "g723.wav", "mulaw-pipe.wav"])
@pytest.mark.parametrize("declared", [0, 1000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_wrong_length_costs_no_speech_in_any_codec_of_wav(name: str, declared: int) -> None:
    data = bytearray((MEDIA / name).read_bytes())
    at = data.index(b"data") + 4
    data[4:8] = data[at : at + 4] = struct.pack("<I", declared)
    decoded = decode_file(io.BytesIO(bytes(data)), OPTIONS)
    assert decoded.duration == pytest.approx(2.0, abs=0.05)
    assert likeness(decoded)[0] > 0.9


@pytest.mark.parametrize("name", [file[0] for file in FILES if "vorbis" not in file[0] and "speex" not in file[0]])
def test_half_a_file_is_half_the_speech(name: str) -> None:
    """Not Vorbis and Speex: these two seconds are in one page, and a truncated page is lost."""
    data = (MEDIA / name).read_bytes()
    decoded = decode_file(io.BytesIO(data[: len(data) // 2]), OPTIONS, "audio/G729" if "729" in name else None)
    assert 0.5 < decoded.duration < 1.3


@pytest.mark.parametrize("byte_rate", [0, 1, 8000, 0xFFFFFFFF])
def test_a_wrong_byte_rate_does_not_make_a_recording_incomplete(byte_rate: int) -> None:
    data = bytearray(encode(SPEECH[None], 16000, "wav", "pcm_s16le"))
    data[28:32] = struct.pack("<I", byte_rate)
    decoded = decode_file(io.BytesIO(bytes(data)), OPTIONS)
    assert (decoded.duration, decoded.warnings) == (pytest.approx(2.0, abs=0.01), ())


def test_padding_after_an_odd_number_of_blocks_is_no_damage() -> None:
    data = bytearray((MEDIA / "gsm.wav").read_bytes())
    at = data.index(b"data") + 4
    (length,) = struct.unpack_from("<I", data, at)
    blocks = length // 65 - (length // 65 % 2 == 0)  # an odd number
    padded = bytes(data[:at]) + struct.pack("<I", blocks * 65 + 1) + bytes(data[at + 4 : at + 4 + blocks * 65]) + b"\0"
    decoded = decode_file(io.BytesIO(padded), OPTIONS)
    assert (decoded.duration, decoded.warnings) == (pytest.approx(blocks * 0.04, abs=0.001), ())


@pytest.mark.parametrize("name", ["gsm.wav", "mulaw-pipe.wav", "g723.wav"])
def test_a_header_without_samples_is_an_empty_recording(name: str) -> None:
    data = (MEDIA / name).read_bytes()
    at = data.index(b"data") + 4
    with pytest.raises(RecordingEmpty):
        decode_file(io.BytesIO(data[:at] + bytes(4)), OPTIONS)


def test_what_has_no_header_needs_its_type() -> None:
    with pytest.raises(NotAudio):
        decode_file(MEDIA / "g729.g729", OPTIONS)


def test_g722_without_a_header_is_read_as_its_declared_type() -> None:
    data = encode(SPEECH[None], 16000, "g722", "g722")
    assert likeness(decode_file(io.BytesIO(data), OPTIONS, "audio/G722"))[0] > 0.98
