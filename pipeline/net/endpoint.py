from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, SecretStr, SerializationInfo

REVEAL = "reveal_secrets"  # key of a serialization context that writes secrets out


def _address(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.fragment:
        raise ValueError("must be a URL such as https://host/v1")
    if parts.username is not None or parts.password is not None or parts.query:
        raise ValueError(
            "must not contain a user, password or query, since addresses are logged: put the key into api_key"
        )
    return value


def _sendable(value: SecretStr | None) -> SecretStr | None:
    """Strip surrounding white space; a header accepts printable ASCII only."""
    key = value.get_secret_value().strip() if value is not None else ""
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("must be printable ASCII without spaces")
    return SecretStr(key) if key else None


def _hidden(value: SecretStr | None, info: SerializationInfo) -> str | None:
    """Write the secret out only under `REVEAL`: the service does so for the environment of its own replicas."""
    reveal = bool(info.context and info.context.get(REVEAL))
    return None if value is None else value.get_secret_value() if reveal else str(value)


Address = Annotated[str | None, AfterValidator(_address)]
ApiKey = Annotated[SecretStr | None, AfterValidator(_sendable), PlainSerializer(_hidden, when_used="json")]


def below(base_url: str, path: str) -> str:
    return base_url.rstrip("/") + path


def bearer(key: SecretStr | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
