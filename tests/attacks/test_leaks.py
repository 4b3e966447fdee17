"""Readers learn nothing of the service's storage and machines."""

from pathlib import Path

import pytest

from db.core.rows import dump_json
from db.events import endpoints
from db.records import views
from serve_app.api.app import ROUTES
from serve_app.cli.ui.output import print_json
from serve_app.http.options import Work
from tests.postgres import World
from tests.reading_api import Api, api, base, store, with_sound  # noqa: F401 (fixtures)
from tests.support.console_site import browser, signed_in

WORKER = "node-7.internal/boot-4711/4026531836/99/conductor"
STREAMS = (Work.STREAM, Work.EXPORT)
READS = [
    route for route in ROUTES if route.method == "GET" and route.work not in STREAMS and route.path.count("{") <= 1
]


def assert_hides(seen: bytes, folder: Path, where: str) -> None:
    for secret in (b"file:", b"node-7", b"boot-4711", str(folder).encode()):
        assert secret not in seen, f"{where} has {secret!r}"


async def test_no_answer_of_the_api_names_a_place_or_a_machine(api: Api, tmp_path: Path) -> None:  # noqa: F811
    call_id = await with_sound(api.world, store(tmp_path))
    await api.world.execute("UPDATE jobs SET worker = :worker", worker=WORKER)
    whole = api.get(f"/calls/{call_id}").json()
    assert whole["recordings"][0]["sha256"] and whole["jobs"][0]["status"] == "done", "there is something to hide"
    asked = 0
    for route in READS:
        path = route.path.replace("{call_id:uuid}", str(call_id))
        if "{" in path:
            continue
        for parameters in ({}, {"version": "machine"}, {"include": "transcript,edits"}, {"format": "parquet"}):
            answer = api.get(path, **parameters)
            asked += answer.status_code == 200
            head = repr(answer.headers.raw).encode()
            assert_hides(answer.content + head, tmp_path, f"{path} {parameters}")
    assert asked >= 15
    with api.client.stream(
        "GET",
        f"{api.base}/events/stream",
        params={"since": "2026-01-01T00:00:00Z"},
        headers={"Authorization": f"Bearer {api.wide}"},
    ) as stream:
        line = next(line for line in stream.iter_lines() if line.startswith("data:"))
    assert str(call_id) in line
    assert_hides(line.encode(), tmp_path, "the stream of events")


async def test_no_page_and_no_webhook_names_a_place_or_a_machine(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    parts = ["record", "transcript"]
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/x", "sealed", include=parts)
    call_id = await with_sound(world, store(tmp_path))
    await world.execute("UPDATE jobs SET worker = :worker", worker=WORKER)
    async with browser(postgres_url, tmp_path / "console") as site:
        await signed_in(site, world, scopes=("read", "edit", "admin"))
        for path in ("/calls", f"/calls/{call_id}", "/tasks", "/workspace", "/queue"):
            page = await site.get(path)
            assert page.status_code in (200, 404), path
            assert_hides(page.content, tmp_path, path)
    rows = await world.rows("SELECT data, record, transcript FROM events WHERE record IS NOT NULL")
    assert rows
    assert_hides(dump_json([dict(row) for row in rows]).encode(), tmp_path, "an event")


async def test_operators_see_them(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_id = await with_sound(world, path := store(tmp_path))
    await world.execute("UPDATE jobs SET worker = :worker", worker=WORKER)
    print_json(await views.show_call(world.database, call_id))
    shown = capsys.readouterr().out
    assert path.as_uri() in shown and WORKER in shown
