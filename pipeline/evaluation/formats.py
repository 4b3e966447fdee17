"""Standard file formats of ground truth. `LEAVES_OUT` lists what each format cannot store.

STM, CTM and RTTM (NIST) store many calls in a file, TextGrid (Praat) one; our JSON Lines store everything.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError, dumps
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline import scratch
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord, in_order, plain

PAUSE = 1.0  # seconds without a word that end a turn, where a file has words only (CTM)
UNKNOWN = "unknown"  # speaker, if a format requires one
MAX_FILE_BYTES = 256 * 2**20  # of a file to read

LEAVES_OUT = {
    "jsonl": None,
    "stm": "times of words, the language, tasks, actions and contacts",
    "ctm": "speakers (it has channels), the language, tasks, actions and contacts",
    "rttm": "words, the language, tasks, actions and contacts",
    "textgrid": "channels, the language, tasks, actions and contacts",
}
"""What each format does not store."""


class UnreadableFile(ValueError):
    """The file does not match its format; the message names the file, and the line if there is one."""


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: `write` returns the text of a file, `read` parses it. Both raise ValueError."""

    suffix: str
    one_call_each: bool  # a file per call, with the call's name
    write: Callable[[Sequence[TrueCall]], str]
    read: Callable[[str, str], list[TrueCall]]  # from the text, and the file's name without its suffix


def read(path: Path) -> list[TrueCall]:
    """Read the calls of a file, or of all files of one format in a folder, by name.

    Raises `UnreadableFile`, also for a folder with several formats, and for two files with the same call.
    """
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if format_of(file) is not None]
        if len({format_of(file) for file in files}) != 1:
            raise UnreadableFile(f"{path} must contain files of exactly one format: {_suffixes()}.")
    else:
        files = [path]
    calls: dict[str, TrueCall] = {}
    for file in files:
        for call in _read_file(file):
            if call.name in calls:
                raise UnreadableFile(f"{file}: {call.name} is also in another file.")
            calls[call.name] = call
    return sorted(calls.values(), key=lambda call: call.name)


def write(calls: Sequence[TrueCall], kind: str, path: Path) -> list[Path]:
    """Write calls in a format: one file, or a file per call into the folder `path`. Returns the files.

    `kind`: a key of `FORMATS`. Raises OSError.
    """
    file_format = FORMATS[kind]
    if not file_format.one_call_each:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file_format.write(calls), encoding="utf-8")
        return [path]
    path.mkdir(parents=True, exist_ok=True)
    files = [path / f"{call.name}{file_format.suffix}" for call in calls]
    for file, call in zip(files, calls, strict=True):
        file.write_text(file_format.write([call]), encoding="utf-8")
    return files


def format_of(file: Path) -> str | None:
    name = file.name.lower()
    return next((kind for kind, entry in FORMATS.items() if name.endswith(entry.suffix.lower())), None)


def _suffixes() -> str:
    return ", ".join(file_format.suffix for file_format in FORMATS.values())


def _read_file(file: Path) -> list[TrueCall]:
    kind = format_of(file)
    if kind is None:
        raise UnreadableFile(f"{file.name} has an unknown suffix. Known: {_suffixes()}.")
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
    calls = []
    for number, line in _lines(text):
        try:
            call = _CALL.validate_json(line)
        except (ValidationError, JSONDecodeError) as error:
            raise ValueError(f"line {number} is not a call of a gold set") from error
        calls.append(_checked(call, f"line {number}"))
    return calls


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

    turns: dict[str, list[TrueTurn]] = defaultdict(list)
    for _, line in _parsed(STMLine, text):
        words = tuple(TrueWord(word) for word in line.transcript.split())
        speaker = None if line.speaker_id == UNKNOWN else line.speaker_id
        turns[line.filename].append(
            TrueTurn(speaker, float(line.begin_time), float(line.end_time), words, _channel_read(line.channel))
        )
    return _calls(turns)


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
    """Yield words with their times. Raises ValueError for words without."""
    for word in turn.words or ():
        if word.start is None or word.end is None:
            raise ValueError("CTM needs word times, and some words have none: choose stm, textgrid or jsonl")
        yield word, word.start, word.end


def _read_ctm(text: str, name: str) -> list[TrueCall]:
    """Read turns; a turn ends at a pause longer than `PAUSE` in its channel."""
    from meeteval.io import CTMLine

    words: dict[tuple[str, int | None], list[TrueWord]] = defaultdict(list)
    for _, line in _parsed(CTMLine, text):
        start = float(line.begin_time)
        words[line.filename, _channel_read(line.channel)].append(
            TrueWord(line.word, start, start + float(line.duration))
        )
    turns: dict[str, list[TrueTurn]] = defaultdict(list)
    for (call, channel), call_words in words.items():
        turns[call] += turns_of(call_words, None, channel)
    return _calls(turns)


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

    turns: dict[str, list[TrueTurn]] = defaultdict(list)
    for _, line in _parsed(RTTMLine, text):
        if line.type != "SPEAKER":
            continue
        start = float(line.begin_time)
        turns[line.filename].append(
            TrueTurn(line.speaker_id, start, start + float(line.duration), None, _channel_read(line.channel))
        )
    return _calls(turns)


# TextGrid: for each speaker a tier of turns, and one of words, named as the Montreal Forced Aligner does.

_WORDS, _PHONES = " - words", " - phones"
_MIN_INTERVAL = 0.001  # seconds; Praat does not allow empty intervals


