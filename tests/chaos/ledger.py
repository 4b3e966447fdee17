"""What a sender knows: everything it sent and every answer, on disk before its next step."""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Attempt:
    """One POST. `status` None: no response, so it is unknown whether it was accepted."""

    number: int  # of the submission; the same for every attempt at it
    attempt: int
    workspace: str
    body: dict[str, Any]
    sent_at: float  # seconds since the epoch
    answered_at: float
    status: int | None
    job_id: str | None = None
    error: str | None = None

    @property
    def call(self) -> tuple[str, str]:
        return self.workspace, str(self.body["callId"])

    @property
    def marker(self) -> str:
        """Travels in `teamId`, which a team-scoped key ignores and the record keeps as sent."""
        return str(self.body["teamId"])


@dataclass
class Ledger:
    """Append-only, one line of JSON for each attempt."""

    path: Path
    attempts: list[Attempt] = field(default_factory=list)
    accepted: int = 0  # how often a 202 was given
    _file: int = -1

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, attempt: Attempt) -> None:
        os.write(self._file, (json.dumps(asdict(attempt)) + "\n").encode())
        self.attempts.append(attempt)
        self.accepted += attempt.status == ACCEPTED

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Attempt]:
    """Read the attempts of a ledger on disk."""
    return [Attempt(**json.loads(line)) for line in path.read_text().splitlines()]


def now() -> float:
    return time.time()
