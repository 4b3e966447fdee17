"""Messages of the decoding process to its parent: numbers and names from closed lists, never free text.

A message is a header (kind, track, length) and `length` bytes. Anything else is `Malformed`: the recording is at fault.
"""

import json
import re
import struct
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pipeline.audio.decode.start_time import SOURCES

HEADER = struct.Struct("<BBI")
MAX_BYTES = 1 << 22  # of a message
_NAME = re.compile(r"[a-z0-9_,.\-]{1,80}")


class Malformed(ValueError):
    """A message that the child's program never sends."""


class Kind(IntEnum):
    READY = 1  # privileges are dropped; JSON: which restrictions apply
    TRACK = 2  # a track begins; one byte: its channels
    SAMPLES = 3  # of a track: int16, little-endian, interleaved
    DONE = 4  # JSON: `Facts`
    REFUSED = 5  # JSON: why, and a number


class RefusalReason(StrEnum):
    TABLES = "tables"
    NO_TRACK = "no track"
    NO_FORMAT = "no format"
    NO_CODEC = "no codec"
    RATE = "rate"
    NOTHING = "nothing"
    EMPTY = "empty"
    TOO_LONG = "too long"
    SAMPLES = "samples"
    MEMORY = "memory"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Order:
    """The child's task and limits. `memory_bytes`: on top of its memory at the start; `cpu_seconds`: in total."""

    max_seconds: float
    max_samples: int
    media_type: str | None
    memory_bytes: int
    cpu_seconds: int

    def argument(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Facts:
    """Facts about a decoded file. `channels`: of each track, including unused ones."""

    source_rate: int = 0  # Hz
    codec: str = ""  # FFmpeg's names
    container: str = ""
    promised: float | None = None  # seconds that the file declares
    channels: list[int] = field(default_factory=list)
    damaged: int = 0  # skipped pieces
    broke_off: bool = False
    filled: float = 0.0  # seconds of silence in place of missing audio
    gaps: list[tuple[int, float, float]] = field(default_factory=list)  # (track, from, to); the first ones
    jumps: int = 0  # implausible timestamps
    channels_change: bool = False
    late_tracks: bool = False
    started: float | None = None  # `started.StartTime`, where the file says when it began
    started_within: float = 0.0
    started_by: str = ""

    def data(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def facts(data: bytes) -> Facts:
    """Parse and check the facts of a message. Raises `Malformed`."""
    fields = _object(data)
    if set(fields) != set(Facts.__dataclass_fields__):
        raise Malformed("facts")
    checked = Facts(**fields)
    numbers = (checked.source_rate, checked.damaged, checked.jumps, *_listed(checked.channels))
    if not all(isinstance(value, int) and 0 <= value < 1 << 40 for value in numbers):
        raise Malformed("facts")
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in (checked.codec, checked.container)):
        raise Malformed("names")
    seconds = [checked.filled, *([] if checked.promised is None else [checked.promised])]
    seconds += [moment for gap in _listed(checked.gaps) for moment in _listed(gap)]
    if not all(isinstance(value, int | float) and 0 <= value < 1e12 for value in seconds):
        raise Malformed("seconds")
    if not all(len(gap) == 3 and isinstance(gap[0], int) and gap[1] <= gap[2] for gap in checked.gaps):
        raise Malformed("gaps")
    if not all(isinstance(flag, bool) for flag in (checked.broke_off, checked.channels_change, checked.late_tracks)):
        raise Malformed("facts")
    _check_started(checked)
    return checked


def _check_started(checked: Facts) -> None:
    numbers = (checked.started_within, 0.0 if checked.started is None else checked.started)
    if not all(isinstance(value, int | float) and 0 <= value < 1e11 for value in numbers):
        raise Malformed("started")
    if checked.started_by not in (("",) if checked.started is None else SOURCES):
        raise Malformed("started")


def refusal(why: RefusalReason, number: float = 0) -> bytes:
    return json.dumps({"why": why.value, "number": number}).encode()


def refused(data: bytes) -> tuple[RefusalReason, float]:
    """Parse the reason and its number. Raises `Malformed`."""
    fields = _object(data)
    try:
        return RefusalReason(fields["why"]), float(fields["number"])
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("refusal") from error


def holds(data: bytes) -> dict[str, bool]:
    """Parse which restrictions of `jail` apply, by name. Raises `Malformed`."""
    return {str(name)[:40]: value is True for name, value in _object(data).items()}


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise Malformed("JSON") from error
    if not isinstance(value, dict):
        raise Malformed("JSON")
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > 10_000:
        raise Malformed("facts")
    return value
