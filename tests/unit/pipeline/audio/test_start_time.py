import io
import struct
from dataclasses import replace

import av
import numpy as np
import pytest

from pipeline.audio.channels.separation import separate
from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.decode.sandbox.wire import Facts, Malformed, facts
from pipeline.audio.decode.start_time import StartTime, from_tags
from pipeline.domain.speech import Layout
from tests.support.channels_by_hand import decoded, sample

NOON = 1795262400.0  # 2026-11-21 12:00:00 UTC
IXML = (
    b"<BWFXML><BEXT><BWF_ORIGINATION_DATE>2026-11-21</BWF_ORIGINATION_DATE></BEXT><SPEED>"
    b"<TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_HI>0</TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_HI>"
    b"<TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_LO>345602000</TIMESTAMP_SAMPLES_SINCE_MIDNIGHT_LO>"
    b"<TIMESTAMP_SAMPLE_RATE>8000</TIMESTAMP_SAMPLE_RATE></SPEED></BWFXML>"
)


def wave(bext: tuple[bytes, bytes, int] | None = None, ixml: bytes = b"") -> bytes:
    """Return a second of WAV with a broadcast wave chunk before its samples, and iXML after them."""
    chunks = [(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16))]
    if bext:
        header = bytearray(602)
        header[320:330], header[330:338] = bext[0], bext[1]
        struct.pack_into("<Q", header, 338, bext[2])
        chunks.append((b"bext", bytes(header)))
    chunks.append((b"data", np.full(8000, 500, "<i2").tobytes()))
    if ixml:
        chunks.append((b"iXML", ixml))
    body = b"WAVE" + b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tagged(container: str, codec: str, **tags: str) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        output.metadata.update(tags)
        stream = output.add_stream(codec, rate=48000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.full((1, 4800), 500, np.int16), "s16", "mono")
        frame.sample_rate = 48000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return buffer.getvalue()


MOMENT = "2026-11-21T12:00:07.250000Z"
FILES = {
    "samples since midnight": (wave((b"2026-11-21", b"12:00:07", 345_602_000)), (0.25, 0.001, "bext TimeReference")),
    "to the second": (wave((b"2026:11:21", b"12-00-07", 0)), (7.0, 1.0, "bext OriginationTime")),
    "iXML": (wave(None, IXML), (0.25, 0.001, "iXML")),
    "no date": (wave((b"\0" * 10, b"12:00:07", 0)), None),
    "no time": (wave((b"2026-11-21", b"\0" * 8, 0)), None),
    "a clock that was never set": (wave((b"1970-01-01", b"00:00:07", 0)), None),
    "no chunk": (wave(), None),
    "mp4": (tagged("mp4", "aac", creation_time=MOMENT), (7.0, 1.0, "creation_time")),
    "matroska": (tagged("matroska", "libopus", creation_time=MOMENT), (7.25, 0.01, "creation_time")),
    "ogg": (tagged("ogg", "libopus", date="2026-11-21T13:00:07.250+01:00"), (7.25, 0.01, "date")),
    "flac": (tagged("flac", "flac", date="2026-11-21 12:00:07"), (7.0, 1.0, "date")),
    "a day": (tagged("flac", "flac", date="2026-11-21"), None),
}


@pytest.mark.parametrize("name", FILES)
def test_when_a_file_says_that_it_began(name: str) -> None:
    data, expected = FILES[name]
    start = decode_file(io.BytesIO(data), DecodeOptions()).started
    if expected is None:
        assert start is None
    else:
        assert start == StartTime(NOON + expected[0], pytest.approx(expected[1]), expected[2])


@pytest.mark.parametrize("value", ["2026-13-41T12:00:07Z", "9999-01-01T00:00:00Z", "noon", ""])
def test_a_moment_that_cannot_be_is_none(value: str) -> None:
    assert from_tags(({"creation_time": value},)) is None


@pytest.mark.parametrize(
    "change", [{"started_by": "me"}, {"started": -1.0}, {"started": "x"}, {"started_within": None}]
)
def test_the_decoder_is_not_believed_whatever_it_says(change: dict[str, object]) -> None:
    sample = Facts(codec="flac", container="flac", started=NOON, started_within=1.0, started_by="date")
    assert facts(sample.data()).started == NOON
    with pytest.raises(Malformed):
        facts(replace(sample, **change).data())


def begun(cut: float, missing: float, apart: float, within: float = 1.0) -> Layout:
    """Return a leg that began late and a leg that ended early, with start times in the files."""
    rep, customer = sample("02_callback_stereo")
    legs = decoded(rep[: -round(missing * 16000)]), decoded(customer[round(cut * 16000) :])
    times = StartTime(NOON, within, "date"), StartTime(NOON + apart, within, "date")
    return separate([replace(leg, started=time) for leg, time in zip(legs, times, strict=True)])[1]


def test_times_to_the_second_lay_legs_that_neither_began_nor_ended_together() -> None:
    layout = begun(9.4, 6, 9.0)
    assert layout.evidence["offset_seconds"] == pytest.approx(9.4, abs=0.6)
    assert layout.evidence["offset_within_seconds"] == 1.0
    assert layout.confidence == 0.5
    assert "the start times in the files (date, to 1 s)" in layout.reason


def test_times_to_the_sample_are_taken_as_they_are() -> None:
    layout = begun(9.4, 6, 9.4, 0.001)
    assert layout.evidence["offset_seconds"] == pytest.approx(9.4, abs=0.002)
    assert layout.confidence == 0.9


@pytest.mark.parametrize("apart", [3.0, 400.0])
def test_times_that_let_the_parties_talk_at_once_are_not_believed(apart: float) -> None:
    layout = begun(9.4, 6, apart)
    assert layout.evidence["offset_seconds"] == 0
    assert layout.confidence == 0.5
    assert "Ignored the start times in the files" in layout.reason


def test_what_is_heard_in_both_has_the_last_word() -> None:
    rep, customer = sample("02_callback_stereo")
    legs = decoded(rep + 0.2 * np.roll(customer, 300)), decoded((customer + 0.2 * np.roll(rep, 300))[48000:])
    times = StartTime(NOON, 1.0, "date"), StartTime(NOON + 40, 1.0, "date")
    layout = separate([replace(leg, started=time) for leg, time in zip(legs, times, strict=True)])[1]
    assert layout.evidence["offset_seconds"] == pytest.approx(3.0, abs=0.03)
    assert layout.evidence["start_times_seconds"] == 40
