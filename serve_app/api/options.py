from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from serve_app.http.options import Places, Work, burst


class ApiOptions(BaseModel):
    """Limits of the API. Rates and concurrency count per replica."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    BURST_SECONDS: ClassVar[float] = 15.0  # burst of an idle key: its rate over this time
    RETRY_AFTER_SECONDS: ClassVar[int] = 5  # Retry-After where no place is free
    STREAM_RETRY_SECONDS: ClassVar[int] = 20  # the same for streams, which last; the ingress waits for 30 s
    LATE_REFUSALS: ClassVar[int] = 256  # that wait because their keys did not; a quarter of REQUESTS
    UNKNOWN_KEYS_PER_SECOND: ClassVar[float] = 50.0  # as for submissions
    STREAM_SECONDS: ClassVar[float] = 600.0  # then a stream of events ends; the client resumes it
    EXPORT_SECONDS: ClassVar[float] = 7200.0  # then an export or a download is cut off
    KEY_SECONDS: ClassVar[float] = 5.0  # between two checks that the key of a stream is still valid
    POLL_SECONDS: ClassVar[float] = 1.0  # between two polls for changes
    SOUND_WAIT_SECONDS: ClassVar[float] = 15.0  # max. wait for decoded audio; then 503 while decoding continues
    MEASURE_WAIT_SECONDS: ClassVar[float] = 5.0  # max. wait for a comparison; then 202 while it continues
    POOL_SIZE: ClassVar[int] = 12  # PostgreSQL connections of a replica, of each of two pools
    QUERY_SECONDS: ClassVar[float] = 5.0  # max. time of a query; then 503
    ASK_SECONDS: ClassVar[float] = 25.0  # max. time to answer a question about calls; the ingress waits for 30 s
    SEARCH_SECONDS: ClassVar[float] = 3.0  # max. time of a query with words or names
    REQUESTS: ClassVar[int] = 1024  # that Serve passes on to a replica; those without a place wait or are refused
    # Places per kind of work, so that neither a workspace nor a key can take all.
    PLACES: ClassVar[dict[Work, Places]] = {
        Work.READ: Places(total=8, per_workspace=6, per_key=4, waiting=32, seconds=5.0),
        Work.SEARCH: Places(total=3, per_workspace=2, per_key=1, waiting=8, seconds=5.0, rest=3.0),
        Work.ASK: Places(total=6, per_workspace=3, per_key=2, waiting=4, seconds=5.0),
        Work.SOUND: Places(total=32, per_workspace=16, per_key=4, waiting=12, seconds=5.0),
        Work.WRITE: Places(total=64, per_workspace=32, per_key=8, waiting=0, seconds=0.0),
        Work.UPLOAD: Places(total=32, per_workspace=16, per_key=8, waiting=0, seconds=0.0),
        Work.STREAM: Places(total=128, per_workspace=96, per_key=16, waiting=0, seconds=0.0),
        Work.EXPORT: Places(total=4, per_workspace=2, per_key=1, waiting=0, seconds=0.0),
    }
    SOUND_BYTES: ClassVar[int] = 2 << 30  # cache of decoded audio of a replica

    per_minute: float = Field(
        1200.0,
        gt=0,
        description="Requests to the API a minute for one key; a rested key may send a quarter at once. "
        "A new run counts as 60.",
    )
    run_models: tuple[str, ...] = Field(
        (),
        description="Models with which runs that were created over HTTP may start engines: "
        "whisper-tiny.en,campplus. Unset: such runs use the engines of the service.",
    )

    def retry_after(self, work: Work) -> int:
        """Return the Retry-After in seconds where no place for this work is free."""
        return self.STREAM_RETRY_SECONDS if work is Work.STREAM else self.RETRY_AFTER_SECONDS

    @property
    def burst(self) -> int:
        """Max. burst of requests of an idle key."""
        return burst(self.per_minute, self.BURST_SECONDS)
