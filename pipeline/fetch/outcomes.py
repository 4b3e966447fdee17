import ssl
import zlib
from typing import Any
from urllib.parse import urljoin

import httpcore
import httpx

from pipeline import errors
from pipeline.fetch import partial
from pipeline.fetch.address import UNUSUAL_CHARACTERS, Target
from pipeline.net.post import retry_after

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# 202 and 204 are how some telephony systems say "still being written"; others use the rest for "not published yet".
NOT_READY = frozenset({202, 204, 401, 403, 404, 409, 423, 425, 429})

CONNECTION_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    ssl.SSLError,
    OSError,
    zlib.error,
)


def check_status(status: int, headers: httpx.Headers, host: str, known_as: str | None = None) -> None:
    """Raise the error that a status without the whole recording means, with `status` and `retry_after` as facts.

    `known_as`: whether the workspace's credentials for this server were "shown" or "withheld"; None if it has none.
    """
    if status in (200, 203) or (status == 206 and partial.is_whole(headers)):
        return
    facts: dict[str, Any] = {"status": status}
    wait = retry_after(headers)
    if wait is not None:
        facts["retry_after"] = wait
    error = _unauthorized(host, known_as) if status == 401 else _by_status(status, host)
    raise error.with_facts(**facts)


def _unauthorized(host: str, known_as: str | None) -> errors.RecordingError:
    if known_as == "shown":
        return errors.CredentialsRefused(
            f"{host} refuses the credentials that are stored for it (status 401): `switchboard credentials add` "
            "replaces them."
        )
    if known_as == "withheld":
        return errors.RecordingNotReady(
            f"{host} requires credentials (status 401), and stored credentials are not sent without TLS: use "
            "https, or list the host in SWITCHBOARD_FETCH__ALLOWED_HOSTS."
        )
    return errors.RecordingNotReady(
        f"{host} does not serve the recording yet (status 401). If it requires a password or token, "
        "`switchboard credentials add` stores one for it."
    )


def _by_status(status: int, host: str) -> errors.RecordingError:
    if status in NOT_READY:
        return errors.RecordingNotReady(f"{host} does not serve the recording yet (status {status}).")
    if status == 410:
        return errors.RecordingGone(f"{host} reports that the recording was deleted (status 410).")
    if status >= 500 or status == 408:
        return errors.RecordingUnreachable(f"{host} failed to serve the recording (status {status}).")
    if status == 206:
        return errors.RecordingTruncated(f"{host} sent only part of the recording (status 206).")
    return errors.RecordingError(f"{host} refused to serve the recording (status {status}).")


def translate(error: Exception, host: str) -> errors.CallError:
    """Convert one of `CONNECTION_FAILURES` to the error of the recording."""
    if _broke_off(error):
        return errors.RecordingTruncated(f"{host} closed the connection before the recording was complete.")
    if isinstance(error, zlib.error):
        return errors.RecordingTruncated("The recording's compressed data is damaged.")
    if isinstance(error, httpcore.TimeoutException):
        return errors.RecordingUnreachable(f"{host} did not answer in time.")
    if isinstance(error, httpcore.ConnectError):
        what = "TLS could not be negotiated" if is_tls(error) else "No connection could be made"
        return errors.RecordingUnreachable(f"{what} with {host}.")
    if isinstance(error, httpcore.ProtocolError):
        return errors.RecordingUnreachable(f"{host} violates the HTTP protocol.")
    return errors.RecordingUnreachable(f"The connection to {host} was lost.")


def _broke_off(error: Exception) -> bool:
    """Recognize a body that ended early: httpcore distinguishes it only by the message."""
    words = ("without sending complete message body", "incomplete chunked read")
    return isinstance(error, httpcore.RemoteProtocolError) and any(word in str(error) for word in words)


def is_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def follow(url: str, target: Target, location: str) -> str:
    """Return the URL of a redirect from `url` (checked: `target`) to `location`.

    Raises `AddressForbidden` for an invalid URL, and `RedirectInsecure` for one that leaves TLS.
    """
    if UNUSUAL_CHARACTERS.search(location):  # joining would silently drop tabs and line ends
        raise _no_url()
    try:
        onward = urljoin(url, location)
    except ValueError:
        raise _no_url() from None
    if target.scheme == "https" and onward[:5].lower() == "http:":
        raise errors.RedirectInsecure(
            f"{target.host} redirects from https to http, where the recording can be read and changed in "
            "transit. Fix the redirect on that server."
        ).with_facts(host=target.host)
    return onward


def _no_url() -> errors.AddressForbidden:
    return errors.AddressForbidden("The recording's address redirects to something that is not a valid URL.")
