"""Reading the database, or moving its contents, gives no access to recordings."""

import subprocess
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
from cryptography.fernet import Fernet

from db.core.rows import dump_json
from db.events import endpoints
from db.records import views
from db.secrets.recording_urls import UrlSealer
from db.server import embedded
from db.workspace import keys
from serve_app.http.options import LimitOptions
from serve_app.intake.store import open_store
from serve_app.intake.submit import build_api
from tests.integration.db.intake.test_recording_urls import conducting, submit, until
from tests.postgres import World
from tests.recording_server import SECRET as SIGNATURE
from tests.recording_server import reply, serving

SECRET = "d0or-opener"
DOORS = {
    "S3": f"https://b.s3.example/a.wav?X-Amz-Credential=AK%2F{SECRET}&X-Amz-Signature={SECRET}",
    "Google": f"https://storage.example/b/a.wav?X-Goog-Signature={SECRET}&X-Goog-Expires=60",
    "Azure": f"https://x.blob.example/c/a.wav?sv=2024-11-04&sr=b&sp=r&sig={SECRET}%3D",
    "a parameter that no list knows": f"https://pbx.example/rec.php?id=4711&pass={SECRET}",
    "a name in percents": f"https://pbx.example/rec?%73ig={SECRET}",
    "a user's password": f"https://ops:{SECRET}@pbx.example/a.wav",
    "a fragment": f"https://pbx.example/a.wav#{SECRET}",
    "no path": f"https://pbx.example?{SECRET}",
}
KEY = Fernet.generate_key().decode()
SEALER = UrlSealer([KEY])


def dumped(url: str) -> str:
    """Return the output of `pg_dump` as a superuser."""
    command = [embedded.programs() / "pg_dump", "--inserts", url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout


async def test_a_dump_opens_no_door(world: World, postgres_url: str) -> None:
    _, secret = await keys.create(world.database, world.workspace_id, world.team_id, ["submit"], "pbx")
    await endpoints.add(
        world.database, world.workspace_id, "https://crm.example/hook", "plain:x", include=["record", "transcript"]
    )
    api = build_api(LimitOptions(), lambda: open_store(postgres_url, 2, urls=SEALER))
    sent = []
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://intake") as sender,
    ):
        for url in DOORS.values():
            call_id = str(uuid4())
            body = {"callId": call_id, "from": "+49301", "to": "+49302", "startTime": "2026-11-20T09:30:00Z"}
            body |= {"recordingUrl": url, "recordingUrl2": url}
            jobs = set()
            for duration in (60, 60, 61):
                answer = await sender.post(
                    "/submit", json=body | {"duration": duration}, headers={"Authorization": f"Bearer {secret}"}
                )
                assert answer.status_code == 202, answer.text
                jobs.add(answer.json()["jobId"])
            assert len(jobs) == 1
            sent.append(call_id)
    dump = dumped(postgres_url)
    assert all(dump.count(call_id) >= 4 for call_id in sent), "the dump has the call and its bodies"
    assert "call.transcribing" in dump
    assert SECRET not in dump
    assert KEY not in dump


async def test_a_reader_sees_neither_urls_nor_what_went_wrong_with_them(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    async with serving(reply(status="404 Not Found", body=b"no")) as server, conducting(world, tmp_path, SEALER, 0):
        await submit(world, server.url(), SEALER)
        await until(world, "SELECT FROM calls WHERE state = 'failed'")
        assert SIGNATURE.encode() in server.requests[0], "the door was asked to open"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE onlooker")
        owner.execute("GRANT pg_read_all_data TO onlooker")
        owner.execute("SET ROLE onlooker")
        owner.execute("SELECT set_config('switchboard.workspace', '*', false)")
        seen = "".join(str(owner.execute(f"SELECT * FROM {table}").fetchall()) for table in ("calls", "jobs"))
        seen += str(owner.execute("SELECT * FROM submissions").fetchall())
        owner.execute("RESET ROLE")
        owner.execute("DROP ROLE onlooker")
    assert f"http://127.0.0.1:{server.port}/call.wav siv:" in seen
    assert "do-not-tell" not in seen
    record = await views.show_call(world.database, world.call_id)
    assert record is not None and record.call.failure is not None
    assert "do-not-tell" not in dump_json(record)


async def test_what_was_sealed_for_one_server_is_sent_to_no_other(world: World, tmp_path: Path) -> None:
    """Move the sealed part of a URL to another host, as an attacker with write access but without the key."""
    async with serving(reply()) as evil:
        await submit(world, DOORS["S3"], SEALER)
        await world.execute(
            "UPDATE calls SET recording_url = replace(recording_url, 'https://b.s3.example', :evil)",
            evil=f"http://127.0.0.1:{evil.port}",
        )
        async with conducting(world, tmp_path, SEALER, 0):
            failed = await until(world, "SELECT * FROM calls WHERE state = 'failed'")
        assert failed["failure_code"] == "secret_sealed"
        assert evil.connections == 0
