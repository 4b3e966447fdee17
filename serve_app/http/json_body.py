"""From the bytes of a request to one JSON object, more strictly than Python's json module reads.

Refused: invalid UTF-8, NaN and Infinity, numbers no database keeps, NUL, lone surrogates, deep nesting, repeated keys.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

MAX_DEPTH = 32
MAX_DIGITS = 1000

_CANNOT_BE_KEPT = re.compile("[\0\ud800-\udfff]")  # PostgreSQL stores neither NUL nor half a surrogate pair


class Fault(NamedTuple):
    """One fault of a body. `pointer` is a JSON Pointer to a known field, or "" for the body as a whole."""

    pointer: str
    detail: str


class InvalidBody(Exception):
    """The body breaks at least one rule."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


@dataclass(slots=True)
class _Repeated:
    """An object in which keys were repeated, and which."""

    where: dict[str, Any]
    keys: list[str]


def read_object(raw: bytes, known: frozenset[str]) -> tuple[dict[str, Any], list[Fault]]:
    """The JSON object in `raw`, with the faults that leave it readable (repeated keys, characters that cannot be kept).

    `known`: the keys that a fault may name. Raises `InvalidBody` when there is no object to look into.
    """
    repeated: list[_Repeated] = []
    try:
        root = _decode(raw, _STRICT)
    except _RepeatedKey:
        root = _decode(raw, _decoder(partial(_noting, repeated)))
    if not isinstance(root, dict):
        raise InvalidBody([Fault("", "The body must be a JSON object.")])
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:  # fewer cannot be nested deeper
        _check_depth(root)
    faults = [fault for one in repeated for fault in _repeated_faults(one, root, known)]
    if b"\\u" in raw:  # only an escape can bring a NUL or half a surrogate pair past the decoder
        faults += _character_faults(root, known)
    return root, list(dict.fromkeys(faults))


class _RepeatedKey(Exception):
    """Some object of the body has a key twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RepeatedKey
    return made


def _noting(repeated: list[_Repeated], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated.append(_Repeated(made, [name for name, count in counts.items() if count > 1]))
    return made


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
    raise InvalidBody([Fault("", "The body is not valid JSON: NaN and Infinity are not numbers there.")])


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidBody([Fault("", f"The body holds a number of more than {MAX_DIGITS} digits.")])
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidBody([Fault("", "The body holds a number that is too large to keep.")])
    return number


def _decoder(make_object: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=make_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
    )


_STRICT = _decoder(_once)  # made once; bodies with repeated keys are read again by one that notes them


def _repeated_faults(one: _Repeated, root: dict[str, Any], known: frozenset[str]) -> list[Fault]:
    if one.where is not root:
        return [Fault("", "A key is repeated in an object within the body.")]
    faults = [Fault(f"/{name}", f"{name} is given more than once.") for name in one.keys if name in known]
    if any(name not in known for name in one.keys):
        faults.append(Fault("", "A key that is not a field of a submission is given more than once."))
    return faults


def _character_faults(root: dict[str, Any], known: frozenset[str]) -> list[Fault]:
    faults = []
    for key, value in root.items():
        named = key in known
        broken = _cannot_be_kept(value) or (not named and _cannot_be_kept(key))
        if broken:
            where = key if named else "A key or value of the body"
            sentence = f"{where} holds a NUL character or half of a surrogate pair."
            faults.append(Fault(f"/{key}" if named else "", sentence))
    return faults


def _cannot_be_kept(value: Any) -> bool:
    """Whether PostgreSQL would refuse a string somewhere in `value`."""
    if isinstance(value, str):
        return _CANNOT_BE_KEPT.search(value) is not None
    if isinstance(value, dict):
        return any(_cannot_be_kept(key) or _cannot_be_kept(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(_cannot_be_kept(inner) for inner in value)
    return False


def _check_depth(root: dict[str, Any]) -> None:
    """Level by level, so that the check itself needs no stack."""
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


class Body(BaseModel):
    """Known fields only. `MAY_BE_NULL`: those in which null says something."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True, populate_by_name=True)
    MAY_BE_NULL: ClassVar[frozenset[str]] = frozenset()

    def given(self) -> dict[str, Any]:
        """What was sent, by the names of our fields."""
        return {name: getattr(self, name) for name in self.model_fields_set}
