"""Voiceprints, the samples that members are recognized by. Their vectors are never returned."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from db.core.pages import Page
from db.voices import voiceprints
from db.voices.voiceprints import NoConsent, NoVoiceprint, UnassignedVoiceprint, VoiceprintRecord, VoiceprintSummary
from serve_app.api.access import ApiRequest, Route, admin_route, answer_with, json_answer
from serve_app.api.bodies import Id, read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchObject
from serve_app.api.queries import NoQuery, QueryParameters
from serve_app.http.json_body import Body, Fault

SAMPLE = "/voiceprints/{call_id:uuid}"


class VoiceprintQuery(QueryParameters):
    """Which voiceprints."""

    user_id: UUID | None = Field(None, description="Voiceprints of this member.")
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(200, description="Number of the latest voiceprints to read.")


class VoiceprintChange(Body):
    """A decision about a voiceprint, as someone who has listened to the call."""

    action: Literal["remove", "restore", "approve", "assign"] = Field(
        description="remove: it has no effect; restore: it counts again; approve: it counts although it is an outlier; "
        "assign: it is the voice of `userId`."
    )
    user_id: Id | None = Field(None, description="The member, for assign.")


async def list_voiceprints(reading: ApiRequest[VoiceprintQuery]) -> Response:
    reading.require_workspace_key("voiceprints")
    samples = await voiceprints.list_(reading.database, reading.home, reading.query.limit)
    member = reading.query.user_id
    return json_answer(reading, Page(tuple(sample for sample in samples if member in (None, sample.user_id))))


async def show_voiceprint(reading: ApiRequest[NoQuery]) -> Response:
    reading.require_workspace_key("voiceprints")
    try:
        return answer_with(await voiceprints.show(reading.database, reading.call_id, reading.home))
    except NoVoiceprint:
        raise NoSuchObject from None


async def change_voiceprint(writing: ApiRequest[NoQuery]) -> Response:
    writing.require_workspace_key("voiceprints")
    body = await read_admin_body(writing.request, VoiceprintChange)
    if (body.action == "assign") is (body.user_id is None):
        raise AdminBodyRefused([Fault("/userId", "userId: required for assign, and for nothing else.")])
    try:
        return answer_with(await _change(writing, body))
    except NoVoiceprint:
        raise NoSuchObject from None
    except NoConsent:
        raise AdminBodyRefused([Fault("/userId", "userId: the member has not agreed to voiceprints.")]) from None
    except UnassignedVoiceprint:
        raise AdminBodyRefused([Fault("/action", "action: assign the voiceprint to a member first.")]) from None


async def _change(writing: ApiRequest[NoQuery], body: VoiceprintChange) -> VoiceprintSummary:
    database, call_id, home = writing.database, writing.call_id, writing.home
    who, policy = f"key {writing.sender.key_id}", writing.voices
    if body.user_id is not None:
        return await voiceprints.assign(database, call_id, body.user_id, who, policy, home)
    changes: dict[str, Callable[..., Awaitable[VoiceprintSummary]]] = {
        "remove": voiceprints.remove,
        "restore": voiceprints.restore,
        "approve": voiceprints.approve,
    }
    return await changes[body.action](database, call_id, who, policy, home)


ROUTES = (
    Route(
        "/voiceprints",
        list_voiceprints,
        "List voiceprints, the latest first",
        Page[VoiceprintSummary],
        VoiceprintQuery,
        admin=True,
    ),
    admin_route("GET", SAMPLE, show_voiceprint, "Show a voiceprint, similar members and its history", VoiceprintRecord),
    admin_route(
        "POST",
        SAMPLE,
        change_voiceprint,
        "Remove, restore, approve or assign a voiceprint",
        VoiceprintSummary,
        VoiceprintChange,
    ),
)
