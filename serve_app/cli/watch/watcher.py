import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pipeline.backfill.source import SourceFile
from pipeline.errors import CallError, RecordingEmpty
from serve_app.cli.calls.submit import CommandProblem
from serve_app.cli.ui.options import as_uuid
from serve_app.cli.watch.folder import Settling, WatchedFolder, version_of
from serve_app.cli.watch.pattern import AGENT, CALLED, CALLER, CUSTOMER, NamedCall, NamePattern
from serve_app.cli.watch.service import Later, Refused, Service
from serve_app.cli.watch.state import State

PARTNER_SECONDS = 300.0  # after which the file of one party is submitted alone
LATER_SECONDS = 600.0  # before a call that could not be sent is tried again
IN_STEP_SECONDS = 1.0  # by which two files of a call may differ in length

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CallDefaults:
    """What the names of files do not say: fields of every call, and the name of the phone system before its ids."""

    system: str
    fields: Mapping[str, Any]

    def call_id(self, key: str) -> str:
        """Return the callId: a UUID as it is, else one that is the same each time and on every machine."""
        return str(as_uuid(key) or uuid5(NAMESPACE_URL, f"{self.system}/{key}"))


@dataclass(slots=True)
class Scan:
    """Counts of one pass. `waiting`: files that are not finished, or whose call waits for its second file."""

    submitted: int = 0
    refused: int = 0
    unmatched: int = 0
    waiting: int = 0


@dataclass(slots=True)
class FileGroup:
    """The files of one call."""

    call_id: str
    call: NamedCall
    files: dict[str | None, SourceFile] = field(default_factory=dict)  # by party
    others: list[SourceFile] = field(default_factory=list)  # more files of the same party
    is_growing: bool = False

    def paths(self) -> list[str]:
        return [file.path for file in self.files.values()]


