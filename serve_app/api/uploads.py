import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from db.core.database import Database
from db.core.identity import SIGNING_PARAMETERS
from db.intake.group_commit import UNSEALED, Accepted, GroupCommitter, UploadTarget, find_target
from db.queue.backlog import full_workspaces
from db.secrets.recording_urls import UrlSealer
from pipeline.domain.call import CallState, Submission
from pipeline.errors import CallError, StorageError
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.uploads import MAX_OPEN, MAX_PARTS, Part, Upload, Uploads, end_of, new_upload
from serve_app.api import errors
from serve_app.api.access import ApiRequest, Handler, Route, answer_with
from serve_app.api.queries import NoQuery
from serve_app.api.upload_bodies import UploadBody, check_size, number
from serve_app.http.auth import SUBMIT
from serve_app.http.options import LimitOptions, Work
from serve_app.http.problems import BacklogFull, BodyTooSlow, Refusal, from_call_error

P = ParamSpec("P")
T = TypeVar("T")
BACKLOG_SECONDS = 5.0  # for which a count of the backlog applies
RECORDING = "/calls/{call_id:uuid}/recording"
UPLOAD = RECORDING + "/{upload_id}"


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """Where uploads are stored, their limits, and how their calls are submitted; see `serve_app.settings`."""

    storage: str
    fetch: FetchOptions
    urls: UrlSealer = UNSEALED
    signing_parameters: tuple[str, ...] = SIGNING_PARAMETERS
    backlog: int = LimitOptions().backlog


@dataclass(frozen=True, slots=True)
class RecordingUpload:
    """An upload that is not complete. Send its bytes from `offset` on, until `expiresAt`."""

    upload_id: str
    offset: int
    length: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UploadedRecording:
    """A call whose recording is uploaded and committed, as the response of /submit."""

    status: CallState
    call_id: UUID
    job_id: UUID | None


@dataclass(slots=True)
class Receiver:
    """Receives and submits recordings for a replica of the API."""

    database: Database
    options: ReceiveOptions
    committer: GroupCommitter = field(init=False)
    uploads: Uploads = field(init=False)
    _full: frozenset[UUID] = frozenset()
    _counted: float = float("-inf")

    def __post_init__(self) -> None:
        self.committer = GroupCommitter(self.database, urls=self.options.urls)
        self.uploads = Uploads(self.options.storage)

    async def check_backlog(self, workspace_id: UUID) -> None:
        """Raise `BacklogFull` if the workspace has too many calls in its queue."""
        if time.monotonic() - self._counted > BACKLOG_SECONDS:
            self._counted = time.monotonic()
            self._full = await full_workspaces(self.database, self.options.backlog)
        if workspace_id in self._full:
            raise BacklogFull(LimitOptions.BACKLOG_RETRY_SECONDS)

    async def submit(self, writing: ApiRequest[NoQuery], call: Submission, url: str) -> Accepted:
        """Add the recording to its call as a submission does."""
        submission = replace(call, recording_url=url)
        sent = {"callId": str(call.call_id), "recordingUrl": url}
        signing, request_id = self.options.signing_parameters, writing.request.state.request_id
        retry = writing.options.RETRY_AFTER_SECONDS
        try:
            async with asyncio.timeout(LimitOptions.DATABASE_SECONDS):
                return await self.committer.submit(writing.sender, submission, sent, signing, request_id)
        except TimeoutError:
            raise errors.Busy(retry) from None
        except CallError as error:
            raise from_call_error(error, retry) from error


async def upload_recording(writing: ApiRequest[NoQuery]) -> Response:
    """Receive a recording in one request, or create an upload of `Upload-Length` bytes."""
    receiver, target = await _target(writing)
    await receiver.check_backlog(writing.home)
    if await _stored(writing, receiver.uploads.of_call, writing.call_id) >= MAX_OPEN:
        raise errors.TooManyUploads(
            f"The call has {MAX_OPEN} uploads, the most that it may have. Resume or delete one."
        )
    body, uploads = UploadBody(writing.request, receiver.options.fetch), receiver.uploads
    if "upload-length" in writing.request.headers:
        body.require_raw()
        return await _create(writing, receiver, body.digests.get("repr-digest"))
    with uploads.store.receive() as incoming:
        with _receiving(writing):
            await body.receive(incoming, receiver.options.fetch.max_bytes)
        sha256 = await _stored(writing, body.check, incoming)
        upload = new_upload(writing.call_id, writing.home, incoming.size, sha256)
        await _stored(writing, uploads.create, upload)
        await _stored(writing, uploads.add, upload, 0, incoming, target.key)
    return await _submit(writing, receiver, target, upload, sha256)


async def show_upload(reading: ApiRequest[NoQuery]) -> Response:
    receiver, _ = await _target(reading)
    upload = await _find(reading, receiver)
    return _progress(upload, end_of(await _stored(reading, receiver.uploads.parts, upload)))


async def continue_upload(writing: ApiRequest[NoQuery]) -> Response:
    """Receive the bytes of an upload from `Upload-Offset` on; with the last one, submit the recording."""
    receiver, target = await _target(writing)
    upload = await _find(writing, receiver)
    body = UploadBody(writing.request, receiver.options.fetch)
    body.require_raw()
    offset = number(writing.request.headers, "upload-offset")
    parts = await _stored(writing, receiver.uploads.parts, upload)
    if offset != end_of(parts):
        raise errors.OffsetMismatch(end_of(parts))
    if len(parts) >= MAX_PARTS:
        raise errors.TooManyUploads(f"The upload has {MAX_PARTS} parts, the most that one may have. Send larger parts.")
    if offset < upload.length:
        await _receive_part(writing, receiver, target, upload, offset, body)
    return await _go_on(writing, receiver, target, upload, body.digests.get("repr-digest") or upload.sha256)


