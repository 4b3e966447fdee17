"""What goes with work from process to process: the ids that its log lines have as fields, and its trace."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Carried:
    """`ids`: `call_id`, `call_job_id` and `request_id`, as far as they are known (Ray calls its own jobs `job_id`).
    `trace`: the W3C `traceparent` of the open span, or the one that a sender brought along.
    `timed`: the caller of a replica wants to know how long it worked; see `pipeline.observability.work_clock`."""

    ids: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None
    timed: bool = False


_NOTHING = Carried()
_present: ContextVar[Carried] = ContextVar("carried", default=_NOTHING)


def carried() -> Carried:
    """What belongs to the work that runs now."""
    return _present.get()


class carrying:  # noqa: N801 (used as a function)
    """A context manager: its block, and the tasks and threads that the block starts, belong to `work`."""

    __slots__ = ("_token", "_work")

    def __init__(self, work: Carried) -> None:
        self._work = work

    def __enter__(self) -> None:
        self._token = _present.set(self._work)

    def __exit__(self, *_: object) -> None:
        _present.reset(self._token)
