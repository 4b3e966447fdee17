"""Encryption of recording URLs at rest. Their query, fragment and user information may give access to a recording
(presigned URLs, SAS tokens, passwords), so they are stored sealed, and opened only by the process that fetches.

The stored form is `https://host:port/path siv:KEY:SEALED`: scheme, host, port and path for people and for the queue of
fetches, a space, which no URL contains, and the whole URL sealed by AES-SIV (RFC 5297) under a key that HKDF derives
from one of `SWITCHBOARD_SECRETS_KEYS`. AES-SIV is deterministic: a URL that is sent twice is stored as the same text,
so SQL can compare it without a key. The readable part is authenticated: a URL sealed for one host cannot be opened for
another. A URL without secret parts is stored unchanged, and so is every URL if no key is set.

Some servers put the secret into the path. `UrlSealer(keys, paths=True)` seals the path too, with the mark `siv-path:`;
the readable part is then `https://host:port/`.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from db.secrets.encryption import KEYS_SETTING, Sealer, SecretSealed

BODY_FIELDS = ("recordingUrl", "recordingUrl2")
"""Fields of a submission's body."""

_MARK, _PATH_MARK = "siv:", "siv-path:"
_READABLE = re.compile(r"([^/?#]*//)?(?:[^/?#]*@)?([^?#]*)")
_SERVER = re.compile(r"(?:[^/?#]*//)?[^/?#]*/?")


def readable(url: str) -> str:
    """Return the URL without query, fragment and user information."""
    match = _READABLE.match(url)
    assert match is not None  # it matches the empty string too
    return (match[1] or "") + match[2]


def _server(url: str) -> str:
    match = _SERVER.match(readable(url))
    assert match is not None
    return match[0]


def shown(stored: str) -> str:
    """Return the public part of a stored URL, sealed or not: `?...` or `...` replaces the rest."""
    clear = readable(stored.partition(" ")[0])
    if clear == stored:
        return clear
    return clear + ("..." if stored.startswith(f"{clear} {_PATH_MARK}") else "?...")


def in_body(body: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a submission's body with `change` applied to its URLs; values that are not text stay."""
    urls = {name: change(body[name]) for name in BODY_FIELDS if isinstance(body.get(name), str)}
    return {**body, **urls}


class UrlSealer:
    """Seals and opens URLs with `keys`: the first seals, all open. `paths`: their paths are secret too.

    Raises ValueError for an invalid key. Neither `repr` nor errors contain keys or URLs.
    """

    def __init__(self, keys: Sequence[str] = (), paths: bool = False) -> None:
        Sealer(keys)  # checks the keys
        self._mark, self._clear = (_PATH_MARK, _server) if paths else (_MARK, readable)
        self._keys = [_Key(base64.urlsafe_b64decode(_urlsafe(key.strip()))) for key in keys]

    @property
    def seals(self) -> bool:
        """Whether URLs are sealed; False without a key."""
        return bool(self._keys)

    @property
    def newest_mark(self) -> str:
        """The text after the readable part of every URL that `seal` seals; empty without a key."""
        return f" {self._mark}{self._keys[0].name}:" if self._keys else ""

    @property
    def seals_paths(self) -> bool:
        return self.seals and self._mark == _PATH_MARK

    def seal(self, url: str) -> str:
        """Return `url` in its stored form: the same text each time."""
        clear = self._clear(url)
        return self._keys[0].seal(url, clear, self._mark) if self._keys and clear != url else url

    def open(self, stored: str) -> str:
        """Return the exact URL passed to `seal`, also one stored before keys were set. Raises `SecretSealed`."""
        clear, space, sealed = stored.partition(" ")
        if not space:
            return stored
        mark = next((mark for mark in (_MARK, _PATH_MARK) if sealed.startswith(mark)), None)
        if mark is None:
            raise SecretSealed("The recording's URL is stored in an unknown format: submit the recording again.")
        if not self._keys:
            raise SecretSealed(
                f"The recording's URL is sealed and {KEYS_SETTING} is not set: set it to its former value."
            )
        name, _, token = sealed.removeprefix(mark).partition(":")
        for key in self._keys:
            if key.name == name:
                return key.open(clear, token)
        raise SecretSealed(
            f"The recording's URL was sealed with a key that is not in {KEYS_SETTING}: add that key after the first "
            "one, or submit the recording again."
        )

    def reseal(self, stored: str) -> str:
        """Return the URL in the form in which `seal` stores it now. Raises `SecretSealed`."""
        return self.seal(self.open(stored))

    def earlier_forms(self, url: str) -> list[str] | None:
        """Return the SHA-256 in hex of each other stored form of `url` (by an earlier key, with its path, unsealed);
        None if there are none. SQL compares with these, so neither the URL nor a key reaches the database.
        """
        clear, usual = self._clear(url), readable(url)
        if not self._keys or clear == url:
            return None
        forms = [url, *(key.seal(url, clear, self._mark) for key in self._keys[1:])]
        if self.seals_paths and usual not in (url, clear):
            forms += [key.seal(url, usual, _MARK) for key in self._keys]
        return [hashlib.sha256(form.encode()).hexdigest() for form in forms]


class _Key:
    """A key and its name, a digest that reveals nothing about it."""

    def __init__(self, secret: bytes) -> None:
        self._siv = AESSIV(_derive(secret, b"switchboard recording url", 64))
        self.name = _derive(secret, b"switchboard recording url: name of the key", 4).hex()

    def seal(self, url: str, clear: str, mark: str) -> str:
        sealed = self._siv.encrypt(url.encode(), [clear.encode()])
        return f"{clear} {mark}{self.name}:{base64.urlsafe_b64encode(sealed).decode('ascii')}"

    def open(self, clear: str, token: str) -> str:
        try:
            return self._siv.decrypt(base64.urlsafe_b64decode(token), [clear.encode()]).decode()
        except (InvalidTag, ValueError):
            raise SecretSealed(
                "The stored URL of the recording was altered or belongs to another recording: submit it again."
            ) from None


def _derive(secret: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=purpose).derive(secret)


def _urlsafe(key: str) -> str:
    return key.replace("+", "-").replace("/", "_")
