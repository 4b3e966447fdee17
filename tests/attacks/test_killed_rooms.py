"""The API and the console are killed in the middle of exports, edits and deletes: no acknowledged write is lost."""

import asyncio
import json
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from db.core.database import Reader
from db.records import correct, views
from db.workspace import keys
from pipeline.domain.edits import EditState
from pipeline.domain.speech import Word
from tests.attacks.room import Room, room, until_answered
from tests.finished import TALK, finished, transcript
from tests.postgres import World

pytestmark = pytest.mark.slow_attack

KILLS = 10
MIN_WRITES = 60  # acknowledged
SEED = 20_261
WORDS = [(turn.index, word) for turn in transcript(*TALK).turns for word in turn.words]
TURN = " ".join(text for _, text in TALK[:1])


@dataclass
class Ledger:
    """What the writers know. A write without an answer may have happened or not."""

    edited: dict[UUID, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))  # call -> place -> new word
    perhaps_edited: dict[UUID, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    turns: dict[UUID, list[str]] = field(default_factory=dict)  # texts of the first turn, of which the last counts
    perhaps_turns: dict[UUID, str] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)
    perhaps_deleted: set[UUID] = field(default_factory=set)
    exports: int = 0
    cut: int = 0
    over: bool = False

    @property
    def writes(self) -> int:
        return (
            sum(map(len, self.edited.values()))
            + sum(len(texts) - 1 for texts in self.turns.values())
            + len(self.deleted)
        )


class Writers:
    """Clients of both rooms, which go on until the ledger is over."""

    def __init__(self, api: Room, console: Room, secret: str, rng: random.Random) -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        self.ledger = Ledger()
        self._rng = rng
        self._secret = secret
        self.api = httpx.AsyncClient(base_url=api.origin, headers=headers, timeout=60)
        self.console = httpx.AsyncClient(base_url=console.origin, headers={"Sec-Fetch-Site": "same-origin"}, timeout=60)

    async def sign_in(self) -> None:
        assert (await self.console.post("/sign-in", data={"key": self._secret})).status_code == 303

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.01, 0.15))

    async def edit(self, calls: list[UUID]) -> None:
        """Change one word after the other; every third edit is sent once only."""
        for place, (turn, word) in enumerate(WORDS):
            for call_id in calls:
                if self.ledger.over:
                    return
                new, tries = f"zq{uuid4().hex[:10]}", 1 if self._rng.random() < 0.33 else 2_000
                body = _edit_of(turn, word, new)
                path = f"/calls/{call_id}/edits"
                answer = await until_answered(lambda: self.api.post(path, json=body), (200, 201), tries)  # noqa: B023
                edits = self.ledger.edited if answer is not None else self.ledger.perhaps_edited
                edits[call_id][place] = new
                await self._pause()

    async def edit_in_console(self, call_id: UUID) -> None:
        """Change the first turn of a call; a form that gets no answer ends it, since a form is sent once."""
        self.ledger.turns[call_id] = [TURN]
        while not self.ledger.over:
            old = self.ledger.turns[call_id][-1]
            new = " ".join([f"zq{uuid4().hex[:10]}", *old.split()[1:]])
            path, form = f"/calls/{call_id}/turn/0", {"old": old, "text": new}
            answer = await until_answered(lambda: self.console.post(path, data=form), (303,), 1)  # noqa: B023
            if answer is None:
                self.ledger.perhaps_turns[call_id] = new
                return
            self.ledger.turns[call_id].append(new)
            await self._pause()

    async def delete(self, calls: list[UUID]) -> None:
        """Delete calls, in turns by the API and the console; every third is sent once only."""
        for number, call_id in enumerate(calls):
            if self.ledger.over:
                return
            tries = 1 if self._rng.random() < 0.33 else 2_000
            if number % 2:
                path = f"/calls/{call_id}/delete"
                answer = await until_answered(lambda: self.console.post(path), (303, 404), tries)  # noqa: B023
            else:
                path = f"/calls/{call_id}"
                answer = await until_answered(lambda: self.api.delete(path), (204,), tries)  # noqa: B023
            (self.ledger.perhaps_deleted if answer is None else self.ledger.deleted).add(call_id)
            await asyncio.sleep(self._rng.uniform(0.1, 0.4))

    async def export(self, calls: set[UUID]) -> None:
        """Export all calls; an export that looks complete is complete."""
        while not self.ledger.over:
            before = {call_id: dict(words) for call_id, words in self.ledger.edited.items()}
            lines = []
            try:
                async with self.api.stream("GET", "/export", params={"include": "transcript"}) as answer:
                    if answer.status_code == 200:
                        lines = [json.loads(line) async for line in answer.aiter_lines()]
            except (httpx.TransportError, json.JSONDecodeError):
                self.ledger.cut += 1
                await self._pause()
                continue
            if answer.status_code == 200:
                self._check_export(lines, before, calls)
                self.ledger.exports += 1
            await self._pause()

    def _check_export(self, lines: list[Any], before: dict[UUID, dict[int, str]], calls: set[UUID]) -> None:
        texts = {UUID(line["call"]["callId"]): json.dumps(line) for line in lines}
        assert calls <= texts.keys()
        for call_id, words in before.items():
            assert all(word in texts[call_id] for word in words.values())


