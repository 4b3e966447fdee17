"""A telephony system's machine, on which the scripts of examples/telephony run, and the real intake they submit to."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from db.core.database import Database
from db.records import views
from db.workspace import directory, keys
from tests.integration.db.intake.test_submit_over_http import served

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "telephony"
FILES = "https://pbx.example.com/recordings"

Answer = tuple[int, dict[str, str], bytes]


def script(name: str) -> Any:
    """Import a script as a module."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))  # they import each other
    spec = spec_from_file_location(f"recipe_{name}", SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


submit = script("submit")


def run(name: str, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as its system does: in a separate process, without our code on its path."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments],
        input=stdin,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def answering(answer: Callable[[str, str, dict[str, str], bytes], Answer]) -> Iterator[str]:
    """Start an HTTP server on the loopback address; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, sent = answer(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            for header, value in {**headers, "Content-Length": str(len(sent))}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Site:
    """A telephony system's machine, and the service it submits to."""

    database: Database
    workspace: UUID
    base_url: str
    key: str
    spool: Path
    recordings: Path

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.spool.rglob("*.json"))]

    async def send(self, spool: Path | None = None, **environment: str) -> int:
        """One pass of submit.py; returns its exit code."""
        environment = {"BASE_URL": self.base_url, "KEY": self.key, "RECORDINGS_URL": FILES, **environment}
        sent = await asyncio.to_thread(run, "submit", str(spool or self.spool), "--once", **environment)
        return sent.returncode

    async def call(self, call_id: str) -> views.CallRecord:
        record = await views.show_call(self.database, call_id, self.workspace)
        assert record is not None
        return record

    def environment(self) -> dict[str, str]:
        return {"SPOOL": str(self.spool), "RECORDINGS": str(self.recordings)}


@pytest.fixture
async def site(database: Database, postgres_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    workspace = (await directory.create_workspace(database, "Acme")).workspace_id
    team = (await directory.create_team(database, workspace, "Sales")).team_id
    _, key = await keys.create(database, workspace, team, {"submit"}, "pbx")
    (tmp_path / "recordings").mkdir()
    with served(postgres_url) as url:
        yield Site(database, workspace, url, key, tmp_path / "spool", tmp_path / "recordings")


def body(call_id: str | None = None, **fields: Any) -> dict[str, Any]:
    call = {"callId": call_id or str(uuid4()), "from": "+493012345678", "to": "+4940987654"}
    return {**call, "startTime": "2026-11-20T09:30:00+00:00", **fields}
