"""An archive of everything that is stored about a person: a ZIP file with a page that links to it, a folder per call.

It is written call by call under another name, and renamed when it is complete: an unfinished one never looks like one.
"""

import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID, uuid4

from jinja2 import Environment

from db.core.database import Database
from db.records import person as people
from db.records.person import Person
from db.records.views import CallSummary
from db.workspace import access_log
from db.workspace.admin_log import changing, operator
from pipeline.domain.sniff import media_type_of, suffix_of
from pipeline.domain.speech import Recording
from pipeline.sealed_files import open_stored
from serve_app.http.camel_json import to_json
from serve_app.records import transcripts

PART: Final = ".part"  # after the name of an unfinished archive
PIECE: Final = 1 << 20  # bytes of audio in memory
MAX_READS = 1_000_000  # of a call, in its access log
NO_RECORDING = "No recording is stored: none was submitted or fetched, or its time of storage is over."
UNREADABLE = "A recording is missing in the storage or cannot be read."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive and what it contains, in a few words."""

    path: str
    about: str
    size: int


@dataclass(slots=True)
class ArchivedCall:
    """A call in the index. `notes`: what is missing."""

    call: CallSummary
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
    person: Person,
    path: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archived:
    """Write an archive to `path` and log it. `progress` receives how many of how many calls are written.

    Raises `OSError` if it cannot be written; then nothing remains.
    """
    call_ids = await people.call_ids(database, workspace_id, person)
    export_id, part = uuid4(), path.with_name(path.name + PART)
    async with changing(database, workspace_id) as change:
        await change.note("exported", "person", export_id, detail=f"by {person.by}: {len(call_ids)} calls")
    try:
        with _private(part) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                about = await people.directory_rows(database, workspace_id, person)
                files = [_file(archive, "person.ndjson", "Entries of the directory", about)] if about else []
                archived: list[ArchivedCall] = []
                for done, call_id in enumerate(call_ids):
                    progress(done, len(call_ids))
                    if (call := await _call(database, workspace_id, person, call_id, archive)) is not None:
                        archived.append(call)
                _index(archive, {"export_id": export_id, "person": person, "files": files, "calls": archived})
            size = file.seek(0, os.SEEK_END)
            file.flush()
            os.fsync(file.fileno())
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


async def _call(
    database: Database, workspace_id: UUID, person: Person, call_id: UUID, archive: zipfile.ZipFile
) -> ArchivedCall | None:
    """Log the access and write the files of a call; return None if it was erased in the meantime."""
    stored = await people.stored_call(database, workspace_id, person, call_id)
    if stored is None:
        return None
    async with database.transaction(workspace_id) as connection:
        await access_log.note_change(connection, workspace_id, call_id, "export", None, operator().name)
    reads = await access_log.list_reads(database, workspace_id, call_id, MAX_READS)
    summary: Any = next((finding.value for finding in stored.record.findings if finding.step == "summary"), {})
    sentences = [sentence["text"] for sentence in summary.get("sentences") or ()]
    call = ArchivedCall(stored.record.call, " ".join(sentences) or str(summary.get("text") or ""))
    for number, recording in enumerate(stored.recordings, 1):
        _audio(archive, call, f"calls/{call_id}/recording-{number}", recording)
    if not stored.recordings:
        call.notes.append(NO_RECORDING)
    files = [
        ("record.json", "Summary, findings, tasks, corrections, history", [to_json(stored.record).decode()]),
        ("access-log.json", "Who read or changed it", [to_json(reads).decode()]),
        ("stored.ndjson", "Everything as stored", stored.rows),
    ]
    if (transcript := stored.record.transcript) is not None:
        files.insert(0, ("transcript.json", "Transcript with times", [to_json(transcript).decode()]))
        files.insert(0, ("transcript.txt", "Transcript", transcripts.text(transcript).splitlines()))
    call.files += [_file(archive, f"calls/{call_id}/{name}", about, lines) for name, about, lines in files]
    return call


def _audio(archive: zipfile.ZipFile, call: ArchivedCall, path: str, recording: Recording) -> None:
    """Copy a stored file, or note that it is missing."""
    pieces = _pieces(recording)
    first = next(pieces)
    copied, is_whole = 0, first is None
    if first:
        name = f"{path}.{suffix_of(media_type_of(first[:16]))}"
        stored = zipfile.ZipInfo(name, time.localtime()[:6])  # audio does not shrink
        with archive.open(stored, "w", force_zip64=True) as file:
            for piece in chain((first,), pieces):
                is_whole = piece is None
                copied += file.write(piece or b"")
        call.files.append(ArchivedFile(name, "Recording", copied))
    # The size of a sealed file is another one; opening it checks its end.
    if not is_whole or (recording.key is None and copied != recording.size_bytes):
        call.notes.append(UNREADABLE)


def _pieces(recording: Recording) -> Iterator[bytes | None]:
    """Yield the content of a stored file in pieces, up to where it can be read: None at its end, b"" before it."""
    try:
        with open_stored(recording.uri, recording.key) as file:
            while piece := file.read(PIECE):
                yield piece
        yield None
    except Exception as error:  # each object store has its own exceptions
        log.warning("a recording cannot be read: %s", type(error).__name__)
        yield b""


def _file(archive: zipfile.ZipFile, path: str, about: str, lines: Sequence[str]) -> ArchivedFile:
    with archive.open(path, "w", force_zip64=True) as file:
        for line in lines:
            file.write(f"{line}\n".encode("utf-8", "replace"))
    return ArchivedFile(path, about, archive.getinfo(path).file_size)


def _index(archive: zipfile.ZipFile, content: dict[str, Any]) -> None:
    content = {"created_at": datetime.now(UTC), **content}
    archive.writestr("index.json", to_json(content))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = Path(__file__).with_name("person_archive.html").read_text(encoding="utf-8")
    page = environment.from_string(template, {"clock": transcripts.clock})
    with archive.open("index.html", "w", force_zip64=True) as file:
        for piece in page.generate(content):
            file.write(piece.encode("utf-8", "replace"))
