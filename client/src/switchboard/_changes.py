import json
import random
import time
from typing import Final, Literal
from uuid import UUID

from pydantic import AwareDatetime, ValidationError

from switchboard._model import Model
from switchboard.errors import UnexpectedAnswer

EVENTS: Final = "text/event-stream"
ENDED: Final = frozenset({"completed", "failed"})
HEARTBEAT_SECONDS: Final = 15.0  # max. time between two heartbeats of the service
SILENCE_SECONDS: Final = 45.0  # then a connection counts as lost
MAX_PAUSE_SECONDS: Final = 8.0


class CallChange(Model):
    """A call after its latest change."""

    call_id: UUID
    team_id: UUID
    status: Literal["received", "transcribing", "completed", "failed"] | str
    start_time: AwareDatetime
    updated_at: AwareDatetime


class EventParser:
    """Parser of `text/event-stream`. `last_id`: where the next stream resumes."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []

    def feed(self, line: str) -> CallChange | None:
        """Return the change that ends with this line, if any. Comments and other events are ignored."""
        if line:
            name, _, value = line.partition(":")
            self._take(name, value.removeprefix(" "))
            return None
        event, data, event_id = self._event, "\n".join(self._data), self._id
        self._event, self._data, self._id = "", [], None
        self.last_id = event_id or self.last_id
        if event != "call" or not data:
            return None
        try:
            return CallChange.model_validate(json.loads(data))
        except (ValueError, ValidationError):
            raise UnexpectedAnswer(
                "The stream has an event that this version of the client does not support. Update the client."
            ) from None

    def _take(self, name: str, value: str) -> None:
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)


class Deadline:
    """Deadline of a wait (None: unlimited), and the pauses between two streams."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._empty_streams = 0

    def left(self) -> float:
        """Return the remaining seconds; infinity if unlimited."""
        return float("inf") if self._ends is None else self._ends - time.monotonic()

    def silence(self) -> float:
        """Return the read timeout of the next stream in seconds."""
        return max(0.05, min(SILENCE_SECONDS, self.left()))

    def is_too_long(self, silence: float) -> bool:
        """Return whether a stream with this read timeout could exceed the deadline by more than a second."""
        return self.left() < HEARTBEAT_SECONDS and silence > self.left() + 1.0

    def pause(self, had_events: bool) -> float:
        """Return the seconds until the next stream; more after each stream without events."""
        self._empty_streams = 0 if had_events else self._empty_streams + 1
        longest: float = min(0.5 * 2**self._empty_streams, MAX_PAUSE_SECONDS)
        return max(0.0, min(longest * random.uniform(0.5, 1.0), self.left()))  # noqa: S311 (not for secrets)
