"""When two URLs name one recording, and how a number reads in E.164. Pure."""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import phonenumbers

SIGNING_PARAMETERS: tuple[str, ...] = (
    "X-Amz-*",
    "X-Goog-*",
    "X-Oss-*",
    "AWSAccessKeyId",
    "GoogleAccessId",
    "OSSAccessKeyId",
    "Key-Pair-Id",
    "Policy",
    "Signature",
    "Expires",
    "sig",
    "se",
    "st",
    "skt",
    "ske",
    "token",
    "access_token",
)
"""Query parameters that sign an address or let it expire, case-insensitive; `*` stands for anything.

Amazon S3 and CloudFront, Google and Alibaba storage, Azure (only those of its parameters that change when it signs
again), and bearer tokens.
"""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def recording_identity(url: str, signing_parameters: Sequence[str] = SIGNING_PARAMETERS) -> str:
    """The URL without what changes when it is signed again: two with the same identity name the same recording.

    Leaves out signing parameters, user information, the fragment and a default port; scheme and host in lower case.
    The other parameters keep their order. Never raises: what is no URL is its own identity.
    """
    try:
        parts = urlsplit(url)
        host, port, scheme = (parts.hostname or "").lower(), parts.port, parts.scheme.lower()
    except ValueError:
        return url
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _DEFAULT_PORTS.get(scheme):
        host = f"{host}:{port}"
    signs = _signing(tuple(signing_parameters))
    kept = [pair for pair in parts.query.split("&") if pair and not signs(unquote_plus(pair.partition("=")[0]).lower())]
    return urlunsplit((scheme, host, parts.path or "/", "&".join(kept), ""))


@lru_cache(maxsize=16)
def _signing(parameters: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """Whether a name in lower case is one of them."""
    if not parameters:
        return lambda _: None
    return re.compile("|".join(translate(parameter.lower()) for parameter in parameters)).match


@lru_cache(maxsize=4096)
def e164(number: str, default_country: str | None) -> str | None:
    """The number in E.164, or None for what is none ("anonymous", a short extension, a SIP user name).

    `default_country` (ISO 3166 alpha-2) reads national numbers, which must be valid ones there; one with + need only
    be possible. An extension is left out, as E.164 has none.
    """
    text = number.strip()
    if text.lower().startswith(("sip:", "sips:", "tel:")):
        text = text.partition(":")[2].partition("@")[0].partition(";")[0]
    try:
        parsed = phonenumbers.parse(text, default_country)
    except phonenumbers.NumberParseException:
        return None
    international = text.startswith(("+", "＋"))
    # "12" could be a short German number and is far more likely an extension.
    if not (phonenumbers.is_possible_number(parsed) if international else phonenumbers.is_valid_number(parsed)):
        return None
    return str(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))
