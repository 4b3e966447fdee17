import base64
import hashlib
from pathlib import Path
from uuid import UUID

import httpx

from switchboard import _answers
from switchboard._async.session import AsyncSession
from switchboard._transfers import OnBytes, file_digest, piece_of, piece_size
from switchboard.errors import Conflict
from switchboard.models import RecordingUpload, UploadedRecording


class AsyncUploading:
    """Uploads of recordings. Need the scope `submit`."""

    _session: AsyncSession

    async def upload_recording(
        self, call_id: UUID | str, path: str | Path, *, on_progress: OnBytes | None = None
    ) -> UploadedRecording:
        """Upload the recording of a call whose metadata was submitted; return its job.

        The file is sent in parts, each with its digest. After a lost connection the upload resumes after the bytes that
        have arrived. Raises `NoSuchCall` before the first submission of the call, and `Refusal`.
        """
        path = Path(path)
        size, digest = path.stat().st_size, file_digest(path)
        headers = {"Upload-Length": str(size), "Repr-Digest": digest}
        answer = await self._session.send("uploadRecording", headers, call_id=call_id)
        upload = _answers.parsed(answer, RecordingUpload)
        while True:
            answer = await self._send_part(call_id, upload, path, piece_size(size))
            if answer.status_code == httpx.codes.ACCEPTED:
                if on_progress:
                    on_progress(size, size)
                return _answers.parsed(answer, UploadedRecording)
            upload = _answers.parsed(answer, RecordingUpload)
            if on_progress:
                on_progress(upload.offset, size)

    async def _send_part(self, call_id: UUID | str, upload: RecordingUpload, path: Path, size: int) -> httpx.Response:
        """Send the next part; return the response, or the progress if other bytes have arrived than expected."""
        piece = piece_of(path, upload.offset, size)
        digest = base64.b64encode(hashlib.sha256(piece).digest()).decode()
        headers = {"Upload-Offset": str(upload.offset), "Content-Digest": f"sha-256=:{digest}:"}
        try:
            return await self._session.send(
                "continueUpload", headers, piece, call_id=call_id, upload_id=upload.upload_id
            )
        except Conflict as conflict:
            if conflict.kind != "offset-mismatch":
                raise
            return await self._session.send("showUpload", {}, call_id=call_id, upload_id=upload.upload_id)
