"""An archive of everything that is stored about a person: a ZIP file with a page that links to it, a folder per call.

It is written call by call under another name, and renamed when it is complete: an unfinished one never looks like one.
"""

import json
import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

import fsspec
from jinja2 import Environment

from db.core.database import Database
from db.records import person as people
from db.records.person import Person, StoredCall, StoredRow
from db.workspace import access_log
from db.workspace.admin_log import changing, operator
from pipeline.domain.speech import Recording
from serve_app.http.camel_json import to_json
from serve_app.records import transcripts
from serve_app.records.media_types import media_type_of, suffix_of

PART: Final = ".part"  # after the name of an unfinished archive
PIECE: Final = 1 << 20  # bytes of audio in memory
MAX_READS = 1_000_000  # of a call, in its access log
NO_RECORDING = "No recording is stored: none was submitted or fetched, or its time of storage is over."
UNREADABLE = "A recording is missing in the storage or cannot be read."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subject:
    """The person of an archive: `by` ("number", "contact" or "member") and the value as given."""

    person: Person
    by: str
    value: str


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive and what it contains, in a few words."""

    path: str
    about: str
    size: int


@dataclass(slots=True)
class ArchivedCall:
    """A call in the index. `notes`: what is missing."""

    call_id: UUID
    start_time: datetime
    from_number: str
    to_number: str
    outgoing: bool | None
    duration: str
    language: str | None
    summary: str
    files: list[ArchivedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive contains. `incomplete`: calls without some of their recordings."""

    export_id: UUID
    calls: int
    incomplete: int
    size: int


async def write(
    database: Database,
    workspace_id: UUID,
    subject: Subject,
    export_id: UUID,
    path: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archived:
    """Write an archive to `path` and log it. `progress` receives how many of how many calls are written.

    Raises `OSError` if it cannot be written; then nothing remains.
    """
    call_ids = await people.call_ids(database, workspace_id, subject.person)
    by = operator()
    async with changing(database, workspace_id, by) as change:
        await change.note("exported", "person", export_id, detail=f"by {subject.by}: {len(call_ids)} calls")
    part = path.with_name(path.name + PART)
    try:
        with _private(part) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            about = await people.directory_rows(database, workspace_id, subject.person)
            files = [_rows(archive, "person.ndjson", "Entries of the directory", about)] if about else []
            archived: list[ArchivedCall] = []
            for done, call_id in enumerate(call_ids):
                progress(done, len(call_ids))
                if (call := await _call(database, workspace_id, subject, call_id, archive, by.name)) is not None:
                    archived.append(call)
            _index(archive, subject, export_id, files, archived)
        size = _flush(part)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    return Archived(export_id, len(archived), sum(bool(call.notes) for call in archived), size)


def _private(path: Path) -> IO[bytes]:
    """Open a file that only its owner may read, in place of an unfinished one."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _flush(path: Path) -> int:
    """Write the file to disk; return its size."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


async def _call(
    database: Database,
    workspace_id: UUID,
    subject: Subject,
    call_id: UUID,
    archive: zipfile.ZipFile,
    operator_name: str,
) -> ArchivedCall | None:
    """Log the access and write the files of a call; return None if it was erased in the meantime."""
    stored = await people.stored_call(database, workspace_id, call_id, subject.by == "member")
    if stored is None:
        return None
    async with database.transaction(workspace_id) as connection:
        await access_log.note_change(connection, workspace_id, call_id, "export", None, operator_name)
    reads = await access_log.list_reads(database, workspace_id, call_id, MAX_READS)
    call, folder = _line(stored), f"calls/{call_id}"
    for number, recording in enumerate(stored.recordings, 1):
        _audio(archive, call, f"{folder}/recording-{number}", recording)
    if not stored.recordings:
        call.notes.append(NO_RECORDING)
    transcript = stored.record.transcript
    if transcript is not None:
        call.files += [
            _text(archive, f"{folder}/transcript.txt", "Transcript", transcripts.text(transcript)),
            _text(archive, f"{folder}/transcript.json", "Transcript with times", to_json(transcript)),
        ]
    call.files += [
        _text(
            archive, f"{folder}/record.json", "Summary, findings, tasks, corrections, history", to_json(stored.record)
        ),
        _text(archive, f"{folder}/access-log.json", "Who read or changed it", to_json(reads)),
        _rows(archive, f"{folder}/stored.ndjson", "Everything as stored", stored.rows),
    ]
    return call


def _line(stored: StoredCall) -> ArchivedCall:
    record, call = stored.record, stored.record.call
    summary: Any = next((finding.value for finding in record.findings if finding.step == "summary"), {})
    sentences = [str(sentence.get("text", "")) for sentence in summary.get("sentences") or ()]
    return ArchivedCall(
        call_id=call.call_id,
        start_time=call.start_time,
        from_number=call.from_number,
        to_number=call.to_number,
        outgoing=call.outgoing,
        duration=transcripts.clock(call.duration),
        language=call.language,
        summary=" ".join(sentences) or str(summary.get("text") or ""),
    )


def _audio(archive: zipfile.ZipFile, call: ArchivedCall, path: str, recording: Recording) -> None:
    """Copy a stored file, or note that it is missing."""
    pieces = _pieces(recording.uri)
    first = next(pieces, b"")
    copied = 0
    if first:
        name = f"{path}.{suffix_of(media_type_of(first[:16]))}"
        stored = zipfile.ZipInfo(name, time.localtime()[:6])  # audio does not shrink
        with archive.open(stored, "w", force_zip64=True) as file:
            for piece in chain((first,), pieces):
                copied += file.write(piece)
        call.files.append(ArchivedFile(name, "Recording", copied))
    if copied != recording.size_bytes:
        call.notes.append(UNREADABLE)


def _pieces(uri: str) -> Iterator[bytes]:
    """Yield a stored file in pieces, up to where it can be read."""
    try:
        with fsspec.open(uri, "rb").open() as file:
            while piece := file.read(PIECE):
                yield piece
    except Exception as error:  # each object store has its own exceptions
        log.warning("a recording cannot be read: %s", type(error).__name__)


def _text(archive: zipfile.ZipFile, path: str, about: str, text: str | bytes) -> ArchivedFile:
    archive.writestr(path, text)
    return ArchivedFile(path, about, archive.getinfo(path).file_size)


def _rows(archive: zipfile.ZipFile, path: str, about: str, rows: Iterable[StoredRow]) -> ArchivedFile:
    with archive.open(path, "w", force_zip64=True) as file:
        for row in rows:
            file.write(f'{{"table":{json.dumps(row.table)},"row":{row.content}}}\n'.encode())
    return ArchivedFile(path, about, archive.getinfo(path).file_size)


def _index(
    archive: zipfile.ZipFile,
    subject: Subject,
    export_id: UUID,
    files: Sequence[ArchivedFile],
    archived: Sequence[ArchivedCall],
) -> None:
    """Write the page and its content as JSON."""
    shown = {"export_id": export_id, "created_at": datetime.now(UTC), "by": subject.by, "value": subject.value}
    _text(archive, "index.json", "", to_json(shown | {"files": files, "calls": archived}))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(Path(__file__).with_name("person_archive.html").read_text(encoding="utf-8"))
    with archive.open("index.html", "w", force_zip64=True) as file:
        for piece in page.generate(shown | {"files": files, "calls": archived}):
            file.write(piece.encode("utf-8", "replace"))
