import io
import wave
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from db.core.database import EVERY_WORKSPACE, Database, Reader
from db.workspace import access_log, sessions
from tests.finished import finished
from tests.integration.serve_app.console.test_console_admin import voice
from tests.postgres import World, new_world
from tests.support.console_site import recorded, signed_in


async def test_a_recording_is_handed_out_by_range_and_by_channel(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    call_id = await finished(world)
    whole = await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    url = f"/calls/{call_id}/audio"
    answer = await site.get(url)
    assert answer.content == whole and answer.headers["content-type"] == "audio/wav"
    ranges = {"bytes=0-99": whole[:100], "bytes=1000-": whole[1000:], "bytes=-7": whole[-7:]}
    for asked, bytes_ in ranges.items():
        partly = await site.get(url, headers={"Range": asked})
        assert (partly.status_code, partly.content) == (206, bytes_), asked
    assert (await site.get(url, headers={"Range": f"bytes={len(whole)}-"})).status_code == 416
    assert (await site.get(url, headers={"If-None-Match": answer.headers["etag"]})).status_code == 304
    peaks = []
    for channel in ("rep", "customer"):
        sound = (await site.get(url, params={"channel": channel})).content
        samples = np.frombuffer(sound[44:], "<i2")
        assert len(samples) == (len(whole) - 44) // 4
        odd = await site.get(url, params={"channel": channel}, headers={"Range": "bytes=1001-2000"})
        assert odd.content == sound[1001:2001]
        peaks.append(int(np.abs(samples.astype(int)).max()))
    assert peaks[0] > 15000 and 7000 < peaks[1] < 8500
    assert (await site.get(url, params={"channel": 2})).status_code == 400


async def test_the_waveform_has_a_lane_for_each_party_and_is_stored(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    call_id = await finished(world)
    await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    for _ in range(60):
        answer = await site.get(f"/calls/{call_id}/waveform")
        if answer.status_code == 200:
            break
    lanes = np.frombuffer(answer.content, np.uint8).reshape(2, -1)
    seconds = lanes[:, :200].reshape(2, 10, 20).max(axis=2)
    assert (seconds[0, ::2] > 115).all() and (seconds[0, 1::2] < 5).all()
    assert (seconds[1, 1::2] > 55).all() and (seconds[1] < 70).all() and (seconds[1, ::2] < 5).all()
    assert lanes.shape[1] == 210
    (row,) = await world.rows("SELECT * FROM waveforms")
    assert bytes(row["peaks"]) == answer.content
    await world.execute("UPDATE recordings SET uri = 'file:///gone'")
    assert (await site.get(f"/calls/{call_id}/waveform")).content == answer.content
    assert (await site.get(f"/calls/{call_id}/audio")).status_code == 404


async def test_reading_and_listening_are_logged(site: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    call_id = await finished(world)
    await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    for path in ("", "/turns/0", "/audio"):
        assert (await site.get(f"/calls/{call_id}{path}")).status_code == 200
    reads = await access_log.list_reads(world.database, EVERY_WORKSPACE, call_id)
    assert sorted(read.what for read in reads) == ["audio", "record", "transcript"]
    session = (await sessions.list_sessions(world.database, world.workspace_id))[0]
    assert {read.key_id for read in reads} == {session.key_id}


async def test_a_reader_of_one_team_finds_no_waveform_of_another(
    world: World, database: Database, tmp_path: Path
) -> None:
    from db.records import waveforms

    call_id = await finished(world)
    job_id: Any = (await world.row(call_id))["job_id"]
    peaks = np.zeros((2, 5), np.uint8)
    await waveforms.keep(database, Reader(world.workspace_id, world.other_team_id), call_id, job_id, peaks, 1.0)
    assert await waveforms.find(database, Reader(world.workspace_id), call_id) is None
    await waveforms.keep(database, Reader(world.workspace_id, world.team_id), call_id, job_id, peaks, 1.0)
    assert await waveforms.find(database, Reader(world.workspace_id, world.other_team_id), call_id) is None
    assert await waveforms.find(database, Reader(world.workspace_id), call_id) is not None


async def test_a_voice_sample_has_only_the_agents_speech(site: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    call_id = await voice(world)
    await recorded(world, call_id, tmp_path)
    await signed_in(site, world)
    path = f"/workspace/voices/{call_id}/sound"
    answer = await site.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getnchannels(), file.getnframes()) == (1, 6 * 16000), "two turns of three seconds"
        samples = np.frombuffer(file.readframes(6 * 16000), "<i2").reshape(6, 16000)
    loud = np.abs(samples).max(axis=1) > 1000
    assert loud.tolist() == [True, False, True, False, True, False], "the rep's channel, at 0 to 3 and at 7 to 10 s"
    part = await site.get(path, headers={"Range": "bytes=0-43"})
    assert (part.status_code, len(part.content)) == (206, 44)
    reads = await access_log.list_reads(world.database, EVERY_WORKSPACE, call_id)
    assert {(read.what, read.detail) for read in reads} == {("audio", "voice")}


async def test_voice_samples_need_a_workspace_session(site: httpx.AsyncClient, world: World, tmp_path: Path) -> None:
    call_id, without = await voice(world), await finished(world)
    await recorded(world, call_id, tmp_path)
    other = await new_world(world.database)
    for who, team in ((other, None), (world, world.team_id), (world, world.other_team_id)):
        await signed_in(site, who, team)
        assert (await site.get(f"/workspace/voices/{call_id}/sound")).status_code == 404
    await signed_in(site, world)
    assert (await site.get(f"/workspace/voices/{without}/sound")).status_code == 404
    assert await access_log.list_reads(world.database, EVERY_WORKSPACE, call_id) == []


async def test_the_sealed_original_is_played_only_with_the_scope_and_logged(
    site: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    call_id = await finished(world, ("customer", "My card is [CARD 1111], thanks."))
    redacted = await recorded(world, call_id, tmp_path)
    original = tmp_path / "original.wav"
    original.write_bytes(redacted[:44] + bytes(len(redacted) - 44))
    await world.execute(
        "INSERT INTO unredacted_recordings SELECT job_id, channel, call_pk, :uri, repeat('a', 64), size_bytes,"
        " media_type, fetched_at FROM recordings",
        uri=original.as_uri(),
    )
    url = f"/calls/{call_id}/audio"
    await signed_in(site, world)
    page = (await site.get(f"/calls/{call_id}", params={"unredacted": ""})).text
    assert 'class="w hides"' in page and page.count('title="Hidden by redaction"') == 1
    assert f'data-audio="{url}"' in page
    assert (await site.get(url, params={"unredacted": ""})).content == redacted
    await signed_in(site, world, scopes=("read", "unredacted"))
    assert f'data-audio="{url}?unredacted"' in (await site.get(f"/calls/{call_id}", params={"unredacted": ""})).text
    before = await access_log.list_reads(world.database, world.workspace_id, call_id)
    assert (await site.get(url, params={"unredacted": ""})).content == original.read_bytes()
    assert (await site.get(url)).content == redacted
    reads = await access_log.list_reads(world.database, world.workspace_id, call_id)
    counts = [sum(read.count for read in log if read.what == "unredacted") for log in (before, reads)]
    assert counts[1] == counts[0] + 1
