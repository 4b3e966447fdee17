from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.domain.insight import Contact, Finding
from pipeline.domain.speech import Doubt, Label, LabelKind, Layout, Role, Speaker, Transcript, Turn, Word
from pipeline.domain.stage import Stage
from serve_app.cli.render.findings import NO_NAMES, Names, render_finding
from serve_app.cli.ui.output import duration, moment, wrapped
from serve_app.records.advice import advice, waiting_advice
from serve_app.records.transcripts import MOMENTS, NON_SPEECH, UNSURE, clock, non_speech_stretches, who

if TYPE_CHECKING:
    from db.records.job_views import Failure
    from db.records.views import CallRecord, CallSummary
    from serve_app.cli.calls.calls import CompletionEstimate


STATE_STYLES = {"received": "cyan", "transcribing": "yellow", "completed": "green", "failed": "bold red"}
ROLE_STYLES = {Role.REP: "cyan", Role.CUSTOMER: "magenta"}
OTHER_STYLES = ("green", "yellow", "blue", "bright_red")
TONE_MARKS = {"positive": ("+", "green"), "negative": ("-", "red")}
ORDER = ("summary", "actions", "tasks", "contacts", "agent", "direction", "tone", "statistics")  # others follow
LAYOUTS = {
    "mono": "mono: one channel, speakers separated by voice",
    "identical": "stereo with identical channels, treated as mono",
    "one_sided": "only one channel has sound, treated as mono",
    "stereo": "stereo: left is the rep, right the customer",
    "two_files": "two files: the first is the rep, the second the customer",
}
SWAPPED = {
    "stereo": "stereo: left is the customer, right the rep",
    "two_files": "two files: the first is the customer, the second the rep",
}
UNSURE_ONLY = ("unsure",)  # reasons of a doubt about words with low confidence only
MARK = "~"  # around doubtful words, since a pipe has no styles
LEGEND = f"{MARK}words{MARK} are doubtful: see Doubts"
SOUND_ORDER = (LabelKind.SPEECH, LabelKind.VOICEMAIL, LabelKind.ANNOUNCEMENT, LabelKind.RINGBACK, LabelKind.BUSY)


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


def render_layout(layout: Layout) -> list[RenderableType]:
    texts = SWAPPED if layout.swapped else LAYOUTS
    return [Text(f"{texts.get(layout.kind, layout.kind)}. {layout.reason}", style="dim")]


def render_labels(transcript: Transcript) -> list[RenderableType]:
    """Return a line per channel: seconds of each kind of sound, and the number of pressed keys."""
    separated = transcript.layout.kind.separated
    names = ["rep", "customer"] if separated else ["all"]
    return [
        Text(f"channel {index} ({names[index] if index < len(names) else index}): {label_totals(labels)}", style="dim")
        for index, labels in enumerate(transcript.labels)
    ]


def label_totals(labels: Sequence[Label]) -> str:
    """Return the totals of one channel's labels: `speech 61.0 s, ringback 12.0 s, 3 keys`."""
    seconds: dict[LabelKind, float] = defaultdict(float)
    for label in labels:
        seconds[label.kind] += label.end - label.start
    kinds = sorted(
        seconds, key=lambda kind: (SOUND_ORDER.index(kind) if kind in SOUND_ORDER else len(SOUND_ORDER), -seconds[kind])
    )
    pressed = _pressed([label for label in labels if label.kind is LabelKind.DTMF])
    return ", ".join(
        pressed if kind is LabelKind.DTMF and pressed else f"{_kind_name(kind)} {seconds[kind]:.1f} s" for kind in kinds
    )


def _pressed(labels: Sequence[Label]) -> str:
    """Return `3 keys`, or `3 keys "142"` if digits were stored; empty without counts."""
    keys = sum(label.keys or 0 for label in labels)
    if not keys:
        return ""
    digits = "".join(label.detail or "…" for label in labels) if any(label.detail for label in labels) else ""
    return f"{keys} key{'s' if keys > 1 else ''}" + (f' "{digits}"' if digits else "")


