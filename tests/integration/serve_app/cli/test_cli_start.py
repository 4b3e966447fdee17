"""A command imports what it needs, so that it starts within a second; measured by modules, not by a clock."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = {"alembic", "fsspec", "httpcore", "ray", "torch", "scipy", "soxr", "phonenumbers", "fastapi", "starlette"}
MAX_MODULES = 1_100  # of `python -c pass`: 40
PROBE = """
import json, sys
sys.argv[0] = "switchboard"
from serve_app.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules(url: str, *command: str) -> set[str]:
    """Return the modules of a process that has run a command."""
    environment = os.environ | {"SWITCHBOARD_DATABASE_URL": url}
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(json.loads(run.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "command",
    [
        "calls list",
        "keys list",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("jobs list", "queue", "webhooks list")),
    ],
)
def test_a_command_imports_no_heavy_library(postgres_url: str, command: str) -> None:
    imported = modules(postgres_url, *command.split())
    assert imported & HEAVY == set()
    assert len(imported) < MAX_MODULES
    assert "db.core.database" in imported, "the command read the database"
