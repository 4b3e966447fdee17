"""Where the service is, and with which key: arguments before the environment."""

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
    """The base URL, and the headers of every request. No text form of it shows the key."""

    def __init__(self, url: str | None, key: str | None) -> None:
        """Raises `NotConfigured`."""
        self.url = _usable(url or os.environ.get("SWITCHBOARD_URL") or LOCAL)
        secret = (key or os.environ.get("SWITCHBOARD_API_KEY") or "").strip()
        if not secret:
            raise NotConfigured("no API key: pass key=..., or set SWITCHBOARD_API_KEY.")
        if not (secret.isascii() and secret.isprintable()) or " " in secret:
            raise NotConfigured("the API key holds a character that no key has: copy it again.")
        self._secret = secret

    def __repr__(self) -> str:
        return f"Configuration({self.url!r})"

    def headers(self) -> dict[str, str]:
        """Of every request."""
        return {"Authorization": f"Bearer {self._secret}", "User-Agent": USER_AGENT}

    def address(self, path: str, **ids: object) -> str:
        """The URL of an operation's path."""
        return self.url + path.format(**{name: quote(str(value), safe="") for name, value in ids.items()})


def _usable(url: str) -> str:
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise NotConfigured(f"the URL cannot be read: {error}.") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise NotConfigured("the URL is not that of a service, such as https://switchboard.example.com.")
    if found.userinfo or found.query or found.fragment:
        raise NotConfigured("the URL holds a user, a query or a fragment: pass the service's base URL alone.")
    return str(found).rstrip("/").removesuffix("/api/v1")
