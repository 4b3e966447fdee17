"""Sealed recordings: read in part, and refused if anything of them was changed, moved, cut off or exchanged."""

import hashlib
import io
import os
import wave
from pathlib import Path

import numpy as np
import pytest

from pipeline import sealed_files
from pipeline.audio.decode.decoder import decode
from pipeline.audio.decode.options import DecodeOptions
from pipeline.domain import sniff
from pipeline.domain.speech import Recording
from pipeline.errors import StorageError
from pipeline.fetch import storage
from pipeline.fetch.storage import Store
from pipeline.sealed_files import CHUNK, HEADER_BYTES, TAG_BYTES, RecordingAltered, RecordingSealed, open_stored

KEY, OTHER = b"k" * 32, b"o" * 32
SEALED_CHUNK = CHUNK + TAG_BYTES


def keep(folder: Path, content: bytes, key: bytes | None = KEY) -> Recording:
    store = Store(folder.as_uri())
    with store.receive() as incoming:
        incoming.write(content)
        uri, sha256 = store.keep(incoming, key)
    return Recording(0, uri, sha256, incoming.size, key=key)


def path_of(recording: Recording) -> Path:
    return Path(recording.uri.removeprefix("file://"))


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7])
def test_a_recording_is_sealed_and_read_back(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    recording = keep(tmp_path, content)
    sealed = path_of(recording).read_bytes()
    assert hashlib.sha256(sealed).hexdigest() == recording.sha256 and len(sealed) == recording.size_bytes
    assert storage.flaw_of(recording) is None
    assert content[:1000] not in sealed or size < 16
    with open_stored(recording.uri, KEY) as file:
        assert file.read() == content
        assert (file.seek(0, io.SEEK_END), file.read()) == (size, b"")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".owner") == [
        recording.sha256
    ]


def test_a_range_decrypts_only_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(40 * CHUNK)
    recording = keep(tmp_path, content)
    loaded: list[int] = []
    nonce = sealed_files._nonce
    monkeypatch.setattr(sealed_files, "_nonce", lambda number, last: loaded.append(number) or nonce(number, last))
    with open_stored(recording.uri, KEY) as file:
        file.seek(7 * CHUNK + 100)
        assert file.read(300) == content[7 * CHUNK + 100 : 7 * CHUNK + 400]
        file.seek(20 * CHUNK - 50)
        assert file.read(100) == content[20 * CHUNK - 50 : 20 * CHUNK + 50]
    assert set(loaded) <= {39, 7, 8, 19, 20}


def test_the_same_recording_of_a_call_is_the_same_file_and_that_of_another_call_is_not(tmp_path: Path) -> None:
    content = os.urandom(CHUNK + 5)
    first, again, other = keep(tmp_path, content), keep(tmp_path, content), keep(tmp_path, content, OTHER)
    assert (first.uri, first.sha256) == (again.uri, again.sha256) != (other.uri, other.sha256)
    near = keep(tmp_path, content[:-1] + b"x")
    begin = slice(HEADER_BYTES, HEADER_BYTES + 1000)
    assert path_of(near).read_bytes()[begin] != path_of(first).read_bytes()[begin], "another content, another key"
    assert hashlib.sha256(content).hexdigest() not in str(list(tmp_path.rglob("*")))


def changed(sealed: bytes) -> dict[str, bytes]:
    chunks = [sealed[at : at + SEALED_CHUNK] for at in range(HEADER_BYTES, len(sealed), SEALED_CHUNK)]
    header = sealed[:HEADER_BYTES]
    flipped = bytearray(sealed)
    flipped[HEADER_BYTES + SEALED_CHUNK + 9] ^= 1
    return {
        "a bit": bytes(flipped),
        "the salt": sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:],
        "two chunks exchanged": header + chunks[1] + chunks[0] + b"".join(chunks[2:]),
        "a chunk twice": header + chunks[0] + chunks[0] + b"".join(chunks[2:]),
        "a chunk left out": header + chunks[0] + b"".join(chunks[2:]),
        "the last chunk left out": header + b"".join(chunks[:-1]),
        "cut off within a chunk": sealed[:-20],
        "cut off in the header": sealed[: HEADER_BYTES - 3],
        "bytes added": sealed + b"more",
        "a chunk added": sealed + chunks[-1],
    }


@pytest.mark.parametrize("change", list(changed(bytes(HEADER_BYTES + 4 * SEALED_CHUNK))))
def test_what_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    recording = keep(tmp_path, os.urandom(3 * CHUNK + 1000))
    path = path_of(recording)
    path.write_bytes(changed(path.read_bytes())[change])
    with pytest.raises(RecordingAltered), open_stored(recording.uri, KEY) as file:
        file.read()
    assert storage.flaw_of(recording) is not None


def test_without_the_key_of_the_call_nothing_is_read(tmp_path: Path) -> None:
    recording = keep(tmp_path, os.urandom(CHUNK))
    with pytest.raises(RecordingSealed, match="key"):
        open_stored(recording.uri)
    with pytest.raises(RecordingAltered, match="another call"):
        open_stored(recording.uri, OTHER)
    with pytest.raises(StorageError):
        open_stored((tmp_path / "none").as_uri(), KEY)


def test_a_sealed_recording_is_decoded_as_the_plain_one(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(1).integers(-9000, 9000, 80_000, np.int16).tobytes())
    content = (tmp_path / "sound.wav").read_bytes()
    plain, sealed = keep(tmp_path, content, None), keep(tmp_path, content)
    expected, decoded = decode(plain, DecodeOptions()), decode(sealed, DecodeOptions())
    assert (decoded.samples == expected.samples).all() and decoded.duration == expected.duration
    assert open_stored(plain.uri, KEY).read() == content, "an unsealed recording of a sealed call"


def test_a_sender_cannot_submit_what_looks_sealed() -> None:
    assert sniff.detect_type(sealed_files.MAGIC + bytes(100)) == "a sealed recording"
