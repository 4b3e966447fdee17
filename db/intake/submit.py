from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import UUID, uuid4

from db.core.identity import recording_identity
from db.secrets.recording_urls import UrlSealer, in_body
from pipeline.domain.call import FIELDS, CallState, Sender, Submission
from pipeline.domain.telephone import e164
from pipeline.errors import CallOfOtherTeam, KeyRevoked, UnknownTeam

UNSEALED = UrlSealer()  # without a key: stores URLs as they are


@dataclass(frozen=True, slots=True)
class Accepted:
    """The response to an accepted submission. `job_id`: the call's process job, if a recording was sent.

    `decision`: what the submission changed, see `submit_calls`; for the log.
    """

    status: CallState  # received or transcribing, as the request has a recording
    job_id: UUID | None = None
    decision: str = field(default="", compare=False)


_REFUSALS = {"key_revoked": KeyRevoked, "unknown_team": UnknownTeam, "call_of_other_team": CallOfOtherTeam}


def accepted(submission: Submission, outcome: str, job_id: UUID | None, decision: str | None) -> Accepted:
    """Return the response; raise the refusal that `outcome` names."""
    if outcome != "accepted":
        raise _REFUSALS[outcome]
    if submission.recording_url is None:
        return Accepted(CallState.RECEIVED, decision=decision or "")
    return Accepted(CallState.TRANSCRIBING, job_id, decision or "")


def to_item(
    sender: Sender,
    submission: Submission,
    body: dict[str, Any],
    signing_parameters: Sequence[str],
    urls: UrlSealer,
    request_id: str | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """Return an item for `submit_calls`. Raises ValueError for a second recording without a first.

    The item contains a new token that makes retries of its statement idempotent: create it once per submission.
    """
    if submission.recording_url is None and submission.recording_url2 is not None:
        raise ValueError("recording_url2 without recording_url")
    fields = {name: value for name in FIELDS if (value := getattr(submission, name)) is not None}
    call = fields | {
        "start_time": submission.start_time.astimezone(UTC),
        "from_e164": e164(submission.from_number, sender.default_country),
        "to_e164": e164(submission.to_number, sender.default_country),
    }
    item = {
        "key": sender.key_id,
        "call": call,
        "body": in_body(body, urls.seal),
        "token": uuid4(),
        "request": request_id,
        "trace": trace,
    }
    for suffix in ("", "2"):
        if (url := fields.get(f"recording_url{suffix}")) is not None:
            identity = recording_identity(url, signing_parameters)
            call |= {f"recording_url{suffix}": urls.seal(url), f"recording_identity{suffix}": urls.seal(identity)}
            item[f"same{suffix}"] = urls.earlier_forms(identity)
    return item
