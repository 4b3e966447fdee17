"""What things are called on the pages: states, stages, kinds of sound, findings. In English; `wording` translates."""

from collections.abc import Iterable, Mapping
from datetime import date

import phonenumbers

from db.experiments.runs import Run
from pipeline.domain.speech import LabelKind
from pipeline.domain.stage import Stage

STATES: Mapping[str, str] = {
    "received": "Awaiting recording",
    "transcribing": "In progress",
    "completed": "Completed",
    "failed": "Failed",
}
TONES: Mapping[str, str] = {"positive": "Positive", "neutral": "Neutral", "negative": "Negative"}
SIDES: Mapping[str, str] = {"rep": "Rep", "customer": "Customer", "other": "Speaker", "machine": "Recorded voice"}
OWNERS: Mapping[str, str] = {"rep": "Us", "customer": "Customer", "other": "Someone else", "unknown": "Not said"}
TASK_KINDS: Mapping[str, str] = {
    "commitment": "Commitment",
    "request": "Request",
    "follow-up": "Follow-up",
    "appointment": "Appointment",
}
OUTCOMES: Mapping[str, str] = {
    "voicemail": "Voicemail",
    "wrong_number": "Wrong number",
    "follow_up": "Follow-up agreed",
    "refused": "Refused",
    "resolved": "Resolved",
    "no_speech": "Nobody spoke",
}
ANSWERS: Mapping[str, str] = {"yes": "Yes", "no": "No"}
OUTCOMES_OF_ANSWERS: Mapping[str, str] = {
    **ANSWERS,
    "said": "Said",
    "not said": "Not said",
    "": "Not said",
    "n/a": "Not applicable",
}
RESULTS: Mapping[str, str] = {"passed": "Passed", "failed": "Not passed", "auto-failed": "Failed automatically"}
NO_ANSWERS: Mapping[str, str] = {"not_said": "Not said", "not_asked": "Not asked"}
SOUNDS: Mapping[LabelKind, str] = {
    LabelKind.RINGBACK: "Ringing",
    LabelKind.BUSY: "Busy tone",
    LabelKind.DTMF: "Keys pressed",
    LabelKind.MUSIC: "Hold music",
    LabelKind.ANNOUNCEMENT: "Announcement",
    LabelKind.VOICEMAIL: "Voicemail greeting",
    LabelKind.BEEP: "Beep",
    LabelKind.GAP: "Missing from the recording",
}
LAYOUTS: Mapping[str, str] = {
    "mono": "One channel; speakers separated by voice",
    "identical": "Two identical channels; speakers separated by voice",
    "one_sided": "Only one channel carries sound; speakers separated by voice",
    "stereo": "One channel for each party",
    "two_files": "One file for each party",
}
DIRECTION_SOURCES: Mapping[str, str] = {
    "sender": "as the phone system said",
    "talk": "from what was said",
    "numbers": "from the numbers",
}
AGENT_SOURCES: Mapping[str, str] = {
    "sender": "as the phone system said",
    "voice": "by voice",
    "greeting": "by the greeting",
    "talk": "from what was said",
    "person": "as a person said",
}
MATCHES: Mapping[str, str] = {
    "number": "known by the number",
    "name": "known by the name",
    "email": "known by the e-mail address",
    "company": "known by the company",
}
SLICES: Mapping[str, str] = {
    "language": "Language",
    "layout": "Layout",
    "duration": "Length",
    "agent": "Member",
}
DURATIONS: Mapping[str, str] = {
    "under 1 min": "under 1 min",
    "1 to 5 min": "1 to 5 min",
    "5 to 15 min": "5 to 15 min",
    "15 min and more": "15 min and more",
}
RUN_STATES: Mapping[str, str] = {
    "waiting": "Waiting",
    "running": "In progress",
    "completed": "Completed",
    "canceled": "Canceled",
    "promoted": "Is the record",
}
EDIT_KINDS: Mapping[str, str] = {
    "text": "Words",
    "speaker": "Speaker",
    "roles": "Parties",
    "agent": "Our side",
    "contact": "Contact",
    "task": "Task",
    "answer": "Answer",
}
EDIT_STATES: Mapping[str, str] = {
    "superseded": "a later correction counts",
    "not-applied": "not applied: what it corrects is no longer there",
}
FACTS: Mapping[str, str] = {
    "name": "Name",
    "company": "Company",
    "email": "E-mail",
    "phone": "Phone",
    "address": "Address",
}


def some(names: Mapping[str, str], wanted: Iterable[str]) -> list[tuple[str, str]]:
    """Those of a table that are wanted, with their names."""
    return [(one, names[one]) for one in wanted]


def stage(name: str | None) -> str:
    """The stage of a running job as people read it; empty for none."""
    return Stage.display_name_of(name).capitalize() if name else ""


def run_state(run: Run) -> str:
    """The state of a run, one of `RUN_STATES`."""
    if run.promoted_at is not None:
        return "promoted"
    return "waiting" if run.is_waiting else run.state


def day(told: object) -> date:
    """The day of an answer, ISO 8601."""
    return date.fromisoformat(str(told))


def phone(number: str) -> str:
    """A number as it is written internationally; as it came where it is none."""
    if not number.startswith("+"):
        return number
    try:
        return phonenumbers.format_number(phonenumbers.parse(number), phonenumbers.PhoneNumberFormat.INTERNATIONAL)
    except phonenumbers.NumberParseException:
        return number
