"""What the parts of a backup share: how far it is, and how long it may take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


class OutOfTime(Exception):
    """It took longer than it may."""


def _tell_nobody(_step: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Progress:
    """`tell(step, done, total)`, in bytes, as the work goes on; `seconds` for all of it."""

    seconds: float
    tell: Callable[[str, int, int], None] = _tell_nobody
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds that are left. Raises `OutOfTime` where there are none."""
        left = self.began + self.seconds - time.monotonic()
        if left <= 0:
            raise OutOfTime(f"It did not end within {self.seconds:.0f} s.")
        return left

    def took(self) -> float:
        return time.monotonic() - self.began
