"""A person is erased while calls flow: nothing of them is found anywhere, and the calls of others are unchanged.

Then the backup of before is restored: the person is erased again. `make test` does it with few calls, `make attacks`
with a thousand.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from db.core.database import Database
from db.core.tables import metadata
from db.events import endpoints
from db.records.erasures import ErasureKind, Target
from db.workspace import directory
from pipeline.speakers.profile import Voices
from serve_app.backup.ledger_copies import LedgerCopies
from serve_app.cli import app
from serve_app.conductor.erasure import ErasureLoop
from serve_app.conductor.options import ErasureOptions
from tests.erased import created
from tests.finished import findings, finished, task
from tests.planted import leftovers
from tests.postgres import World, fresh_database
from tests.reading_api import Api

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
NUMBER, NAME, MAIL = "+498955501234", "Zqbert Zqmann", "zqbert@zq.example"
WORDS = [f"zq{number:02d}word" for number in range(56)]  # talk, tasks, companies
PLANTED = [NAME, MAIL, NUMBER, NUMBER.removeprefix("+49"), *WORDS]


@pytest.fixture
def empty(postgres_server: str) -> Iterator[str]:
    yield from fresh_database(postgres_server, "template0")


class Installation:
    """Calls of many people in several teams, each with a recording in the storage."""

    def __init__(self, world: World, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.world, self.folder, self.patch = world, folder, patch
        self.storage = folder / "recordings"
        self.files: dict[UUID, Path] = {}

    async def call(self, number: int, of_person: int | None = None) -> UUID:
        """Store a completed call; those of the person, counted from 0, contain all planted words in turn."""
        is_persons, words = of_person is not None, [f"parcel{number}"] * 5
        if of_person is not None:
            words = [WORDS[(of_person * 5 + at) % len(WORDS)] for at in range(5)]
        talk = (
            ("rep", "Good morning, Acme service desk, this is Ana."),
            ("customer", f"Hello, this is {NAME if is_persons else 'Bo Berg'}. It is about {' '.join(words[:3])}."),
            ("rep", f"I will send you the {words[3]} tomorrow."),
        )
        heard = {"name": "Bo Berg", "company": words[4], "number": f"+4930{5_000_000 + number}"}
        if is_persons:
            heard |= {"name": NAME, "email": MAIL, "number": NUMBER}
        teams = (self.world.scoped, self.world.other_scoped)
        call_id = await finished(
            self.world,
            *talk,
            sender=teams[number % 2],
            found=findings("negative", (task(f"Send the {words[3]}", date(2026, 11, 3)),), heard),
            from_number=heard["number"],
            minutes=number,
        )
        await self._record(call_id, f"sound of {call_id}".encode())
        return call_id

    async def _record(self, call_id: UUID, sound: bytes) -> None:
        name = hashlib.sha256(sound).hexdigest()
        path = self.storage / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sound)
        os.utime(path, (1, 1))  # a file is deleted when it is a minute old
        await self.world.execute(
            "INSERT INTO recordings (job_id, channel, call_pk, uri, sha256, size_bytes)"
            " SELECT job_id, 0, id, :uri, :sha256, :size FROM calls WHERE call_id = :call",
            uri=path.as_uri(),
            sha256=name,
            size=len(sound),
            call=call_id,
        )
        await self.world.execute(
            "INSERT INTO call_passages SELECT id, 0, workspace_id, 'e5', 0, 0, 1, 3,"
            " CAST(array_fill(0.05, ARRAY[384]) AS halfvec) FROM calls WHERE call_id = :call",
            call=call_id,
        )
        self.files[call_id] = path

    async def rows_of(self, call_ids: list[UUID]) -> dict[str, list[tuple[int, str]]]:
        """Return a digest of each call's rows in every table."""
        among = "SELECT id FROM calls WHERE call_id = ANY (:calls)"
        tables = {"calls": "id"} | {name: "call_pk" for name, table in metadata.tables.items() if "call_pk" in table.c}
        rows = {}
        for name, key in sorted(tables.items()):
            digest = r"md5(string_agg(t\:\:text, '|' ORDER BY t\:\:text))"
            query = f"SELECT {key} AS call, {digest} AS digest FROM {name} t WHERE {key} IN ({among}) GROUP BY 1"
            found = await self.world.rows(f"{query} ORDER BY 1", calls=call_ids)
            rows[name] = [(row["call"], row["digest"]) for row in found]
        return rows

    async def command(self, url: str, *arguments: str | Path) -> Result:
        self.patch.setenv("SWITCHBOARD_DATABASE_URL", url)
        self.patch.setenv("SWITCHBOARD_STORAGE", self.storage.as_uri())
        self.patch.setenv("SWITCHBOARD_DATA_DIR", str(self.folder / "data"))
        self.patch.setenv("SWITCHBOARD_SECRETS_KEYS", json.dumps([KEY]))
        done = await asyncio.to_thread(CliRunner().invoke, app, [*map(str, arguments), "--json"])
        assert done.exit_code == 0, done.output
        return done

    def found_in_files(self, *folders: Path) -> list[str]:
        """Return planted strings in the names and contents of files."""
        found = []
        for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes().lower()
            found += [f"{text} in {path.name}" for text in PLANTED if text.lower().encode() in content]
        return found


