"""Refusals of the read API, beside those that it shares with Intake (`serve_app.intake.errors`).

Refusal
├── InvalidQuery         400   one entry in `errors` for every fault
├── NotAuthenticated     401   shared
├── ScopeMissing         403   shared
├── NoSuchPath           404
├── NoSuchCall           404   unknown, of another workspace or of another team: they read alike
├── NotThereYet          404   the call is there, what was asked for of it is not
├── ReadOnly             405   with Allow
├── NoSuchRange          416   with Content-Range
├── TooManyReads         429   with Retry-After, RateLimit and RateLimit-Policy
├── Broken               500   shared
├── TooSlow              503   the query took too long
└── Busy                 503   with Retry-After
"""

from serve_app.intake.errors import (
    Broken,
    MethodNotAllowed,
    NoSuchRoute,
    NotAuthenticated,
    Refusal,
    ScopeMissing,
    TooManyRequests,
    Unavailable,
)
from serve_app.intake.wire import Fault


class InvalidQuery(Refusal):
    """The parameters of the request cannot be used; every fault is listed under errors."""

    status, kind, title = 400, "invalid-query", "The parameters cannot be used"

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__()
        self.faults = faults


class NoSuchPath(NoSuchRoute):
    """There is nothing at this path. See openapi.json for what there is."""

    def __init__(self) -> None:
        super().__init__("There is nothing at this path; the paths are in openapi.json of the same folder.")


class NoSuchCall(Refusal):
    """No call of this id that the API key may read. Check the id, and whose key it is."""

    status, kind, title = 404, "no-such-call", "There is no such call"


class NotThereYet(Refusal):
    """The call has no transcript. It has one when its state is completed."""

    status, kind, title = 404, "not-there-yet", "The call does not have this"


class ReadOnly(MethodNotAllowed):
    """This path is read with GET."""

    def __init__(self) -> None:
        Refusal.__init__(self, "This path is read with GET.", {"Allow": "GET, HEAD"})


class NoSuchRange(Refusal):
    """The recording has no such bytes. Its size is in Content-Range."""

    status, kind, title = 416, "no-such-range", "There are no such bytes"

    def __init__(self, size: int) -> None:
        super().__init__(None, {"Content-Range": f"bytes */{size}"})


class TooManyReads(TooManyRequests):
    """The API key has sent more requests than its limit allows; send this one again after Retry-After."""

    def __init__(self, headers: dict[str, str]) -> None:
        Refusal.__init__(self, None, headers)


class TooSlow(Refusal):
    """The query took too long. Ask for less: a shorter time range, or fewer filters at once."""

    status, kind, title = 503, "too-slow", "The query took too long"

    def __init__(self, retry_after: int) -> None:
        super().__init__(None, {"Retry-After": str(retry_after)})


class Busy(Unavailable):
    """This cannot be read at the moment; send the same request again after Retry-After."""

    title = "The service cannot read this now"

    def __init__(self, retry_after: int, detail: str | None = None) -> None:
        Refusal.__init__(self, detail, {"Retry-After": str(retry_after)})


REFUSALS: tuple[type[Refusal], ...] = (
    InvalidQuery,
    NotAuthenticated,
    ScopeMissing,
    NoSuchPath,
    NoSuchCall,
    NotThereYet,
    ReadOnly,
    NoSuchRange,
    TooManyReads,
    Broken,
    TooSlow,
    Busy,
)
