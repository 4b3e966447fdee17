"""Truth in the formats of the field. What a format cannot hold is left out, and `LEAVES_OUT` says so.

STM, CTM and RTTM (NIST) hold many calls in a file, TextGrid (Praat) one; JSON Lines are ours and lose nothing.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError, dumps
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord, in_order, plain

PAUSE = 1.0  # seconds without a word that end a turn, where a file has words only (CTM)
UNKNOWN = "unknown"  # who spoke, where a format wants a name
MAX_FILE_BYTES = 256 * 2**20  # bytes of a file that is read

LEAVES_OUT = {
    "jsonl": None,
    "stm": "when each word was said, the language, tasks and contacts",
    "ctm": "who spoke (it has channels), the language, tasks and contacts",
    "rttm": "what was said, the language, tasks and contacts",
    "textgrid": "on which channel it was said, the language, tasks and contacts",
}
"""By format, what it does not hold."""


class UnreadableFile(ValueError):
    """The file is not of its format. The sentence names the file, and the line where there is one."""


@dataclass(frozen=True, slots=True)
class Format:
    """`write` makes the text of a file; `read` takes it apart and raises ValueError, perhaps with the line's number."""

    suffix: str
    one_call_each: bool  # a file for each call, called as the call is
    write: Callable[[Sequence[TrueCall]], str]
    read: Callable[[str, str], list[TrueCall]]  # of the text, and the file's name without its suffix


def read(path: Path) -> list[TrueCall]:
    """The calls of a file, or of all files of one format in a folder, by name.

    Raises `UnreadableFile`: also for a folder of several formats, and for two files that tell of one call.
    """
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if format_of(file) is not None]
        if len({format_of(file) for file in files}) != 1:
            raise UnreadableFile(
                f"{path} holds no files of one format: {', '.join(one.suffix for one in FORMATS.values())}."
            )
    else:
        files = [path]
    found: dict[str, TrueCall] = {}
    for file in files:
        for call in _read_file(file):
            if call.name in found:
                raise UnreadableFile(f"{file}: {call.name} is in another file, too.")
            found[call.name] = call
    return sorted(found.values(), key=lambda call: call.name)


def write(calls: Sequence[TrueCall], kind: str, path: Path) -> list[Path]:
    """Write calls in a format: one file, or a file for each call into the folder `path`. Returns the files.

    `kind`: a key of `FORMATS`. Raises OSError.
    """
    chosen = FORMATS[kind]
    if not chosen.one_call_each:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(chosen.write(calls), encoding="utf-8")
        return [path]
    path.mkdir(parents=True, exist_ok=True)
    files = [path / f"{call.name}{chosen.suffix}" for call in calls]
    for file, call in zip(files, calls, strict=True):
        file.write_text(chosen.write([call]), encoding="utf-8")
    return files


def format_of(file: Path) -> str | None:
    """The format that a file's name says, a key of `FORMATS`."""
    return next((kind for kind, one in FORMATS.items() if file.name.lower().endswith(one.suffix.lower())), None)


def _read_file(file: Path) -> list[TrueCall]:
    kind = format_of(file)
    if kind is None:
        known = ", ".join(one.suffix for one in FORMATS.values())
        raise UnreadableFile(f"{file.name} has none of the endings {known}.")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise UnreadableFile(f"{file.name} is larger than {MAX_FILE_BYTES // 2**20} MiB.")
    try:
        return FORMATS[kind].read(file.read_text(encoding="utf-8-sig"), file.stem)
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{file.name} is not UTF-8 (byte {error.start}).") from error
    except ValueError as error:
        raise UnreadableFile(f"{file.name}: {error}") from error


# JSON Lines: a call in each line, as its dataclass.

_CALL = TypeAdapter(TrueCall)


def _write_jsonl(calls: Sequence[TrueCall]) -> str:
    return "".join(f"{dumps(plain(call), ensure_ascii=False, separators=(',', ':'))}\n" for call in calls)


def _read_jsonl(text: str, name: str) -> list[TrueCall]:
    found = []
    for number, line in _lines(text):
        try:
            call = _CALL.validate_json(line)
        except (ValidationError, JSONDecodeError) as error:
            raise ValueError(f"line {number} is not a call of a gold set") from error
        found.append(_checked(call, f"line {number}"))
    return found


# STM: a turn in each line.


def _write_stm(calls: Sequence[TrueCall]) -> str:
    from meeteval.io import STMLine

    return _text(
        STMLine(call.name, _channel(turn), _label(turn), _seconds(turn.start), _seconds(turn.end), turn.text)
        for call in calls
        for turn in call.turns
        if turn.words is not None
    )