@dataclass(slots=True)
class Watcher:
    """Submits the finished files of a folder, each once. `limit`: calls in one pass."""

    folder: WatchedFolder
    pattern: NamePattern
    defaults: CallDefaults
    service: Service
    state: State
    settling: Settling
    limit: int
    max_bytes: int
    say: Say
    is_stopping: Callable[[], bool]
    _later: dict[str, float] = field(default_factory=dict)  # callId, or path to move: when it is tried again

    def scan(self) -> Scan:
        """Submit what is finished. Raises `StorageError`, and what `Service` raises except for single calls."""
        scan, files = Scan(), self.folder.files()
        self.settling.forget_all_but({file.path for file in files})
        groups = self._groups(files, scan)
        attempts = 0
        for group in groups.values():
            if self.is_stopping() or attempts >= self.limit:
                break
            attempts += self._process(group, scan)
        return scan

    def _groups(self, files: Sequence[SourceFile], scan: Scan) -> dict[str, FileGroup]:
        """Return the files by call, and report those that do not match."""
        groups: dict[str, FileGroup] = {}
        monotonic, now = time.monotonic(), time.time()
        for file in files:
            is_finished = self.settling.is_finished(file, monotonic, now)
            call, reason = self._read(file)
            if call is None:
                if is_finished and self.state.outcome(file.path, version_of(file)) is None:
                    self._report_unmatched(file, reason, scan)
                continue
            call_id = self.defaults.call_id(call.key)
            group = groups.setdefault(call_id, FileGroup(call_id, call))
            group.is_growing |= not is_finished
            if call.party in group.files or (None in group.files and call.party):
                group.others.append(file)
            else:
                group.files[call.party] = file
        return groups

    def _read(self, file: SourceFile) -> tuple[NamedCall | None, str]:
        """Return what the name says with the party as agent or customer, or None and why it cannot be used."""
        call = self.pattern.read(file.path)
        if call is None:
            return None, "does not match the pattern"
        fields = {**self.defaults.fields, **call.fields}
        if "startTime" not in fields and file.modified is not None:
            fields["startTime"] = file.modified.isoformat()
        party = call.party
        if party in (CALLER, CALLED):
            outgoing = fields.get("outgoing")
            if outgoing is None:
                return None, "is the file of the caller or the called party: pass --incoming, --outgoing or {outgoing}"
            party = AGENT if outgoing is (party == CALLER) else CUSTOMER
        return NamedCall(call.key, fields, party), ""

    def _report_unmatched(self, file: SourceFile, reason: str, scan: Scan) -> None:
        self.say(f"{file.path}: {reason}")
        self.state.note(file.path, version_of(file), "", submitted=False)
        scan.unmatched += 1

    def _process(self, group: FileGroup, scan: Scan) -> bool:
        """Submit a call if it has something new; return whether a request was sent."""
        for other in group.others if not group.is_growing else ():
            if self.state.outcome(other.path, version_of(other)) is None:
                self._report_unmatched(other, "is another file of the same call: name the files by {party}", scan)
        outcomes = [self.state.outcome(file.path, version_of(file)) for file in group.files.values()]
        if None not in outcomes:
            if all(outcomes):
                self._move(group)
            return False
        if group.is_growing or self._waits_for_partner(group):
            scan.waiting += len(group.files)
            return False
        if self.state.was_submitted_with_another(group.call_id, group.paths()):
            for file in group.files.values():
                self._report_unmatched(file, "came after its call was submitted", scan)
            return False
        if time.monotonic() < self._later.get(group.call_id, 0.0):
            scan.waiting += len(group.files)
            return False
        self._submit(group, scan)
        return True

    def _waits_for_partner(self, group: FileGroup) -> bool:
        if not self.pattern.has_parties or len(group.files) > 1:
            return False
        (file,) = group.files.values()
        return file.modified is None or time.time() - file.modified.timestamp() < PARTNER_SECONDS

    def _submit(self, group: FileGroup, scan: Scan) -> None:
        try:
            recording = self._recording(group)
            fields = {"from": "anonymous", "to": "anonymous", **group.call.fields}
            self.service.submit({"callId": group.call_id, **fields})
            reply = self.service.upload(group.call_id, recording, self.state, self.is_stopping)
        except Refused as refused:
            self._refuse(group, refused.problem, scan)
        except CallError as error:
            if error.retryable:
                self._defer(group, error.message, scan)
            else:
                self._refuse(group, CommandProblem(0, error.message, ""), scan)
        except (Later, OSError) as error:
            self._defer(group, str(error), scan)
        else:
            self._later.pop(group.call_id, None)
            self._note(group, submitted=True)
            scan.submitted += 1
            job = f"  jobId {reply['jobId']}" if reply.get("jobId") else ""
            self.say(f"{_names(group)}: {reply['status']}  callId {group.call_id}{job}")
            self._move(group)
        finally:
            self._clear_work()

    def _recording(self, group: FileGroup) -> Path:
        """Return the file to upload: of two parties' files, one with both. Raises `CallError` and `OSError`."""
        self._clear_work()
        self.state.work.mkdir(mode=0o700, parents=True)
        files = {
            party: self.folder.on_this_machine(file, self.state.work, self.max_bytes)
            for party, file in group.files.items()
        }
        agent, customer = files.get(AGENT), files.get(CUSTOMER)
        if agent is None or customer is None:
            return next(iter(files.values()))
        from serve_app.cli.watch.stereo import combine

        combined = self.state.work / "both.flac"
        try:
            difference = combine(agent, customer, combined)
        except RecordingEmpty:  # one party was never heard, for example before an answer
            return max(agent, customer, key=lambda file: file.stat().st_size)
        if difference > IN_STEP_SECONDS:
            self.say(f"{_names(group)}: the files differ by {difference:.1f} s; do they begin at the same moment?")
        return combined

    def _refuse(self, group: FileGroup, problem: CommandProblem, scan: Scan) -> None:
        status = f" ({problem.status})" if problem.status else ""
        sentences = [f"{problem.title.rstrip('.')}.", problem.detail, *(detail for _, detail in problem.faults)]
        self.say(f"{_names(group)}: refused{status}: {' '.join(filter(None, sentences))}")
        self._note(group, submitted=False)
        scan.refused += 1

    def _defer(self, group: FileGroup, reason: str, scan: Scan) -> None:
        self._later[group.call_id] = time.monotonic() + LATER_SECONDS
        self.say(f"{_names(group)}: tried again in {LATER_SECONDS / 60:.0f} min: {reason}")
        scan.waiting += len(group.files)

    def _note(self, group: FileGroup, *, submitted: bool) -> None:
        for file in group.files.values():
            self.state.note(file.path, version_of(file), group.call_id, submitted)

    def _move(self, group: FileGroup) -> None:
        """Move the files of a submitted call, also of one before whose move the watcher was killed."""
        for path in group.paths() if self.folder.moves else ():
            if time.monotonic() < self._later.get(path, 0.0):
                continue
            try:
                problem = "" if self.folder.move(path) else "another file has its name there"
            except OSError as error:
                problem = error.strerror or str(error)
            if problem:
                self._later[path] = time.monotonic() + LATER_SECONDS
                self.say(f"{path}: not moved: {problem}")

    def _clear_work(self) -> None:
        shutil.rmtree(self.state.work, ignore_errors=True)


def _names(group: FileGroup) -> str:
    return " + ".join(group.paths())
