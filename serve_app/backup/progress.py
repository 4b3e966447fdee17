import time
from collections.abc import Callable
from dataclasses import dataclass, field


class OutOfTime(Exception):
    """The time limit is exceeded."""


def _discard(_step: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Progress and time limit. `report(step, done, total)`, in bytes; `seconds` for all of it."""

    seconds: float
    report: Callable[[str, int, int], None] = _discard
    began: float = field(default_factory=time.monotonic)

    def remaining(self) -> float:
        """Return the seconds until the limit. Raises `OutOfTime` if none remain."""
        remaining = self.began + self.seconds - time.monotonic()
        if remaining <= 0:
            raise OutOfTime(f"The time limit of {self.seconds:.0f} s is exceeded.")
        return remaining

    def elapsed(self) -> float:
        return time.monotonic() - self.began