async def _receive_part(
    writing: ApiRequest[NoQuery],
    receiver: Receiver,
    target: UploadTarget,
    upload: Upload,
    offset: int,
    body: UploadBody,
) -> None:
    """Store the body as a part; of one that is cut off, what has arrived."""
    uploads = receiver.uploads
    with uploads.store.receive() as incoming, _receiving(writing):
        try:
            await body.receive(incoming, upload.length - offset, offset)
            await _stored(writing, body.check, incoming, ("content-digest",))
        except (ClientDisconnect, BodyTooSlow, asyncio.CancelledError):
            if incoming.size:
                uploads.add(upload, offset, incoming, target.key)  # not awaited: the request may be canceled again
            raise
        await _stored(writing, uploads.add, upload, offset, incoming, target.key)


@contextmanager
def _receiving(writing: ApiRequest[NoQuery]) -> Iterator[None]:
    """Convert what ends a body: a lost connection, or a storage that fails, as on a full disk."""
    try:
        yield
    except StorageError as error:
        raise _not_stored(writing) from error
    except ClientDisconnect:
        raise Refusal("The connection was closed before the body was complete.") from None  # no sender reads it


async def cancel_upload(writing: ApiRequest[NoQuery]) -> Response:
    receiver, _ = await _target(writing)
    await _stored(writing, receiver.uploads.remove, await _find(writing, receiver))
    return Response(status_code=204)


async def _go_on(
    writing: ApiRequest[NoQuery], receiver: Receiver, target: UploadTarget, upload: Upload, declared: str | None
) -> Response:
    """Submit an upload that is whole and has the declared digest; else return its progress."""
    uploads = receiver.uploads
    parts = await _stored(writing, uploads.parts, upload)
    if end_of(parts) != upload.length:
        return _progress(upload, end_of(parts))
    sha256 = await _stored(writing, _sha256_of, uploads, parts, target.key)
    if declared is not None and not hmac.compare_digest(declared, sha256):
        await _stored(writing, uploads.remove, upload)
        raise errors.DigestMismatch
    return await _submit(writing, receiver, target, upload, sha256)


async def _submit(
    writing: ApiRequest[NoQuery], receiver: Receiver, target: UploadTarget, upload: Upload, sha256: str
) -> Response:
    await _stored(writing, receiver.uploads.note_submission, upload)
    done = await receiver.submit(writing, target.call, upload.url(sha256))
    return answer_with(UploadedRecording(done.status, writing.call_id, done.job_id), 202)


async def _create(writing: ApiRequest[NoQuery], receiver: Receiver, sha256: str | None) -> Response:
    length = number(writing.request.headers, "upload-length")
    if length == 0:
        raise Refusal("Upload-Length is 0. A recording has at least one byte.")
    check_size(length, receiver.options.fetch.max_bytes)
    upload = new_upload(writing.call_id, writing.home, length, sha256)
    await _stored(writing, receiver.uploads.create, upload)
    answer = _progress(upload, 0, 201)
    answer.headers["Location"] = f"{writing.request.url.path.rstrip('/')}/{upload.upload_id}"
    return answer


async def _target(request: ApiRequest[NoQuery]) -> tuple[Receiver, UploadTarget]:
    target = await find_target(request.database, request.reader, request.call_id)
    if target is None:
        raise errors.NoSuchCall("Call not found, or not visible to this key. Send its metadata to /submit first.")
    if request.receiver is None:
        raise errors.Busy(request.options.RETRY_AFTER_SECONDS, "This service has no storage for recordings.")
    return request.receiver, target


async def _find(request: ApiRequest[NoQuery], receiver: Receiver) -> Upload:
    upload_id = request.request.path_params["upload_id"]
    upload = await _stored(request, receiver.uploads.find, request.call_id, upload_id)
    if upload is None or upload.workspace_id != request.home:
        raise errors.NoSuchUpload
    return upload


def _progress(upload: Upload, offset: int, status: int = 200) -> Response:
    expires = datetime.fromtimestamp(upload.expires, UTC)
    answer = answer_with(RecordingUpload(upload.upload_id, offset, upload.length, expires), status)
    answer.headers["Upload-Offset"], answer.headers["Cache-Control"] = str(offset), "no-store"
    return answer


async def _stored(request: ApiRequest[NoQuery], work: Callable[P, T], *values: P.args, **options: P.kwargs) -> T:
    """Return the result of blocking work with the storage. Raises `Busy` if the storage fails."""
    try:
        return await asyncio.to_thread(work, *values, **options)
    except StorageError as error:
        raise _not_stored(request) from error


def _not_stored(request: ApiRequest[NoQuery]) -> errors.Busy:
    return errors.Busy(
        request.options.RETRY_AFTER_SECONDS, "The recording cannot be stored now. Retry after Retry-After."
    )


def _sha256_of(uploads: Uploads, parts: list[Part], key: bytes | None) -> str:
    digest = hashlib.sha256()
    for piece in uploads.read(parts, key):
        digest.update(piece)
    return digest.hexdigest()


def _route(path: str, handler: Handler, summary: str, method: str, answer: Any = None) -> Route:
    work = Work.UPLOAD if method in ("POST", "PATCH") else Work.READ
    return Route(path, handler, summary, answer, method=method, work=work, needs=SUBMIT)


ROUTES = (
    _route(
        RECORDING, upload_recording, "Upload the recording of a call, or create an upload", "POST", UploadedRecording
    ),
    _route(UPLOAD, show_upload, "Show the progress of an upload", "GET", RecordingUpload),
    _route(UPLOAD, continue_upload, "Send the next part of an upload", "PATCH", RecordingUpload),
    _route(UPLOAD, cancel_upload, "Delete an upload", "DELETE"),
)
