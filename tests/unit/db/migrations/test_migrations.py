"""Checks migrations by the rule of db/README.md: calls are accepted while they run, so no table is locked for long."""

import re
from pathlib import Path

import pytest

from db.core import tables
from db.migrations import SQL
from tests.release_dump import newest

VERSIONS = sorted((SQL.parent / "versions").glob("v*.py"))
AFTER_THE_BASE = [path for path in VERSIONS if not path.stem.endswith("_base")]
SMALL = {"workspaces", "teams", "turns", "paces", "engines", "webhook_endpoints", "host_credentials", "api_keys"}
"""Tables with few rows, whatever the number of calls: changing all of them takes milliseconds."""
CALLED = {"submit_calls", "claim_jobs", "claim_fetches", "find_key"}
"""Functions that nodes of the previous release call during an upgrade."""

FORBIDDEN = {
    r"CREATE (UNIQUE )?INDEX": "an index of a table in use is built by `create_index`",
    r"(UPDATE|DELETE FROM|INSERT INTO) ": "rows are changed in batches, by `backfill`",
    r"ALTER TABLE .* ADD (CONSTRAINT \w+ )?(CHECK|FOREIGN KEY)(?!.* NOT VALID)": "add it NOT VALID, validate it later",
    r"ALTER TABLE .* ADD (CONSTRAINT \w+ )?(PRIMARY KEY|UNIQUE) ?\(": "add it USING an index of `create_index`",
    r"ALTER TABLE .* ALTER (COLUMN )?\w+ (SET DATA )?TYPE": "a new type writes the whole table again: add a column",
    r"ALTER TABLE .* ALTER (COLUMN )?\w+ SET NOT NULL": "it reads the whole table: add a CHECK, NOT VALID",
    r"ALTER TABLE .* ADD COLUMN .* DEFAULT (gen_random_uuid|clock_timestamp|random|nextval)": "it writes all rows",
    r"(VACUUM|CLUSTER|REINDEX|LOCK TABLE|TRUNCATE)": "it holds the table",
}


UNUSED: set[str] = set()
"""Columns that the code of the last release did not use, though its schema had them: a migration may drop them."""


def columns_of(dump: str) -> set[str]:
    """Return each `table.column` of a dump."""
    return {
        f"{table}.{column}"
        for table, body in re.findall(r"^CREATE TABLE public\.(\w+) \((.*?)^\)", dump, re.MULTILINE | re.DOTALL)
        for column in re.findall(r"^ {4}\"?([a-z]\w*)", body, re.MULTILINE)
    }


RELEASED = columns_of(newest().read_text()) - UNUSED
USED_TABLES = {name.partition(".")[0] for name in RELEASED}


def taken_away(statement: str) -> list[str]:
    """Return what a statement removes from the last release, whose nodes continue to run during an upgrade."""
    if dropped := re.match(r"DROP TABLE (?:IF EXISTS )?(\w+)", statement):
        return [f"the last release uses the table: {statement}"] if dropped[1] in USED_TABLES else []
    altered = re.match(r"ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+) (.*)", statement)
    if not altered or altered[1] not in USED_TABLES:
        return []
    table, changes = altered[1], altered[2]
    problems = []
    if re.match(r"RENAME TO ", changes):
        problems.append(f"the last release uses the table by its name: {statement}")
    for column in re.findall(
        r"(?:DROP (?:COLUMN )?(?:IF EXISTS )?|RENAME (?:COLUMN )?(?!TO |CONSTRAINT ))(\w+)", changes
    ):
        if f"{table}.{column}" in RELEASED:
            problems.append(
                f"the last release uses {column}; take it from the code, release, drop it then: {statement}"
            )
    if (
        re.search(r"ADD COLUMN (?:(?!, ADD ).)* NOT NULL(?!(?:(?!, ADD ).)* DEFAULT)", changes)
        and "DEFAULT" not in changes
    ):
        problems.append(f"the last release inserts rows without the new column, which needs a DEFAULT: {statement}")
    for column in re.findall(r"ALTER (?:COLUMN )?(\w+) DROP DEFAULT", changes):
        problems.append(f"the last release inserts rows without {column}: {statement}")
    return problems


def statements(sql: str) -> list[str]:
    """Return top-level statements without comments and bodies of functions, with single spaces."""
    sql = re.sub(r"--[^\n]*", "", sql)
    sql = re.sub(r"\$\$.*?\$\$", "$$", sql, flags=re.DOTALL)
    sql = re.sub(r"BEGIN ATOMIC.*?\nEND;", ";", sql, flags=re.DOTALL)
    return [statement for statement in (" ".join(part.split()) for part in sql.split(";")) if statement]


def table_of(statement: str) -> str | None:
    match = re.match(
        r"(?:ALTER TABLE|UPDATE|DELETE FROM|INSERT INTO|LOCK TABLE) (?:ONLY )?(\w+)|CREATE .*INDEX .* ON (\w+)",
        statement,
    )
    return (match[1] or match[2]) if match else None


def faults(sql: str) -> list[str]:
    """Return the parts of a schema change that would block calls."""
    tables, new = [], set()
    for statement in statements(sql):
        if match := re.match(r"CREATE TABLE (\w+)", statement):
            new.add(match[1])
        if table_of(statement) not in SMALL | new:
            tables += [f"{why}: {statement}" for what, why in FORBIDDEN.items() if re.match(what, statement)]
        tables += taken_away(statement)
        dropped = re.match(r"DROP FUNCTION (?:IF EXISTS )?(\w+)", statement)
        if dropped and dropped[1] in CALLED:
            tables.append(f"nodes of the previous release call it, replace it or add another: {statement}")
    return tables


