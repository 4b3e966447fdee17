"""A transcript as plain text and as subtitles, and times as people read them."""

from collections.abc import Callable, Iterator, Sequence

from pipeline.domain.speech import Label, LabelKind, Transcript, Turn, Word, text_of

LINE_SECONDS, LINE_CHARACTERS = 6.0, 80  # of one subtitle


def who(turn: Turn) -> str:
    """The speaker's label, and that it is a machine that speaks."""
    return f"{turn.speaker} (machine)" if turn.machine else turn.speaker


def clock(seconds: float | None) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on; "–" for none."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def text(transcript: Transcript) -> str:
    return "".join(
        f"[{_time(turn.start, '.')[:8]}] {who(turn)}: {turn.text}\n" for turn in transcript.turns if turn.words
    )


def srt(transcript: Transcript) -> str:
    """SubRip."""
    return "".join(
        f"{number}\n{_time(words[0].start, ',')} --> {_time(words[-1].end, ',')}\n{who(turn)}: {text_of(words)}\n\n"
        for number, (turn, words) in enumerate(_lines(transcript), 1)
    )


def vtt(transcript: Transcript) -> str:
    """WebVTT; speakers are voice tags."""
    cues = (
        f"{_time(words[0].start, '.')} --> {_time(words[-1].end, '.')}\n<v {who(turn)}>{_escaped(text_of(words))}\n\n"
        for turn, words in _lines(transcript)
    )
    return "WEBVTT\n\n" + "".join(cues)


FORMATS: dict[str, Callable[[Transcript], str]] = {"txt": text, "srt": srt, "vtt": vtt}


def _lines(transcript: Transcript) -> list[tuple[Turn, list[Word]]]:
    """Turns cut into pieces that can be read while they are shown."""
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


def _escaped(said: str) -> str:
    return said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{rest:03}"


BESIDE_SPEECH = {
    LabelKind.MUSIC: "hold music",
    LabelKind.RINGBACK: "ringback",
    LabelKind.BUSY: "busy tone",
    LabelKind.DTMF: "keys",
    LabelKind.BEEP: "beep",
}


MOMENTS = (LabelKind.DTMF, LabelKind.BEEP)  # shown however short


SHORTEST = 1.0  # seconds of the others


LONGEST_GAP = 5.0  # seconds of silence within a stretch: from ring to ring in any country's cadence


UNSURE = 0.4  # words the engine gave less than this are dimmed


def beside_stretches(labels: Sequence[Label]) -> list[list[Label]]:
    """The stretches of one channel's hold music, tones and keys, in order: labels of one kind, see `beside_speech`."""
    return [
        stretch
        for stretch in _stretches(labels)
        if stretch[0].kind in MOMENTS or stretch[-1].end - stretch[0].start >= SHORTEST
    ]


def _stretches(labels: Sequence[Label]) -> Iterator[list[Label]]:
    stretch: list[Label] = []
    for label in labels:
        if label.kind is LabelKind.SILENCE:
            continue
        if stretch and (label.kind is not stretch[-1].kind or label.start - stretch[-1].end > LONGEST_GAP):
            yield stretch
            stretch = []
        if label.kind in BESIDE_SPEECH:
            stretch.append(label)
    if stretch:
        yield stretch
