"""The types of events, one entry each. SQL functions, models, schema, help and documentation are generated from it.

After a change add a migration, since the SQL functions change, and run `make generate`.
"""

from dataclasses import dataclass

PARTS = ("record", "transcript")
"""Optional data of an event besides ids, state and times, chosen by its endpoint."""


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of event, raised by a change of a call for which `condition` is true.

    `condition` is SQL over `old` and `new`, the rows of `calls` before and after; `old` is null for a new call.
    """

    name: str
    description: str  # for receivers; the first sentence is a summary
    condition: str
    parts: tuple[str, ...] = ()  # those of PARTS that it may carry
    details: str = ""  # SQL over `moved`, the row of `calls`: a JSON object of the additional keys of `data`
    has_trackers: bool = False  # `data` lists the raised trackers of the record


_DELAY = """
    SELECT jsonb_build_object('delay', jsonb_build_object(
        'code', j.error_code, 'message', left(j.error_message, 1000), 'attempts', j.attempts,
        'nextTry', event_time(j.not_before)
    )) FROM jobs j WHERE j.id = moved.job_id
"""
_PROMOTED = """
    SELECT jsonb_build_object('run', (
        SELECT jsonb_build_object('runId', r.id, 'name', r.name) FROM runs r WHERE r.id = moved.promoted_run
    ))
"""
_JOB_CHANGED = (
    "old.state IS DISTINCT FROM new.state OR old.job_id IS DISTINCT FROM new.job_id AND new.job_id IS NOT NULL"
)

EVENT_TYPES: tuple[EventType, ...] = (
    EventType("call.received", "A call was submitted for the first time. Sent once per call.", "old.id IS NULL"),
    EventType(
        "call.transcribing",
        "A recording is being processed. Sent again with another `jobId` when a different recording replaces it or a "
        "failed one is resubmitted.",
        f"new.state = 'transcribing' AND ({_JOB_CHANGED})",
    ),
    EventType(
        "call.delayed",
        "An attempt failed, and the next one is in a minute or more; `delay` has the reason and the time. Sent once "
        "per job.",
        "new.state = 'transcribing' AND new.delayed_job = new.job_id AND old.delayed_job IS DISTINCT FROM new.job_id",
        details=_DELAY,
    ),
    EventType(
        "call.completed",
        "Transcript and findings are ready. Sent again, with the same `jobId` and a later `analyzedAt`, when changed "
        "data of the call led to new findings.",
        f"new.state = 'completed' AND ({_JOB_CHANGED} OR old.analyzed_at IS DISTINCT FROM new.analyzed_at)",
        PARTS,
    ),
    EventType(
        "call.edited",
        "A user corrected the call or completed a task, or undid it. The API returns the record and its edits.",
        "new.edited_at IS DISTINCT FROM old.edited_at AND new.edited_at IS NOT NULL",
    ),
    EventType(
        "call.promoted",
        "The results of a run became the record, or were rolled back. `run` is the run of the present record; null: "
        "the live result.",
        "new.promoted_at IS DISTINCT FROM old.promoted_at AND new.promoted_at IS NOT NULL",
        PARTS,
        _PROMOTED,
    ),
    EventType(
        "tracker.matched",
        "Trackers of the workspace matched: their phrases were said, or a required phrase was not. `trackers` lists "
        "them with their times; the words are in the record. Sent with `call.completed`, and again when a later "
        "analysis matches another one.",
        "new.state = 'completed' AND new.raised <> '{}' AND (old.state IS DISTINCT FROM new.state "
        "OR NOT new.raised <@ old.raised) AND old.promoted_at IS NOT DISTINCT FROM new.promoted_at",
        PARTS,
        has_trackers=True,
    ),
    EventType(
        "call.failed", "Processing failed; `failure` has the reason.", f"new.state = 'failed' AND ({_JOB_CHANGED})"
    ),
    EventType(
        "call.deleted",
        "A call was erased, with its earlier events, also those not sent yet. Has ids only. Delete what you stored of "
        "the call.",
        "false",  # `note_erasure` writes it: the row is gone afterward
    ),
)


def type_names() -> tuple[str, ...]:
    return tuple(kind.name for kind in EVENT_TYPES)


def parts(name: str) -> tuple[str, ...]:
    """Return the parts that events of this type may carry; none for an unknown type."""
    return next((kind.parts for kind in EVENT_TYPES if kind.name == name), ())


def functions() -> str:
    """Return the SQL functions `event_types_of` and `event_details`."""
    types = ",\n        ".join(f"CASE WHEN {kind.condition} THEN '{kind.name}' END" for kind in EVENT_TYPES)
    details = " ".join(f"WHEN '{kind.name}' THEN ({kind.details.strip()})" for kind in EVENT_TYPES if kind.details)
    return f"""
-- Written from db/events/types.py.

CREATE OR REPLACE FUNCTION event_types_of(old calls, new calls) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN array_remove(ARRAY[
        {types}
    ], NULL);
END $$;

CREATE OR REPLACE FUNCTION event_details(kind text, moved calls) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(CASE kind {details} END, '{{}}');
END $$;
"""
