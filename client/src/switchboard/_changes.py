"""Server-sent events of the service, and how long they are waited for."""

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
HEARTBEAT_SECONDS: Final = 15.0  # the service says at least so often that it is there
SILENCE_SECONDS: Final = 45.0  # after which a connection counts as lost
LONGEST_PAUSE: Final = 8.0


class CallChange(Model):
    """A call as it is after its latest change."""

    call_id: UUID
    team_id: UUID
    status: Literal["received", "transcribing", "completed", "failed"] | str
    start_time: AwareDatetime
    updated_at: AwareDatetime


class EventParser:
    """Lines of `text/event-stream` in, changes out. `last_id`: where the next stream begins."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []

    def feed(self, line: str) -> CallChange | None:
        """The change that ends with this line. Comments, and events of other names, are passed over."""
        if line:
            name, _, value = line.partition(":")
            self._take(name, value.removeprefix(" "))
            return None
        event, data, told = self._event, "\n".join(self._data), self._id
        self._event, self._data, self._id = "", [], None
        self.last_id = told or self.last_id
        if event != "call" or not data:
            return None
        try:
            return CallChange.model_validate(json.loads(data))
        except (ValueError, ValidationError):
            raise UnexpectedAnswer(
                "An event of the service's stream is not one that this version of the client knows."
            ) from None

    def _take(self, name: str, value: str) -> None:
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)


class Patience:
    """How long is waited at all (None: for ever), and between two streams."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._empty = 0

    def left(self) -> float:
        """Seconds; without a limit, infinity."""
        return float("inf") if self._ends is None else self._ends - time.monotonic()

    def silence(self) -> float:
        """Seconds that the next stream may be silent: never longer than is left."""
        return max(0.05, min(SILENCE_SECONDS, self.left()))

    def is_too_long(self, silence: float) -> bool:
        """Whether a stream that may be silent for so long could outlast what is left by more than a second."""
        return self.left() < HEARTBEAT_SECONDS and silence > self.left() + 1.0

    def pause(self, had_events: bool) -> float:
        """Seconds until the next stream: longer after each that said nothing."""
        self._empty = 0 if had_events else self._empty + 1
        longest: float = min(0.5 * 2**self._empty, LONGEST_PAUSE)
        return max(0.0, min(longest * random.uniform(0.5, 1.0), self.left()))  # noqa: S311 (not for secrets)
