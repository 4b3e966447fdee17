"""The parts of `switchboard watch` that decide: names, finished files, and what was done before."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipeline.backfill.source import SourceFile
from serve_app.cli import app
from serve_app.cli.ui.errors import CommandError
from serve_app.cli.watch.folder import Settling, WatchedFolder, version_of
from serve_app.cli.watch.pattern import NamedCall, NamePattern, PatternInvalid
from serve_app.cli.watch.state import State

BERLIN = ZoneInfo("Europe/Berlin")
FREEPBX = "{outgoing}-{to}-{from}-{startTime:%Y%m%d-%H%M%S}-{callId}.wav"
USER = "6f1c0a52-3f0e-4d59-9a43-5b1f0c8de210"
NAMES: list[tuple[str, str, NamedCall | None]] = [
    (
        FREEPBX,
        "2026/11/20/out-4940987654-101-20261120-093000-1795167000.42.wav",
        NamedCall(
            "1795167000.42",
            {"outgoing": True, "to": "4940987654", "from": "101", "startTime": "2026-11-20T09:30:00+01:00"},
        ),
    ),
    (
        FREEPBX,
        "external-101-+493012345678-20260720-093000-1795167000.42.wav",  # daylight saving time
        NamedCall(
            "1795167000.42",
            {"outgoing": False, "to": "101", "from": "+493012345678", "startTime": "2026-07-20T09:30:00+02:00"},
        ),
    ),
    (
        FREEPBX,
        "q-500-anonymous-20261120-093000-1795167000.42.wav",  # neither: the service infers it
        NamedCall("1795167000.42", {"to": "500", "from": "anonymous", "startTime": "2026-11-20T09:30:00+01:00"}),
    ),
    (FREEPBX, "out-4940987654-101-20261320-093000-1795167000.42.wav", None),  # month 13
    (FREEPBX, "out-4940987654-101-20261120-093000-1795167000.42.wav.part", None),
    (FREEPBX, "out--101-20261120-093000-1795167000.42.wav", None),
    (
        "{callId}_{party}.wav",
        "a/b/7_rx.wav",
        NamedCall("7", {}, "caller"),
    ),
    ("{from}-{callId}.*", "7-1795167000.42.flac", NamedCall("1795167000.42", {"from": "7"})),
    ("{from}_{party}.wav", "a/7_rep.wav", NamedCall("a/7_*.wav", {"from": "7"}, "agent")),
    ("{from}_{party}.wav", "a/7_customer.wav", NamedCall("a/7_*.wav", {"from": "7"}, "customer")),
    ("{from}_{party}.wav", "a/7_left.wav", None),
    ("calls/{startTime:%Y}/*/{startTime:%m%d%H%M}.{callId}.*", "7.wav", None),
    (
        "calls/{startTime:%Y}/*/{startTime:%m%d%H%M}.{callId}.*",
        "calls/2026/x/11200930.7.opus",
        NamedCall("7", {"startTime": "2026-11-20T09:30:00+01:00"}),
    ),
    ("{startTime:%s}.{callId}.wav", "1795167000.42.wav", NamedCall("42", {"startTime": "2026-11-20T10:30:00+01:00"})),
    (
        "{startTime:%Y-%m-%dT%H.%M.%S%z}_{userId}_{duration}.wav",
        f"2026-11-20T09.30.00+0500_{USER.upper()}_61.wav",
        NamedCall(
            f"2026-11-20T09.30.00+0500_{USER.upper()}_61.wav",
            {"startTime": "2026-11-20T09:30:00+05:00", "userId": USER, "duration": 61},
        ),
    ),
]


def test_a_name_says_what_the_pattern_names() -> None:
    for pattern, path, expected in NAMES:
        assert NamePattern(pattern, BERLIN).read(path) == expected, (pattern, path)


def test_a_time_without_a_zone_is_in_that_of_the_machine() -> None:
    program = (
        "from serve_app.cli.watch.pattern import NamePattern; "
        "print(NamePattern('{startTime:%Y%m%d%H%M}.wav').read('202607200930.wav').fields['startTime'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"TZ": "America/Lima"}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "2026-07-20T09:30:00-05:00"


NUMBERS = st.text("+0123456789", min_size=1, max_size=15)
TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1))


@given(NUMBERS, NUMBERS, TIMES, st.text("0123456789.-", min_size=1, max_size=40))
def test_what_was_written_into_a_name_is_read_from_it(from_: str, to: str, start: datetime, call_id: str) -> None:
    start = start.replace(microsecond=0, tzinfo=UTC)
    name = f"{start:%Y%m%d-%H%M%S}-{from_}-{to}-{call_id}.wav"
    call = NamePattern("{startTime:%Y%m%d-%H%M%S}-{from}-{to}-{callId}.wav", UTC).read(name)
    fields = {"startTime": start.isoformat(), "from": from_, "to": to}
    assert call == NamedCall(call_id, fields)


REFUSED = {
    "{fromNumber}.wav": "{fromNumber} is not a part. Did you mean {from}?",
    "{startedAt:%Y}.wav": "{startedAt} is not a part. Did you mean {startTime}?",
    "{uniqueId}.wav": "Did you mean {callId}?",
    "{direction}.wav": "Did you mean {outgoing}?",
    "{callid}.wav": "Did you mean {callId}?",
    "{xyz}.wav": "Parts: callId, from, to,",
    "{startTime}.wav": "{startTime} needs a format",
    "{startTime:%Q}.wav": "%Q is not a directive of startTime",
    "{startTime:now}.wav": "has no directive",
    "{startTime:%s%Y}.wav": "is a whole time",
    "{to:%Y}.wav": "{to} has no format",
    "{to}-{to}.wav": "{to} appears twice",
    "*.wav": "no named part",
    "{to.wav": "'{' at position 1 has no counterpart",
}


def test_a_pattern_that_cannot_be_meant_is_refused_with_what_to_write() -> None:
    for pattern, words in REFUSED.items():
        with pytest.raises(PatternInvalid) as refused:
            NamePattern(pattern)
        assert words in str(refused.value), pattern
    result = CliRunner().invoke(app, ["watch", "/tmp", "--name-pattern", "{fromNumbr}.wav", "--key", "sb_x"])
    assert (result.exit_code, "{fromNumbr} is not a part" in result.output) == (2, True)


NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


def listed(size: int, age: float) -> SourceFile:
    return SourceFile("a.wav", size, NOW - timedelta(seconds=age))


def test_a_file_is_finished_when_it_has_not_changed_for_a_while() -> None:
    settling, clock = Settling(30.0), NOW.timestamp()
    assert settling.is_finished(listed(100, 31), 0.0, clock)  # renamed into place, or written before the start
    settling = Settling(30.0)
    steps = [(100, 0, 0.0, False), (200, 0, 20.0, False), (200, 0, 45.0, False), (200, 0, 50.0, True)]
    for size, age, monotonic, expected in steps:
        assert settling.is_finished(listed(size, age), monotonic, clock) is expected, monotonic
    assert not settling.is_finished(listed(300, 0), 60.0, clock)  # it grows again
    ahead = Settling(30.0)  # the clock of a file server: the file seems to be written in an hour
    assert [ahead.is_finished(listed(1, -3600), at, clock) for at in (0.0, 29.0, 30.0)] == [False, False, True]
    settling.forget_all_but(())
    assert not settling.is_finished(listed(300, 0), 1000.0, clock)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State(tmp_path / "state.db") as opened:
        yield opened


def test_the_state_remembers_versions_and_no_names(state: State, tmp_path: Path) -> None:
    file = listed(100, 60)
    assert state.outcome(file.path, version_of(file)) is None
    state.note(file.path, version_of(file), "call-1", submitted=True)
    state.note("+493012345678.wav", "1:1", "", submitted=False)
    assert (state.outcome(file.path, version_of(file)), state.outcome("+493012345678.wav", "1:1")) == (True, False)
    assert state.outcome(file.path, version_of(listed(200, 60))) is None
    assert state.was_submitted_with_another("call-1", ["b.wav"])
    assert not state.was_submitted_with_another("call-1", ["a.wav"])
    state.note_upload("call-1", "digest", "upload-1")
    assert (state.upload_of("call-1", "digest"), state.upload_of("call-1", "other")) == ("upload-1", None)
    assert not any(b"49301234" in path.read_bytes() for path in tmp_path.iterdir())
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_the_state_forgets_files_that_are_long_gone_but_nothing_if_the_folder_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with State(tmp_path / "state.db") as state:
        for name in ("old.wav", "left.wav"):
            state.note(name, "1:1", "", submitted=True)
        state.forget_absent(["left.wav"])
        assert state.outcome("old.wav", "1:1") is True
        monkeypatch.setattr("serve_app.cli.watch.state.ABSENT_SECONDS", -1.0)
        state.forget_absent([])  # not mounted
        assert state.outcome("old.wav", "1:1") is True
        state.forget_absent(["left.wav"])
        assert (state.outcome("old.wav", "1:1"), state.outcome("left.wav", "1:1")) == (None, True)


def test_two_watchers_do_not_share_a_state(state: State, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Another watcher"), State(tmp_path / "state.db"):
        pytest.fail("two watchers submit each file twice")


def test_files_are_moved_whole_and_replace_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, done = tmp_path / "new calls", tmp_path / "done"
    (watched / "2026").mkdir(parents=True)
    folder = WatchedFolder(str(watched), str(done))
    (watched / "2026" / "a.wav").write_bytes(b"sound")
    (watched / ".b.wav.part").write_bytes(b"half")
    assert [file.path for file in folder.files()] == ["2026/a.wav"]
    assert folder.move("2026/a.wav")
    assert ((done / "2026" / "a.wav").read_bytes(), folder.files()) == (b"sound", [])
    (watched / "2026" / "a.wav").write_bytes(b"another")
    assert not folder.move("2026/a.wav")
    (watched / "2026" / "a.wav").write_bytes(b"sound")  # killed between the copy and the removal
    assert folder.move("2026/a.wav") and folder.files() == []

    def refuse(*_: Any) -> None:
        raise OSError("another disk")

    (watched / "c.wav").write_bytes(b"sound")
    with monkeypatch.context() as patch:
        rename = Path.rename
        patch.setattr(Path, "rename", lambda path, to: refuse() if path.name == "c.wav" else rename(path, to))
        assert folder.move("c.wav")
    assert ((done / "c.wav").read_bytes(), folder.files()) == (b"sound", [])


def test_a_target_that_would_be_watched_or_is_in_another_storage_is_refused(tmp_path: Path) -> None:
    for target in (str(tmp_path / "done"), str(tmp_path), "memory://done"):
        with pytest.raises(CommandError) as refused:
            WatchedFolder(str(tmp_path), target)
        assert refused.value.explanation.exit_code == 2, target
    with pytest.raises(CommandError, match="is not a folder"):
        WatchedFolder(str(tmp_path / "absent"))