def faults_of_a_migration(text: str, sql: Path = SQL) -> list[str]:
    """Return the faults of a file of `versions/`; `sql` is the folder of its statements."""
    problems = []
    done = re.findall(r"^    (apply_sql|backfill|create_index)\(", text, re.MULTILINE)
    if len(set(done)) > 1 or not (done or re.search(r"^    pass", text, re.MULTILINE)):
        problems.append("change the schema, update rows, build indexes, or nothing for functions alone (`pass`)")
    for kind, name in re.findall(r"(apply_sql|backfill)\(\"([^\"]+)\"", text):
        file = (sql / name).read_text()
        if kind == "apply_sql":
            problems += faults(file)
        elif len(statements(file)) != 1 or not ("%(first)s" in file and "%(last)s" in file):
            problems.append(f"{name}: one statement, over the calls from %(first)s to %(last)s")
    executed = re.findall(r"op\.execute\(\"([^\"]+)\"", text)
    problems += [statement for statement in executed if not statement.startswith("DROP INDEX ")]
    if "down_revision" not in text or "NotImplementedError" not in text:
        problems.append("there is no way back down")
    return problems


def test_what_the_last_release_uses_is_still_there() -> None:
    """Its nodes run in parallel with the current ones during an upgrade, and again after a rollback."""
    current = {f"{table.name}.{column.name}" for table in tables.metadata.tables.values() for column in table.columns}
    assert len(RELEASED) > 300
    assert RELEASED - current == {"alembic_version.version_num"}


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE calls DROP COLUMN warnings;",
        "ALTER TABLE workspaces DROP COLUMN IF EXISTS terms;",
        "ALTER TABLE workspaces DROP terms;",
        "ALTER TABLE calls ADD COLUMN a text, DROP COLUMN warnings;",
        "ALTER TABLE teams RENAME COLUMN name TO title;",
        "ALTER TABLE teams RENAME name TO title;",
        "ALTER TABLE teams RENAME TO groups;",
        "DROP TABLE saved_views;",
        "DROP TABLE IF EXISTS saved_views CASCADE;",
        "ALTER TABLE teams ADD COLUMN place text NOT NULL;",
        "ALTER TABLE teams ALTER COLUMN priority DROP DEFAULT;",
    ],
)
def test_a_migration_that_takes_from_the_last_release_what_it_uses_is_refused(sql: str) -> None:
    assert len(faults(sql)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE calls DROP COLUMN gone_since_a_release;",
        "DROP TABLE of_a_former_release;",
        "ALTER TABLE teams RENAME CONSTRAINT a TO b;",
        "ALTER TABLE teams ADD COLUMN place text NOT NULL DEFAULT '';",
        "CREATE TABLE new (id bigint NOT NULL); ALTER TABLE new ADD COLUMN place text NOT NULL;",
    ],
)
def test_what_the_last_release_does_not_use_may_go(sql: str) -> None:
    assert faults(sql) == []


def test_migrations_do_one_thing_each_and_that_without_holding_up_calls() -> None:
    assert {path.stem: faults_of_a_migration(path.read_text()) for path in AFTER_THE_BASE} == {
        path.stem: [] for path in AFTER_THE_BASE
    }


def test_a_migration_that_does_more_than_one_thing_or_too_much_at_once_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("ALTER TABLE calls ADD COLUMN note text;")
    (tmp_path / "b.sql").write_text("UPDATE calls SET note = '' WHERE id BETWEEN %(first)s AND %(last)s")
    (tmp_path / "c.sql").write_text("UPDATE calls SET note = ''")
    around = "down_revision = '0100'\ndef upgrade():\n{}\ndef downgrade():\n    raise NotImplementedError\n"
    lines = {name: f'    {do}("{name}.sql")' for name, do in (("a", "apply_sql"), ("b", "backfill"), ("c", "backfill"))}
    for body in (lines["a"], lines["b"], "    pass  # functions alone"):
        assert faults_of_a_migration(around.format(body), tmp_path) == []
    assert len(faults_of_a_migration(around.format("    ..."), tmp_path)) == 1
    assert len(faults_of_a_migration(around.format(lines["c"]), tmp_path)) == 1
    assert len(faults_of_a_migration(around.format(lines["a"] + "\n" + lines["b"]), tmp_path)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX a ON calls (created_at);",
        "CREATE UNIQUE INDEX a ON jobs (id);",
        "UPDATE calls SET duration = 0;",
        "ALTER TABLE calls ADD CONSTRAINT c CHECK (duration > 0);",
        "ALTER TABLE calls\n    ADD CONSTRAINT c FOREIGN KEY (job_id) REFERENCES jobs (id);",
        "ALTER TABLE calls ALTER COLUMN duration TYPE numeric;",
        "ALTER TABLE calls ALTER duration SET NOT NULL;",
        "ALTER TABLE calls ADD COLUMN token uuid DEFAULT gen_random_uuid();",
        "ALTER TABLE submissions ADD PRIMARY KEY (id);",
        "-- it goes\nDROP FUNCTION submit_calls(uuid);",
        "LOCK TABLE calls;",
    ],
)
def test_what_would_hold_up_calls_is_found(sql: str) -> None:
    assert len(faults(sql)) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE new (id bigint); CREATE INDEX a ON new (id); INSERT INTO new VALUES (1);",
        "ALTER TABLE calls ADD COLUMN token uuid; ALTER TABLE calls ADD COLUMN kept boolean NOT NULL DEFAULT false;",
        "ALTER TABLE calls ADD CONSTRAINT c CHECK (duration > 0) NOT VALID;",
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ UPDATE calls SET duration = 0; DELETE FROM jobs $$;",
        "UPDATE workspaces SET name = name; DROP FUNCTION of_nobody();",
    ],
)
def test_what_takes_moments_is_let_through(sql: str) -> None:
    assert faults(sql) == []
