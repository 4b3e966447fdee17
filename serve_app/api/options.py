from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from serve_app.http.options import burst


class ApiOptions(BaseModel):
    """Limits of the API. Rates and concurrency count per replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    BURST_SECONDS: ClassVar[float] = 15.0  # burst of an idle key: its rate over this time
    RETRY_AFTER_SECONDS: ClassVar[int] = 5  # Retry-After of a 503
    UNKNOWN_KEYS_PER_SECOND: ClassVar[float] = 50.0  # as for submissions
    STREAMS: ClassVar[int] = 128  # of events and exports at once; more get 503
    STREAM_SECONDS: ClassVar[float] = 600.0  # then a stream of events ends; the client resumes it
    POLL_SECONDS: ClassVar[float] = 1.0  # between two polls for changes
    SOUND_WAIT_SECONDS: ClassVar[float] = 15.0  # max. wait for decoded audio; then 503 while decoding continues
    MEASURE_WAIT_SECONDS: ClassVar[float] = 5.0  # max. wait for a comparison; then 202 while it continues
    DECODERS: ClassVar[int] = 2  # recordings decoded at once
    CONCURRENCY: ClassVar[int] = 32  # concurrent requests of a replica; more get 503
    POOL_SIZE: ClassVar[int] = 4  # PostgreSQL connections of a replica
    QUERY_SECONDS: ClassVar[float] = 5.0  # max. time of a query; then 503
    SOUND_BYTES: ClassVar[int] = 2 << 30  # cache of decoded audio of a replica

    per_minute: float = Field(
        1200.0,
        gt=0,
        description="Requests to the API a minute for one key; more get 429. A rested key may send a quarter at once.",
    )
    run_models: tuple[str, ...] = Field(
        (),
        description="Models with which runs that were created over HTTP may start engines, as in the settings: "
        "whisper-tiny.en,campplus. Unset: such runs use the engines of the service. Runs of the command line may use "
        "any model.",
    )

    @property
    def burst(self) -> int:
        """Max. burst of requests of an idle key."""
        return burst(self.per_minute, self.BURST_SECONDS)