@pytest.mark.parametrize(
    ("calls", "persons"), [(40, 12), pytest.param(1000, 40, marks=[pytest.mark.slow_attack, pytest.mark.timeout(1800)])]
)
async def test_nothing_of_a_person_is_left(
    calls: int,
    persons: int,
    api: Api,
    empty: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, url = api.world, api.world.database.url
    installation = Installation(world, tmp_path, monkeypatch)
    await endpoints.add(world.database, world.workspace_id, "https://crm.example/", "sealed", include=["record"])
    await directory.add_contact(world.database, world.workspace_id, NAME, WORDS[0], MAIL, NUMBER)
    every = calls // persons
    ids = {True: list[UUID](), False: list[UUID]()}
    for number in range(calls):
        is_persons = number % every == 0 and len(ids[True]) < persons
        ids[is_persons].append(await installation.call(number, len(ids[True]) if is_persons else None))
    assert {text for _, text in leftovers(url, PLANTED)} == set(PLANTED)
    assert NAME in api.get("/export", include="transcript").text
    before = await installation.rows_of(ids[False])
    backup = json.loads((await installation.command(url, "backup", "create", tmp_path / "backups")).stdout)["backup"]

    caplog.set_level("DEBUG")
    copies = LedgerCopies(installation.storage.as_uri(), (KEY,))
    loop = ErasureLoop(world.database, ErasureOptions(), copies, None, Voices())
    erasure = await created(world, Target(ErasureKind.NUMBER, number=NUMBER))
    end = asyncio.Event()
    flowing = asyncio.create_task(_flow(installation, calls, end))
    assert await loop.erase_next()
    end.set()
    flowed = await flowing
    later = ids[False] + flowed
    assert flowed, "no call arrived during the erasure"
    while await loop.delete_due():
        pass
    assert not await loop.copy_ledger()

    assert erasure.matched["calls"] == persons
    assert leftovers(url, [*PLANTED, *(installation.files[call].name for call in ids[True])]) == []
    assert {call for call, path in installation.files.items() if path.exists()} == set(later)
    assert installation.found_in_files(installation.storage) == []
    assert await installation.rows_of(ids[False]) == before
    passages = "SELECT c.call_id FROM call_passages p LEFT JOIN calls c ON c.id = p.call_pk"
    assert {row["call_id"] for row in await world.rows(passages)} == set(later)
    exported = api.get("/export", include="transcript").text
    assert not [text for text in PLANTED if text.lower() in f"{exported}{caplog.text}".lower()]
    assert len(api.ids("/calls", limit=200)) == min(len(later), 200)

    restored = json.loads((await installation.command(empty, "restore", backup)).stdout)
    assert restored["ledger"]["erased"] == {"calls": persons, "contacts": 1}
    async with await Database.open(empty) as database:
        loop = ErasureLoop(database, ErasureOptions(), copies, None, Voices())
        while await loop.delete_due():
            pass
    assert leftovers(empty, [*PLANTED, *(installation.files[call].name for call in ids[True])]) == []
    assert not any(installation.files[call].exists() for call in ids[True])
    assert installation.found_in_files(installation.storage) == []


async def _flow(installation: Installation, number: int, end: asyncio.Event) -> list[UUID]:
    """Process calls of others until `end` is set; return them."""
    flowed = []
    while not end.is_set():
        number += 1
        flowed.append(await installation.call(number))
        await asyncio.sleep(0.01)
    return flowed
