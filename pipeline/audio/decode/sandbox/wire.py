"""What the decoding process sends to its parent: numbers and names from closed lists, never free text.

A message is a header (kind, track, length) and so many bytes. The parent trusts nothing: anything else is a `Malformed`
message, and the recording is at fault.
"""

import json
import re
import struct
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pipeline.audio.decode.start_time import SOURCES

HEADER = struct.Struct("<BBI")
MOST_BYTES = 1 << 22  # of a message
_NAME = re.compile(r"[a-z0-9_,.\-]{1,80}")


class Malformed(ValueError):
    """The child sent something that its program never sends."""


class Kind(IntEnum):
    """What a message is."""

    READY = 1  # its privileges are dropped; JSON: which restrictions hold
    TRACK = 2  # a track begins; one byte: its channels
    SAMPLES = 3  # of a track: int16, little-endian, interleaved
    DONE = 4  # JSON: `Facts`
    REFUSED = 5  # JSON: why, and a number


class Why(StrEnum):
    """Why a file is not decoded."""

    TABLES = "tables"
    NO_TRACK = "no track"
    NO_FORMAT = "no format"
    NO_CODEC = "no codec"
    RATE = "rate"
    NOTHING = "nothing"
    TOO_LONG = "too long"
    SAMPLES = "samples"
    MEMORY = "memory"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Order:
    """What the child must do. `memory_bytes`: beyond what it has at its start; `cpu_seconds`: in all."""

    max_seconds: float
    max_samples: int
    media_type: str | None
    memory_bytes: int
    cpu_seconds: int

    def argument(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Facts:
    """What is known of a file once it is decoded. `channels`: of each track, also of unused ones."""

    source_rate: int = 0  # Hz
    codec: str = ""  # FFmpeg's names
    container: str = ""
    promised: float | None = None  # seconds that the file declares
    channels: list[int] = field(default_factory=list)
    damaged: int = 0  # pieces passed over
    broke_off: bool = False
    filled: float = 0.0  # seconds of silence in place of what is missing
    gaps: list[tuple[int, float, float]] = field(default_factory=list)  # where: (track, from, to); the first ones
    jumps: int = 0  # timestamps too far away to be true
    channels_change: bool = False
    late_tracks: bool = False
    started: float | None = None  # `started.StartTime`, where the file says when it began
    started_within: float = 0.0
    started_by: str = ""

    def data(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def facts(data: bytes) -> Facts:
    """The facts of a message, each checked. Raises `Malformed`."""
    found = _object(data)
    if set(found) != set(Facts.__dataclass_fields__):
        raise Malformed("facts")
    made = Facts(**found)
    numbers = (made.source_rate, made.damaged, made.jumps, *_listed(made.channels))
    if not all(isinstance(one, int) and 0 <= one < 1 << 40 for one in numbers):
        raise Malformed("facts")
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in (made.codec, made.container)):
        raise Malformed("names")
    seconds = [made.filled, *([] if made.promised is None else [made.promised])]
    seconds += [moment for gap in _listed(made.gaps) for moment in _listed(gap)]
    if not all(isinstance(one, int | float) and 0 <= one < 1e12 for one in seconds):
        raise Malformed("seconds")
    if not all(len(gap) == 3 and isinstance(gap[0], int) and gap[1] <= gap[2] for gap in made.gaps):
        raise Malformed("gaps")
    if not all(isinstance(one, bool) for one in (made.broke_off, made.channels_change, made.late_tracks)):
        raise Malformed("facts")
    _check_started(made)
    return made


def _check_started(made: Facts) -> None:
    numbers = (made.started_within, 0.0 if made.started is None else made.started)
    if not all(isinstance(one, int | float) and 0 <= one < 1e11 for one in numbers):
        raise Malformed("started")
    if made.started_by not in (("",) if made.started is None else SOURCES):
        raise Malformed("started")


def refusal(why: Why, number: float = 0) -> bytes:
    return json.dumps({"why": why.value, "number": number}).encode()


def refused(data: bytes) -> tuple[Why, float]:
    """Why, and the number that belongs to it. Raises `Malformed`."""
    found = _object(data)
    try:
        return Why(found["why"]), float(found["number"])
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("refusal") from error


def holds(data: bytes) -> dict[str, bool]:
    """Which of its privileges the child could drop, by the names of `jail`. Raises `Malformed`."""
    return {str(name)[:40]: value is True for name, value in _object(data).items()}


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise Malformed("JSON") from error
    if not isinstance(found, dict):
        raise Malformed("JSON")
    return found


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > 10_000:
        raise Malformed("facts")
    return value
