import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from urllib.parse import unquote_plus, urlsplit, urlunsplit
from uuid import UUID, uuid4, uuid5

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
"""Query parameters that sign an address or let it expire, case-insensitive; `*` matches anything.

Amazon S3 and CloudFront, Google and Alibaba storage, Azure (only its parameters that change when it signs again), and
bearer tokens.
"""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def recording_identity(url: str, signing_parameters: Sequence[str] = SIGNING_PARAMETERS) -> str:
    """Return the URL without the parts that change when it is signed again: equal results identify the same recording.

    Leaves out signing parameters, user information, the fragment and a default port; scheme and host in lower case. The
    other parameters keep their order. Never raises: text that is no URL is returned unchanged.
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
    parameters = [
        pair for pair in parts.query.split("&") if pair and not signs(unquote_plus(pair.partition("=")[0]).lower())
    ]
    return urlunsplit((scheme, host, parts.path or "/", "&".join(parameters), ""))


@lru_cache(maxsize=16)
def _signing(parameters: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    if not parameters:
        return lambda _: None
    return re.compile("|".join(translate(parameter.lower()) for parameter in parameters)).match


def new_id(workspace_id: UUID, idempotency_key: UUID | None = None) -> UUID:
    """Return the id of a new object, the same for each request of the workspace with this key.

    Ids are unique in the whole service. If clients chose them, a refusal would reveal those of other workspaces.
    """
    return uuid4() if idempotency_key is None else uuid5(workspace_id, str(idempotency_key))
