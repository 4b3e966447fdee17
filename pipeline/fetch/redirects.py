from urllib.parse import urljoin

from pipeline.errors import AddressForbidden, RedirectInsecure
from pipeline.fetch.address import UNUSUAL_CHARACTERS, Target

REDIRECTS = frozenset({301, 302, 303, 307, 308})


def follow(url: str, target: Target, location: str, insecure: bool) -> str:
    """Return the URL of a redirect from `url` (checked: `target`) to `location`.

    Raises `AddressForbidden` for an invalid URL, and `RedirectInsecure` for one that leaves TLS unless `insecure`.
    """
    if UNUSUAL_CHARACTERS.search(location):  # joining would silently drop tabs and line ends
        raise _no_url()
    try:
        onward = urljoin(url, location)
    except ValueError:
        raise _no_url() from None
    if target.scheme == "https" and onward[:5].lower() == "http:" and not insecure:
        raise RedirectInsecure(
            f"{target.host} redirects from https to http, where the recording can be read and changed in "
            "transit. To allow it, set SWITCHBOARD_FETCH__INSECURE_REDIRECTS=true."
        ).with_facts(host=target.host)
    return onward


def _no_url() -> AddressForbidden:
    return AddressForbidden("The recording's address redirects to something that is not a valid URL.")
