"""Encryption of secrets at rest: sealed before they are stored, opened where they are used.

A value is sealed by Fernet (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec). Of several keys the first
seals and all open. To replace a key, put a new one before it; `reseal` then converts stored values. Without keys values
are stored in the clear with a prefix: anyone who can read the database can read them.
"""

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from pipeline.errors import CallError

KEYS_SETTING = "SWITCHBOARD_SECRETS_KEYS"
HOW_TO_CREATE_KEY = "create one with `openssl rand -base64 32`"

_SEALED, _OPEN = "fernet:", "plain:"


class SecretSealed(CallError):
    """A stored secret cannot be opened with the configured keys."""

    code = "secret_sealed"
    retryable = True  # setting the key fixes it


class Sealer:
    """Seals and opens short texts with `keys` of 32 bytes in base64 (either alphabet). Raises ValueError for others.

    Neither `repr` nor errors contain the keys or the texts.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = [_fernet(key, at) for at, key in enumerate(keys, 1)]
        self._fernet = MultiFernet(self._keys) if self._keys else None

    @property
    def seals(self) -> bool:
        """Whether values are sealed; False without a key."""
        return self._fernet is not None

    def seal(self, text: str) -> str:
        """Return `text` in its stored form: ASCII with a prefix for the method."""
        if self._fernet is None:
            return _OPEN + text
        return _SEALED + self._fernet.encrypt(text.encode()).decode("ascii")

    def open(self, sealed: str) -> str:
        """Return the text passed to `seal`, also one stored before keys were set. Raises `SecretSealed`."""
        if sealed.startswith(_OPEN):
            return sealed.removeprefix(_OPEN)
        if not sealed.startswith(_SEALED):
            raise SecretSealed("A stored secret has an unknown format: store it again.")
        if self._fernet is None:
            raise SecretSealed(f"A stored secret is sealed and {KEYS_SETTING} is not set: set it to its former value.")
        try:
            return self._fernet.decrypt(sealed.removeprefix(_SEALED).encode()).decode()
        except InvalidToken:
            raise SecretSealed(
                f"A stored secret was sealed with a key that is not in {KEYS_SETTING}: add that key after the first "
                "one, or store the secret again."
            ) from None

    def reseal(self, sealed: str) -> str:
        """Return the secret sealed with the first key; unchanged if it already is. Raises `SecretSealed`."""
        return sealed if self.is_fresh(sealed) else self.seal(self.open(sealed))

    def is_fresh(self, sealed: str) -> bool:
        """Return whether `sealed` is in the form that `seal` uses now: with the first key, or unsealed without keys."""
        if not self._keys:
            return sealed.startswith(_OPEN)
        if not sealed.startswith(_SEALED):
            return False
        try:
            self._keys[0].decrypt(sealed.removeprefix(_SEALED).encode())
        except InvalidToken:
            return False
        return True


def _fernet(key: str, at: int) -> Fernet:
    try:
        return Fernet(key.strip())
    except ValueError:
        raise ValueError(f"key {at} is not 32 bytes in base64; {HOW_TO_CREATE_KEY}") from None
