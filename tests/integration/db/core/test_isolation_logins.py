import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa

from db.core import database as database_module
from db.core.database import EVERY_WORKSPACE, IS_ISOLATED, SERVICE_ROLE, STEP_DOWN, Database
from db.server import embedded, migrate
from db.server.embedded import programs
from db.workspace import directory
from serve_app.cli.doctor import service
from tests.paths import ROOT
from tests.postgres import World


@pytest.fixture
def login(request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a role that tests may alter; dropped afterward with its objects in the test's database."""
    empty = "empty_postgres_url" in request.fixturenames
    url = request.getfixturevalue("empty_postgres_url" if empty else "postgres_url")
    name = f"login_{uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        yield name
        admin.execute(f"REASSIGN OWNED BY {name} TO postgres".encode())  # databases too
        admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
        admin.execute(f"DROP ROLE {name}".encode())


def run_as_superuser(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement.encode())


def logged_in(url: str, login: str) -> str:
    return url.replace("//postgres@", f"//{login}@")


async def names_seen(url: str, workspace: directory.Workspace) -> list[str]:
    """Return the result of a statement without WHERE in `workspace`'s scope."""
    database = await Database.open(url, pool_size=1)
    try:
        async with database.transaction(workspace.workspace_id) as connection:
            return list((await connection.execute(sa.text("SELECT name FROM workspaces"))).scalars())
    finally:
        await database.close()


async def test_the_superuser_of_the_embedded_server_works_as_the_service_role(world: World) -> None:
    async with world.database.transaction(EVERY_WORKSPACE) as connection:
        row = (await connection.execute(sa.text("SELECT current_user, session_user"))).one()
    async with world.database.pool.connection() as pooled:
        current_row = await (await pooled.execute("SELECT current_user, session_user")).fetchone()
    assert tuple(row) == current_row == (SERVICE_ROLE, "postgres")


async def test_a_login_that_stepped_down_can_step_up_again_and_a_plain_one_cannot(world: World, login: str) -> None:
    """Any SQL on a superuser's connection can undo the switch, so production needs an ordinary login."""
    async with world.database.transaction(uuid4()) as connection:
        await connection.execute(sa.text("RESET ROLE"))
        assert (await connection.execute(sa.text("SELECT count(*) FROM workspaces"))).scalar_one() == 1
        await connection.rollback()
    run_as_superuser(world.database.url, f"GRANT {SERVICE_ROLE} TO {login}")
    with psycopg.connect(logged_in(world.database.url, login)) as plain:
        for attempt in ("RESET ROLE", "SET ROLE NONE", f"SET ROLE {login}"):
            plain.execute(attempt.encode())
            assert plain.execute("SELECT count(*) FROM workspaces").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain.execute("SET ROLE postgres")


async def test_a_plain_member_of_the_service_role_can_serve(world: World, login: str) -> None:
    """The recommended production setup: migrations by the owner, the service by a login that owns nothing."""
    run_as_superuser(world.database.url, f"GRANT {SERVICE_ROLE} TO {login}")
    database = await Database.open(logged_in(world.database.url, login))
    try:
        other = await directory.create_workspace(database, "Umbrella")
        assert (await World(**{**_fields(world), "database": database}).submit()).status == "received"
    finally:
        await database.close()
    assert await names_seen(logged_in(world.database.url, login), other) == ["Umbrella"]


async def test_a_plain_owner_without_the_right_to_make_roles_is_bound_as_well(
    empty_postgres_url: str, login: str, tmp_path: Path
) -> None:
    url = logged_in(empty_postgres_url, login)
    name = psycopg.conninfo.conninfo_to_dict(empty_postgres_url)["dbname"]
    run_as_superuser(
        empty_postgres_url, "CREATE EXTENSION vector", f"GRANT ALL ON SCHEMA public TO {login}",
        f"ALTER DATABASE {name} OWNER TO {login}",
    )  # fmt: skip
    migrate.migrate(url)
    migrate.migrate(url)
    database = await Database.open(url)
    mine = await directory.create_workspace(database, "Mine")
    await directory.create_workspace(database, "Theirs")
    await database.close()
    assert await names_seen(url, mine) == ["Mine"]
    assert [check.level.name for check in _isolation_checks(url)] == ["GOOD"]
    _dump_and_restore(url, empty_postgres_url, tmp_path)


def _dump_and_restore(url: str, superuser_url: str, folder: Path) -> None:
    """Dump as in the README; without its option, the dump of an ordinary owner fails rather than being empty."""
    dump = [str(programs() / "pg_dump"), "--format=custom", f"--file={folder / 'dump'}"]
    refused = subprocess.run([*dump, f"--dbname={url}"], capture_output=True, text=True, check=False)
    assert "row-level security" in refused.stderr
    environment = {"PGOPTIONS": "-c switchboard.workspace=*"}
    subprocess.run([*dump, "--enable-row-security", f"--dbname={url}"], check=True, env=environment)
    copy = psycopg.conninfo.conninfo_to_dict(url)["dbname"] + "_copy"
    run_as_superuser(superuser_url, f"CREATE DATABASE {copy} TEMPLATE template0")
    try:
        restored = superuser_url.replace(f"/{copy.removesuffix('_copy')}?", f"/{copy}?")
        restore = [str(programs() / "pg_restore"), "--exit-on-error", f"--dbname={restored}", str(folder / "dump")]
        subprocess.run(restore, check=True, env={})
        migrate.migrate(restored)
        with psycopg.connect(restored) as connection:
            assert connection.execute("SELECT count(*) FROM workspaces").fetchone() == (2,)
            connection.execute(STEP_DOWN)
            assert connection.execute("SELECT count(*) FROM workspaces").fetchone() == (0,)
    finally:
        run_as_superuser(superuser_url, f"DROP DATABASE {copy} WITH (FORCE)")


async def test_a_login_that_cannot_be_bound_is_told_about_loudly(
    world: World, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_as_superuser(
        world.database.url, f"ALTER ROLE {login} BYPASSRLS",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {login}",
    )  # fmt: skip
    url = logged_in(world.database.url, login)
    database_module._log_once.cache_clear()
    (workspace, *_) = await directory.list_workspaces(world.database)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            await names_seen(url, workspace)
    messages = [record.getMessage() for record in caplog.records if record.name == "db.core.database"]
    assert len(messages) == 1
    assert login in messages[0]
    assert f"GRANT {SERVICE_ROLE} TO {login}" in messages[0]
    (check,) = _isolation_checks(url)
    assert check.level.name == "BAD"
    run_as_superuser(world.database.url, f"GRANT {SERVICE_ROLE} TO {login}")  # as the sentence says
    assert [check.level.name for check in _isolation_checks(url)] == ["GOOD"]


def _isolation_checks(url: str) -> list[service.Check]:
    settings = SimpleNamespace(database_url=url, require_database_url=lambda: url)
    with ThreadPoolExecutor(1) as thread:  # the command has no event loop yet
        checks = thread.submit(lambda: list(service.database(settings))).result()
    return [check for check in checks if check.name == "isolation"]


def _fields(world: World) -> dict[str, object]:
    return {name: getattr(world, name) for name in World.__dataclass_fields__}


@pytest.mark.slow
def test_databases_of_one_server_may_be_migrated_at_once() -> None:
    """They share the role, which does not exist before."""
    folder = Path(tempfile.mkdtemp(prefix="swb-pg-"))
    url = embedded.start(folder, {"fsync": "off"})
    try:
        run_as_superuser(url, *(f"CREATE DATABASE d{number}" for number in range(4)))
        urls = [url.replace("/switchboard?", f"/d{number}?") for number in range(4)]
        code = "import sys; from db.server.migrate import migrate; migrate(sys.argv[1])"
        started = [subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT) for url in urls]
        assert [process.wait(60) for process in started] == [0] * 4
        for one in urls:
            with psycopg.connect(one) as connection:
                connection.execute(STEP_DOWN)
                assert connection.execute(IS_ISOLATED).fetchone() == (True, "postgres")
    finally:
        embedded.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
