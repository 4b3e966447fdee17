import json
import logging
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from pathlib import Path

import pytest
from psycopg.errors import UniqueViolation
from ray._common.formatters import JSONFormatter

from pipeline.errors import StorageError
from pipeline.observability import logs
from pipeline.observability.context import WorkContext, work_context
from pipeline.observability.tracing import observed

IDS = {"call_id": "c-1", "call_job_id": "j-1", "request_id": "r-1"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WORK = WorkContext(IDS, f"00-{TRACE}-00f067aa0ba902b7-01")


@pytest.fixture
def serve_logger() -> Iterator[logging.Logger]:
    """Serve's logger and ours, as they were when the test is over."""
    loggers = [logging.getLogger(name) for name in (logs.SERVE, *logs.OURS)]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    loggers[0].handlers = []
    yield loggers[0]
    for handler in loggers[0].handlers:
        if isinstance(handler, MemoryHandler) and handler.target is not None:
            handler.target.close()
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def written_to(path: Path, serve_logger: logging.Logger, formatter: logging.Formatter) -> None:
    """Lines go to `path` as Serve writes those of a replica."""
    file = logging.FileHandler(path)
    file.setFormatter(formatter)
    serve_logger.handlers = [MemoryHandler(1, target=file)]  # without pytest's, which an earlier test may have added
    serve_logger.setLevel(logging.INFO)
    logs.install()
    logs.install()


def test_every_line_of_a_call_has_its_ids_as_fields_whichever_module_writes_it(
    serve_logger: logging.Logger, tmp_path: Path
) -> None:
    written_to(tmp_path / "log", serve_logger, JSONFormatter())
    assert logs.as_json()
    with work_context(WORK):
        with observed("decoding"):
            logging.getLogger("db.queue.stage_results").warning("odd")
        serve_logger.info("call %s: done", "c-1", extra={"route": "/submit"})
    logging.getLogger("pipeline.checkpoints").info("of no call")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["message"].split(":")[0] for line in lines] == ["odd", "decoding", "call c-1", "of no call"]
    for line in lines[:3]:
        assert {name: line[name] for name in IDS} == IDS
        assert line["trace_id"] == TRACE
    assert "call_id" not in lines[3]
    assert lines[2]["route"] == "/submit"


def test_in_text_the_call_begins_the_line_once(serve_logger: logging.Logger, tmp_path: Path) -> None:
    written_to(tmp_path / "log", serve_logger, logging.Formatter("%(message)s"))
    assert not logs.as_json()
    with work_context(WORK):
        serve_logger.info("call c-1: done")
        logging.getLogger("pipeline.observability.tracing").info("decoding: 0.1 s")
    assert (tmp_path / "log").read_text().splitlines() == ["call c-1: done", "call c-1: decoding: 0.1 s"]


@pytest.mark.parametrize("formatter", [JSONFormatter(), logging.Formatter("%(message)s")], ids=["json", "text"])
def test_no_line_holds_the_text_of_others_exceptions_or_the_secrets_of_a_url(
    serve_logger: logging.Logger, tmp_path: Path, formatter: logging.Formatter
) -> None:
    written_to(tmp_path / "log", serve_logger, formatter)
    for error in (ValueError("hush"), UniqueViolation("Key (a)=(hush)"), StorageError("The disk is gone.")):
        try:
            try:
                raise error
            except Exception as cause:
                raise RuntimeError("hush too") from cause
        except RuntimeError:
            serve_logger.exception("it failed")
    serve_logger.warning("refused: %s", "https://user:hush@pbx.example:8443/a.wav?X-Amz-Signature=hush#hush")
    serve_logger.warning("s3://bucket/a.wav?versionId=hush is gone\r\nERROR forged\u202e")
    text = (tmp_path / "log").read_text()
    assert "hush" not in text
    assert "https://pbx.example:8443/a.wav" in text
    assert "StorageError (The disk is gone.)" in text
    assert "SQLSTATE 23505" in text
    assert "test_logs.py" in text
    assert len(text.splitlines()) == 5
    assert "\u202e" not in text
    assert "\\u202e" not in text


def test_a_task_that_failed_elsewhere_is_told_by_its_places(serve_logger: logging.Logger, tmp_path: Path) -> None:
    written_to(tmp_path / "log", serve_logger, logging.Formatter("%(message)s"))

    class OfAnActor(Exception):
        traceback_str = 'Traceback:\n  File "/x/pipeline/asr/run.py", line 7, in run\nValueError: hush'

    try:
        raise OfAnActor
    except OfAnActor as error:
        serve_logger.error("a task or an engine failed", exc_info=error)
    text = (tmp_path / "log").read_text()
    assert "run.py:7 run" in text
    assert "hush" not in text
