"""A call comes in (`submit_alone`; `grouping.py` decides when) and gets its record (`complete`): a transaction each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import UUID, uuid4

import psycopg

from db.core.database import Database
from db.core.identity import e164, recording_identity
from db.core.prepared import PreparedStatement
from db.core.rows import dump_json
from db.secrets.recording_urls import UrlSealer, in_body
from pipeline.domain.call import CallState, Sender, Submission
from pipeline.errors import CallOfOtherTeam, KeyRevoked, StateUnavailable, UnknownTeam

UNSEALED = UrlSealer()
"""Stores URLs as they are: no key is set."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the sender is told. `job_id` is the call's current process job, where a recording was sent.

    `decision`: what became of it, as `submit_call` says; for the log.
    """

    status: CallState  # received or transcribing: it follows the request
    job_id: UUID | None = None
    decision: str = field(default="", compare=False)


_PARAMETERS = (  # of `submit_call`, in its order, by their names in `arguments`
    *("key", "call_id", "team", "user", "from", "to", "from_e164", "to_e164", "start", "outgoing", "duration"),
    *("url", "url2", "identity", "identity2", "body", "token", "same", "same2", "request", "trace"),
)
_SUBMIT = PreparedStatement(
    "submit_call",
    """
    SELECT outcome, job, decision FROM submit_call(
        $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21
    )
    """,
)

_REFUSALS = {"key_revoked": KeyRevoked, "unknown_team": UnknownTeam, "call_of_other_team": CallOfOtherTeam}


async def submit_alone(database: Database, values: dict[str, Any]) -> tuple[str, UUID | None, str | None]:
    """The outcome of `submit_call`, the job it names and what was decided; `values` are `arguments`."""
    try:
        texts = [_text(values[name]) for name in _PARAMETERS]
        outcome, job_id, decision = await database.fetch_prepared(_SUBMIT, texts)
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise StateUnavailable from error
    assert outcome is not None
    return outcome, None if job_id is None else UUID(job_id), decision


def _text(value: Any) -> str | None:
    """An argument as PostgreSQL reads it, whatever its type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return dump_json(value)
    if isinstance(value, list):  # of digests
        return f"{{{','.join(value)}}}"
    return str(value)


def accepted(submission: Submission, outcome: str, job_id: UUID | None, decision: str | None) -> Accepted:
    """What the sender is told, or raises the refusal that `outcome` names."""
    if outcome != "accepted":
        raise _REFUSALS[outcome]
    if submission.recording_url is None:
        return Accepted(CallState.RECEIVED, decision=decision or "")
    return Accepted(CallState.TRANSCRIBING, job_id, decision or "")


def arguments(
    sender: Sender,
    submission: Submission,
    body: dict[str, Any],
    signing_parameters: Sequence[str],
    urls: UrlSealer,
    request_id: str | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """The arguments of `submit_call` by name. ValueError for a second recording without a first.

    They hold a new token, by which a statement that is run again finds what its first run wrote: make them once for a
    submission, before its first try.
    """
    if submission.recording_url is None and submission.recording_url2 is not None:
        raise ValueError("recording_url2 without recording_url")

    def identity(url: str | None) -> str | None:
        return None if url is None else recording_identity(url, signing_parameters)

    def sealed(url: str | None) -> str | None:
        return None if url is None else urls.seal(url)

    first, second = identity(submission.recording_url), identity(submission.recording_url2)
    return {
        "key": sender.key_id,
        "call_id": submission.call_id,
        "team": submission.team_id,
        "user": submission.user_id,
        "from": submission.from_number,
        "to": submission.to_number,
        "from_e164": e164(submission.from_number, sender.default_country),
        "to_e164": e164(submission.to_number, sender.default_country),
        "start": submission.start_time.astimezone(UTC),
        "outgoing": submission.outgoing,
        "duration": submission.duration,
        "url": sealed(submission.recording_url),
        "url2": sealed(submission.recording_url2),
        "identity": sealed(first),
        "identity2": sealed(second),
        "same": first and urls.earlier_forms(first),
        "same2": second and urls.earlier_forms(second),
        "body": in_body(body, urls.seal),
        "token": uuid4(),
        "request": request_id,
        "trace": trace,
    }
