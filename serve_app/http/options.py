from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class Places:
    """Limits of one kind of work in a process.

    `waiting`: requests of a key that may wait, for up to `seconds`; of a workspace twice as many. `rest`: how long a
    place counts against its key and workspace after the work, as a multiple of its time: others go first.
    """

    total: int
    per_workspace: int
    per_key: int
    waiting: int
    seconds: float
    rest: float = 0.0


class Work(Enum):
    """Kinds of work, each with its places."""

    READ = auto()
    SEARCH = auto()
    ASK = auto()  # waiting for a language model
    SOUND = auto()
    WRITE = auto()  # receiving a body
    UPLOAD = auto()  # receiving a recording
    STREAM = auto()
    EXPORT = auto()


class LimitOptions(BaseModel):
    """Limits of the submission endpoint. Rates and concurrency count per Intake replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    BODY_BYTES: ClassVar[int] = 64 * 1024  # typical submissions have 1 to 2 KiB; larger bodies get 413
    BODY_SECONDS: ClassVar[float] = 10.0  # max. time to receive a body; then 408
    # Submissions at once: a key can send its burst, and a workspace with all that wait (448) does not fill REQUESTS.
    PLACES: ClassVar[Places] = Places(total=256, per_workspace=192, per_key=128, waiting=128, seconds=2.0)
    REQUESTS: ClassVar[int] = 512  # that Serve passes on to a replica
    BURST_SECONDS: ClassVar[float] = 20.0  # burst of an idle key: its rate over this time
    QUEUE: ClassVar[int] = 256  # further submissions that Serve queues before it returns 503
    KEY_SECONDS: ClassVar[float] = 5.0  # cache time of a valid key
    UNKNOWN_KEY_SECONDS: ClassVar[float] = 1.0  # cache time of an unknown key
    # Look-ups of unknown keys per address and replica, with a burst of ten seconds. Beyond it, uncached keys from that
    # address get 503, so that guessing cannot overload PostgreSQL.
    UNKNOWN_KEYS_PER_SECOND: ClassVar[float] = 50.0
    BACKLOG_RETRY_SECONDS: ClassVar[int] = 60  # Retry-After of a 429 for a full backlog
    RETRY_AFTER_SECONDS: ClassVar[int] = 5  # Retry-After of a 503
    DATABASE_SECONDS: ClassVar[float] = 5.0  # max. time to record a call; then 503, never 202
    POOL_SIZE: ClassVar[int] = 8  # PostgreSQL connections of a replica

    per_minute: float = Field(
        600.0,
        gt=0,
        description="Submissions a minute for one API key; a rested key may send a third at once.",
    )
    backlog: int = Field(
        100_000,
        ge=1,
        description="Waiting calls of one workspace; further ones with a recording get 429.",
    )

    @property
    def burst(self) -> int:
        """Max. burst of submissions of an idle key."""
        return burst(self.per_minute, self.BURST_SECONDS)


def burst(per_minute: float, seconds: float) -> int:
    """Return the number of requests of a rate in a time in seconds; at least 1."""
    return max(1, round(per_minute / 60 * seconds))
