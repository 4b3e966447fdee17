"""Telephony systems of two workspaces, which send calls over TLS and repeat what is not accepted, and the audit."""

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests.file_server import FileServer
from tests.rehearsal.machine import Machine
from tests.synthetic_calls import synthetic_calls

HOST = "calls.example.com"
REPEAT_SECONDS = 0.5
REQUEST_SECONDS = 15.0
COMPLETE_SECONDS, API_SECONDS = 1200.0, 120.0


@dataclass(frozen=True)
class Workspace:
    """A workspace with a key that submits and one that reads."""

    name: str
    submit_key: str
    team_id: str
    read_key: str


@dataclass
class Site:
    """The telephony systems next to one machine, and what it accepted from them."""

    machine: Machine
    certificate: Path
    workspaces: list[Workspace]
    recordings: FileServer
    accepted: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # bodies by workspace and callId
    repeated: int = 0
    longest: float = 0.0  # seconds from the first attempt to send a call until it was accepted

    def client(self) -> httpx.Client:
        tls = ssl.create_default_context(cafile=self.certificate)
        return httpx.Client(
            base_url="https://127.0.0.1", verify=tls, trust_env=False, timeout=REQUEST_SECONDS, headers={"Host": HOST}
        )

    def send(self, client: httpx.Client, workspace: Workspace, body: dict[str, Any]) -> None:
        """Send a call until it is accepted."""
        started = time.monotonic()
        while True:
            with contextlib.suppress(httpx.TransportError):
                response = self._request(client, "POST", "/submit", workspace.submit_key, json=body)
                if response.status_code == 202:
                    break
                assert response.status_code >= 500 or response.status_code == 429, response.text
            self.repeated += 1
            time.sleep(REPEAT_SECONDS)
        self.accepted[workspace.name, body["callId"]] = body
        self.longest = max(self.longest, time.monotonic() - started)

    def send_new(self, ending: threading.Event, limit: int = 0, pause: float = 0.0) -> None:
        """Send calls of both workspaces in turn, until the event or the limit."""
        samples = synthetic_calls()
        with self.machine.network(), self.client() as client:
            for number in count():
                if ending.is_set() or number == (limit or -1):
                    return
                workspace, sample = self.workspaces[number % 2], samples[number % len(samples)]
                body = sample.submissions(self.recordings.add, uuid4())[-1] | {"teamId": workspace.team_id}
                self.send(client, workspace, body)
                ending.wait(pause)

    def send_again(self) -> None:
        """Send every accepted call again."""
        by_name = {workspace.name: workspace for workspace in self.workspaces}
        with self.machine.network(), self.client() as client:
            for (name, _), body in list(self.accepted.items()):
                self.send(client, by_name[name], body)

    def stored(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the stored calls by workspace and callId, as the API lists them. Raises if one is stored twice."""
        calls: dict[tuple[str, str], dict[str, Any]] = {}
        with self.machine.network(), self.client() as client:
            for workspace in self.workspaces:
                cursor: str | None = ""
                while cursor is not None:
                    page = self._page(client, workspace, cursor)
                    for line in page["items"]:
                        key = (workspace.name, line["call"]["callId"])
                        assert key not in calls, f"{key} is stored twice"
                        calls[key] = line["call"]
                    cursor = page["next"]
        return calls

    def lost(self) -> int:
        return len(self.accepted.keys() - self.stored().keys())

    def complete(self) -> None:
        """Wait until every accepted call is completed."""
        deadline = time.monotonic() + COMPLETE_SECONDS
        while True:
            calls = self.stored()
            failed = [call for call in calls.values() if call["status"] == "failed"]
            assert not failed, f"{len(failed)} of {len(calls)} calls failed, such as {failed[0]}"
            waiting = [key for key in self.accepted if key not in calls or calls[key]["status"] != "completed"]
            if not waiting:
                return
            assert time.monotonic() < deadline, f"{len(waiting)} of {len(self.accepted)} calls are not completed"
            time.sleep(3)

    def _page(self, client: httpx.Client, workspace: Workspace, cursor: str) -> dict[str, Any]:
        """Return a page of the list of calls. Api may need longer to start than Intake."""
        query = {"limit": "100"} | ({"cursor": cursor} if cursor else {})
        deadline = time.monotonic() + API_SECONDS
        while True:
            response = self._request(client, "GET", "/api/v1/calls", workspace.read_key, params=query)
            if response.is_success or time.monotonic() > deadline:
                return dict(response.raise_for_status().json())
            time.sleep(1)

    def _request(self, client: httpx.Client, method: str, path: str, key: str, **content: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return client.request(method, path, headers=headers, extensions={"sni_hostname": HOST}, **content)


@contextmanager
def calling(site: Site, pause: float) -> Iterator[None]:
    """Let calls arrive during the block, one every `pause` seconds."""
    ending = threading.Event()
    failures: list[BaseException] = []

    def send() -> None:
        try:
            site.send_new(ending, pause=pause)
        except BaseException as error:  # of a thread: raised at the end of the block
            failures.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(API_SECONDS)
    if thread.is_alive() or failures:
        raise AssertionError("calls could not be sent") from (failures or [None])[0]
