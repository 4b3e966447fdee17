"""What engines behind an address have in common: the address, a key that stays secret, an answer within a time."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, SecretStr, SerializationInfo

T = TypeVar("T")
REVEAL = "reveal_secrets"  # key of a serialization context under which secrets are written out


def _address(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.fragment:
        raise ValueError("must be a URL such as https://host/v1")
    if parts.username is not None or parts.password is not None or parts.query:
        raise ValueError("must hold no user, password or query, for addresses are logged: a key goes into api_key")
    return value


def _sendable(value: SecretStr | None) -> SecretStr | None:
    """Spaces and line ends around it go; a header takes nothing but printable ASCII."""
    key = value.get_secret_value().strip() if value is not None else ""
    if not all("!" <= sign <= "~" for sign in key):
        raise ValueError("must be printable ASCII without spaces")
    return SecretStr(key) if key else None


def _hidden(value: SecretStr | None, info: SerializationInfo) -> str | None:
    """Written out only to a caller that asks by name: the service, for the environment of its own replicas."""
    reveal = bool(info.context and info.context.get(REVEAL))
    return None if value is None else value.get_secret_value() if reveal else str(value)


Address = Annotated[str | None, AfterValidator(_address)]
ApiKey = Annotated[SecretStr | None, AfterValidator(_sendable), PlainSerializer(_hidden, when_used="json")]


def below(base_url: str, path: str) -> str:
    """Return `path` below `base_url`."""
    return base_url.rstrip("/") + path


def bearer(key: SecretStr | None) -> dict[str, str]:
    """Return the header that a key is sent in; none without a key."""
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return or raise what `ask` does, if it does in time; it is left to itself otherwise. Raises `TimeoutError`.

    In a thread of its own: a time limit on each read would not end a server that sends a byte a minute.
    """
    results: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((ask(), None))
        except Exception as error:
            results.put((None, error))

    Thread(target=run, name="endpoint", daemon=True).start()
    try:
        result, error = results.get(timeout=max(0.0, seconds))
    except Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
