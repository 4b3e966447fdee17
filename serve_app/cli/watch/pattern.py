import re
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from difflib import get_close_matches
from typing import Any
from uuid import UUID

AGENT, CUSTOMER, CALLER, CALLED = "agent", "customer", "caller", "called"
PARTIES = {
    **dict.fromkeys(("agent", "rep"), AGENT),
    "customer": CUSTOMER,
    **dict.fromkeys(("caller", "in", "rx"), CALLER),  # what the phone system receives from the caller
    **dict.fromkeys(("called", "callee", "out", "tx"), CALLED),
}
DIRECTIONS = {
    **dict.fromkeys(("out", "outbound", "outgoing", "true"), True),
    **dict.fromkeys(("in", "inbound", "incoming", "external", "false"), False),
}
WORD, TEXT = r"[A-Za-z]+", r"[^/]+?"
PARTS = {
    "callId": r"[^/]+",  # as long as possible: 1795167000.42 before .*
    "from": TEXT,
    "to": TEXT,
    "startTime": "",
    "outgoing": WORD,
    "duration": r"\d{1,9}",
    "userId": r"[0-9A-Fa-f-]{36}",
    "teamId": r"[0-9A-Fa-f-]{36}",
    "party": "|".join(PARTIES),
}
OTHER_NAMES = {  # in lower case: what these parts are called elsewhere
    "caller": "from",
    "fromnumber": "from",
    "callee": "to",
    "tonumber": "to",
    "startedat": "startTime",
    "datetime": "startTime",
    "direction": "outgoing",
    "uniqueid": "callId",
    "channel": "party",
}
EPOCH = "s"
DIRECTIVES = {
    **dict.fromkeys("mdHIMS", r"\d{2}"),
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "j": r"\d{3}",
    "f": r"\d{1,6}",
    "b": "[A-Za-z]{3}",
    "p": "[AaPp][Mm]",
    "z": r"(?:Z|[+-]\d{2}:?\d{2})",
    EPOCH: r"\d{9,11}",
}
_PIECE = re.compile(r"\{(?P<part>[^{}]*)\}|(?P<any>\*)|(?P<brace>[{}])|(?P<text>[^{}*]+)")
_DIRECTIVE = re.compile(r"%(.?)")


class PatternInvalid(ValueError):
    """The pattern cannot be used; the message says why and what to write."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """What the name of a file says about its call.

    `key` identifies the call in its phone system and `fields` are those of /submit. `party` is one of `AGENT`,
    `CUSTOMER`, `CALLER` and `CALLED` for the file of one party, None for a file of both.
    """

    key: str
    fields: dict[str, Any]
    party: str | None = None


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern for file names: text, `{part}`, `{startTime:%Y%m%d-%H%M%S}`, and `*` for anything within a folder.

    A pattern without a slash is for the name alone, in every subfolder. Raises `PatternInvalid`.
    """

    text: str
    zone: tzinfo | None = None  # of times without an offset; None: of this machine
    _regex: re.Pattern[str] = field(init=False)
    _time_format: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        regex = ""
        formats: list[str] = []
        names: set[str] = set()
        for piece in _PIECE.finditer(self.text):
            if piece["brace"]:
                raise PatternInvalid(f"{piece['brace']!r} at position {piece.start() + 1} has no counterpart.")
            if piece["text"] or piece["any"]:
                regex += re.escape(piece["text"]) if piece["text"] else "[^/]*"
                continue
            name, _, time_format = piece["part"].partition(":")
            _check_part(name, time_format, names)
            if name == "startTime":
                regex += f"(?P<startTime{len(formats)}>{_time_regex(time_format)})"
                formats.append(time_format)
            else:
                regex += f"(?P<{name}>{PARTS[name]})"
            names.add(name)
        if not names:
            raise PatternInvalid(f"It has no named part, such as {{callId}}. Parts: {', '.join(PARTS)}.")
        object.__setattr__(self, "_regex", re.compile(regex))
        object.__setattr__(self, "_time_format", "\n".join(formats) or None)

    @property
    def has_parties(self) -> bool:
        return "party" in self._regex.groupindex

    def read(self, path: str) -> NamedCall | None:
        """Return what a path says, relative to the folder and with slashes; None if it does not match."""
        subject = path if "/" in self.text else path.rpartition("/")[2]
        match = self._regex.fullmatch(subject)
        if match is None:
            return None
        values = {name: value for name, value in match.groupdict().items() if not name.startswith("startTime")}
        party = PARTIES[values.pop("party")] if self.has_parties else None
        key = values.pop("callId", None) or _without_party(path, subject, match)
        try:
            fields = {name: _value(name, value) for name, value in values.items()}
            if self._time_format is not None:
                times = [value for name, value in match.groupdict().items() if name.startswith("startTime")]
                fields["startTime"] = self._moment("\n".join(times)).isoformat()
        except ValueError:  # no such day, or no UUID
            return None
        return NamedCall(key, {name: value for name, value in fields.items() if value is not None}, party)

    def _moment(self, text: str) -> datetime:
        assert self._time_format is not None
        if self._time_format == f"%{EPOCH}":
            return datetime.fromtimestamp(int(text), self.zone).astimezone(self.zone)
        moment = datetime.strptime(text, self._time_format)
        if moment.tzinfo is not None:
            return moment
        return moment.replace(tzinfo=self.zone) if self.zone else moment.astimezone()


def _check_part(name: str, time_format: str, earlier: set[str]) -> None:
    if name not in PARTS:
        names = {part.lower(): part for part in PARTS} | OTHER_NAMES
        near = get_close_matches(name.lower(), names, n=1)
        hint = f"Did you mean {{{names[near[0]]}}}?" if near else f"Parts: {', '.join(PARTS)}."
        raise PatternInvalid(f"{{{name}}} is not a part. {hint}")
    if name == "startTime":
        if not time_format:
            raise PatternInvalid("{startTime} needs a format: {startTime:%Y%m%d-%H%M%S}.")
        return
    if time_format:
        raise PatternInvalid(f"{{{name}}} has no format; only startTime has one.")
    if name in earlier:
        raise PatternInvalid(f"{{{name}}} appears twice. Write * for one of them.")


def _time_regex(time_format: str) -> str:
    regex, end = "", 0
    for directive in _DIRECTIVE.finditer(time_format):
        if directive[1] not in DIRECTIVES:
            names = ", ".join(f"%{name}" for name in DIRECTIVES)
            raise PatternInvalid(f"%{directive[1]} is not a directive of startTime. Directives: {names}.")
        regex += re.escape(time_format[end : directive.start()]) + DIRECTIVES[directive[1]]
        end = directive.end()
    if not end:
        raise PatternInvalid("The format of startTime has no directive, such as %Y%m%d-%H%M%S.")
    if f"%{EPOCH}" in time_format and time_format != f"%{EPOCH}":
        raise PatternInvalid("%s, seconds since 1970, is a whole time: write {startTime:%s}.")
    return regex + re.escape(time_format[end:])


def _without_party(path: str, subject: str, match: re.Match[str]) -> str:
    """Return the path, equal for both files of a call."""
    if "party" not in match.re.groupindex:
        return path
    start, end = (len(path) - len(subject) + at for at in match.span("party"))
    return f"{path[:start]}*{path[end:]}"


def _value(name: str, text: str) -> Any:
    """Return the value of a part as /submit takes it; None for a direction that is neither. Raises ValueError."""
    if name == "outgoing":
        return DIRECTIONS.get(text.lower())
    if name == "duration":
        return int(text)
    return str(UUID(text)) if name in ("userId", "teamId") else text
