"""Secrets at rest: sealed before they are stored, opened where they are used.

A value is sealed by Fernet (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec). Of several keys the first
seals and all open, so that a key is replaced by putting a new one before it; `reseal` then carries stored values over.
Without keys values are kept as they are, with a mark that says so: anyone who reads the database reads them.
"""

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from pipeline.errors import CallError

KEYS_SETTING = "SWITCHBOARD_SECRETS_KEYS"
HOW_TO_MAKE_A_KEY = "`openssl rand -base64 32` makes one"

_SEALED, _OPEN = "fernet:", "plain:"


class SecretSealed(CallError):
    """A stored secret cannot be opened with the keys that are set."""

    code = "secret_sealed"
    retryable = True  # setting the key fixes it


class Sealer:
    """Seals and opens short texts with `keys`: 32 bytes each, in base64 (either alphabet). ValueError for others.

    Neither the keys nor the texts are shown by `repr` or told in errors.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = [_fernet(key, at) for at, key in enumerate(keys, 1)]
        self._fernet = MultiFernet(self._keys) if self._keys else None

    @property
    def seals(self) -> bool:
        """False where values are kept unsealed, because no key is set."""
        return self._fernet is not None

    def seal(self, text: str) -> str:
        """What may be stored of `text`: ASCII that begins with how it was made."""
        if self._fernet is None:
            return _OPEN + text
        return _SEALED + self._fernet.encrypt(text.encode()).decode("ascii")

    def open(self, sealed: str) -> str:
        """The text that `seal` was given, also one kept from the time before keys were set. Raises `SecretSealed`."""
        if sealed.startswith(_OPEN):
            return sealed.removeprefix(_OPEN)
        if not sealed.startswith(_SEALED):
            raise SecretSealed("A stored secret is in a form that this version does not know: store it again.")
        if self._fernet is None:
            raise SecretSealed(f"A stored secret is sealed and {KEYS_SETTING} is not set: set it as it was.")
        try:
            return self._fernet.decrypt(sealed.removeprefix(_SEALED).encode()).decode()
        except InvalidToken:
            raise SecretSealed(
                f"A stored secret was sealed with a key that is not among {KEYS_SETTING}: add that key behind the "
                "first one, or store the secret again."
            ) from None

    def reseal(self, sealed: str) -> str:
        """The same secret under the first key; as it is where it is so already. Raises `SecretSealed`."""
        return sealed if self.is_fresh(sealed) else self.seal(self.open(sealed))

    def is_fresh(self, sealed: str) -> bool:
        """Whether `sealed` is as `seal` would make it now: by the first key, or unsealed where there is none."""
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
        raise ValueError(f"key {at} is not 32 bytes in base64; {HOW_TO_MAKE_A_KEY}") from None
