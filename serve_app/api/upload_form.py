"""The file of a form, multipart/form-data (RFC 7578), passed on while it arrives: only headers are kept in memory."""

import hashlib
import re
from collections.abc import AsyncIterator

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from serve_app.api.errors import AdminBodyRefused
from serve_app.http.json_body import Fault, unknown_name
from serve_app.http.problems import MediaTypeRefused

FIELDS = ("file", "recording")
MAX_OTHER_BYTES = 1 << 16  # boundaries, headers, and what follows the last boundary
MAX_BOUNDARY = 70  # characters (RFC 2046)
MAX_BOUNDARIES = 8  # of which the parser looks at every byte
MAX_HEADERS = 8
MAX_HEADER_BYTES = 4096
_PLAIN = frozenset({"", "binary", "8bit", "7bit"})
_FILE_NAME = re.compile(r";\s*filename\*?\s*=", re.IGNORECASE)


class Form:
    """A form with one file. `headers`: those of the file, present before its first byte; names are lowercase."""

    def __init__(self, content_type: str, digested: bool = False) -> None:
        """Raise `Refusal` for another multipart type and without a boundary. `digested`: compute `sha256`."""
        media_type, options = parse_options_header(content_type)
        if media_type != b"multipart/form-data":
            raise MediaTypeRefused(
                "The body has an unknown multipart type. Send multipart/form-data, or the file itself."
            )
        if not 0 < len(boundary := options.get(b"boundary", b"")) <= MAX_BOUNDARY:
            raise _refusal(f"Content-Type must have a boundary of 1 to {MAX_BOUNDARY} characters.")
        self.headers: dict[str, str] = {}
        self._digest = hashlib.sha256() if digested else None
        self._has_file = self._ended = False
        self._boundary, self._boundaries = b"\r\n--" + boundary, 0
        self._part: dict[str, str] = {}
        self._name, self._value = b"", b""
        self._pieces: list[bytes] = []
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part.clear,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._open,
                "on_part_data": self._data,
                "on_end": self._end,
            },
            max_header_count=MAX_HEADERS,
            max_header_size=MAX_HEADER_BYTES,
        )

    @property
    def sha256(self) -> str | None:
        """The digest of the whole form so far, hexadecimal."""
        return self._digest.hexdigest() if self._digest else None

    async def file(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the bytes of the file as those of the form arrive. Raises `Refusal` for a faulty form."""
        received = passed_on = 0
        async for data in body:
            received += len(data)
            if self._digest:
                self._digest.update(data)
            self._parse(data)
            for piece in self._pieces:
                passed_on += len(piece)
                yield piece
            self._pieces.clear()
            if received - passed_on > MAX_OTHER_BYTES:
                raise _refusal(f"The form has more than {MAX_OTHER_BYTES} bytes in addition to its file.")
        if received and not self._ended:
            raise _refusal(
                "The form ends before its last boundary, or Content-Type has another boundary than the body."
            )
        if not self._has_file:
            raise _refusal("file is required: the form has no file.", "file")

    def _parse(self, data: bytes) -> None:
        self._boundaries += data.count(self._boundary)
        if self._boundaries > MAX_BOUNDARIES:
            raise _refusal("The form has too many parts, or the file contains the boundary: use another one.")
        try:
            self._parser.write(data)
        except MultipartParseError as error:
            if str(error).startswith("Maximum header"):
                limits = f"{MAX_HEADERS} headers, or one of more than {MAX_HEADER_BYTES} bytes"
                raise _refusal(f"A part of the form has more than {limits}.") from None
            raise _refusal("The form is malformed: check the boundaries and the headers of its parts.") from None

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        name, value = self._name.decode("latin-1").lower(), self._value.decode("latin-1").strip()
        self._part[name] = f"{self._part[name]}, {value}" if name in self._part else value
        self._name = self._value = b""

    def _open(self) -> None:
        """Accept the part whose headers are complete as the file. Raises `Refusal` for another part."""
        disposition = self._part.get("content-disposition", "")
        kind, options = parse_options_header(disposition)
        name = options.get(b"name", b"").decode("latin-1")
        if kind != b"form-data" or not name:
            raise _refusal("A part of the form has no name: Content-Disposition must be form-data with a name.")
        if name not in FIELDS:
            raise _refusal(f"{unknown_name('field', name, FIELDS)} The form has only the field file.")
        if not _FILE_NAME.search(disposition):
            raise _refusal(f"{name} is text without a file name. Send a file; with curl, -F {name}=@call.wav.", name)
        if self._has_file:
            raise _refusal("The form has two files. Send one; record both parties in stereo.", name)
        if self._part.get("content-transfer-encoding", "").lower() not in _PLAIN or "content-encoding" in self._part:
            raise MediaTypeRefused("The file is encoded. Send it as it is, without Content-Transfer-Encoding.")
        self._has_file = True
        self.headers = dict(self._part)

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def _end(self) -> None:
        self._ended = True


def _refusal(detail: str, field: str = "") -> AdminBodyRefused:
    return AdminBodyRefused([Fault(f"/{field}" if field else "", detail)])
