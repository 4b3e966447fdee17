"""A database with calls is partitioned while calls come, and all goes on: claims, isolation, backups, migrations.

The tests of the queue run on partitioned tables, too: `TEST_PARTITIONED=1 pytest tests/integration`.
"""

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner, Result

from db.queue import jobs, retries
from db.queue import stage_results as results
from db.records import views
from db.records.complete import complete as complete_call
from db.server import migrate, partitions
from db.workspace import directory, removal
from pipeline.domain.insight import Finding
from pipeline.domain.speech import Layout, LayoutKind, Recording, Transcript
from pipeline.domain.stage import Stage
from pipeline.errors import LeaseLost, RecordingGone
from serve_app.cli import app
from serve_app.cli.doctor import service
from serve_app.settings import Settings
from tests.integration.db.server.test_upgrade import STEPS, code_of, meanwhile, old, one  # noqa: F401 (fixtures)
from tests.paths import ROOT
from tests.postgres import PARTITIONED, World, partition_finely

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PARTITIONED, reason="begins with plain tables")]
CAPACITY = ROOT / "docs" / "capacity.md"
URL = "https://store.example/{}.wav"
LAYOUT = Layout(LayoutKind.STEREO, 2, 2, 0.99, {}, "The channels differ.")
TRANSCRIPT = Transcript("en", 1.0, 12.5, (), (), LAYOUT, "test")
FINDINGS = (Finding("summary", 1, {"text": "x"}, (), 1.0),)
AT = "SELECT DISTINCT tableoid::regclass::text AS name FROM {}"


def switchboard(url: str, *arguments: str | Path) -> Result:
    environment = {"COLUMNS": "200", "SWITCHBOARD_DATABASE_URL": url}
    return CliRunner().invoke(app, [str(one) for one in arguments], env=environment)


def told(url: str) -> list[str]:
    """What `switchboard doctor` says of partitions."""
    return [check.found for check in service.database(Settings(database_url=url)) if check.name == "partitions"]


def contents(url: str) -> dict[str, Any]:
    """All rows of the tables, as text."""
    query = "SELECT md5(string_agg(t::text, '|' ORDER BY t::text)), count(*) FROM {} AS t"
    with psycopg.connect(url) as reading:
        return {n: reading.execute(sql.SQL(query).format(sql.Identifier(n))).fetchone() for n in partitions.TABLES}


def files(url: str, tables: dict[str, str]) -> dict[str, set[int]]:
    """Where the rows and indexes of each table lie, by the name in `tables`."""
    query = """SELECT pg_relation_filenode(%(name)s::regclass) UNION
        SELECT pg_relation_filenode(indexrelid) FROM pg_index WHERE indrelid = %(name)s::regclass"""
    with psycopg.connect(url) as reading:
        return {n: {row[0] for row in reading.execute(query, {"name": at})} for n, at in tables.items()}


async def submitted(world: World, count: int) -> list[UUID]:
    ids = [uuid4() for _ in range(count)]
    for world.call_id in ids:
        await world.submit(recording_url=URL.format(world.call_id))
    return ids


async def completed(world: World, lease: jobs.Lease) -> None:
    recording = Recording(0, f"file:///r/{lease.call_pk}", f"{lease.call_pk:064x}", 1234)
    await jobs.stage(world.database, lease, Stage.FETCH)
    await results.record(world.database, lease, Stage.FETCH, (recording,))
    await results.record(world.database, lease, Stage.SPEAKERS, TRANSCRIPT)
    await complete_call(world.database, lease, TRANSCRIPT, FINDINGS, None)


@pytest.fixture
async def full(world: World) -> World:
    """Calls in every state: completed, failed, running, queued, waiting for recordings, received; a superseded job."""
    await submitted(world, 6)
    first, second, *_ = await world.claim(3)
    await completed(world, first)
    await jobs.fail(world.database, second, RecordingGone("Gone."))
    await world.submit(recording_url=URL.format("another"))  # of the last call
    world.call_id = uuid4()
    await world.submit()
    return world


async def test_no_row_and_no_index_is_written_again(full: World) -> None:
    url = full.database.url
    rows, nodes = contents(url), files(url, {name: name for name in partitions.TABLES})
    done = partitions.partition(url)
    assert [one.name for one in done] == list(partitions.TABLES)
    assert contents(url) == rows
    assert files(url, {name: f"{name}_0" for name in partitions.TABLES}) == nodes
    assert partitions.unfinished(url) == []
    await full.submit()
    ids = [row["id"] for row in await full.rows("SELECT id FROM submissions ORDER BY id")]
    assert len(ids) == len(set(ids)) == ids[-1] - ids[0] + 1, "numbered where the plain table left off"


