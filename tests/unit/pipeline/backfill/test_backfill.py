"""Listing recordings, and the output folder that knows what is done and whose turn it is to write."""

import asyncio
import hashlib
import json
import shutil
import socket
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from pipeline.backfill import actors
from pipeline.backfill.actors import Backfiller, BackfillJob, failure
from pipeline.backfill.output import OWNER, SCHEMA, SILENT_SECONDS, FolderTaken, OtherBackfill, Output
from pipeline.backfill.run import _cause, _manifest, _table
from pipeline.backfill.source import FolderUnusable, Source, SourceFile, in_blocks
from pipeline.domain.insight import Roster
from pipeline.errors import (
    NotAudio,
    RecordingEmpty,
    RecordingGone,
    RecordingTooLarge,
    RecordingUnreachable,
    StorageError,
    TimedOut,
)
from serve_app.settings import Settings

ABOUT = {"source": "s3://bucket/calls", "recognition": {"model": "base"}}


def row(path: str, status: str = "completed", **more: object) -> dict[str, object]:
    return {"path": path, "status": status, **more}


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output((tmp_path / "out").as_uri())


@pytest.fixture
def source(tmp_path: Path) -> Source:
    folder = tmp_path / "in"
    for name in ("b/2.wav", "a/1.MP3", "notes.txt", ".hidden.wav", ".git/3.wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"sound")
    return Source(str(folder))


def test_recordings_are_listed_by_path_and_other_files_are_left_out(source):
    files = list(source.recordings())
    assert [(file.path, file.size) for file in files] == [("a/1.MP3", 5), ("b/2.wav", 5)]
    assert all(file.modified and abs((datetime.now(UTC) - file.modified).total_seconds()) < 60 for file in files)


def test_a_pattern_takes_the_place_of_the_suffixes(source):
    assert [file.path for file in source.recordings("*.txt")] == ["notes.txt"]
    assert [file.path for file in source.recordings("b/*")] == ["b/2.wav"]


def test_a_bucket_is_listed_like_a_folder():
    memory = fsspec.filesystem("memory")
    memory.pipe({"/bucket/2025/1.wav": b"one", "/bucket/2025/2.flac": b"two", "/other/3.wav": b"three"})
    try:
        files = list(Source("memory://bucket").recordings())
        assert [file.path for file in files] == ["2025/1.wav", "2025/2.flac"]
        assert all(file.modified for file in files)
    finally:
        memory.rm("/bucket", recursive=True)
        memory.rm("/other", recursive=True)


@pytest.mark.parametrize("url", ["/nowhere/at/all", "memory://no/such", "gopher://x/y"])
def test_a_source_that_is_not_there_is_said(url):
    with pytest.raises(StorageError, match=r"is not a folder|cannot be used"):
        Source(url)


def test_a_recording_is_copied_and_hashed_or_says_why_not(source, tmp_path):
    (tmp_path / "in/empty.wav").touch()
    copied = source.copy(SourceFile("b/2.wav", 5), tmp_path, 100)
    assert copied.sha256 == hashlib.sha256(b"sound").hexdigest()
    assert (Path(copied.uri.removeprefix("file://")).read_bytes(), copied.size_bytes) == (b"sound", 5)
    for name, limit, error in (
        ("b/2.wav", 4, RecordingTooLarge),
        ("gone.wav", 9, RecordingGone),
        ("empty.wav", 9, RecordingEmpty),
    ):
        with pytest.raises(error):
            source.copy(SourceFile(name, 5), tmp_path, limit)


def test_blocks_are_bounded_by_number_and_by_bytes():
    files = [SourceFile(str(at), size) for at, size in enumerate((1, 1, 1, 50, 200, 1))]
    assert [[file.path for file in block] for block in in_blocks(files, 2, 100)] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
        ["5"],
    ]


