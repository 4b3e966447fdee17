"""What a telephony system does to a service: a seeded storm, in which each submission is sent until it is taken."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

import httpx

from tests.chaos.ledger import ACCEPTED, Attempt, Ledger, now
from tests.chaos.recordings import Recordings, noise, spoken

PATIENCE = (0.2, 3.0)  # seconds between attempts at one submission: at first, at most
SPOKEN_SHARE = 0.12  # of good recordings; the others are hiss, so that two cores get through thousands
ENDS = {"good": 55, "late": 8, "flaky": 8, "gone": 4, "page": 3, "empty": 2, "never": 2}


@dataclass(frozen=True, slots=True)
class Step:
    """Submissions that are sent side by side, `pause` seconds after the step before; or once the call has ended."""

    bodies: tuple[dict[str, Any], ...]
    pause: float = 0.0
    after_end: bool = False


@dataclass
class Plan:
    """Makes calls of every kind from one seed. `numbers` counts submissions, `workspaces` are their names."""

    seed: int
    recordings: Recordings
    workspaces: tuple[str, ...]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._calls: list[UUID] = []

    def call(self) -> tuple[str, list[Step]]:
        """One call: its workspace and its steps."""
        workspace = self.rng.choice(self.workspaces)
        # Now and then two workspaces use the same callId: two calls.
        reused = self._calls and self.rng.random() < 0.02
        call_id = self.rng.choice(self._calls) if reused else UUID(int=self.rng.getrandbits(128), version=4)
        if not reused:
            self._calls.append(call_id)
        kinds = list(KINDS)
        kind = self.rng.choices(kinds, [KINDS[name][0] for name in kinds])[0]
        sketch = _Sketch(self, call_id, workspace)
        return workspace, sketch.scattered(KINDS[kind][1](sketch))


@dataclass
class _Sketch:
    plan: Plan
    call_id: UUID
    workspace: str

    @property
    def rng(self) -> random.Random:
        return self.plan.rng

    def body(self, **fields: Any) -> dict[str, Any]:
        """Return a unique submission, so that the latest values show which one came last."""
        number = next(self.plan.numbers)
        return {
            "callId": str(self.call_id),
            "from": f"+1202555{number % 10000:04d}",
            "to": "+12025550102",
            "startTime": f"2026-03-02T10:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1000000:06d}Z",
            "teamId": f"chaos {number}",
            **fields,
        }

    def first(self) -> dict[str, Any]:
        return self.body(outgoing=self.rng.random() < 0.5)

    def finish(self, url: str, url2: str | None = None) -> dict[str, Any]:
        more = {} if url2 is None else {"recordingUrl2": self.signed(url2)}
        return self.body(duration=self.rng.randint(1, 600), recordingUrl=self.signed(url), **more)

    def signed(self, url: str) -> str:
        return f"{url}?token={self.rng.getrandbits(64):x}"

    def recording(self, behaviour: str | None = None, kind: str | None = None) -> str:
        chosen = behaviour or self.rng.choices(list(ENDS), list(ENDS.values()))[0]
        kind = kind or self.rng.choice(("mono", "stereo"))
        channels = 2 if kind == "stereo" else 1
        speaks = self.rng.random() < SPOKEN_SHARE
        content = spoken(self.rng, kind) if speaks else noise(self.rng, channels)
        return self.plan.recordings.add(chosen, content, self.rng.uniform(1.0, 6.0))

    def scattered(self, steps: list[Step]) -> list[Step]:
        """Some submissions come twice, at once or later."""
        done: list[Step] = []
        for step in steps:
            done.append(step)
            for _ in range(self.rng.choice((0, 0, 1, 2, 4))):
                again = self.rng.choice(done).bodies[:1]
                done.append(Step(again, self.rng.choice((0.0, 0.3, 2.0))))
        return done


def _at_once(sketch: _Sketch) -> list[Step]:
    return [Step((sketch.finish(sketch.recording()),))]


def _two_phases(sketch: _Sketch) -> list[Step]:
    return [Step((sketch.first(),)), Step((sketch.finish(sketch.recording()),), sketch.rng.uniform(0, 1))]


def _late_first_phase(sketch: _Sketch) -> list[Step]:
    return [Step((sketch.finish(sketch.recording()),)), Step((sketch.first(),), sketch.rng.uniform(0, 3))]


def _parallel(sketch: _Sketch) -> list[Step]:
    url = sketch.recording()
    bodies = [sketch.first(), *(sketch.finish(url) for _ in range(sketch.rng.randint(3, 12)))]
    sketch.rng.shuffle(bodies)
    return [Step(tuple(bodies))]


def _identical(sketch: _Sketch) -> list[Step]:
    """Send one body many times at once, as a faulty retry does."""
    return [Step((sketch.finish(sketch.recording()),) * sketch.rng.randint(4, 16))]


def _signed_anew(sketch: _Sketch) -> list[Step]:
    url = sketch.recording()
    return [Step((sketch.finish(url),), sketch.rng.choice((0.0, 0.2, 1.5))) for _ in range(3)]


def _another_recording(sketch: _Sketch) -> list[Step]:
    pause = sketch.rng.choice((0.0, 0.4, 2.0))
    return [Step((sketch.finish(sketch.recording()),)), Step((sketch.finish(sketch.recording()),), pause)]


def _two_files(sketch: _Sketch) -> list[Step]:
    rep, customer = sketch.recording("good", "rep"), sketch.recording(None, "customer")
    both = Step((sketch.finish(rep, customer),), sketch.rng.choice((0.0, 0.5)))
    return [Step((sketch.finish(rep),)), both] if sketch.rng.random() < 0.5 else [both]


def _late_metadata(sketch: _Sketch) -> list[Step]:
    user = str(UUID(int=sketch.rng.getrandbits(128), version=4))
    return [
        Step((sketch.finish(sketch.recording()),)),
        Step((sketch.body(userId=user),), after_end=True),
        Step((sketch.body(outgoing=True),), sketch.rng.uniform(0, 0.5)),
    ]


def _never_finished(sketch: _Sketch) -> list[Step]:
    return [Step((sketch.first(),)), Step((sketch.first(),), 0.5)]


def _sent_again_after_failure(sketch: _Sketch) -> list[Step]:
    url = sketch.recording(sketch.rng.choice(("gone", "page", "empty")))
    return [Step((sketch.finish(url),)), Step((sketch.finish(url),), after_end=True)]


KINDS: dict[str, tuple[int, Callable[[_Sketch], list[Step]]]] = {
    "at once": (15, _at_once),
    "two phases": (20, _two_phases),
    "late first phase": (12, _late_first_phase),
    "parallel": (14, _parallel),
    "identical": (8, _identical),
    "signed again": (10, _signed_anew),
    "another recording": (8, _another_recording),
    "two files": (6, _two_files),
    "late metadata": (6, _late_metadata),
    "never finished": (3, _never_finished),
    "sent again after a failure": (2, _sent_again_after_failure),
}


@dataclass
class Senders:
    """Telephony systems: they let go of a submission only when it is answered with a 202."""

    submit_url: str
    keys: dict[str, str]  # by workspace
    ledger: Ledger
    http: httpx.AsyncClient
    ended: Callable[[str, str], Awaitable[bool]]  # whether a call (workspace, callId) has ended
    giving_up: asyncio.Event = field(default_factory=asyncio.Event)
    refused: list[Attempt] = field(default_factory=list)  # 4xx: the storm sends nothing that may be refused
    first_accepted_after: dict[float, float] = field(default_factory=dict)

    async def run(self, workspace: str, steps: list[Step]) -> None:
        call_id = steps[0].bodies[0]["callId"]
        for step in steps:
            await asyncio.sleep(step.pause)
            if step.after_end:
                await self._until_ended(workspace, call_id)
            await asyncio.gather(*(self.send(workspace, body) for body in step.bodies))

    async def _until_ended(self, workspace: str, call_id: str) -> None:
        for _ in range(60):
            if await self.ended(workspace, call_id):
                return
            await asyncio.sleep(1.0)

    async def send(self, workspace: str, body: dict[str, Any]) -> None:
        """Repeat a submission until it is accepted. Each attempt is on disk before the next step."""
        number = int(body["teamId"].split()[1])
        pause, longest = PATIENCE
        for attempt in count(1):
            done = await self._attempt(workspace, body, number, attempt)
            self.ledger.write(done)
            if done.status == ACCEPTED or self.giving_up.is_set():
                return
            if done.status is not None and done.status < 500 and done.status != 429:
                self.refused.append(done)
                return
            await asyncio.sleep(pause * random.uniform(0.7, 1.0))
            pause = min(2 * pause, longest)

    async def _attempt(self, workspace: str, body: dict[str, Any], number: int, attempt: int) -> Attempt:
        marked = body | {"teamId": f"{body['teamId']} {attempt} {random.getrandbits(40):x}"}
        sent = now()
        status, job_id, error = None, None, None
        try:
            headers = {"Authorization": f"Bearer {self.keys[workspace]}"}
            answer = await self.http.post(self.submit_url, json=marked, headers=headers)
            status = answer.status_code
            response = answer.json() if status == ACCEPTED else {}
            job_id, error = response.get("jobId"), None if status == ACCEPTED else answer.text[:300]
        except httpx.HTTPError as failure:
            error = type(failure).__name__
        return Attempt(number, attempt, workspace, marked, sent, now(), status, job_id, error)
