"""The contract of `/submit` once more, in few words: what a call's stored submissions, in their order, come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

Body = dict[str, Any]


def merged(bodies: Sequence[Body]) -> dict[str, Any]:
    """Column of `calls` -> the latest value that was sent; what was never sent is None."""
    latest: Body = {}
    for body in bodies:
        latest.update({name: value for name, value in body.items() if value is not None})
    user = latest.get("userId")
    return {
        "from_number": latest["from"],
        "to_number": latest["to"],
        "start_time": datetime.fromisoformat(latest["startTime"]),
        "outgoing": latest.get("outgoing"),
        "duration": latest.get("duration"),
        "user_id": None if user is None else UUID(user),
        "recording_url": latest.get("recordingUrl"),
        "recording_url2": latest.get("recordingUrl2"),
    }


def latest_urls(bodies: Sequence[Body]) -> list[str]:
    """Return the one or two recordings that count in the end."""
    end = merged(bodies)
    return [url for url in (end["recording_url"], end["recording_url2"]) if url is not None]


@dataclass(frozen=True, slots=True)
class Step:
    """A submission that carried a recording. `again`: the same one as before, whatever its signature."""

    job_id: Any
    again: bool


def recordings(bodies: Sequence[Body], jobs: Sequence[Any]) -> Iterator[Step]:
    """Yield every submission that requested work, in order, with the job in its response."""
    before: tuple[str | None, str | None] | None = None
    pair: tuple[str | None, str | None] = (None, None)
    for body, job_id in zip(bodies, jobs, strict=True):
        if "recordingUrl" not in body:
            continue
        second = body.get("recordingUrl2")
        pair = (_unsigned(body["recordingUrl"]), pair[1] if second is None else _unsigned(second))
        yield Step(job_id, again=pair == before)
        before = pair


def _unsigned(url: str) -> str:
    """Remove the signature; the storm signs only with `?token=`."""
    return url.split("?", maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call may truly end: `codes` if it fails."""

    completes: bool
    codes: tuple[str, ...]


def outcome(reasons: Sequence[str | None]) -> Outcome:
    """From what is wrong with each recording (None: nothing). One usable leg of two is enough."""
    wrong = tuple(reason for reason in reasons if reason is not None)
    return Outcome(len(wrong) < len(reasons), wrong if len(wrong) == len(reasons) else ())
