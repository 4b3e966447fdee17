import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from serve_app.cli.calls.submit import ADVICE, CommandProblem, read_problem
from serve_app.cli.ui.errors import FAILED, CommandError
from serve_app.cli.watch.state import State

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 60.0
PART_BYTES, MAX_PARTS = 8 << 20, 500  # of an upload; the service allows 1,000 parts
AWAY = frozenset({408, 429, 500, 502, 503, 504})
LATER = frozenset({"too-many-uploads", "digest-mismatch", "offset-mismatch"})


class Away(Exception):
    """The service cannot be reached, or accepts nothing now. `retry_after`: the seconds that it requested, or 0."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Refused(Exception):
    """The service does not accept this call."""

    def __init__(self, problem: CommandProblem) -> None:
        super().__init__(problem.title)
        self.problem = problem


class Later(Exception):
    """This call cannot be sent now; others can."""


class Stopped(Exception):
    """The watcher has to end; the upload resumes when it is started again."""


class Service:
    """The service that calls are sent to. Methods raise `Away`, `Refused`, `Later` and, for the key, `CommandError`."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def submit(self, body: dict[str, Any]) -> None:
        """Send the fields of a call. It can be repeated: the service merges submissions of the same callId."""
        self._send("POST", "/submit", json=body)

    def upload(self, call_id: str, file: Path, state: State, is_stopping: Callable[[], bool]) -> dict[str, Any]:
        """Upload the recording of a submitted call in parts; return the response with its job.

        An upload that was interrupted resumes after what has arrived. Raises `Stopped` between two parts, `OSError`.
        """
        with file.open("rb") as content:
            digest, size = _base64(hashlib.file_digest(content, "sha256").digest()), file.stat().st_size
            path = f"/api/v1/calls/{call_id}/recording"
            upload = self._resumed(path, state.upload_of(call_id, digest))
            if upload is None:
                headers = {"Upload-Length": str(size), "Repr-Digest": f"sha-256=:{digest}:"}
                upload = self._send("POST", path, headers=headers).json()
                state.note_upload(call_id, digest, str(upload["uploadId"]))
            part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
            while True:
                if is_stopping():
                    raise Stopped
                content.seek(int(upload["offset"]))
                part = content.read(part_bytes)
                headers = {
                    "Upload-Offset": str(upload["offset"]),
                    "Content-Digest": f"sha-256=:{_base64(hashlib.sha256(part).digest())}:",
                }
                response = self._send("PATCH", f"{path}/{upload['uploadId']}", headers=headers, content=part or None)
                upload = response.json()
                if response.status_code == httpx.codes.ACCEPTED:
                    state.forget_upload(call_id)
                    return dict(upload)

    def _resumed(self, path: str, upload_id: str | None) -> dict[str, Any] | None:
        """Return the progress of an earlier upload; None if there is none, or the service has removed it."""
        if upload_id is None:
            return None
        try:
            return dict(self._send("GET", f"{path}/{upload_id}").json())
        except Refused as refused:
            if refused.problem.status != httpx.codes.NOT_FOUND:
                raise
            return None

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            response = self._http.request(method, self._url + path, **content)
        except (httpx.TransportError, httpx.InvalidURL, UnicodeError) as error:
            raise Away(f"no answer from {self._url}: {error or type(error).__name__}") from error
        if response.is_success:
            return response
        problem = read_problem(response.status_code, response.headers, response.content)
        kind = _kind(response)
        if response.status_code in AWAY:
            wait = response.headers.get("retry-after", "")
            raise Away(f"{response.status_code} {problem.title}", float(wait) if wait.isdigit() else 0.0)
        if response.status_code == httpx.codes.UNAUTHORIZED or kind == "scope-missing":
            raise CommandError(f"({problem.status}) {problem.title}", ADVICE[problem.status], FAILED)
        if kind in LATER:
            raise Later(problem.detail or problem.title)
        raise Refused(problem)


def _kind(response: httpx.Response) -> str:
    try:
        return str(response.json()["type"]).rpartition(":")[2]
    except (ValueError, TypeError, KeyError):
        return ""


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