def test_what_is_done_is_read_from_the_parts(output):
    run = output.acquire(ABOUT)
    output.write("part-1", [row("a.wav", text="hello"), row("b.wav", "failed", **_columns(NotAudio()))], run)
    output.write("part-2", [row("c.wav")], run)
    done = output.done()
    assert (done.paths, done.failed) == ({"a.wav", "b.wav", "c.wav"}, {"b.wav": "not_audio"})


def _columns(error: Exception) -> dict[str, object]:
    return {name: value for name, value in failure(error).items() if name != "status"}


def test_readers_of_parquet_see_the_rows_and_none_of_our_own_files(output, tmp_path):
    run = output.acquire(ABOUT)
    output.note_started("part-1", run, None, {})
    output.write("part-1", [row("a.wav", warnings=["one"])], run)
    read = ds.dataset(tmp_path / "out", format="parquet").to_table()
    assert read.schema.equals(SCHEMA) and read["path"].to_pylist() == ["a.wav"]


def test_failed_recordings_are_forgotten_and_nothing_else_is(output):
    run = output.acquire(ABOUT)
    output.write("part-1", [row("a.wav"), row("b.wav", "failed", **_columns(TimedOut()))], run)
    output.write("part-2", [row("c.wav", "failed", **_columns(TimedOut()))], run)
    output.remove_rows(output.done().failed)
    assert output.done().paths == {"a.wav"}
    assert output.part("part-2") is None


def test_a_second_run_on_the_folder_is_refused_until_the_first_one_has_ended(output):
    run = output.acquire(ABOUT)
    with pytest.raises(FolderTaken, match=f"on {socket.gethostname()}"):
        output.acquire(ABOUT)
    output.release(run)
    assert output.acquire(ABOUT) != run


@pytest.mark.parametrize(
    ("owner", "taken"),
    [
        ({"host": socket.gethostname(), "pid": 2**22 + 1, "began": 0.0, "at": 0}, False),  # killed
        ({"host": socket.gethostname(), "pid": 1, "began": 0.0, "at": 0}, False),  # its number is another's now
        ({"host": "elsewhere", "pid": 1, "began": 0.0, "at": -SILENT_SECONDS / 2}, True),
        ({"host": "elsewhere", "pid": 1, "began": 0.0, "at": -SILENT_SECONDS * 2}, False),
    ],
)
def test_an_owner_that_was_killed_keeps_nobody_out(output, tmp_path, owner, taken):
    output.acquire(ABOUT)
    (tmp_path / "out" / OWNER).write_text(json.dumps({**owner, "run": "old", "at": time.time() + owner["at"]}))
    if taken:
        with pytest.raises(FolderTaken):
            output.acquire(ABOUT)
    else:
        output.acquire(ABOUT)


def test_a_process_of_an_earlier_run_writes_nothing_more(output):
    earlier = output.acquire(ABOUT)
    output.release(earlier)
    output.acquire(ABOUT)
    with pytest.raises(FolderTaken, match="later run"):
        output.write("part-1", [row("a.wav")], earlier)
    assert output.done().paths == set()


def test_a_folder_is_not_resumed_with_another_source_or_another_model(output):
    output.release(output.acquire(ABOUT))
    with pytest.raises(OtherBackfill, match="another recognition"):
        output.acquire({**ABOUT, "recognition": {"model": "small"}})
    output.acquire(ABOUT)


