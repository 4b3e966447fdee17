"""Stored sound over the read API: ranges, parties, mixes, and recordings that are gone."""

import io
import json
import struct
import wave
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.finished import received
from tests.reading_api import Api, store, with_sound


async def test_ranges_of_the_stored_recording(api: Api, tmp_path: Path) -> None:
    path = store(tmp_path)
    call_id = await with_sound(api.world, path)
    whole = path.read_bytes()
    full = api.get(f"/calls/{call_id}/audio")
    assert (full.content, full.headers["content-type"]) == (whole, "audio/wav")
    assert full.headers["x-content-type-options"] == "nosniff" and "sandbox" in full.headers["content-security-policy"]
    size = len(whole)
    expected = {
        "bytes=0-99": (206, whole[:100]),
        "bytes=100-": (206, whole[100:]),
        "bytes=-10": (206, whole[-10:]),
        f"bytes={size - 1}-{size + 99}": (206, whole[-1:]),
        "bytes=5-2": (200, whole),
        "bytes=0-1,4-5": (200, whole),
        "lines=1-2": (200, whole),
        "bytes=-": (200, whole),
    }
    for asked, (status, content) in expected.items():
        part = api.get(f"/calls/{call_id}/audio", headers={"Range": asked})
        assert (part.status_code, part.content) == (status, content), asked
    beyond = api.get(f"/calls/{call_id}/audio", headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    tag = full.headers["etag"]
    assert api.get(f"/calls/{call_id}/audio", headers={"If-None-Match": tag}).status_code == 304
    changed = api.get(f"/calls/{call_id}/audio", headers={"Range": "bytes=0-9", "If-Range": '"another"'})
    assert changed.status_code == 200
    same = api.get(f"/calls/{call_id}/audio", headers={"Range": "bytes=0-9", "If-Range": tag})
    assert (same.status_code, same.headers["content-range"]) == (206, f"bytes 0-9/{size}")


async def test_each_party_is_heard_by_itself_and_both_mixed(api: Api, tmp_path: Path) -> None:
    call_id = await with_sound(api.world, store(tmp_path))
    heard = {
        channel: _tones(api.get(f"/calls/{call_id}/audio", channel=channel)) for channel in ("rep", "customer", "mixed")
    }
    assert heard == {"rep": {200}, "customer": {800}, "mixed": {200, 800}}
    part = api.get(f"/calls/{call_id}/audio", channel="rep", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"RIFF")


def _tones(answer: httpx.Response) -> set[int]:
    """Which of the two tones a mono WAV of 16 kHz holds."""
    assert answer.status_code == 200, answer.text
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getnchannels(), file.getframerate()) == (1, 16_000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
    assert len(samples) == pytest.approx(32_000, abs=800)
    spectrum = np.abs(np.fft.rfft(samples[:32_000]))
    frequencies = np.fft.rfftfreq(len(samples[:32_000]), 1 / 16_000)
    levels = {hertz: spectrum[np.abs(frequencies - hertz) < 5].max() for hertz in (200, 800)}
    return {hertz for hertz, level in levels.items() if level > 0.1 * max(levels.values())}


async def test_two_files_are_laid_where_each_leg_began(api: Api, tmp_path: Path) -> None:
    call_id = await with_sound(api.world, store(tmp_path, channels=1))
    row = (
        "SELECT id, job_id, 1, uri, 'cd', size_bytes FROM calls JOIN recordings r USING (job_id) WHERE call_id = :call"
    )
    await api.world.execute(
        f"INSERT INTO recordings (call_pk, job_id, channel, uri, sha256, size_bytes) {row}", call=call_id
    )
    layout = {"kind": "two_files", "starts": [0.0, 1.0], "swapped": False}
    await api.world.execute(
        "UPDATE transcripts"
        " SET content = jsonb_set(content, '{layout}', content -> 'layout' || CAST(:layout AS jsonb))",
        layout=json.dumps(layout),
    )
    assert api.get(f"/calls/{call_id}/audio", channel="original").status_code == 404
    with wave.open(io.BytesIO(api.get(f"/calls/{call_id}/audio").content)) as mixed:
        assert mixed.getnframes() / 16_000 == pytest.approx(3.0, abs=0.05)
    with wave.open(io.BytesIO(api.get(f"/calls/{call_id}/audio", channel="customer").content)) as late:
        samples = np.frombuffer(late.readframes(late.getnframes()), "<i2")
    assert np.abs(samples[:15_000]).max() == 0 and np.abs(samples[17_000:]).max() > 1000


async def test_a_recording_that_is_no_sound_or_is_gone_is_no_fault_of_the_reader(api: Api, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_bytes(b"<html><script>alert(1)</script>" + struct.pack("<40x"))
    call_id = await with_sound(api.world, page)
    shown = api.get(f"/calls/{call_id}/audio")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "application/octet-stream")
    refused = api.get(f"/calls/{call_id}/audio", channel="mixed")
    assert (refused.status_code, refused.json()["type"]) == (404, "urn:switchboard:problem:not-there-yet")
    page.unlink()
    assert api.get(f"/calls/{call_id}/audio").status_code == 503
    assert api.get(f"/calls/{await received(api.world)}/audio").status_code == 404
