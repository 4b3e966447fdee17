from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.domain.speech import Doubt, Label, LabelKind, Layout, Transcript, Turn, Word
from serve_app.records.transcripts import MOMENTS, NON_SPEECH, UNSURE, non_speech_stretches

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
ORDER = (LabelKind.SPEECH, LabelKind.VOICEMAIL, LabelKind.ANNOUNCEMENT, LabelKind.RINGBACK, LabelKind.BUSY)


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
    kinds = sorted(seconds, key=lambda kind: (ORDER.index(kind) if kind in ORDER else len(ORDER), -seconds[kind]))
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
    """Return the call's language and its probability; empty without a language."""
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
