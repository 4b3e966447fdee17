"""Python client of Switchboard: submit calls, wait for them, read, search, download and correct them.

`Client` and `AsyncClient` have the same methods; they return `switchboard.models` and raise `switchboard.errors`.
"""

from switchboard._async.client import AsyncClient
from switchboard._changes import CallChange
from switchboard._sync.client import Client
from switchboard._version import __version__
from switchboard.errors import (
    CallFailed,
    ComparisonTimedOut,
    ConnectionFailed,
    NoSuchCall,
    NotReady,
    Refusal,
    RunTimedOut,
    StaleEdit,
    SwitchboardError,
    TransferCut,
    WaitTimedOut,
)
from switchboard.words import text_of

__all__ = [
    "AsyncClient",
    "CallChange",
    "CallFailed",
    "Client",
    "ComparisonTimedOut",
    "ConnectionFailed",
    "NoSuchCall",
    "NotReady",
    "Refusal",
    "RunTimedOut",
    "StaleEdit",
    "SwitchboardError",
    "TransferCut",
    "WaitTimedOut",
    "__version__",
    "text_of",
]
