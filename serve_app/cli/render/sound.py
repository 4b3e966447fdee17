"""How a call was heard: what each channel holds, which languages are spoken, what is not sure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.domain.speech import Doubt, Label, LabelKind, Layout, Transcript, Turn, Word
from serve_app.records.transcripts import BESIDE_SPEECH, MOMENTS, UNSURE, beside_stretches

LAYOUTS = {
    "mono": "mono: one channel, speakers separated by voice",
    "identical": "stereo with identical channels, treated as mono",
    "one_sided": "at most one channel carries sound, treated as mono",
    "stereo": "stereo: left is the rep, right the customer",
    "two_files": "two files: the first is the rep, the second the customer",
}
SWAPPED = {
    "stereo": "stereo: left is the customer, right the rep",
    "two_files": "two files: the first is the customer, the second the rep",
}
UNSURE_ONLY = ("unsure",)  # the reasons of a doubt about words that the recognizer is not sure of
MARK = "~"  # around doubtful words: styles are lost in a pipe
LEGEND = f"{MARK}words{MARK} are doubtful: see Doubts"
ORDER = (LabelKind.SPEECH, LabelKind.VOICEMAIL, LabelKind.ANNOUNCEMENT, LabelKind.RINGBACK, LabelKind.BUSY)


def render_layout(layout: Layout) -> list[RenderableType]:
    """Layout and why; what was done about bleed and about starts that differ is in the layout's own reason."""
    known = SWAPPED if layout.swapped else LAYOUTS
    return [Text(f"{known.get(layout.kind, layout.kind)}. {layout.reason}", style="dim")]


def render_labels(transcript: Transcript) -> list[RenderableType]:
    """A line for each channel: the seconds of what it holds, and how many keys were pressed."""
    separated = transcript.layout.kind.separated
    names = ["rep", "customer"] if separated else ["all"]
    return [
        Text(f"channel {number} ({names[number] if number < len(names) else number}): {held(own)}", style="dim")
        for number, own in enumerate(transcript.labels)
    ]


def held(labels: Sequence[Label]) -> str:
    """What the labels of one channel add up to, such as `speech 61.0 s, ringback 12.0 s, 3 keys`."""
    seconds: dict[LabelKind, float] = defaultdict(float)
    for label in labels:
        seconds[label.kind] += label.end - label.start
    kinds = sorted(seconds, key=lambda kind: (ORDER.index(kind) if kind in ORDER else len(ORDER), -seconds[kind]))
    pressed = _pressed([label for label in labels if label.kind is LabelKind.DTMF])
    return ", ".join(
        pressed if kind is LabelKind.DTMF and pressed else f"{_said(kind)} {seconds[kind]:.1f} s" for kind in kinds
    )


def _pressed(labels: Sequence[Label]) -> str:
    """`3 keys`, with the digits where they were kept: `3 keys "142"`; empty where nobody counted."""
    keys = sum(label.keys or 0 for label in labels)
    if not keys:
        return ""
    digits = "".join(label.detail or "…" for label in labels) if any(label.detail for label in labels) else ""
    return f"{keys} key{'s' if keys > 1 else ''}" + (f' "{digits}"' if digits else "")


def beside_speech(transcript: Transcript) -> list[tuple[float, str]]:
    """(second, what) of hold music, tones and keys, in order of time: (41.0, "hold music, 11 s").

    Labels of one kind that only a short silence divides are one stretch: rings, keys of a number.
    """
    return sorted(
        (stretch[0].start, _beside(stretch)) for labels in transcript.labels for stretch in beside_stretches(labels)
    )


def _beside(stretch: Sequence[Label]) -> str:
    kind, seconds = stretch[0].kind, stretch[-1].end - stretch[0].start
    if kind is LabelKind.DTMF:
        return held(stretch)
    return BESIDE_SPEECH[kind] if kind in MOMENTS else f"{BESIDE_SPEECH[kind]}, {seconds:.0f} s"


def _said(kind: LabelKind) -> str:
    return {LabelKind.DTMF: "keys", LabelKind.VOICEMAIL: "voicemail greeting"}.get(kind, kind.value)


def language_of(transcript: Transcript) -> str:
    """The call's language and how probable it is; empty where there is none."""
    if not transcript.language:
        return ""
    sure = transcript.language_probability
    return transcript.language + (f" ({sure:.0%})" if sure is not None else "")


def render_languages(transcript: Transcript) -> list[RenderableType]:
    """Why the language is not sure, and the stretches where there are several languages."""
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


def render_said(turn: Turn) -> Text:
    """The words of a turn: those with little confidence dimmed, doubtful ones underlined and between marks."""
    said = Text()
    for doubtful, words in groupby(turn.words, key=lambda word: word.doubtful):
        for i, word in enumerate(words):
            said.append("" if word.joined or not said else " ")
            said.append(MARK if doubtful and i == 0 else "", "yellow")
            said.append_text(_word(word))
        said.append(MARK if doubtful else "", "yellow")
    return said


def _word(word: Word) -> Text:
    style = "underline" if word.doubtful else "dim" if word.confidence < UNSURE else ""
    return Text(word.text, style=style)


def render_doubts(transcript: Transcript) -> list[RenderableType]:
    """Every doubt with its reasons; text that was taken out is shown here and nowhere else.

    Words that are only unsure are many and marked where they stand: one line says how many.
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
    what = "not sure" if doubt.kept else "taken out"
    said = f': "{doubt.text}"' if doubt.text else ""
    return Group(Text(f"? {where}, {what}{said}", style="yellow"), _why(doubt.reasons))


def _why(reasons: Iterable[str]) -> Text:
    return Text(f"  {' '.join(_sentences(reasons))}", style="dim")


def _sentences(reasons: Iterable[str]) -> Iterator[str]:
    """The sentence of each reason; the name itself for one of another version."""
    from pipeline.asr.safety import REASONS

    return (REASONS.get(name, name) for name in reasons)
