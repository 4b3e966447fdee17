"""The database's time, without asking for it each time.

Nodes need not agree on the time. What one of them decides about a moment that the database wrote (a deadline, a retry,
the age of something), it decides by the database's clock.
"""

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Clock:
    """Runs from a moment that the database told, `at`, by this process's monotonic clock; the wall clock is never read.

    Behind the database's clock by what the answer took on its way.
    """

    at: datetime
    since: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """The time, as the database has it now."""
        return self.at + timedelta(seconds=time.monotonic() - self.since)