def test_the_manifest_of_a_folder_names_models_and_no_secret(monkeypatch):
    monkeypatch.setenv("SWITCHBOARD_ASR__MODEL", "base")
    monkeypatch.setenv("SWITCHBOARD_SECRETS_KEYS", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    settings = Settings()
    manifest = _manifest(
        BackfillJob(
            "file:///in", "file:///out", "", settings.asr, settings.diarization, settings.process_options(), Roster()
        )
    )
    assert manifest["recognition"]["model"] == "base" and manifest["source"] == "file:///in"
    assert "MDEy" not in json.dumps(manifest)


def test_a_part_is_there_whole_or_not_at_all(output, tmp_path, monkeypatch):
    run = output.acquire(ABOUT)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(StorageError, match="disk full"):
        output.write("part-1", [row("a.wav")], run)
    assert output.done().paths == set()


def test_what_was_started_counts_for_its_run_only(output):
    run = output.acquire(ABOUT)
    assert output.started("part-1", run) is None
    output.note_started("part-1", run, "a.wav", {"a.wav": 1})
    assert output.started("part-1", run) == {"run": run, "alone": "a.wav", "deaths": {"a.wav": 1}}
    assert output.started("part-1", "another") is None
    output.remove_started()
    assert output.started("part-1", run) is None


def test_every_column_of_a_row_has_its_type():
    table = pa.Table.from_pylist([row("a.wav", **_columns(NotAudio()))], SCHEMA)
    assert table["retryable"].to_pylist() == [False] and table["text"].to_pylist() == [None]


def _job(tmp_path: Path, run: str) -> BackfillJob:
    settings = Settings()
    folders = ((tmp_path / "in").as_uri(), (tmp_path / "out").as_uri())
    return BackfillJob(*folders, run, settings.asr, settings.diarization, settings.process_options(), Roster())


class Dying(Backfiller):
    """Its process ends with some recordings, as it does where an engine crashes; each is begun `begun` times."""

    def __init__(self, job: BackfillJob, deadly: set[str], begun: Counter[str]) -> None:
        self._job, self._output = job, Output(job.output)
        self._deadly, self.begun = deadly, begun
        self._loop, self._replicas = asyncio.new_event_loop(), ()

    async def _rows(self, block):
        self.begun.update(file.path for file in block)
        if self._deadly & {file.path for file in block}:
            raise SystemExit(1)
        return [row(file.path) for file in block]


def test_a_recording_that_kills_its_process_is_found_and_the_others_of_its_block_are_done(output, tmp_path):
    job = _job(tmp_path, output.acquire(ABOUT))
    block = _table("part-1", [SourceFile(f"{at}.wav", 1) for at in range(6)])
    begun: Counter[str] = Counter()
    answer = None
    deaths = 0
    while answer is None:
        try:
            answer = Dying(job, {"2.wav", "4.wav"}, begun)(block)  # each time another process, as Ray makes it
        except SystemExit:
            deaths += 1
            assert deaths < 10
    assert deaths == 5  # of all at once, then of each of the two alone, twice
    assert begun == Counter({"0.wav": 2, "1.wav": 2, "2.wav": 3, "3.wav": 2, "4.wav": 3, "5.wav": 2})
    assert answer["path"].to_pylist() == [f"{at}.wav" for at in range(6)]
    assert output.done().paths == {f"{at}.wav" for at in range(6)}
    assert output.done().failed == {"2.wav": "worker_lost", "4.wav": "worker_lost"}


class Busy(Dying):
    """A source that answers, and gives no recording the first `times`."""

    def __init__(self, job: BackfillJob, times: int) -> None:
        super().__init__(job, set(), Counter())
        self._source, self._times = Source(job.source), times

    async def _rows(self, block):
        self._times -= 1
        self.begun.update(file.path for file in block)
        busy = _columns(RecordingUnreachable("The recording cannot be read (OSError)."))
        return [
            row(file.path, "failed", **busy) if self._times >= 0 and at else row(file.path)
            for at, file in enumerate(block)
        ]


@pytest.mark.parametrize(("times", "failed"), [(1, 0), (9, 1)])
def test_what_a_busy_source_did_not_give_is_read_once_more_and_nothing_else_is(
    source, output, tmp_path, monkeypatch, times, failed
):
    monkeypatch.setattr(actors, "PAUSE_SECONDS", 0.0)
    busy = Busy(_job(tmp_path, output.acquire(ABOUT)), times)
    block = _table("part-1", [SourceFile(path, 5) for path in ("a/1.MP3", "b/2.wav", "b/3.wav")])
    states = busy(block)["status"].to_pylist()
    assert states == ["completed", "completed", "failed" if failed else "completed"]
    assert busy.begun == Counter({"a/1.MP3": 1, "b/2.wav": 2, "b/3.wav": 2})


class Reading(Dying):
    """Reads recordings from the source; the engines' part is left out. After `readable` of them the source is gone."""

    def __init__(self, job: BackfillJob, readable: int) -> None:
        super().__init__(job, set(), Counter())
        self._source, self._readable = Source(job.source), readable

    async def _rows(self, block):
        rows = []
        for at, file in enumerate(block):
            if at == self._readable:
                shutil.rmtree(self._source._root)
            try:
                with TemporaryDirectory() as folder:
                    self._source.copy(file, Path(folder), 100)
                rows.append(row(file.path))
            except RecordingGone as error:
                rows.append(row(file.path, "failed", **_columns(error)))
        return rows


@pytest.mark.parametrize(("readable", "ends"), [(1, True), (0, True), (9, False)])
def test_where_the_whole_source_is_gone_the_run_ends_and_no_recording_is_blamed(
    source, output, tmp_path, readable, ends
):
    job = _job(tmp_path, output.acquire(ABOUT))
    block = _table("part-1", [SourceFile(path, 5) for path in ("a/1.MP3", "b/2.wav", "b/gone.wav")])
    if not ends:
        assert Reading(job, readable)(block)["status"].to_pylist() == ["completed", "completed", "failed"]
        assert output.done().failed == {"b/gone.wav": "recording_gone"}
        return
    with pytest.raises(StorageError, match="in is not a folder"):
        Reading(job, readable)(block)
    assert output.done().paths == ({"a/1.MP3"} if readable else set())
    assert not output.done().failed


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError("Forbidden"), "Check credentials"),
        (type("NoCredentialsError", (Exception,), {})("Unable to locate credentials"), "Check credentials"),
        (ImportError("Install s3fs to access S3"), "extra `aws`"),
        (OSError(16, "Please reduce your request rate."), "Check that it exists and is reachable"),
    ],
)
def test_what_is_said_of_a_folder_that_cannot_be_used_says_what_to_do(error, advice):
    assert advice in FolderUnusable.from_failure("s3://bucket cannot be read", error).message


