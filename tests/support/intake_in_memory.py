"""The real application of POST /submit with a store in memory, for the tests of the intake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx

from pipeline.domain.call import CallState, Sender, Submission
from serve_app.http.options import LimitOptions
from serve_app.intake.submit import Count, build_api
from serve_app.operations.readiness import Parts, PartState
from tests.tuned import tuned

JSON = {"Content-Type": "application/json"}
JOB = UUID("b3d0f6f4-5a56-4f6a-8a29-0e2f5f1f7c11")
BODY: dict[str, Any] = {
    "callId": "7F1C6A52-3F0E-4D59-9A43-5B1F0C8DE210",
    "from": "+493012345678",
    "to": "+4940987654",
    "startTime": "2026-11-20T09:30:00Z",
}
FINISHED = {**BODY, "recordingUrl": "https://pbx.example.com/a.wav"}


@dataclass
class Accepted:
    status: CallState
    job_id: UUID | None
    decision: str = "new"


@dataclass
class Memory:
    """A store in memory. `fault` is raised, `pause` waited, in place of an answer."""

    keys: dict[str, Sender]
    fault: Exception | None = None
    pause: float = 0.0
    held: asyncio.Event | None = None  # what is submitted waits for it
    looked_up: int = 0
    full: set[UUID] = field(default_factory=set)
    told: dict[str, PartState] = field(
        default_factory=lambda: {"database": PartState(True), "Diarizer": PartState(True)}
    )
    recorded: list[tuple[Sender, Submission, dict[str, Any]]] = field(default_factory=list)

    async def find_key(self, secret: str) -> Sender | None:
        self.looked_up += 1
        return self.keys.get(secret)

    async def parts(self) -> Parts:
        return self.told

    def is_full(self, workspace_id: UUID) -> bool:
        return workspace_id in self.full

    async def submit(self, sender: Sender, submission: Submission, body: dict[str, Any], request_id: str) -> Accepted:
        assert request_id
        await asyncio.sleep(self.pause)
        if self.held is not None:
            await self.held.wait()
        if self.fault:
            raise self.fault
        self.recorded.append((sender, submission, body))
        job = JOB if submission.recording_url else None
        return Accepted(CallState.TRANSCRIBING if job else CallState.RECEIVED, job)


def sender(*scopes: str, team: UUID | None = None) -> Sender:
    return Sender(uuid4(), uuid4(), team, frozenset(scopes))


def three_keys() -> Memory:
    """A key of a team, one for a whole workspace, and one that may only read."""
    return Memory({"sb_team": sender("submit", team=uuid4()), "sb_wide": sender("submit"), "sb_read": sender("read")})


@asynccontextmanager
async def service(
    memory: Memory,
    root_path: str = "",
    source_header: str | None = None,
    count: Count = lambda _: None,
    **limits: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Memory]:
        yield memory

    api = build_api(tuned(LimitOptions, **limits), opened, source_header=source_header, count=count)
    async with api.router.lifespan_context(api):
        transport = httpx.ASGITransport(api, raise_app_exceptions=False, root_path=root_path)
        headers = {"Authorization": "Bearer sb_team"}
        async with httpx.AsyncClient(transport=transport, base_url="http://service", headers=headers) as client:
            yield client


def is_problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.headers["x-request-id"]
    if answer.request.method == "HEAD":
        return {}
    problem: dict[str, Any] = answer.json()
    assert set(problem) <= {"type", "title", "status", "detail", "errors"}
    assert (problem["status"], problem["type"]) == (status, f"urn:switchboard:problem:{kind}")
    assert problem["title"]
    assert problem["detail"].endswith(".")
    return problem