def _write_textgrid(calls: Sequence[TrueCall]) -> str:
    from praatio.textgrid import IntervalTier, Textgrid

    (call,) = calls
    if not call.has_words:
        raise ValueError("TextGrid needs words, and some turns have none: choose rttm or jsonl")
    end = max((turn.end for turn in call.turns), default=0.0) + _MIN_INTERVAL
    grid = Textgrid(0.0, end)
    for speaker in dict.fromkeys(_label(turn) for turn in call.turns) or [UNKNOWN]:
        turns = [turn for turn in call.turns if _label(turn) == speaker]
        spoken = [(turn.start, turn.end, turn.text) for turn in turns]
        grid.addTier(IntervalTier(speaker, _without_overlap(spoken), 0.0, end))
        words = [word for turn in turns for word in turn.words or ()]
        if words and all(word.timed for word in words):
            timed = [(start, last, word.text) for turn in turns for word, start, last in _timed(turn)]
            grid.addTier(IntervalTier(f"{speaker}{_WORDS}", _without_overlap(timed), 0.0, end))
    with tempfile.TemporaryDirectory(dir=scratch.local_folder()) as folder:
        file = Path(folder) / "call.TextGrid"
        grid.save(str(file), "long_textgrid", includeBlankSpaces=True, reportingMode="silence")
        return file.read_text(encoding="utf-8")


def _without_overlap(spoken: Iterable[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return intervals without overlap: one that begins before the previous one ends is cut there."""
    intervals: list[tuple[float, float, str]] = []
    for start, end, text in sorted(spoken):
        begin = max(start, intervals[-1][1]) if intervals else start
        intervals.append((begin, max(end, begin + _MIN_INTERVAL), text))
    return intervals


def _read_textgrid(text: str, name: str) -> list[TrueCall]:
    from praatio.textgrid import openTextgrid
    from praatio.utilities.errors import PraatioException

    with tempfile.TemporaryDirectory(dir=scratch.local_folder()) as folder:
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
        words = [TrueWord(text, start, end) for start, end, text in timed]
        whole = label in tiers and label != "words"
        turns += _of_tiers(speaker, tiers[label], words) if whole else turns_of(words, speaker, None)
    return [_checked(TrueCall(name, in_order(turns)), name)]


def _of_tiers(speaker: str | None, spoken: list[Any], words: list[TrueWord]) -> Iterator[TrueTurn]:
    """Yield turns with the timed words of the other tier, if it has the turn's words."""
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


# Shared by the formats.


def turns_of(words: Iterable[TrueWord], speaker: str | None, channel: int | None) -> list[TrueTurn]:
    """Group timed words into turns; a turn ends at a pause longer than `PAUSE`."""
    groups: list[list[tuple[float, float, TrueWord]]] = []
    timed = [(word.start, word.end, word) for word in words if word.start is not None and word.end is not None]
    for start, end, word in sorted(timed, key=lambda item: item[:2]):
        if groups and start - groups[-1][-1][1] <= PAUSE:
            groups[-1].append((start, end, word))
        else:
            groups.append([(start, end, word)])
    return [TrueTurn(speaker, g[0][0], g[-1][1], tuple(word for *_, word in g), channel) for g in groups]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(";"):
            yield number, line


def _parsed(kind: Any, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in _lines(text):
        try:
            parsed = kind.parse(line, parse_float=float)
            length = getattr(parsed, "duration", None)
            is_valid = (length if length is not None else parsed.end_time - parsed.begin_time) >= 0 <= parsed.begin_time
        except (ValueError, AssertionError, TypeError) as error:
            raise ValueError(f"line {number} cannot be read: {line.strip()[:60]!r}") from error
        if not is_valid:
            raise ValueError(f"line {number} ends before it begins, or begins before the recording")
        yield number, parsed


def _text(lines: Iterable[Any]) -> str:
    return "".join(f"{line.serialize()}\n" for line in lines)


def _calls(turns_by_call: dict[str, list[TrueTurn]]) -> list[TrueCall]:
    """Build calls; one with lines of the first channel only has no channels, since files always number them."""
    calls = []
    for name, turns in turns_by_call.items():
        if {turn.channel for turn in turns} <= {0, None}:
            turns = [replace(turn, channel=None) for turn in turns]  # noqa: PLW2901
        calls.append(_checked(TrueCall(name, in_order(turns)), name))
    return calls


def _checked(call: TrueCall, where: str) -> TrueCall:
    for turn in call.turns:
        times = [turn.start, turn.end, *(time for word in turn.words or () for time in (word.start, word.end))]
        present = [time for time in times if time is not None]
        if not all(0 <= time < 1e6 for time in present) or turn.end < turn.start:
            raise ValueError(f"{where}: a turn ends before it begins, or is outside any recording")
    return call


def _seconds(time: float) -> float:
    return round(time, 3)


def _label(turn: TrueTurn) -> str:
    """Return the speaker as one word: labels in lines have no spaces."""
    return "_".join((turn.speaker or UNKNOWN).split()) or UNKNOWN


def _channel(turn: TrueTurn) -> int:
    return 1 if turn.channel is None else turn.channel + 1


def _channel_read(channel: Any) -> int | None:
    """Return our channel for a file's 1, 2, A or B; None for any other name."""
    return {"1": 0, "2": 1, "A": 0, "B": 1}.get(str(channel).upper())
