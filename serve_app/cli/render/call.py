from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.domain.insight import Contact, Finding
from pipeline.domain.speech import Layout, Role, Speaker, Transcript, Word
from pipeline.domain.stage import Stage
from serve_app.cli.render.findings import NO_NAMES, Names, render_finding
from serve_app.cli.render.sound import (
    language_of,
    non_speech_sounds,
    render_doubts,
    render_labels,
    render_languages,
    render_layout,
    render_words,
)
from serve_app.cli.ui.output import duration, moment
from serve_app.cli.ui.terminal import wrapped
from serve_app.records.advice import advice, waiting_advice
from serve_app.records.transcripts import clock, who

if TYPE_CHECKING:
    from db.records.views import CallRecord, CallSummary, Failure
    from serve_app.cli.calls.calls import CompletionEstimate

STATE_STYLES = {"received": "cyan", "transcribing": "yellow", "completed": "green", "failed": "bold red"}
ROLE_STYLES = {Role.REP: "cyan", Role.CUSTOMER: "magenta"}
OTHER_STYLES = ("green", "yellow", "blue", "bright_red")
TONE_MARKS = {"positive": ("+", "green"), "negative": ("-", "red")}
ORDER = ("summary", "tasks", "contacts", "agent", "direction", "tone", "statistics")  # others follow


def render_call(
    record: "CallRecord", console: Console, words: bool = False, estimate: "CompletionEstimate | None" = None
) -> None:
    """Print a stored call; `words`: with each word's time and confidence; `estimate`: when it will be done."""
    console.print(_heading(record))
    if estimate is not None:
        console.print(Text(_done_in(estimate), style="dim"))
    if record.call.failure is not None:
        console.print(_failure(record.call.failure, record.call.call_id))
    elif waits_for_retry(record.call):
        console.print(_delay(record.call))
    if record.transcript is not None:
        names = {contact.contact_id: contact.name for contact in record.contacts if contact.name}
        _print_content(record.transcript, record.findings, record.layout, console, words, names)
    _print_section("Linked contacts", [_contact(contact) for contact in record.contacts], console)
    _print_warnings(record.warnings, console)
    _print_section("Timeline", [_timeline(record)] if record.timeline else [], console)


def render_outcome(
    name: str,
    transcript: Transcript,
    findings: Sequence[Finding],
    warnings: Sequence[str],
    console: Console,
    words: bool = False,
) -> None:
    """Print the results of the pipeline for the recording called `name`."""
    console.print(Text(name, style="bold"))
    _print_content(transcript, findings, transcript.layout, console, words)
    _print_warnings(warnings, console)


def render_transcript(transcript: Transcript, tones: Mapping[int, str], words: bool = False) -> RenderableType:
    """Return the turns as a table. `tones`: turn index -> positive, neutral or negative."""
    if not transcript.turns:
        return Text(f"(no speech: {transcript.note or 'unknown reason'})", style="dim")
    styles = speaker_styles(transcript.speakers)
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(justify="right", style="dim", no_wrap=True)
    lines.add_column(no_wrap=True)
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    sounds = non_speech_sounds(transcript)
    for turn in transcript.turns:
        while sounds and sounds[0][0] <= turn.start:
            _add_sound(lines, *sounds.pop(0))
        mark, mark_style = TONE_MARKS.get(tones.get(turn.index, ""), (" ", ""))
        content: RenderableType = render_words(turn)
        if words:
            content = Group(content, _word_times(turn.words))
        style = styles.get(turn.speaker, "")
        lines.add_row(
            clock(turn.start),
            Text(who(turn), style="dim" if turn.machine else style),
            Text(mark, style=mark_style),
            content,
        )
    for start, what in sounds:
        _add_sound(lines, start, what)
    return lines


def _add_sound(lines: Table, start: float, what: str) -> None:
    lines.add_row(clock(start), "", "", Text(f"[{what}]", style="dim italic"))


def speaker_styles(speakers: Sequence[Speaker]) -> dict[str, str]:
    """Return a color for each speaker label: by role, else by order."""
    others = iter(OTHER_STYLES * len(speakers))
    return {speaker.label: ROLE_STYLES.get(speaker.role) or next(others) for speaker in speakers}


def tones_by_turn(findings: Iterable[Finding]) -> dict[int, str]:
    tone = next((finding for finding in findings if finding.step == "tone"), None)
    turns = tone.value.get("turns") if tone else None
    return {int(turn["turn"]): str(turn["label"]) for turn in turns or []}


def _print_content(
    transcript: Transcript,
    findings: Sequence[Finding],
    layout: Layout | None,
    console: Console,
    words: bool,
    names: Names = NO_NAMES,
) -> None:
    agent = next((finding.value for finding in findings if finding.step == "agent"), {})
    members = {str(agent["user_id"]): str(agent["name"])} if agent.get("user_id") and agent.get("name") else NO_NAMES
    console.print(_about(transcript, layout, members))
    console.print()
    console.print(Padding(render_transcript(transcript, tones_by_turn(findings), words), (0, 0, 0, 2), expand=False))
    _print_section("Doubts", render_doubts(transcript), console)
    for finding in in_reading_order(findings):
        _print_section(finding.step.capitalize(), render_finding(finding, names), console)


