import os
import platform
from typing import Final
from urllib.parse import quote

import httpx

from switchboard._version import __version__
from switchboard.errors import NotConfigured

LOCAL: Final = "http://127.0.0.1:8000"
USER_AGENT: Final = f"switchboard-client/{__version__} python/{platform.python_version()} httpx/{httpx.__version__}"


class Configuration:
    """Base URL and headers of every request. Arguments take precedence over the environment; repr() hides the key."""

    def __init__(self, url: str | None, key: str | None) -> None:
        self.url = _usable(url or os.environ.get("SWITCHBOARD_URL") or LOCAL)
        secret = (key or os.environ.get("SWITCHBOARD_API_KEY") or "").strip()
        if not secret:
            raise NotConfigured("no API key: pass key=... or set SWITCHBOARD_API_KEY.")
        if not (secret.isascii() and secret.isprintable()) or " " in secret:
            raise NotConfigured("the API key contains an invalid character: copy it again.")
        self._secret = secret

    def __repr__(self) -> str:
        return f"Configuration({self.url!r})"

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        return {"Authorization": f"Bearer {self._secret}", "User-Agent": USER_AGENT}

    def address(self, path: str, **ids: object) -> str:
        """Return the URL of the path of an operation."""
        return self.url + path.format(**{name: quote(str(value), safe="") for name, value in ids.items()})


def from_environment() -> tuple[str, str]:
    """Return the URL and the key of the environment. Raises `NotConfigured` if either is missing."""
    names = ("SWITCHBOARD_URL", "SWITCHBOARD_API_KEY")
    if missing := [name for name in names if not os.environ.get(name, "").strip()]:
        raise NotConfigured(f"{' and '.join(missing)} must be set.")
    return os.environ[names[0]], os.environ[names[1]]


def _usable(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise NotConfigured(f"the URL is invalid: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise NotConfigured("the URL must be that of a service, such as https://switchboard.example.com.")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise NotConfigured("the URL has a user, a query or a fragment: pass only the base URL of the service.")
    return str(parsed).rstrip("/").removesuffix("/api/v1")
