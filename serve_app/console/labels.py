"""Display names in English; `wording` translates them."""

from collections.abc import Iterable, Mapping
from datetime import date

import phonenumbers

from db.experiments.runs import Run
from db.records.retention import RetentionKind
from pipeline.domain.redaction import RedactionMode
from pipeline.domain.speech import LabelKind
from pipeline.domain.stage import Stage
from pipeline.domain.vocabulary import ActionKind, CallOutcome, NoticeState

STATES: Mapping[str, str] = {
    "received": "Awaiting recording",
    "transcribing": "In progress",
    "completed": "Completed",
    "failed": "Failed",
}
DIRECTIONS: Mapping[str, str] = {"false": "Incoming", "true": "Outgoing"}
OPEN_TASKS: Mapping[str, str] = {"true": "Open tasks", "false": "No open tasks"}
TONES: Mapping[str, str] = {"positive": "Positive", "neutral": "Neutral", "negative": "Negative"}
SIDES: Mapping[str, str] = {"rep": "Agent", "customer": "Customer", "other": "Speaker", "machine": "Recorded voice"}
OWNERS: Mapping[str, str] = {
    "rep": "Our team",
    "customer": "Customer",
    "other": "Third party",
    "unknown": "Unassigned",
}
TASK_KINDS: Mapping[str, str] = {
    "commitment": "Commitment",
    "request": "Request",
    "follow-up": "Follow-up",
    "appointment": "Appointment",
}
ACTION_KINDS: Mapping[str, str] = {
    ActionKind.APPOINTMENT: "Appointment",
    ActionKind.PAYMENT: "Payment",
    ActionKind.TRANSFER: "Transfer",
    ActionKind.REFUND: "Refund",
    ActionKind.ORDER: "Order",
    ActionKind.CHANGE: "Change",
    ActionKind.RESET: "Reset",
    ActionKind.CANCELLATION: "Cancellation",
}
OUTCOMES: Mapping[str, str] = {  # in the order of a chart's column, from the bottom up
    CallOutcome.RESOLVED: "Resolved",
    CallOutcome.FOLLOW_UP: "Follow-up agreed",
    CallOutcome.VOICEMAIL: "Voicemail",
    CallOutcome.WRONG_NUMBER: "Wrong number",
    CallOutcome.NO_SPEECH: "No speech",
    CallOutcome.REFUSED: "Declined",
}
ANSWERS: Mapping[str, str] = {"yes": "Yes", "no": "No"}
OUTCOMES_OF_ANSWERS: Mapping[str, str] = {
    **ANSWERS,
    "said": "Mentioned",
    "not said": "Not mentioned",
    "": "Not mentioned",
    "n/a": "Not applicable",
}
RESULTS: Mapping[str, str] = {"passed": "Passed", "failed": "Not passed", "auto-failed": "Auto-fail"}
NO_ANSWERS: Mapping[str, str] = {"not_said": "Not mentioned", "not_asked": "Not evaluated"}
SOUNDS: Mapping[LabelKind, str] = {
    LabelKind.RINGBACK: "Ringing",
    LabelKind.BUSY: "Busy tone",
    LabelKind.DTMF: "Keypad tones",
    LabelKind.MUSIC: "Hold music",
    LabelKind.ANNOUNCEMENT: "Announcement",
    LabelKind.VOICEMAIL: "Voicemail greeting",
    LabelKind.BEEP: "Beep",
    LabelKind.GAP: "Gap in the recording",
}
LAYOUTS: Mapping[str, str] = {
    "mono": "One channel; speakers separated by voice",
    "identical": "Two identical channels; speakers separated by voice",
    "one_sided": "Audio on one channel only; speakers separated by voice",
    "stereo": "One channel per party",
    "two_files": "One file per party",
}
RETENTION_KINDS: Mapping[str, str] = {
    RetentionKind.CALLS: "Whole calls",
    RetentionKind.RECORDINGS: "Recordings",
    RetentionKind.TRANSCRIPTS: "Transcripts and findings",
    RetentionKind.VOICEPRINTS: "Voiceprints",
    RetentionKind.SUBMISSIONS: "Submissions",
    RetentionKind.EVENTS: "Events",
    RetentionKind.ACCESS_LOG: "Access log",
}
REDACTION_MODES: Mapping[str, str] = {
    RedactionMode.OFF: "Nothing is hidden",
    RedactionMode.MASK: "Hidden; the original is sealed",
    RedactionMode.REDACTED_ONLY: "Removed",
}
DIRECTION_SOURCES: Mapping[str, str] = {
    "sender": "from the phone system",
    "talk": "from the conversation",
    "numbers": "from the phone numbers",
}
NOTICES: Mapping[str, str] = {
    NoticeState.FOUND: "Given",
    NoticeState.NOT_FOUND: "Not given",
    NoticeState.COULD_NOT_LOOK: "Not evaluated",
}
NOTICE_GIVERS: Mapping[str, str] = {
    "rep": "Agent",
    "customer": "Customer",
    "announcement": "Announcement",
    "unknown": "Speaker",
}
AGENT_SOURCES: Mapping[str, str] = {
    "sender": "from the phone system",
    "voice": "from the voice",
    "greeting": "from the greeting",
    "talk": "from the conversation",
    "person": "corrected manually",
}
MATCHES: Mapping[str, str] = {  # kinds of evidence for a contact, see pipeline/analysis/rules/people/match.py
    "number": "phone number",
    "name": "name",
    "e-mail": "email address",
    "the e-mail address on file": "email address on file",
    "e-mail domain": "domain of the email address",
    "the name in the e-mail address": "name in the email address",
    "company": "company",
    "the agent uses the first name": "the agent uses the first name",
    "a colleague is mentioned": "a colleague is mentioned",
}
SLICES: Mapping[str, str] = {
    "language": "Language",
    "layout": "Channels",
    "duration": "Duration",
    "agent": "Agent",
}
DELIVERY_STATES = ("waiting", "sending", "delivered", "failed")
VOICE_STATES: Mapping[str, str] = {
    "enrolled": "enrolled",
    "waiting": "waiting for approval",
    "quarantined": "quarantined",
    "removed": "deleted",
    "unassigned": "not assigned",
    "recognized": "recognized",
}
ENTITIES: Mapping[str, str] = {
    "card": "card",
    "card_code": "card code",
    "card_expiry": "card expiry",
    "iban": "IBAN",
    "account": "account",
    "national_id": "national ID",
    "phone": "phone number",
    "birth_date": "date of birth",
    "password": "password",
    "email": "email",
    "spelled_name": "spelled name",
    "address": "address",
    "person": "person",
    "organization": "organization",
    "place": "place",
    "health": "health",
    "custom": "own pattern",
}
RUN_STATES: Mapping[str, str] = {
    "waiting": "Waiting",
    "running": "In progress",
    "completed": "Completed",
    "canceled": "Canceled",
    "promoted": "Live",
}
EDIT_KINDS: Mapping[str, str] = {
    "text": "Text",
    "speaker": "Speaker",
    "roles": "Roles",
    "agent": "Agent",
    "contact": "Customer",
    "task": "Task",
    "answer": "Answer",
    "tag": "Tag",
    "comment": "Comment",
}
EDIT_STATES: Mapping[str, str] = {
    "superseded": "replaced by a later correction",
    "not-applied": "not applied: the text has changed",
}
FACTS: Mapping[str, str] = {
    "name": "Name",
    "company": "Company",
    "email": "Email",
    "phone": "Phone",
    "address": "Address",
}


def some(names: Mapping[str, str], keys: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of key and display name."""
    return [(key, names[key]) for key in keys]


def stage(name: str | None) -> str:
    """Return the display name of a stage; empty for None."""
    return Stage.display_name_of(name).capitalize() if name else ""


def run_state(run: Run) -> str:
    """Return the key in `RUN_STATES`."""
    if run.promoted_at is not None:
        return "promoted"
    return "waiting" if run.is_waiting else run.state


def day(answer: object) -> date:
    """Parse an answer that is an ISO 8601 date."""
    return date.fromisoformat(str(answer))


def phone(number: str) -> str:
    """Format a phone number internationally; return anything else unchanged."""
    if not number.startswith("+"):
        return number
    try:
        return phonenumbers.format_number(phonenumbers.parse(number), phonenumbers.PhoneNumberFormat.INTERNATIONAL)
    except phonenumbers.NumberParseException:
        return number
