"""When a recording began, as its file says.

Broadcast wave (EBU Tech 3285: origination date and time, and samples since midnight), iXML, MP4 and QuickTime,
Matroska, and tags of Ogg and FLAC. Recorders write it in a zone of their own, and some only to the second: it tells
how far apart two files of one recorder began, and nothing else. Only what names a second counts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SOURCES = ("bext TimeReference", "bext OriginationTime", "iXML", "creation_time", "date")
EXACT, SECOND = 0.001, 1.0  # seconds by which a time may be wrong that is counted in samples, in whole seconds
YEARS = range(1990, 2100)  # others are a clock that was never set
MOST_XML = 1 << 16  # bytes

_DAY = re.compile(r"(\d{4})[-_:. /](\d\d)[-_:. /](\d\d)")
_TIME = re.compile(r"(\d\d)[-_:. ](\d\d)[-_:. ](\d\d)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class StartTime:
    """`seconds` since 1970, by the recorder's clock and zone, wrong by less than `within`; two files compare only by
    the same one of `SOURCES`."""

    seconds: float
    within: float
    source: str


def of_wave(told: Mapping[str, str], rate: int, ixml: bytes = b"") -> StartTime | None:
    """What a WAV file says. `told`: FFmpeg's metadata; `rate`: in Hz; `ixml`: the chunk of that name."""
    day = _seconds_of(_DAY, _tag(ixml, "BWF_ORIGINATION_DATE") or told.get("date", ""))
    high, low, counted = (_number(_tag(ixml, f"TIMESTAMP_SAMPLE{name}")) for name in _TIMESTAMP)
    if low is not None and counted:
        since = ((high or 0) << 32 | low) / counted
        return _believed(day, since, EXACT, "iXML")
    if "time_reference" not in told:
        return None
    reference = _number(told["time_reference"])
    if reference and rate:
        return _believed(day, reference / rate, EXACT, "bext TimeReference")
    clock = _TIME.fullmatch(told.get("creation_time", "").strip())
    if clock is None:
        return None
    hours, minutes, seconds = map(int, clock.groups())
    return _believed(day, hours * 3600.0 + minutes * 60 + seconds, SECOND, "bext OriginationTime")


_TIMESTAMP = ("S_SINCE_MIDNIGHT_HI", "S_SINCE_MIDNIGHT_LO", "_RATE")


def of_tags(tags: Sequence[Mapping[str, str]]) -> StartTime | None:
    """What the tags of a container and of its track say, the first that names a second."""
    for name in ("creation_time", "date"):
        for told in tags:
            found = next((value for key, value in told.items() if key.lower() == name), "")
            match = _MOMENT.fullmatch(found.strip())
            if match and (began := _moment(*match.groups())):
                digits = (match[3] or "").rstrip("0")
                return StartTime(began, max(EXACT, 10.0 ** -len(digits)), name)
    return None


def of(container: Any, stream: Any, ixml: bytes = b"") -> StartTime | None:
    """What an opened container says of its beginning; None where it says nothing that can be believed."""
    if container.format.name in ("wav", "w64"):
        return of_wave(container.metadata, stream.codec_context.sample_rate, ixml)
    return of_tags((container.metadata, stream.metadata))


def _moment(day: str, clock: str, fraction: str | None, zone: str | None) -> float | None:
    try:
        found = datetime.fromisoformat(f"{day}T{clock}{zone or 'Z'}")
        return found.timestamp() + float(f"0.{fraction or 0}") if found.year in YEARS else None
    except (ValueError, OverflowError):
        return None


def _seconds_of(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.match(text.strip())
    try:
        day = datetime.fromisoformat("-".join(match.groups())).replace(tzinfo=UTC) if match else None
    except ValueError:
        return None
    return day.timestamp() if day and day.year in YEARS else None


def _believed(day: float | None, since: float, within: float, source: str) -> StartTime | None:
    return StartTime(day + since, within, source) if day is not None and 0 <= since < 86400 else None


def _tag(xml: bytes, name: str) -> str:
    """The text of a tag. iXML is flat where it matters; a parser of XML would have to be defended."""
    match = re.search(rf"<{name}>\s*([^<]{{1,40}}?)\s*</{name}>".encode(), xml[:MOST_XML])
    return match[1].decode("ascii", "replace") if match else ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text.strip()) else None
