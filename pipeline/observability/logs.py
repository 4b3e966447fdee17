"""Log lines of the service's processes: with the ids of their work, and without text from outside.

`install` applies this to Ray Serve's loggers in a process, as text or as JSON.
"""

import json
import logging
import re
import time
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from pipeline.errors import CallError
from pipeline.observability.context import current_context

OURS = ("pipeline", "db", "serve_app", "switchboard")  # loggers that write with Ray Serve's handlers
SERVE = "ray.serve"
TEXT = "%%(levelname)s %%(asctime)s %s %%(process)d %%(filename)s:%%(lineno)d -- %%(message)s"
FILE_BYTES, FILES = 10 * 2**20, 3
_USUAL = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "log_to_stderr"}
_FORGING = re.compile("[\x00-\x1f\x7f\u0085\u2028-\u202e\u2066-\u2069]+")  # line breaks and direction marks
_SECRETS = re.compile(
    r"(\b[a-z][a-z0-9+.-]*://)(?:[^\s/?#@\"'<>]*@)?([^\s?#\"'<>]*)(?:[?#][^\s\"'<>]*)?", re.IGNORECASE
)
_REMOTE_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class ContextFilter(logging.Filter):
    """Completes a record and lets each one pass. In JSON the ids are fields; a text line begins with the call's."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def filter(self, record: logging.LogRecord) -> bool:
        work = current_context()
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {places(record.exc_info[1])}"
        record.exc_info = record.exc_text = None
        call = work.ids.get("call_id")
        if call and not self._as_json and call not in text:
            text = f"call {call}: {text}"
        record.msg, record.args = cleaned(text), ()
        record.__dict__.update((name, value) for name, value in work.ids.items() if value)
        if work.trace:
            record.trace_id = work.trace[3:35]
        return True


def install() -> None:
    """Complete the lines of this process, and write the service's lines with Ray Serve's handlers. Idempotent.

    Times are in UTC with their zone.
    """
    _set_zone()
    serve = logging.getLogger(SERVE)
    completed = ContextFilter(as_json())
    for handler in serve.handlers:
        if not any(isinstance(filter_, ContextFilter) for filter_ in handler.filters):
            handler.addFilter(completed)
    for name in OURS:
        ours = logging.getLogger(name)
        ours.handlers, ours.propagate = list(serve.handlers), False
        if ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)


def to_file(path: Path, name: str, in_json: bool) -> None:
    """Log in a process without Ray, `name`, as a replica does by Ray Serve: to `FILES` rotating files."""
    handler = RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8")
    handler.setFormatter(JSONFormatter(name) if in_json else logging.Formatter(TEXT % name))
    serve = logging.getLogger(SERVE)
    serve.handlers, serve.propagate = [handler], False
    serve.setLevel(logging.INFO)
    install()


class JSONFormatter(logging.Formatter):
    """Formats like Ray Serve's formatter of that name: component, place, and the fields of `extra`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._component = {"component_name": name}

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            **self._component,
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
        }
        added = {name: value for name, value in record.__dict__.items() if name not in _USUAL and name not in fields}
        return json.dumps(fields | added, default=str)


def as_json() -> bool:
    return any(_is_json(handler) for handler in logging.getLogger(SERVE).handlers)


def places(error: BaseException) -> str:
    """Return classes and places of an error and its causes, and the messages of `CallError`s.

    Other texts are left out: they may contain what was sent, such as the values in PostgreSQL's.
    """
    phrases: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(phrases) < 5:
        phrases.append(_place(cause))
        cause = cause.__cause__ or cause.__context__
    return "; after ".join(phrases)


def _place(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    kind = type(error).__name__ + (f" (SQLSTATE {state})" if state else "")
    if isinstance(error, CallError):
        kind += f" ({error.message})"
    frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    frames += _REMOTE_PLACE.findall(getattr(error, "traceback_str", ""))  # of a task or an actor, as text by Ray
    return f"{kind} at {' > '.join(f'{Path(file).name}:{line} {name}' for file, line, name in frames[-8:])}"


def _set_zone() -> None:
    """Let every formatter of this process write 2026-11-28T18:10:47.123Z."""
    logging.Formatter.converter = time.gmtime
    logging.Formatter.default_time_format, logging.Formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"


def cleaned(text: str) -> str:
    """Return `text` on one line and without secrets."""
    return _FORGING.sub(" ", without_secrets(text))


def without_secrets(text: str) -> str:
    """Return `text` without the user, password, query and fragment of each URL."""
    return _SECRETS.sub(r"\1\2", text) if "://" in text else text


def _is_json(handler: logging.Handler) -> bool:
    stream = getattr(handler, "target", None) or handler
    return type(stream.formatter).__name__ == "JSONFormatter"  # Ray's, which this package does not import here
