import re
from collections.abc import Callable, Iterator, Sequence

from pipeline.domain.speech import Label, LabelKind, Transcript, Turn, Word, text_of

MAX_CUE_SECONDS = 7.0
MAX_LINE_CHARACTERS = 42  # of a cue, which has one or two lines
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
        f"{number}\n{_span(words, ',')}\n{_wrapped(_labeled(turn, words), _for_subrip)}\n\n"
        for number, (turn, words) in enumerate(_cues(transcript), 1)
    )


def vtt(transcript: Transcript) -> str:
    """Return WebVTT subtitles; speakers are voice tags."""
    cues = (
        f"{_span(words, '.')}\n<v {_for_webvtt(who(turn))}>{_wrapped(text_of(words), _for_webvtt)}\n\n"
        for turn, words in _cues(transcript)
    )
    return "WEBVTT\n\n" + "".join(cues)


FORMATS: dict[str, Callable[[Transcript], str]] = {"txt": text, "srt": srt, "vtt": vtt}


def _cues(transcript: Transcript) -> Iterator[tuple[Turn, list[Word]]]:
    """Yield turns in pieces that fit into a cue; a longer word is a piece of its own."""
    for turn in transcript.turns:
        piece: list[Word] = []
        for word in turn.words:
            if piece and not _fits(turn, [*piece, word]):
                yield turn, piece
                piece = []
            piece.append(word)
        if piece:
            yield turn, piece


def _fits(turn: Turn, words: Sequence[Word]) -> bool:
    lines = _in_two(_labeled(turn, words))
    return words[-1].end - words[0].start <= MAX_CUE_SECONDS and max(map(len, lines)) <= MAX_LINE_CHARACTERS


def _labeled(turn: Turn, words: Sequence[Word]) -> str:
    return f"{who(turn)}: {text_of(words)}"


def _in_two(text_: str) -> list[str]:
    """Return the text in one line, or in two that are as equally long as possible."""
    line = _single_line(text_)
    spaces = [at for at, character in enumerate(line) if character == " "]
    if len(line) <= MAX_LINE_CHARACTERS or not spaces:
        return [line]
    middle = min(spaces, key=lambda at: abs(2 * at - len(line)))
    return [line[:middle], line[middle + 1 :]]


def _wrapped(text_: str, escape: Callable[[str], str]) -> str:
    return "\n".join(map(escape, _in_two(text_)))


def _span(words: Sequence[Word], point: str) -> str:
    start = words[0].start
    return f"{_time(start, point)} --> {_time(min(words[-1].end, start + MAX_CUE_SECONDS), point)}"


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
