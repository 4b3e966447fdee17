import re
from collections.abc import Callable, Iterator, Sequence

from pipeline.domain.speech import Label, LabelKind, Transcript, Turn, Word, text_of

LINE_SECONDS, LINE_CHARACTERS = 6.0, 80  # of one subtitle
WORD_JOINER = "\u2060"  # invisible
_REFERENCE = re.compile(r"&(?=#?\w+;)")  # of HTML, such as "&lt;"


def who(turn: Turn) -> str:
    """Return the speaker label, marked if it is a machine."""
    return f"{turn.speaker} (machine)" if turn.machine else turn.speaker


def clock(seconds: float | None) -> str:
    """Return seconds as m:ss, or h:mm:ss from an hour on; "–" for None."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def text(transcript: Transcript) -> str:
    return "".join(
        f"[{_time(turn.start, '.')[:8]}] {_single_line(who(turn))}: {_single_line(turn.text)}\n"
        for turn in transcript.turns
        if turn.words
    )


def srt(transcript: Transcript) -> str:
    """Return SubRip subtitles. Words cannot end a subtitle, begin another one, or set its style."""
    return "".join(
        f"{number}\n{_time(words[0].start, ',')} --> {_time(words[-1].end, ',')}\n"
        f"{_for_subrip(who(turn))}: {_for_subrip(text_of(words))}\n\n"
        for number, (turn, words) in enumerate(_lines(transcript), 1)
    )


def vtt(transcript: Transcript) -> str:
    """Return WebVTT subtitles; speakers are voice tags."""
    cues = (
        f"{_time(words[0].start, '.')} --> {_time(words[-1].end, '.')}\n"
        f"<v {_for_webvtt(who(turn))}>{_for_webvtt(text_of(words))}\n\n"
        for turn, words in _lines(transcript)
    )
    return "WEBVTT\n\n" + "".join(cues)


FORMATS: dict[str, Callable[[Transcript], str]] = {"txt": text, "srt": srt, "vtt": vtt}


def _lines(transcript: Transcript) -> list[tuple[Turn, list[Word]]]:
    """Split turns into pieces of the length of a subtitle."""
    lines: list[tuple[Turn, list[Word]]] = []
    for turn in transcript.turns:
        piece: list[Word] = []
        for word in turn.words:
            if piece and (word.end - piece[0].start > LINE_SECONDS or len(text_of([*piece, word])) > LINE_CHARACTERS):
                lines.append((turn, piece))
                piece = []
            piece.append(word)
        if piece:
            lines.append((turn, piece))
    return lines


def _single_line(text_: str) -> str:
    """Return text with single spaces: a line break in a word would end the line, an empty line the subtitle."""
    return " ".join(text_.split())


def _for_webvtt(text_: str) -> str:
    return _single_line(text_).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_subrip(text_: str) -> str:
    """Return text without tags: `<b>`, and `{\\an8}` of players that read SubRip as SubStation Alpha.

    SubRip has no escapes of its own. Players that read tags read `&lt;` too; an ampersand is escaped only where it
    would be read as the beginning of one, since other players would show "R&amp;D".
    """
    escaped = _REFERENCE.sub("&amp;", _single_line(text_)).replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("{", "{" + WORD_JOINER)


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{rest:03}"


NON_SPEECH = {
    LabelKind.MUSIC: "hold music",
    LabelKind.RINGBACK: "ringback",
    LabelKind.BUSY: "busy tone",
    LabelKind.DTMF: "keys",
    LabelKind.BEEP: "beep",
}


MOMENTS = (LabelKind.DTMF, LabelKind.BEEP)  # shown however short


MIN_STRETCH_SECONDS = 1.0  # seconds of the others


MAX_GAP_SECONDS = 5.0  # seconds of silence within a stretch: from ring to ring in any country's cadence


UNSURE = 0.4  # words with a lower confidence are dimmed


def non_speech_stretches(labels: Sequence[Label]) -> list[list[Label]]:
    """Return stretches of hold music, tones and keys of a channel in order, each with labels of one kind."""
    return [
        stretch
        for stretch in _stretches(labels)
        if stretch[0].kind in MOMENTS or stretch[-1].end - stretch[0].start >= MIN_STRETCH_SECONDS
    ]


def _stretches(labels: Sequence[Label]) -> Iterator[list[Label]]:
    stretch: list[Label] = []
    for label in labels:
        if label.kind is LabelKind.SILENCE:
            continue
        if stretch and (label.kind is not stretch[-1].kind or label.start - stretch[-1].end > MAX_GAP_SECONDS):
            yield stretch
            stretch = []
        if label.kind in NON_SPEECH:
            stretch.append(label)
    if stretch:
        yield stretch
