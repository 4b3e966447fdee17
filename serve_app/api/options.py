"""Limits of the API."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from serve_app.http.limits import burst


class ApiOptions(BaseModel):
    """Limits of the API. Rates and numbers at once count for each replica by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    BURST_SECONDS: ClassVar[float] = 15.0  # a rested key may send at once what its rate allows in this time
    RETRY_AFTER_SECONDS: ClassVar[int] = 5  # Retry-After of a 503
    UNKNOWN_KEYS_PER_SECOND: ClassVar[float] = 50.0  # as for submissions
    STREAMS: ClassVar[int] = 128  # of events and exports at once; more get 503
    STREAM_SECONDS: ClassVar[float] = 600.0  # a stream of events then ends, and its reader begins where it ended
    POLL_SECONDS: ClassVar[float] = 1.0  # between two looks for what changed
    SOUND_WAIT_SECONDS: ClassVar[float] = 15.0  # that a request waits for decoded sound; then 503, and it is decoded on
    MEASURE_WAIT_SECONDS: ClassVar[float] = 5.0  # that a request waits for a comparison; then 202, and it goes on
    DECODERS: ClassVar[int] = 2  # recordings decoded at once
    CONCURRENCY: ClassVar[int] = 32  # requests read at once in a replica; more get 503
    POOL_SIZE: ClassVar[int] = 4  # connections to PostgreSQL that a replica keeps
    QUERY_SECONDS: ClassVar[float] = 5.0  # longest time of one query; then 503
    SOUND_BYTES: ClassVar[int] = 2 << 30  # of a replica, for sound decoded to be listened to

    per_minute: float = Field(
        1200.0,
        gt=0,
        description="Requests to the API a minute for one key; more get 429. A rested key may send a quarter at once.",
    )

    @property
    def burst(self) -> int:
        """Requests that a rested key may send at once."""
        return burst(self.per_minute, self.BURST_SECONDS)