def _edit_of(turn: int, word: Word, new: str) -> dict[str, Any]:
    times = {"turn": turn, "start": word.start, "end": word.end}
    return {"editId": str(uuid4()), "kind": "text", "old": word.text, "new": new, **times}


async def killing(rooms: list[Room], ledger: Ledger, rng: random.Random) -> None:
    """Kill the rooms at random times, until enough is written and killed."""
    kills = 0
    while kills < KILLS or ledger.writes < MIN_WRITES:
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        killed = rng.choice(rooms)
        await killed.kill()
        kills += 1
        await killed.start()
    ledger.over = True


async def check_edits(world: World, ledger: Ledger, http: httpx.AsyncClient) -> None:
    """Each edit that was acknowledged, and each other edit wholly or not at all, in the record, history and search."""
    reader = Reader(world.workspace_id)
    for call_id, words in ledger.edited.items():
        record = await views.show_call(world.database, call_id, world.workspace_id)
        assert record is not None and record.transcript is not None
        shown = [word.text for turn in record.transcript.turns for word in turn.words]
        edits = await correct.list_edits(world.database, reader, call_id)
        applied = {str(edit.person) for edit in edits if edit.state is EditState.APPLIED}
        assert len(applied) == len(edits)  # none twice
        for place, new in (words | ledger.perhaps_edited[call_id]).items():
            is_there = shown[place] == new
            assert is_there == (new in applied), (call_id, place)
            assert is_there or place not in words
            if place % 5 == 0:
                found = await http.get("/calls", params={"text": new})
                assert len(found.json()["items"]) == is_there
    for call_id, texts in ledger.turns.items():
        record = await views.show_call(world.database, call_id, world.workspace_id)
        assert record is not None and record.transcript is not None
        assert record.transcript.turns[0].text in {texts[-1], ledger.perhaps_turns.get(call_id)}


async def check_deletes(world: World, ledger: Ledger, http: httpx.AsyncClient) -> None:
    """Each deleted call is gone; one without an answer is gone, or whole."""
    for call_id in ledger.deleted | ledger.perhaps_deleted:
        rows = await world.rows("SELECT 1 FROM calls WHERE call_id = :call", call=call_id)
        record = await views.show_call(world.database, call_id, world.workspace_id)
        assert not rows or (call_id in ledger.perhaps_deleted and record is not None and record.transcript is not None)
        erased = await world.rows(
            "SELECT 1 FROM erased_calls WHERE digest = call_digest(workspace_id, :call)", call=call_id
        )
        assert bool(erased) != bool(rows)
        assert (await http.get(f"/calls/{call_id}")).status_code == (200 if rows else 404)
        assert (await http.delete(f"/calls/{call_id}")).status_code == 204  # idempotent
    assert await world.rows("SELECT 1 FROM transcripts WHERE call_pk NOT IN (SELECT id FROM calls)") == []


async def test_no_acknowledged_write_is_lost_when_api_and_console_are_killed(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    scopes = ["read", "edit", "admin"]
    _, secret = await keys.create(world.database, world.workspace_id, None, scopes, "writer")
    edited, turns, doomed = [[await finished(world) for _ in range(count)] for count in (8, 4, 60)]
    async with AsyncExitStack() as stack:
        rooms = [
            await stack.enter_async_context(room(kind, postgres_url, tmp_path / kind)) for kind in ("api", "console")
        ]
        writers = Writers(*rooms, secret, rng)
        await writers.sign_in()
        async with asyncio.TaskGroup() as tasks:
            for calls in (edited[:4], edited[4:]):
                tasks.create_task(writers.edit(calls))
            for call_id in turns:
                tasks.create_task(writers.edit_in_console(call_id))
            tasks.create_task(writers.delete(doomed[:30]))
            tasks.create_task(writers.delete(doomed[30:]))
            for _ in range(2):
                tasks.create_task(writers.export({*edited, *turns}))
            tasks.create_task(killing(rooms, writers.ledger, rng))
        ledger = writers.ledger
        print(f"{ledger.writes} acknowledged, {ledger.exports} exports, {ledger.cut} cut off")
        assert ledger.writes >= MIN_WRITES and ledger.exports and ledger.cut
        await check_edits(world, ledger, writers.api)
        await check_deletes(world, ledger, writers.api)