def _read_stm(text: str, name: str) -> list[TrueCall]:
    from meeteval.io import STMLine

    found: dict[str, list[TrueTurn]] = defaultdict(list)
    for _, line in _parsed(STMLine, text):
        words = tuple(TrueWord(word) for word in line.transcript.split())
        speaker = None if line.speaker_id == UNKNOWN else line.speaker_id
        found[line.filename].append(
            TrueTurn(speaker, float(line.begin_time), float(line.end_time), words, _channel_read(line.channel))
        )
    return _calls(found)


# CTM: a word in each line.


def _write_ctm(calls: Sequence[TrueCall]) -> str:
    from meeteval.io import CTMLine

    return _text(
        CTMLine(call.name, _channel(turn), _seconds(start), _seconds(end - start), word.text)
        for call in calls
        for turn in sorted(call.turns, key=lambda turn: (_channel(turn), turn.start))
        for word, start, end in _timed(turn)
    )


def _timed(turn: TrueTurn) -> Iterator[tuple[TrueWord, float, float]]:
    """Words with their times. Raises ValueError where nobody said when they were said."""
    for word in turn.words or ():
        if word.start is None or word.end is None:
            raise ValueError("the words have no times, which CTM needs: choose stm, textgrid or jsonl")
        yield word, word.start, word.end


def _read_ctm(text: str, name: str) -> list[TrueCall]:
    """A turn ends where its channel is without a word for longer than `PAUSE`."""
    from meeteval.io import CTMLine

    words: dict[tuple[str, int | None], list[TrueWord]] = defaultdict(list)
    for _, line in _parsed(CTMLine, text):
        start = float(line.begin_time)
        words[line.filename, _channel_read(line.channel)].append(
            TrueWord(line.word, start, start + float(line.duration))
        )
    found: dict[str, list[TrueTurn]] = defaultdict(list)
    for (call, channel), said in words.items():
        found[call] += turns_of(said, None, channel)
    return _calls(found)


# RTTM: a stretch of one speaker in each line.


def _write_rttm(calls: Sequence[TrueCall]) -> str:
    from meeteval.io import RTTMLine

    return _text(
        RTTMLine(
            filename=call.name,
            channel=str(_channel(turn)),
            begin_time=_seconds(turn.start),
            duration=_seconds(turn.end - turn.start),
            speaker_id=_label(turn),
        )
        for call in calls
        for turn in call.turns
    )


def _read_rttm(text: str, name: str) -> list[TrueCall]:
    from meeteval.io import RTTMLine

    found: dict[str, list[TrueTurn]] = defaultdict(list)
    for _, line in _parsed(RTTMLine, text):
        if line.type != "SPEAKER":
            continue
        start = float(line.begin_time)
        found[line.filename].append(
            TrueTurn(line.speaker_id, start, start + float(line.duration), None, _channel_read(line.channel))
        )
    return _calls(found)


# TextGrid: for each speaker a tier of turns, and one of words, named as the Montreal Forced Aligner does.

_WORDS, _PHONES = " - words", " - phones"
_MIN_INTERVAL = 0.001  # seconds; Praat knows no interval without length


def _write_textgrid(calls: Sequence[TrueCall]) -> str:
    from praatio.textgrid import IntervalTier, Textgrid

    (call,) = calls
    if not call.has_words:
        raise ValueError("TextGrid needs words, and none are annotated: choose rttm or jsonl")
    end = max((turn.end for turn in call.turns), default=0.0) + _MIN_INTERVAL
    grid = Textgrid(0.0, end)
    for speaker in dict.fromkeys(_label(turn) for turn in call.turns) or [UNKNOWN]:
        turns = [turn for turn in call.turns if _label(turn) == speaker]
        spoken = [(turn.start, turn.end, turn.text) for turn in turns]
        grid.addTier(IntervalTier(speaker, _apart(spoken), 0.0, end))
        words = [word for turn in turns for word in turn.words or ()]
        if words and all(word.timed for word in words):
            timed = [(start, last, word.text) for turn in turns for word, start, last in _timed(turn)]
            grid.addTier(IntervalTier(f"{speaker}{_WORDS}", _apart(timed), 0.0, end))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "call.TextGrid"
        grid.save(str(file), "long_textgrid", includeBlankSpaces=True, reportingMode="silence")
        return file.read_text(encoding="utf-8")


