import re
from uuid import UUID, uuid4

import httpx
import pytest

from db.events import endpoints
from db.records import retention
from db.records.retention import RetentionKind
from db.workspace import admin_log, directory, keys, redaction_policies
from db.workspace.admin_log import AdminChange
from pipeline.domain.redaction import RedactionMode, RedactionPreset
from tests.finished import finished
from tests.postgres import World, new_world
from tests.support.console_site import EVIL


async def signed_in(site: httpx.AsyncClient, world: World, *scopes: str, team: UUID | None = None) -> UUID:
    site.cookies.clear()
    info, secret = await keys.create(world.database, world.workspace_id, team, ("read", *scopes), "Ana")
    assert (await site.post("/sign-in", data={"key": secret})).status_code == 303
    return info.key_id


async def changes(world: World) -> list[AdminChange]:
    return list((await admin_log.list_changes(world.database, world.workspace_id, world.workspace_id)).items)


async def webhook(world: World, team: UUID | None = None) -> endpoints.Endpoint:
    return await endpoints.add(world.database, world.workspace_id, "https://hooks.example/x", "sealed", team_id=team)


async def failed(world: World, endpoint: endpoints.Endpoint) -> endpoints.DeliverySummary:
    await finished(world)
    await world.execute("UPDATE webhook_deliveries SET state = 'failed', finished_at = now()")
    return (await endpoints.list_deliveries(world.database, world.workspace_id, endpoint.endpoint_id))[0]


async def voice(world: World, assigned: bool = True) -> UUID:
    """Create a call with a quarantined voiceprint."""
    call_id = await finished(world, user_id=uuid4())
    await world.execute(
        "INSERT INTO voiceprints (call_pk, workspace_id, user_id, named_by, model, vector, speech_seconds, standing)"
        " SELECT id, workspace_id, CASE WHEN :named THEN user_id END, :by, 'm', '[1,0]', 9, 'quarantined'"
        " FROM calls WHERE call_id = :call",
        call=call_id,
        by="sender" if assigned else None,
        named=assigned,
    )
    return call_id


async def test_a_key_is_created_shown_once_and_revoked(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, "admin")
    page = (await site.get("/workspace")).text
    (id_,) = re.findall(r'action="/workspace/keys">\s*<input type="hidden" name="id" value="([^"]+)"', page)
    form = {"id": id_, "name": EVIL, "scope-submit": "1", "team": str(world.team_id)}
    created = await site.post("/workspace/keys", data=form)
    assert created.status_code == 200 and created.headers["cache-control"] == "no-store"
    (secret,) = re.findall(r"<code>(sb_[^<]+)</code>", created.text)
    sender = await keys.find(world.database, secret)
    assert sender is not None and (sender.team_id, sender.scopes) == (world.team_id, frozenset({"submit"}))
    again = await site.post("/workspace/keys", data=form)
    assert (again.status_code, again.headers["location"]) == (303, "/workspace")
    page = (await site.get("/workspace")).text
    assert secret not in page and EVIL not in page and EVIL not in created.text
    assert "&lt;script&gt;" in page and "&lt;script&gt;" in created.text
    assert (await site.post(f"/workspace/keys/{sender.key_id}/revoke", data={"keep-created": ""})).status_code == 303
    assert await keys.find(world.database, secret) is None
    lines = [(change.action, change.who, change.session_id is not None) for change in (await changes(world))[:2]]
    assert lines == [("revoked", "Ana", True), ("created", "Ana", True)]


async def test_the_last_admin_key_stays_and_bad_forms_are_told(site: httpx.AsyncClient, world: World) -> None:
    key_id = await signed_in(site, world, "admin")
    answer = await site.post(f"/workspace/keys/{key_id}/revoke", data={"keep-created": ""})
    assert answer.status_code == 409 and "Create another admin key first" in answer.text
    assert (await site.post("/workspace/keys", data={"name": " ", "scope-read": "1"})).status_code == 400
    assert (await site.post("/workspace/keys", data={"name": "x"})).status_code == 400
    other = await new_world(world.database)
    form = {"name": "x", "scope-read": "1", "team": str(other.team_id)}
    assert (await site.post("/workspace/keys", data=form)).status_code == 400


async def test_deliveries_are_sent_again_one_or_all_that_failed(site: httpx.AsyncClient, world: World) -> None:
    endpoint = await webhook(world)
    delivery = await failed(world, endpoint)
    await signed_in(site, world, "admin")
    assert "Resend" in (await site.get("/workspace")).text
    path = f"/workspace/webhooks/{endpoint.endpoint_id}"
    assert (await site.post(f"{path}/events/{delivery.event_id}/replay")).status_code == 303
    assert (await state_of(world, delivery)) in ("waiting", "behind")
    await world.execute("UPDATE webhook_deliveries SET state = 'failed', finished_at = now()")
    assert (await site.post(f"{path}/replay")).status_code == 303
    assert (await state_of(world, delivery)) in ("waiting", "behind")
    assert (await site.post(f"{path}/events/{uuid4()}/replay")).status_code == 404
    assert {change.action for change in (await changes(world))[:2]} == {"replayed"}


async def state_of(world: World, delivery: endpoints.DeliverySummary) -> str:
    summaries = await endpoints.list_deliveries(world.database, world.workspace_id)
    return next(summary.state for summary in summaries if summary.delivery_id == delivery.delivery_id)


