"""The log lines of all processes in one place: standard output, or rotating files."""

import json
import os
import re
import select
import time
from datetime import datetime
from pathlib import Path

import pytest

from serve_app.service import log_stream
from serve_app.service.log_stream import Descriptor, LogStream, with_zone

SERVE = '{"asctime": "2026-11-28 18:10:47,123", "message": "replica"}'


def session(folder: Path) -> Path:
    logs = folder / "ray/session_2026/logs/serve"
    logs.mkdir(parents=True)
    (folder / "ray/session_latest").symlink_to(folder / "ray/session_2026")
    return logs


def forward(stream: LogStream) -> None:
    stream._next_scan = 0.0
    stream.forward()


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Standard output as a file."""
    path = tmp_path / "out"
    monkeypatch.setattr(log_stream, "STDOUT", os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    return path


def test_lines_of_every_process_are_json_with_a_zone_and_each_is_there_once(tmp_path: Path, out: Path) -> None:
    serve = session(tmp_path / "run")
    (serve / "replica_calls_Conductor_1.log").write_text(f"{SERVE}\n")
    (tmp_path / "run/standby.log").write_text(f"{SERVE.replace('replica', 'standby')}\nhalf a li")
    (serve.parent / "worker-1.err").write_text("Traceback of https://user:hush@pbx.example/a.wav?token=hush\n")
    (serve.parent / "raylet.out").write_text(
        "[2026-11-28 18:10:47,123 I 1 1] (raylet) progress\n- of it\n"
        "[2026-11-28 18:10:47,123 W 1 1] (raylet) a\nwarning\n"
    )
    (serve.parent / "monitor.log").write_text("2026-11-28 18:10:47,123\tINFO monitor.py:1 -- progress\n")
    stream = LogStream(tmp_path / "run", True, None)
    forward(stream)
    forward(stream)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["message"].rpartition(" ")[2] for line in lines} == {
        "https://pbx.example/a.wav",
        "replica",
        "standby",
        "a",
        "warning",
    }
    assert len(lines) == 5
    assert {line.get("component_name") for line in lines} == {None, "worker-1", "raylet"}
    assert all(datetime.fromisoformat(line["asctime"]).tzinfo for line in lines)


def test_a_file_that_rotates_is_read_to_its_end_and_so_is_what_follows(tmp_path: Path, out: Path) -> None:
    log = session(tmp_path) / "task_1.log"
    stream = LogStream(tmp_path, False, None)
    log.write_text("first\n")
    forward(stream)
    with log.open("a") as file:
        file.write("second\n")
    log.rename(log.with_name("task_1.log.1"))
    log.write_text("third\n")
    stream.close()
    assert sorted(out.read_text().split()) == ["first", "second", "third"]


def test_a_reader_that_does_not_read_delays_the_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(log_stream, "STDOUT", writer)
    log = session(tmp_path) / "replica.log"
    numbers = [f"{number:07}" for number in range(40_000)]  # 320 kB, of which a pipe holds 64
    log.write_text("".join(f"{number}\n" for number in numbers))
    stream = LogStream(tmp_path, False, None)
    begun = time.monotonic()
    assert not stream.forward()
    assert time.monotonic() - begun < 1
    received = b""
    while not stream.forward() or select.select([reader], [], [], 0)[0]:
        received += os.read(reader, 1 << 16)
    stream.close()
    assert received.decode().split() == numbers
    os.close(reader)


def test_an_event_is_a_line_of_its_own_however_long_the_lines_around_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(log_stream, "STDOUT", writer)
    log = session(tmp_path) / "replica.log"
    stream = LogStream(tmp_path, False, None)
    log.write_text("".join(f"{'x' * 50_000}\n" for _ in range(4)))
    assert not stream.forward()  # the pipe is full, within a line
    log_stream.write_event(tmp_path, {"event": "ready"})
    received = b""
    while not stream.forward() or select.select([reader], [], [], 0)[0]:
        received += os.read(reader, 1 << 12)
        stream._next_scan = 0.0
    stream.close()
    lines = received.decode().splitlines()
    assert sorted(len(line) for line in lines) == [18, 50_000, 50_000, 50_000, 50_000]
    assert json.loads(min(lines, key=len)) == {"event": "ready"}
    os.close(reader)


def test_events_go_to_standard_output_even_if_logs_go_to_a_folder(tmp_path: Path, out: Path) -> None:
    stream = LogStream(tmp_path, True, tmp_path / "logs")
    log_stream.write_event(tmp_path, {"event": "ready"})
    forward(stream)
    assert json.loads(out.read_text()) == {"event": "ready"}
    assert not (tmp_path / "logs" / log_stream.FILE).read_text()
    stream.close()


def test_a_reader_that_is_gone_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    sink = Descriptor(writer)
    assert sink.write(b"lost\n") and sink.write(b"lost\n")


def test_a_folder_has_rotating_files_for_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "FILE_BYTES", 1000)
    log = session(tmp_path / "run") / "replica.log"
    log.write_text("".join(f"{'x' * 90} {number}\n" for number in range(100)))
    stream = LogStream(tmp_path / "run", False, tmp_path / "logs")
    forward(stream)
    stream.close()
    files = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert files == [log_stream.FILE, *(f"{log_stream.FILE}.{number}" for number in range(1, log_stream.FILES))]
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "logs" / log_stream.FILE).read_text().splitlines()[-1].endswith(" 99")


def test_a_time_of_this_machine_gets_its_zone_and_one_with_a_zone_keeps_it() -> None:
    assert re.fullmatch(r"INFO 2026-11-28T18:10:47\.123[+-]\d\d:\d\d x", with_zone("INFO 2026-11-28 18:10:47,123 x"))
    for line in ("INFO 2026-11-28T18:10:47.123Z x", f"{'x' * 80} 2026-11-28 18:10:47,123", "no time"):
        assert with_zone(line) == line
