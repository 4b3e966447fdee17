"""Start time of a recording according to its file.

Broadcast wave (EBU Tech 3285: origination date and time, and samples since midnight), iXML, MP4 and QuickTime,
Matroska, and tags of Ogg and FLAC. Recorders write it in an arbitrary time zone, some only to the second: it is good
only for the difference between two files of one recorder. Values without a second are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SOURCES = ("bext TimeReference", "bext OriginationTime", "iXML", "creation_time", "date")
EXACT, SECOND = 0.001, 1.0  # max. error in seconds of a time in samples, in whole seconds
YEARS = range(1990, 2100)  # other years are from a clock that was never set
MAX_XML = 1 << 16  # bytes

_DAY = re.compile(r"(\d{4})[-_:. /](\d\d)[-_:. /](\d\d)")
_TIME = re.compile(r"(\d\d)[-_:. ](\d\d)[-_:. ](\d\d)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class StartTime:
    """Seconds since 1970 by the recorder's clock and zone, accurate to `within`; comparable for equal `source`."""

    seconds: float
    within: float
    source: str


def from_wave(metadata: Mapping[str, str], rate: int, ixml: bytes = b"") -> StartTime | None:
    """Read the start time of a WAV file. `metadata`: from FFmpeg; `rate`: in Hz; `ixml`: the iXML chunk."""
    day = _seconds_of(_DAY, _tag(ixml, "BWF_ORIGINATION_DATE") or metadata.get("date", ""))
    high, low, counted = (_number(_tag(ixml, f"TIMESTAMP_SAMPLE{name}")) for name in _TIMESTAMP)
    if low is not None and counted:
        since = ((high or 0) << 32 | low) / counted
        return _plausible(day, since, EXACT, "iXML")
    if "time_reference" not in metadata:
        return None
    reference = _number(metadata["time_reference"])
    if reference and rate:
        return _plausible(day, reference / rate, EXACT, "bext TimeReference")
    clock = _TIME.fullmatch(metadata.get("creation_time", "").strip())
    if clock is None:
        return None
    hours, minutes, seconds = map(int, clock.groups())
    return _plausible(day, hours * 3600.0 + minutes * 60 + seconds, SECOND, "bext OriginationTime")


_TIMESTAMP = ("S_SINCE_MIDNIGHT_HI", "S_SINCE_MIDNIGHT_LO", "_RATE")


def from_tags(tags: Sequence[Mapping[str, str]]) -> StartTime | None:
    """Read the first tag of the container and its track that is precise to the second."""
    for name in ("creation_time", "date"):
        for metadata in tags:
            text = next((value for key, value in metadata.items() if key.lower() == name), "")
            match = _MOMENT.fullmatch(text.strip())
            if match and (began := _moment(*match.groups())):
                digits = (match[3] or "").rstrip("0")
                return StartTime(began, max(EXACT, 10.0 ** -len(digits)), name)
    return None


def read(container: Any, stream: Any, ixml: bytes = b"") -> StartTime | None:
    """Read the start time of an opened container; None without a plausible one."""
    if container.format.name in ("wav", "w64"):
        return from_wave(container.metadata, stream.codec_context.sample_rate, ixml)
    return from_tags((container.metadata, stream.metadata))


def _moment(day: str, clock: str, fraction: str | None, zone: str | None) -> float | None:
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone or 'Z'}")
        return moment.timestamp() + float(f"0.{fraction or 0}") if moment.year in YEARS else None
    except (ValueError, OverflowError):
        return None


def _seconds_of(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.match(text.strip())
    try:
        day = datetime.fromisoformat("-".join(match.groups())).replace(tzinfo=UTC) if match else None
    except ValueError:
        return None
    return day.timestamp() if day and day.year in YEARS else None


def _plausible(day: float | None, since: float, within: float, source: str) -> StartTime | None:
    return StartTime(day + since, within, source) if day is not None and 0 <= since < 86400 else None


def _tag(xml: bytes, name: str) -> str:
    """Return the text of a tag: iXML is flat here, and a parser of XML would have to be defended."""
    match = re.search(rf"<{name}>\s*([^<]{{1,40}}?)\s*</{name}>".encode(), xml[:MAX_XML])
    return match[1].decode("ascii", "replace") if match else ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text.strip()) else None
