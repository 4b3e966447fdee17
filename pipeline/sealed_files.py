"""Sealed recordings: encrypted by AES-256-GCM in chunks, so that a range is read without the rest.

A file is `MAGIC`, a salt, then each chunk with its tag. HKDF derives the file's key from the call's key and the salt, a
digest of the content under the call's key: the same recording of a call gives the same file, and no two contents share
a key. A chunk's nonce is its number and whether it is the last: chunks cannot be moved, exchanged or cut off (STREAM,
https://eprint.iacr.org/2015/189).
"""

import hmac
import io
from collections.abc import Iterator
from typing import IO, Any

import fsspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pipeline.errors import StorageError

MAGIC = b"SWBSEAL1"
SALT_BYTES, TAG_BYTES = 32, 16
HEADER_BYTES = len(MAGIC) + SALT_BYTES
CHUNK = 1 << 16


class RecordingSealed(StorageError):
    """The recording is sealed, and the key of its call was deleted or cannot be opened."""


class RecordingAltered(StorageError):
    """The sealed recording was altered, cut off, or is of another call."""


def open_stored(uri: str, key: bytes | None = None) -> IO[bytes]:
    """Return a readable, seekable file with the content of a stored file, which `key` opens if it is sealed.

    Raises `StorageError`.
    """
    try:
        file: Any = fsspec.open(uri, "rb").open()
        try:
            magic = file.read(len(MAGIC))
            file.seek(0)
            return _opened(file, key) if magic == MAGIC else file
        except BaseException:
            file.close()
            raise
    except StorageError:
        raise
    except Exception as error:  # each object store has its own exceptions
        raise StorageError(f"A stored recording cannot be read ({type(error).__name__}).") from error


def sealed_pieces(source: IO[bytes], size: int, sha256: bytes, key: bytes) -> Iterator[bytes]:
    """Yield the sealed form of a file of `size` bytes with this SHA-256."""
    salt = hmac.digest(key, b"switchboard recording " + sha256, "sha256")
    cipher = _cipher(key, salt)
    yield MAGIC + salt
    last = max(0, size - 1) // CHUNK
    for number in range(last + 1):
        yield cipher.encrypt(_nonce(number, number == last), source.read(CHUNK), None)


def _opened(file: Any, key: bytes | None) -> IO[bytes]:
    if key is None:
        raise RecordingSealed
    return io.BufferedReader(_SealedFile(file, key), CHUNK)


class _SealedFile(io.RawIOBase):
    """The content of a sealed file. Reads the last chunk first: a file that was cut off cannot be opened."""

    def __init__(self, file: Any, key: bytes) -> None:
        self._file = file
        sealed_size = int(file.seek(0, io.SEEK_END))
        chunks, rest = divmod(sealed_size - HEADER_BYTES, CHUNK + TAG_BYTES)
        self._last = chunks - (rest == 0)
        self._size = sealed_size - HEADER_BYTES - TAG_BYTES * (self._last + 1)
        file.seek(len(MAGIC))
        self._cipher = _cipher(key, file.read(SALT_BYTES))
        self._at, self._number, self._chunk = 0, -1, b""
        if self._size < 0:
            raise RecordingAltered
        self._load(self._last)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        if self._at >= self._size:
            return 0
        number, begin = divmod(self._at, CHUNK)
        self._load(number)
        piece = self._chunk[begin : begin + len(target)]
        target[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _load(self, number: int) -> None:
        if number == self._number:
            return
        self._file.seek(HEADER_BYTES + number * (CHUNK + TAG_BYTES))
        sealed = self._file.read(CHUNK + TAG_BYTES)
        try:
            self._chunk = self._cipher.decrypt(_nonce(number, number == self._last), sealed, None)
        except (InvalidTag, ValueError):
            raise RecordingAltered from None
        self._number = number


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _cipher(key: bytes, salt: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=salt, info=b"switchboard recording").derive(key))
