"""Where a redirect leads, before the guard looks at it."""

from urllib.parse import urljoin

from pipeline.audio.address import UNUSUAL_CHARACTERS, Target
from pipeline.errors import AddressForbidden, RedirectInsecure

REDIRECTS = frozenset({301, 302, 303, 307, 308})


def follow(url: str, target: Target, location: str, insecure: bool) -> str:
    """The URL that `location` in the answer to `url` (checked: `target`) names.

    Raises `AddressForbidden` for what is no URL, and `RedirectInsecure` for one that leaves TLS unless `insecure`.
    """
    if UNUSUAL_CHARACTERS.search(location):  # joining would drop tabs and line ends without a word
        raise _no_url()
    try:
        onward = urljoin(url, location)
    except ValueError:
        raise _no_url() from None
    if target.scheme == "https" and onward[:5].lower() == "http:" and not insecure:
        raise RedirectInsecure(
            f"{target.host} redirects from https to http, where anybody on the way could read and change the "
            "recording. If that is wanted, set SWITCHBOARD_FETCH__INSECURE_REDIRECTS=true."
        ).with_facts(host=target.host)
    return onward


def _no_url() -> AddressForbidden:
    return AddressForbidden("The recording's address redirects to something that is not a valid URL.")