async def test_a_voice_is_listened_to_approved_and_discarded(site: httpx.AsyncClient, world: World) -> None:
    call_id = await voice(world)
    await signed_in(site, world, "admin")
    page = (await site.get("/workspace")).text
    assert f'src="/workspace/voices/{call_id}/sound"' in page
    for action, event in (("approve", "approved"), ("discard", "removed")):
        assert (await site.post(f"/workspace/voices/{call_id}", data={"action": action})).status_code == 303
        assert (await world.rows("SELECT action, who FROM voiceprint_events ORDER BY id DESC"))[0]["action"] == event
    assert [change.action for change in (await changes(world))[:2]] == ["discarded", "approved"]
    assert (await site.post(f"/workspace/voices/{call_id}", data={"action": "erase"})).status_code == 400
    assert (await site.post(f"/workspace/voices/{uuid4()}", data={"action": "approve"})).status_code == 404
    unassigned = await voice(world, assigned=False)
    answer = await site.post(f"/workspace/voices/{unassigned}", data={"action": "approve"})
    assert answer.status_code == 409 and "Voice not assigned" in answer.text


async def test_nobody_else_changes_anything(site: httpx.AsyncClient, world: World) -> None:
    endpoint, call_id = await webhook(world, world.other_team_id), await voice(world)
    delivery = await failed(world, endpoint) if await world.rows("SELECT 1 FROM webhook_deliveries") else None
    victim, _ = await keys.create(world.database, world.workspace_id, world.other_team_id, ["submit"], "pbx")
    paths = [
        (f"/workspace/keys/{victim.key_id}/revoke", {}),
        (f"/workspace/webhooks/{endpoint.endpoint_id}/replay", {}),
        (f"/workspace/webhooks/{endpoint.endpoint_id}/events/{delivery.event_id if delivery else uuid4()}/replay", {}),
        (f"/workspace/voices/{call_id}", {"action": "approve"}),
    ]
    other = await new_world(world.database)
    create = ("/workspace/keys", {"name": "x", "scope-read": "1"})
    for who, scopes, team, status in (
        (world, ("edit",), None, 403),
        (other, ("admin",), None, 404),
        (world, ("admin",), world.team_id, 404),
    ):
        await signed_in(site, who, *scopes, team=team)
        before = (
            len(await keys.list_keys(world.database, world.workspace_id)),
            await world.rows("SELECT * FROM voiceprint_events"),
        )
        for path, form in paths:
            assert (await site.post(path, data=form)).status_code in (status, 403), path
        if status == 403:
            assert (await site.post(create[0], data=create[1])).status_code == 403
            assert "/workspace/keys" not in (await site.get("/workspace")).text
        after = (
            len(await keys.list_keys(world.database, world.workspace_id)),
            await world.rows("SELECT * FROM voiceprint_events"),
        )
        assert after == before
    assert victim.key_id in {key.key_id for key in await keys.list_keys(world.database) if key.revoked_at is None}
    await signed_in(site, world, "admin")
    foreign = {"Sec-Fetch-Site": "cross-site"}
    for path, form in [*paths, create]:
        assert (await site.post(path, data=form, headers=foreign)).status_code == 403


async def test_a_session_ends_with_its_key(site: httpx.AsyncClient, world: World) -> None:
    key_id = await signed_in(site, world, "admin")
    await keys.revoke(world.database, key_id)
    answer = await site.post("/workspace/keys", data={"name": "x", "scope-read": "1"})
    assert answer.status_code == 401


async def test_a_key_of_a_team_makes_keys_of_that_team(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world, "admin", team=world.team_id)
    form = {"name": "mine", "scope-submit": "1", "team": str(world.other_team_id)}
    assert (await site.post("/workspace/keys", data=form)).status_code == 200
    (created,) = [key for key in await keys.list_keys(world.database) if key.name == "mine"]
    assert created.team_id == world.team_id


@pytest.mark.parametrize(
    ("language", "downloading", "queued"),
    [
        ("en", "Nothing in the queue; 1 call waits for its recording", "Queue empty in about"),
        ("de", "Nichts in der Warteschlange; 1 Anruf wartet auf seine Aufnahme", "Warteschlange in etwa"),
    ],
)
async def test_the_queue_page_tells_downloads_from_queued_calls(
    site: httpx.AsyncClient, world: World, language: str, downloading: str, queued: str
) -> None:
    await world.submit(recording_url="https://store.example/a.wav")
    await signed_in(site, world)
    assert downloading in (await site.get("/queue", headers={"Accept-Language": language})).text
    await world.execute("UPDATE jobs SET state = 'queued'")
    assert queued in (await site.get("/queue", headers={"Accept-Language": language})).text


async def test_the_page_shows_what_is_deleted_and_hidden(site: httpx.AsyncClient, world: World) -> None:
    await signed_in(site, world)
    page = (await site.get("/workspace")).text
    assert page.count("<td>never</td>") == len(RetentionKind) - len(("events", "access log"))
    assert "<td>30 days</td>" in page and "<td>365 days</td>" in page and "Nothing is hidden" in page
    other = await directory.create_team(world.database, world.workspace_id, "Night shift")
    for kind, days, team_id in (
        (RetentionKind.RECORDINGS, 90, None),
        (RetentionKind.RECORDINGS, 1, world.team_id),
        (RetentionKind.TRANSCRIPTS, 60, other.team_id),
    ):
        await retention.set_period(world.database, world.workspace_id, kind, days, team_id)
    policy = redaction_policies.named(RedactionMode.MASK, [RedactionPreset.PCI])
    await redaction_policies.set_policy(world.database, world.workspace_id, policy, other.team_id)
    page = (await site.get("/workspace")).text
    assert page.count("<td>never</td>") == len(RetentionKind) - 3
    assert all(text in page for text in ("<td>90 days</td>", "<td>1 day</td>", "<td>60 days</td>", "<td>pci</td>"))
    await signed_in(site, world, team=world.team_id)
    page = (await site.get("/workspace")).text
    assert "<td>90 days</td>" in page and "<td>1 day</td>" in page
    assert not any(text in page for text in ("<td>60 days</td>", "<td>pci</td>"))