def in_reading_order(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: ORDER.index(finding.step) if finding.step in ORDER else len(ORDER))


def _heading(record: "CallRecord") -> RenderableType:
    call = record.call
    direction = "unknown direction" if call.outgoing is None else "outgoing" if call.outgoing else "incoming"
    first = Text.assemble(
        ("Call ", "bold"), (str(call.call_id), "bold"), "  ", (call.state, STATE_STYLES.get(call.state, ""))
    )
    if progress := _stage_and_attempts(call):
        first.append(f"  {progress}", style="dim")
    second = Text(f"{call.from_number} -> {call.to_number}, {direction}, {moment(call.start_time)}")
    return Group(first, second)


def waits_for_retry(call: "CallSummary") -> bool:
    """Return whether the last attempt failed and another one is due."""
    return call.state == "transcribing" and call.last_error is not None and call.next_try is not None


def status_line(call: "CallSummary") -> str:
    """Return stage, attempts, next attempt and last error of a call in progress; empty for other calls."""
    progress = _stage_and_attempts(call)
    if not waits_for_retry(call) or call.last_error is None:
        return progress
    return f"{progress}, {call.last_error.code}: {call.last_error.message}"


def _stage_and_attempts(call: "CallSummary") -> str:
    if call.state != "transcribing":
        return ""
    parts = [f"stage {Stage.display_name_of(call.stage)}" if call.stage else "queued"]
    if call.attempts > 1:
        parts.append(f"attempt {call.attempts}")
    if call.next_try and call.attempts:
        parts.append(f"next try {moment(call.next_try)}")
    return ", ".join(parts)


def _done_in(estimate: "CompletionEstimate") -> str:
    text = f"done in about {duration(estimate.seconds)}, at {moment(estimate.at)}"
    if estimate.audio_seconds_before:
        text += f"; {duration(estimate.audio_seconds_before)} of audio before it"
    return text if estimate.measured else f"{text} (assumed: no call has finished yet)"


def _failure(failure: "Failure", call_id: UUID) -> RenderableType:
    may_help = "may help" if failure.retryable else "with the same recording will not help"
    help_ = f"Retrying {may_help}. " + advice(failure.code, call_id)
    return Text.assemble((f"{failure.code}: ", "bold red"), failure.message, "\n", (help_, "yellow"))


def _delay(call: "CallSummary") -> RenderableType:
    assert call.last_error is not None
    why = (f"waits: {call.last_error.code}: ", "bold yellow")
    return Text.assemble(why, call.last_error.message, "\n", (waiting_advice(call.call_id), "yellow"))


def _about(transcript: Transcript, layout: Layout | None, members: Names) -> RenderableType:
    parts = [clock(transcript.duration)]
    parts += [language_of(transcript)] if transcript.language else []
    parts.append(f"transcribed by {transcript.engine}")
    lines: list[RenderableType] = [Text(", ".join(parts), style="dim"), *render_languages(transcript)]
    if layout is not None:
        lines += render_layout(layout)
    lines += render_labels(transcript)
    if transcript.note and transcript.turns:
        lines.append(Text(transcript.note, style="yellow"))
    lines += [
        Text(_who(speaker, members), style="dim") for speaker in transcript.speakers if speaker.role_reason != "channel"
    ]
    return Group(*lines)


def _who(speaker: Speaker, members: Names) -> str:
    member = f", {members.get(speaker.user_id, speaker.user_id)}" if speaker.user_id else ""
    return f"{speaker.label} is {speaker.role.value} ({speaker.role_reason}, {speaker.role_confidence:.0%}){member}"


def _word_times(words: Sequence[Word]) -> Text:
    return Text(
        " ".join(f"{word.text}[{word.start:.2f}-{word.end:.2f} {word.confidence:.0%}]" for word in words), style="dim"
    )


def _print_warnings(warnings: Sequence[str], console: Console) -> None:
    _print_section("Warnings", [Text(f"! {warning}", style="yellow") for warning in warnings], console)


def _contact(contact: Contact) -> RenderableType:
    facts = (contact.name, contact.company, contact.phone, contact.email)
    return Text(", ".join(part for part in facts if part) or contact.contact_id)


def _timeline(record: "CallRecord") -> RenderableType:
    lines = Table.grid(padding=(0, 2, 0, 0))
    for event in record.timeline:
        lines.add_row(Text(moment(event.at), style="dim"), event.what)
    return lines


def _print_section(title: str, content: Sequence[RenderableType], console: Console) -> None:
    if not content:
        return
    console.print()
    console.print(Text(title, style="bold"))
    for item in content:
        fitting = wrapped(item, console.width - 2) if isinstance(item, Text) else item
        console.print(Padding(fitting, (0, 0, 0, 2), expand=False))