async def test_what_had_begun_is_brought_to_its_end(full: World) -> None:
    """Leases held, calls queued and failed before it: all of them go on."""
    (held,) = await jobs.claim(full.database, "w1", 1, 60.0)
    partitions.partition(full.database.url)
    await completed(full, held)
    (failed,) = await retries.failed(full.database)
    assert (await retries.retry(full.database, failed.job_id)).new_job_id is not None
    await jobs.abandon(full.database, ["w1"])
    while leases := await full.claim(8, worker="w2"):
        for lease in leases:
            await completed(full, lease)
    states = {row["state"] for row in await full.rows("SELECT state FROM calls")}
    assert states == {"completed", "received"}


async def test_calls_of_many_partitions_are_claimed_fenced_retried_and_removed(world: World) -> None:
    partition_finely(world.database.url)
    ids = await submitted(world, 30)
    leases = await world.claim(30)
    assert len({lease.job.job_id for lease in leases}) == len(ids)
    await world.execute(
        "UPDATE jobs SET lease_until = now() - interval '1 s', worker = NULL WHERE id = :id", id=leases[0].job.job_id
    )
    (again,) = await jobs.claim(world.database, "w2", 1, 60.0)
    with pytest.raises(LeaseLost):
        await completed(world, leases[0])
    assert await jobs.renew(world.database, leases, 60.0) == {again.job.job_id}, "of another's it is lost"
    for lease in (again, *leases[1:]):
        await completed(world, lease)
    for name in partitions.TABLES:
        assert len(await world.rows(AT.format(name))) >= 6, name
    with pytest.raises(Exception, match=r"one_live|call_pk_kind"):
        await world.execute(
            "INSERT INTO jobs (call_pk, kind, state) SELECT call_pk, 'process', 'queued'"
            " FROM (SELECT max(id) AS call_pk FROM calls) AS c, generate_series(1, 2)"
        )
    with pytest.raises(Exception, match="append-only"):
        await world.execute("DELETE FROM submissions_0")
    with pytest.raises(Exception, match="append-only"):
        await world.execute("TRUNCATE submissions_default")
    await removal.remove_workspace(world.database, world.workspace_id)
    for name in partitions.TABLES:
        assert not await world.rows(AT.format(name)), name


async def test_a_partition_shows_no_workspace_to_another(world: World) -> None:
    partition_finely(world.database.url)
    await submitted(world, 12)
    stranger = await directory.create_workspace(world.database, "Umbrella")
    for name in partitions.TABLES:
        for scope, seen in ((stranger.workspace_id, False), (world.workspace_id, name != "stage_results")):
            async with world.database.transaction(scope) as connection:
                found = await connection.exec_driver_sql(f"SELECT count(*) FROM {name}")
                assert (found.scalar_one() > 0) is seen
        with pytest.raises(Exception, match="permission denied"):
            async with world.database.transaction(world.workspace_id) as connection:
                await connection.exec_driver_sql(f"SELECT count(*) FROM {name}_10")