def non_speech_sounds(transcript: Transcript) -> list[tuple[float, str]]:
    """Return start and description of hold music, tones and keys, by time: (41.0, "hold music, 11 s").

    Labels of one kind with only a short silence between them are merged: rings, keys of a number.
    """
    return sorted(
        (stretch[0].start, _sound_text(stretch))
        for labels in transcript.labels
        for stretch in non_speech_stretches(labels)
    )


def _sound_text(stretch: Sequence[Label]) -> str:
    kind, seconds = stretch[0].kind, stretch[-1].end - stretch[0].start
    if kind is LabelKind.DTMF:
        return label_totals(stretch)
    return NON_SPEECH[kind] if kind in MOMENTS else f"{NON_SPEECH[kind]}, {seconds:.0f} s"


def _kind_name(kind: LabelKind) -> str:
    return {LabelKind.DTMF: "keys", LabelKind.VOICEMAIL: "voicemail greeting"}.get(kind, kind.value)


def language_of(transcript: Transcript) -> str:
    if not transcript.language:
        return ""
    probability = transcript.language_probability
    return transcript.language + (f" ({probability:.0%})" if probability is not None else "")


def render_languages(transcript: Transcript) -> list[RenderableType]:
    """Return the note on the language, and the stretches of a call with several languages."""
    lines: list[RenderableType] = []
    if transcript.language_note:
        lines.append(Text(transcript.language_note, style="yellow"))
    if len({stretch.language for stretch in transcript.languages}) > 1:
        lines += [
            Text(
                f"channel {stretch.channel}, {stretch.start:.1f} - {stretch.end:.1f} s: {stretch.language} "
                + (f"({stretch.probability:.0%})" if stretch.probability is not None else "(not detected)"),
                style="dim",
            )
            for stretch in transcript.languages
        ]
    return lines


def render_words(turn: Turn) -> Text:
    """Return the words of a turn: low confidence dimmed, doubtful ones underlined and between marks."""
    line = Text()
    for doubtful, words in groupby(turn.words, key=lambda word: word.doubtful):
        for i, word in enumerate(words):
            line.append("" if word.joined or not line else " ")
            line.append(MARK if doubtful and i == 0 else "", "yellow")
            line.append_text(_word(word))
        line.append(MARK if doubtful else "", "yellow")
    return line


def _word(word: Word) -> Text:
    style = "underline" if word.doubtful else "dim" if word.confidence < UNSURE else ""
    return Text(word.text, style=style)


def render_doubts(transcript: Transcript) -> list[RenderableType]:
    """Return every doubt with its reasons, including removed text.

    Words that only have a low confidence are counted in one line; the transcript marks them.
    """
    lines: list[RenderableType] = [_doubt(doubt) for doubt in transcript.doubts if doubt.reasons != UNSURE_ONLY]
    if unsure := [doubt for doubt in transcript.doubts if doubt.reasons == UNSURE_ONLY]:
        places = "1 place" if len(unsure) == 1 else f"{len(unsure)} places"
        lines.append(Group(Text(f"? {places} above, not sure", style="yellow"), _why(UNSURE_ONLY)))
    if any(word.doubtful for turn in transcript.turns for word in turn.words):
        lines.append(Text(LEGEND, style="dim"))
    return lines


def _doubt(doubt: Doubt) -> RenderableType:
    where = f"channel {doubt.channel}, {doubt.start:.1f} - {doubt.end:.1f} s"
    what = "not sure" if doubt.kept else "removed"
    text = f': "{doubt.text}"' if doubt.text else ""
    return Group(Text(f"? {where}, {what}{text}", style="yellow"), _why(doubt.reasons))


def _why(reasons: Iterable[str]) -> Text:
    return Text(f"  {' '.join(_sentences(reasons))}", style="dim")


def _sentences(reasons: Iterable[str]) -> Iterator[str]:
    # A record of another version may have a reason without a sentence.
    from pipeline.asr.safety import REASONS

    return (REASONS.get(name, name) for name in reasons)
