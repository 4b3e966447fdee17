"""Strict parsing of a JSON object.

Rejected: invalid UTF-8, NaN and Infinity, numbers out of range, NUL, lone surrogates, deep nesting, repeated keys.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from rapidfuzz import fuzz, process

MAX_DEPTH = 32
MAX_DIGITS = 1000
MAX_NAME_CHARACTERS = 40
_WORD = re.compile(f"[A-Za-z_]{{1,{MAX_NAME_CHARACTERS}}}")

_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")  # PostgreSQL stores neither NUL nor half a surrogate pair


class Fault(NamedTuple):
    """A fault of a body. `pointer`: JSON Pointer to a known field, or "" for the whole body."""

    pointer: str
    detail: str


class InvalidBody(Exception):
    """The body is invalid."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


@dataclass(slots=True)
class _Repeated:
    """An object with repeated keys."""

    where: dict[str, Any]
    keys: list[str]


def read_object(raw: bytes, names: frozenset[str]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the JSON object in `raw` with recoverable faults (repeated keys, characters that cannot be stored).

    `names`: keys that a fault may contain. Raises `InvalidBody` if there is no readable object.
    """
    repeated: list[_Repeated] = []
    try:
        root = _decode(raw, _STRICT)
    except _RepeatedKey:
        root = _decode(raw, _decoder(partial(_noting, repeated)))
    if not isinstance(root, dict):
        raise InvalidBody([Fault("", "The body must be a JSON object.")])
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:  # fewer brackets cannot nest deeper
        _check_depth(root)
    faults = [fault for item in repeated for fault in _repeated_faults(item, root, names)]
    if b"\\u" in raw:  # only an escape can pass a NUL or lone surrogate through the decoder
        faults += _character_faults(root, names)
    return root, list(dict.fromkeys(faults))


class _RepeatedKey(Exception):
    """An object of the body has a repeated key."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedKey
    return members


def _noting(repeated: list[_Repeated], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated.append(_Repeated(members, [name for name, count in counts.items() if count > 1]))
    return members


def _decode(raw: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidBody([Fault("", f"The body is not valid UTF-8 (byte {error.start}).")]) from None
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidBody([Fault("", f"The body is not valid JSON ({place}).")]) from None
    except RecursionError:
        raise InvalidBody([_TOO_DEEP]) from None


_TOO_DEEP = Fault("", f"The body is nested more than {MAX_DEPTH} levels deep.")


def _constant(_: str) -> NoReturn:
    raise InvalidBody([Fault("", "The body is not valid JSON: NaN and Infinity are not allowed.")])


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidBody([Fault("", f"The body has a number of more than {MAX_DIGITS} digits.")])
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidBody([Fault("", "The body has a number that is too large.")])
    return number


def _decoder(make_object: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=make_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
    )


_STRICT = _decoder(_once)  # bodies with repeated keys are parsed again with a decoder that records them


def _repeated_faults(repetition: _Repeated, root: dict[str, Any], names: frozenset[str]) -> list[Fault]:
    if repetition.where is not root:
        return [Fault("", "An object in the body has a repeated key.")]
    faults = [Fault(f"/{name}", f"{name} is repeated.") for name in repetition.keys if name in names]
    if any(name not in names for name in repetition.keys):
        faults.append(Fault("", "An unknown field is repeated."))
    return faults


def _character_faults(root: dict[str, Any], names: frozenset[str]) -> list[Fault]:
    faults = []
    for key, value in root.items():
        is_field = key in names
        broken = _is_not_storable(value) or (not is_field and _is_not_storable(key))
        if broken:
            where = key if is_field else "A key or value in the body"
            sentence = f"{where} contains a NUL character or a lone surrogate."
            faults.append(Fault(f"/{key}" if is_field else "", sentence))
    return faults


def _is_not_storable(value: Any) -> bool:
    """Return whether `value` contains a string that PostgreSQL rejects."""
    if isinstance(value, str):
        return _NOT_STORABLE.search(value) is not None
    if isinstance(value, dict):
        return any(_is_not_storable(key) or _is_not_storable(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(_is_not_storable(inner) for inner in value)
    return False


def _check_depth(root: dict[str, Any]) -> None:
    """Check level by level, without recursion."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidBody([_TOO_DEEP])


def closest(sent: str, names: Collection[str]) -> str | None:
    """Return the name that is most similar to `sent`, whatever its case and punctuation; None if none is."""
    if len(sent) > MAX_NAME_CHARACTERS:
        return None
    squeezed = {name.lower(): name for name in names}
    text = "".join(letter for letter in sent.lower() if letter.isalnum())
    match = process.extractOne(text, squeezed.keys(), scorer=fuzz.ratio, score_cutoff=75)
    return squeezed[match[0]] if match else None


def unknown_name(kind: str, sent: str, names: Collection[str]) -> str:
    """Return the sentences about a parameter or field that does not exist.

    A name that is not a plain word is left out: it may be personal data in the wrong place.
    """
    name = f" {sent}" if _WORD.fullmatch(sent) else ""
    near = closest(sent, names)
    return f"Unknown {kind}{name}." + (f" Did you mean {near}?" if near else "")


class Body(BaseModel):
    """A strict body. `MAY_BE_NULL`: fields in which null is a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True, populate_by_name=True)
    MAY_BE_NULL: ClassVar[frozenset[str]] = frozenset()

    def sent_fields(self) -> dict[str, Any]:
        """Return the fields that were sent, by attribute name."""
        return {name: getattr(self, name) for name in self.model_fields_set}