def test_nodes_submit_and_claim_while_their_tables_become_partitioned(old: str) -> None:  # noqa: F811
    submissions, with_jobs = "SELECT count(*) FROM submissions", "SELECT count(*) FROM calls WHERE job_id IS NOT NULL"
    before = int(str(one(old, submissions))), int(str(one(old, with_jobs)))
    taken = meanwhile(old, lambda url: partitions.partition(url, 1000, 20_000))
    assert all(table.is_partitioned for table in partitions.look(old))
    assert one(old, submissions) == before[0] + sum(count for count, _ in taken)
    assert one(old, with_jobs) == before[1] + sum(count // 3 * 2 for count, _ in taken)


async def test_partitions_are_there_before_their_calls(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Made by the service's role, which owns no table."""
    url = world.database.url
    assert await partitions.make_ahead(world.database) == [], "of plain tables there are none"
    partitions.partition(url, calls=10, spare=0)
    before = partitions.look(url)[0].end
    assert await partitions.make_ahead(world.database) == []
    await world.execute(f"ALTER TABLE calls ALTER id RESTART WITH {before - 5}")
    await submitted(world, 1)
    with psycopg.connect(url) as reader, caplog.at_level(logging.WARNING):
        reader.execute("SELECT count(*) FROM jobs")  # its transaction stays open, as that of a dump
        assert await partitions.make_ahead(world.database) == []
        assert "waits for other sessions" in caplog.text
    made = await partitions.make_ahead(world.database)
    assert sorted(made) == sorted(f"{name}_{end}" for name in partitions.TABLES for end in (before, before + 10))
    assert await partitions.make_ahead(world.database) == []
    await submitted(world, 20)
    for lease in await world.claim(21):
        await completed(world, lease)
    assert sum(table.strayed for table in partitions.look(url)) == 0


async def test_calls_that_come_before_their_partition_are_kept(world: World) -> None:
    """Nobody made partitions for a while. What the default one took in stays there and is worked on."""
    url = world.database.url
    partitions.partition(url, calls=10, spare=0)
    await world.execute(f"ALTER TABLE calls ALTER id RESTART WITH {partitions.look(url)[0].end}")
    await submitted(world, 12)
    assert [table.strayed for table in partitions.look(url)] == [12, 12, 0]
    assert set(await partitions.make_ahead(world.database)) >= {"jobs_60", "submissions_60"}, "not at once: calls come"
    await submitted(world, 28)
    leases = await world.claim(40)
    for lease in leases:
        await completed(world, lease)
    assert len(leases) == 40
    assert {row["name"] for row in await world.rows(AT.format("jobs"))} == {"jobs_default", "jobs_60"}
    assert "60 rows in default partitions" in told(url)[0]


async def test_results_of_an_old_stretch_are_dropped_as_the_manual_says(full: World) -> None:
    partition_finely(full.database.url)
    await submitted(full, 12)
    (manual,) = re.findall(r"^(ALTER TABLE stage_results.*?DROP TABLE .*?;)$", CAPACITY.read_text(), re.M | re.S)
    call = (await full.rows("SELECT call_id FROM calls WHERE state = 'completed'"))[0]["call_id"]
    await full.execute(manual)
    record = await views.show_call(full.database, call)
    assert record is not None and record.transcript is not None
    for lease in await full.claim(20):
        await completed(full, lease)
    assert not await partitions.make_ahead(full.database)


async def test_what_is_in_the_way_is_named_and_nothing_is_changed(full: World) -> None:
    url = full.database.url
    await full.execute("CREATE VIEW reporting AS SELECT count(*) FROM jobs")
    refused = switchboard(url, "partition", "--yes")
    assert refused.exit_code != 0 and "view reporting" in refused.output
    assert not any(table.is_partitioned for table in partitions.look(url))
    assert not await full.rows("SELECT FROM pg_constraint WHERE conname = 'partition_bound'")


async def test_an_interrupted_run_leaves_tables_that_work_and_is_resumed(
    full: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, switch = full.database.url, partitions._Conversion._switch

    def killed(conversion: partitions._Conversion, name: str, end: int) -> float:
        if name == "submissions":
            raise KeyboardInterrupt
        return switch(conversion, name, end)

    with monkeypatch.context() as while_killed:
        while_killed.setattr(partitions._Conversion, "_switch", killed)
        with pytest.raises(KeyboardInterrupt):
            partitions.partition(url)
    assert [table.is_partitioned for table in partitions.look(url)] == [True, False, False]
    assert told(url) == ["`switchboard partition` was interrupted"]
    # One that was killed outright leaves this, too, which some day would refuse calls.
    await full.execute("ALTER TABLE submissions ADD CONSTRAINT partition_bound CHECK (call_pk < 1000) NOT VALID")
    await partitions.make_ahead(full.database)
    assert not await full.rows("SELECT FROM pg_constraint WHERE conname = 'partition_bound'")
    await submitted(full, 2)
    partitions.partition(url)
    assert all(table.is_partitioned for table in partitions.look(url))
    assert told(url) == ["2 of jobs, 2 of submissions, 2 of stage_results"]


STEP_BY_STEP = """
import sys
from db import partitions
def step(name):
    print(name, flush=True)
    sys.stdin.readline()
def within(conversion, name, first, make=partitions._Conversion._make_parent):
    step(f"{name}: locked and renamed")
    make(conversion, name, first)
    step(f"{name}: made again")
partitions._Conversion._make_parent = within
partitions.partition(sys.argv[1], calls=10, spare=20, on_step=step)
"""


def step_of(said: str) -> str:
    """A step, whatever the id its table's calls end at."""
    return re.sub(r"[\d,]+\?", "N?", said.strip())


@pytest.mark.slow
async def test_a_run_that_is_killed_at_any_step_leaves_tables_that_work_and_is_resumed(full: World) -> None:
    """With SIGKILL, each run at a step at which none was before, until one comes to its end.

    Two of the steps of each table are within the transaction that switches it.
    """
    url, killed_at = full.database.url, list[str]()
    while True:
        command = [sys.executable, "-c", STEP_BY_STEP, url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdin is not None and run.stdout is not None
            while (said := step_of(run.stdout.readline())) in killed_at:
                run.stdin.write("\n")
                run.stdin.flush()
            run.kill()
        await a_call_goes_through(full)
        if not said:
            break
        killed_at.append(said)
    steps = ("its calls are before N?", "locked and renamed", "made again", "statistics")
    whole = {f"{name}: {step}" for name in partitions.TABLES for step in steps}
    assert {*killed_at} >= whole | {"jobs: becoming partitioned", "transcripts: transcripts_job_fkey holds?"}
    assert all(table.is_partitioned for table in partitions.look(url))
    assert partitions.unfinished(url) == []


async def test_a_run_that_loses_its_connection_at_any_step_says_so_and_is_resumed(
    full: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, run, cut_at = full.database.url, partitions.partition, list[str]()
    make = partitions._Conversion._make_parent

    def within(conversion: partitions._Conversion, name: str, first: str) -> None:
        conversion.on_step(f"{name}: locked and renamed")
        make(conversion, name, first)

    def cut(url: str, calls: int, on_step: Any) -> Any:
        def step(said: str) -> None:
            if step_of(said) not in cut_at:
                cut_at.append(step_of(said))
                with psycopg.connect(url, autocommit=True) as admin:
                    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")

        return run(url, calls, on_step=step)

    monkeypatch.setattr(partitions, "partition", cut)
    monkeypatch.setattr(partitions._Conversion, "_make_parent", within)
    for before in range(30):
        said = switchboard(url, "partition", "--yes")
        await a_call_goes_through(full)
        if said.exit_code == 0:
            break
        assert "The database does not answer" in said.output
        assert len(cut_at) == before + 1
    assert {f"{name}: locked and renamed" for name in partitions.TABLES} < {*cut_at}
    assert all(table.is_partitioned for table in partitions.look(url))
    assert partitions.unfinished(url) == []


async def a_call_goes_through(world: World) -> None:
    """A new call is taken in, claimed and completed."""
    (call_id,) = await submitted(world, 1)
    for lease in await world.claim(20):
        await completed(world, lease)
    found = await world.rows("SELECT state FROM calls WHERE call_id = :id", id=call_id)
    assert [row["state"] for row in found] == ["completed"]


def test_the_command_says_what_it_does_and_does_it_once(postgres_url: str) -> None:
    asked = switchboard(postgres_url, "partition")
    assert asked.exit_code == 2 and "Nothing was changed. --yes does it" in asked.output
    assert not any(table.is_partitioned for table in partitions.look(postgres_url))
    done = switchboard(postgres_url, "partition", "--calls", "100000", "--yes")
    assert done.exit_code == 0, done.output
    assert "jobs has 2 partitions, for the calls up to 1,199,999; further ones hold 100,000 each." in done.output
    tables = partitions.look(postgres_url)
    again = switchboard(postgres_url, "partition", "--yes")
    assert again.exit_code == 0 and "Nothing was changed." in again.output
    assert partitions.look(postgres_url) == tables


async def test_a_backup_of_partitions_is_restored_as_partitions(
    full: World, empty_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = full.database.url
    partition_finely(url)
    await submitted(full, 10)
    monkeypatch.setenv("SWITCHBOARD_STORAGE_URL", (tmp_path / "recordings").as_uri())
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path / "data"))
    made = switchboard(url, "backup", "create", tmp_path / "backups")
    assert made.exit_code == 0, made.output
    (backup,) = [path for path in (tmp_path / "backups").iterdir() if (path / "manifest.json").exists()]
    verified = switchboard(url, "backup", "verify", backup)
    assert verified.exit_code == 0, verified.output
    restored = switchboard(url, "restore", backup, "--into", empty_postgres_url)
    assert restored.exit_code == 0, restored.output
    assert contents(empty_postgres_url) == contents(url)
    assert partitions.look(empty_postgres_url) == partitions.look(url)
    assert migrate.is_current(empty_postgres_url)


def test_migrations_go_on_and_build_their_indexes_on_each_partition(
    old: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    partition_finely(old)
    steps = STEPS | {"v9903": 'create_index("jobs_note_idx", "ON jobs (worker, stage)")'}
    with code_of(tmp_path, steps, ""):
        meanwhile(old)
        assert migrate.is_current(old)
    assert one(old, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'jobs_note_idx'::regclass") is True
    with psycopg.connect(old, autocommit=True) as admin:
        admin.execute("SELECT add_partition('jobs', 'jobs_9000', 'FOR VALUES FROM (9000) TO (9005)', 'jobs_0')")
    without = (
        "SELECT count(*) FROM pg_inherits t WHERE t.inhparent = 'jobs'::regclass AND NOT EXISTS (SELECT FROM pg_index i"
    )
    without += " JOIN pg_inherits p ON p.inhrelid = i.indexrelid AND p.inhparent = 'jobs_note_idx'::regclass"
    assert one(old, without + " WHERE i.indrelid = t.inhrelid AND i.indisvalid)") == 0
