"""Cookies of one fetch: a server that answers only with the cookie of its own redirect gets it back.

A cookie goes to the scheme, host and port that set it, whatever its attributes permit, and ends with the fetch.
"""

import re
from collections import defaultdict

MAX_COOKIES = 20  # of one server
MAX_CHARACTERS = 4096  # of one cookie, and of all cookies in a request
_PAIR = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+=[!#-+\--:<-\[\]-~\" ]*", re.ASCII)
_EXPIRED = re.compile(r";\s*max-age\s*=\s*(?:0+|-\d+)\s*(?:;|$)", re.IGNORECASE)

Origin = tuple[str, str, int]


class Cookies:
    """Name and value of each cookie by the origin that set it."""

    def __init__(self) -> None:
        self._by_origin: defaultdict[Origin, dict[str, str]] = defaultdict(dict)

    def store(self, origin: Origin, set_cookies: tuple[str, ...]) -> None:
        """Store the cookies of a response's Set-Cookie headers; malformed or oversized ones are dropped."""
        cookies = self._by_origin[origin]
        for header in set_cookies:
            pair = header.partition(";")[0].strip()
            if len(pair) > MAX_CHARACTERS or not _PAIR.fullmatch(pair):
                continue
            name, _, value = pair.partition("=")
            cookies.pop(name, None)
            if not _EXPIRED.search(header) and len(cookies) < MAX_COOKIES:
                cookies[name] = value

    def of(self, origin: Origin) -> str:
        """Return the value of the Cookie header for a server; "" without cookies."""
        text = ""
        for name, value in self._by_origin.get(origin, {}).items():
            pair = f"{name}={value}"
            if len(text) + len(pair) + 2 <= MAX_CHARACTERS:
                text = f"{text}; {pair}" if text else pair
        return text
