"""Writes the database of a release with a few calls, which the tests of upgrades migrate.

Run it once for each release, on the commit that is tagged: `python -m tests.release_dump`. It writes
`tests/fixtures/releases/VERSION.sql`: plain SQL, which psycopg can execute.
"""

import re
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from packaging.version import Version

from db.core.database import Database, Reader
from db.intake.group_commit import GroupCommitter
from db.records import correct
from db.records.correct import WantedEdit
from db.records.corrections import Editor
from db.records.views import show_call
from db.server import embedded, migrate, pg_tools
from db.workspace import keys
from pipeline.domain.call import Submission
from pipeline.domain.edits import EditKind

if TYPE_CHECKING:
    from tests.integration.serve_app.cli.test_cli_width import Filled

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "fixtures" / "releases"


def newest() -> Path:
    """Return the dump of the last release."""
    return max(FOLDER.glob("*.sql"), key=lambda path: Version(path.stem))


def restore(url: str, sql: str) -> None:
    """Execute a dump in an empty database."""
    with psycopg.connect(url) as connection:
        connection.execute(sql.encode())


def dump(url: str) -> str:
    """Return a database as SQL, without the commands that only psql supports."""
    options = ["--no-owner", "--no-privileges", "--rows-per-insert=100"]
    sql = pg_tools.find(18, tls=False).run("pg_dump", options, url, 60.0)
    return re.sub(r"^\\(un)?restrict .*\n", "", sql, flags=re.MULTILINE)


def main() -> None:
    from serve_app.cli.ui import database as state
    from tests.integration.serve_app.cli.test_cli_width import Filled

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        url = embedded.start(Path(folder))
        try:
            migrate.migrate(url)
            patch.setenv("SWITCHBOARD_DATABASE_URL", url)
            patch.setenv("SWITCHBOARD_DATA_DIR", folder)
            patch.setenv("SWITCHBOARD_WEBHOOKS__ALLOWED_HOSTS", '["127.0.0.1:18443"]')
            patch.setenv("TOKEN", "a secret")
            filled = Filled()
            state.run(lambda database: _add_more(database, filled))
            sql = dump(url)
        finally:
            embedded.stop(Path(folder))
    path = FOLDER / f"{version}.sql"
    path.parent.mkdir(exist_ok=True)
    path.write_text(sql)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


async def _add_more(database: Database, filled: "Filled") -> None:
    """Add a call without a recording, a corrected word and a completed task."""
    sender = await keys.find(database, filled.secret)
    assert sender is not None
    submission = Submission(uuid4(), "+4930123456789", "+5491123456789", datetime(2026, 11, 2, 9, 0, tzinfo=UTC))
    await GroupCommitter(database).submit(sender, submission, {})
    reader, editor = Reader(sender.workspace_id), Editor(sender.key_id, None, "Ana")
    call = await show_call(database, filled.completed)
    assert call is not None and call.transcript is not None
    turn = call.transcript.turns[0]
    word = turn.words[0]
    edit = WantedEdit(EditKind.TEXT, word.text, "Good", turn.index, word.start, word.end)
    await correct.make(database, reader, editor, filled.completed, edit)
    await correct.tick(database, reader, editor, filled.completed, call.tasks[0].task_id)


if __name__ == "__main__":
    main()