def _apart(spoken: Iterable[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Intervals one after the other: one that begins before the one before it ends is cut there."""
    made: list[tuple[float, float, str]] = []
    for start, end, text in sorted(spoken):
        begin = max(start, made[-1][1]) if made else start
        made.append((begin, max(end, begin + _MIN_INTERVAL), text))
    return made


def _read_textgrid(text: str, name: str) -> list[TrueCall]:
    from praatio.textgrid import openTextgrid
    from praatio.utilities.errors import PraatioException

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "call.TextGrid"
        file.write_text(text, encoding="utf-8")
        try:
            grid = openTextgrid(str(file), includeEmptyIntervals=False, reportingMode="silence")
        except (PraatioException, ValueError, IndexError, KeyError) as error:
            raise ValueError("it is not a readable TextGrid") from error
    tiers = {tier.name: [tuple(entry) for entry in tier.entries] for tier in grid.tiers}
    spoken = {label.removesuffix(_WORDS) for label in tiers if not label.endswith(_PHONES)}
    turns: list[TrueTurn] = []
    for label in sorted(spoken):
        speaker = None if label in (UNKNOWN, "words") else label
        timed = tiers[label] if label == "words" else tiers.get(f"{label}{_WORDS}", [])
        words = [TrueWord(said, start, end) for start, end, said in timed]
        whole = label in tiers and label != "words"
        turns += _of_tiers(speaker, tiers[label], words) if whole else turns_of(words, speaker, None)
    return [_checked(TrueCall(name, in_order(turns)), name)]


def _of_tiers(speaker: str | None, spoken: list[Any], words: list[TrueWord]) -> Iterator[TrueTurn]:
    """Turns with the words of the other tier, where it has the turn's words."""
    for start, end, text in spoken:
        timed = tuple(word for word in words if word.start is not None and start - _MIN_INTERVAL <= word.start < end)
        same = [word.text for word in timed] == text.split()
        yield TrueTurn(speaker, start, end, timed if same else tuple(map(TrueWord, text.split())))


FORMATS = {
    "jsonl": Format(".jsonl", False, _write_jsonl, _read_jsonl),
    "stm": Format(".stm", False, _write_stm, _read_stm),
    "ctm": Format(".ctm", False, _write_ctm, _read_ctm),
    "rttm": Format(".rttm", False, _write_rttm, _read_rttm),
    "textgrid": Format(".TextGrid", True, _write_textgrid, _read_textgrid),
}


# What formats share.


def turns_of(words: Iterable[TrueWord], speaker: str | None, channel: int | None) -> list[TrueTurn]:
    """Turns of timed words: one ends where there is no word for longer than `PAUSE`."""
    made: list[list[tuple[float, float, TrueWord]]] = []
    timed = [(word.start, word.end, word) for word in words if word.start is not None and word.end is not None]
    for start, end, word in sorted(timed, key=lambda one: one[:2]):
        if made and start - made[-1][-1][1] <= PAUSE:
            made[-1].append((start, end, word))
        else:
            made.append([(start, end, word)])
    return [TrueTurn(speaker, one[0][0], one[-1][1], tuple(word for *_, word in one), channel) for one in made]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, by number: comments begin with a semicolon."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(";"):
            yield number, line


def _parsed(kind: Any, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in _lines(text):
        try:
            parsed = kind.parse(line, parse_float=float)
            length = getattr(parsed, "duration", None)
            good = (length if length is not None else parsed.end_time - parsed.begin_time) >= 0 <= parsed.begin_time
        except (ValueError, AssertionError, TypeError) as error:
            raise ValueError(f"line {number} cannot be read: {line.strip()[:60]!r}") from error
        if not good:
            raise ValueError(f"line {number} ends before it begins, or begins before the recording")
        yield number, parsed


def _text(lines: Iterable[Any]) -> str:
    return "".join(f"{line.serialize()}\n" for line in lines)


def _calls(found: dict[str, list[TrueTurn]]) -> list[TrueCall]:
    """A call all of whose lines are of the first channel has one: files count it even so."""
    made = []
    for name, turns in found.items():
        one = {turn.channel for turn in turns} <= {0, None}
        made.append(_checked(TrueCall(name, in_order(replace(t, channel=None) if one else t for t in turns)), name))
    return made


def _checked(call: TrueCall, where: str) -> TrueCall:
    for turn in call.turns:
        times = [turn.start, turn.end, *(time for word in turn.words or () for time in (word.start, word.end))]
        known = [time for time in times if time is not None]
        if not all(0 <= time < 1e6 for time in known) or turn.end < turn.start:
            raise ValueError(f"{where}: a turn ends before it begins, or lies outside any recording")
    return call


def _seconds(time: float) -> float:
    return round(time, 3)


def _label(turn: TrueTurn) -> str:
    """One word: labels of lines have no spaces."""
    return "_".join((turn.speaker or UNKNOWN).split()) or UNKNOWN


def _channel(turn: TrueTurn) -> int:
    """1 and 2, as the field counts channels."""
    return 1 if turn.channel is None else turn.channel + 1


def _channel_read(channel: Any) -> int | None:
    """A channel of ours. Files name channels 1, 2, A, B, or otherwise where there is one only."""
    return {"1": 0, "2": 1, "A": 0, "B": 1}.get(str(channel).upper())