def test_an_error_of_an_actor_is_the_drivers_whichever_module_it_is_of():
    text = "\n".join(
        (
            "ray.exceptions.RayTaskError(UserCodeException): ray::MapWorker(MapBatches(Backfiller)).submit()",
            '  File "pipeline/backfill/output.py", line 215, in _guarded',
            "pipeline.backfill.source.FolderUnusable: The output folder cannot be read or written (OSError: away).",
            "",
            "The above exception was the direct cause of the following exception:",
        )
    )
    cause = _cause(RuntimeError(text))
    assert isinstance(cause, FolderUnusable) and "OSError: away" in cause.message


def test_a_block_whose_part_is_there_is_not_done_again(output, tmp_path):
    run = output.acquire(ABOUT)
    job = _job(tmp_path, run)
    output.write("part-1", [row("0.wav")], run)
    begun: Counter[str] = Counter()
    answer = Dying(job, set(), begun)(_table("part-1", [SourceFile("0.wav", 1)]))
    assert answer.to_pylist()[0]["path"] == "0.wav" and not begun


def test_an_object_store_is_the_same():
    memory = fsspec.filesystem("memory")
    output = Output("memory://texts/2025/")
    try:
        run = output.acquire(ABOUT)
        output.note_started("part-1", run, None, {})
        output.write("part-1", [row("a.wav"), row("b.wav", "failed", **_columns(TimedOut()))], run)
        output.write("part-2", [row("c.wav", "failed", **_columns(TimedOut()))], run)
        assert output.done().failed.keys() == {"b.wav", "c.wav"}
        output.remove_rows(["b.wav", "c.wav"])
        output.remove_started()
        output.release(run)
        assert output.done().paths == {"a.wav"}
        assert sorted(memory.find("/texts")) == ["/texts/2025/_backfill.json", "/texts/2025/part-1.parquet"]
    finally:
        memory.rm("/texts", recursive=True)
