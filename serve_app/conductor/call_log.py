"""Which call a log line is about: `call_id`, `call_job_id` and `request_id` of every line written while a job runs.

They are fields of the log record, for a formatter that writes structured logs; sentences name what people need. Ray
calls its own jobs `job_id`.
"""

import logging
from contextvars import ContextVar
from typing import Any

from db.jobs import Lease

_about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)


def about(lease: Lease) -> None:
    """Mark the lines of the present task, whichever module writes them."""
    _install()
    ids = {
        "call_id": str(lease.call.call_id),
        "call_job_id": str(lease.job.job_id),
        "request_id": lease.request_id or "",
    }
    _about.set(ids)


def _install() -> None:
    made = logging.getLogRecordFactory()
    if getattr(made, "marks_calls", False):
        return

    def marked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        for name, value in (_about.get() or {}).items():
            record.__dict__.setdefault(name, value)
        return record

    marked.marks_calls = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(marked)
