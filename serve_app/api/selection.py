from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pipeline.domain.speech import FOR_OPERATORS
from serve_app.api.errors import InvalidQuery
from serve_app.http.camel_json import camel
from serve_app.http.json_body import Fault, unknown_name


def check_fields(paths: Sequence[str], kind: type) -> None:
    """Raise `InvalidQuery` if one of the paths is no field of a dataclass."""
    faults = [fault for path in paths if (fault := _fault(path, kind))]
    if faults:
        raise InvalidQuery([Fault("/fields", f"fields: {fault}") for fault in faults])


def _fault(path: str, kind: Any) -> str | None:
    for name in path.split("."):
        names = _fields(kind)
        if names is None:  # the keys are data
            return None
        if name not in names:
            return f"{unknown_name('field', name, names)} Fields are: {', '.join(names) or 'none'}."
        kind = names[name]
    return None


@cache
def _fields(kind: Any) -> dict[str, Any] | None:
    """Return the types of the fields of a dataclass, or of the items of a list, by name; None: any key is accepted."""
    if get_origin(kind) in (Union, UnionType):
        (kind, *others) = [part for part in get_args(kind) if part is not type(None)]
        return None if others else _fields(kind)
    if get_origin(kind) is tuple:
        return _fields(get_args(kind)[0])
    if kind is Any or (isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)):
        return None
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    shown = {name: hint for name, hint in hints.items() if FOR_OPERATORS not in getattr(hint, "__metadata__", ())}
    return {camel(name): get_args(hint)[0] if get_origin(hint) is Annotated else hint for name, hint in shown.items()}


def select(shown: Any, paths: Sequence[str]) -> Any:
    """Return the parts of a JSON value at the paths, with their order; in lists, those of every item."""
    if isinstance(shown, list):
        return [select(item, paths) for item in shown]
    if not isinstance(shown, dict):
        return shown
    inner: dict[str, list[str]] = {}
    for path in paths:
        name, _, rest = path.partition(".")
        inner.setdefault(name, []).append(rest)
    return {
        name: value if "" in inner[name] else select(value, inner[name])
        for name, value in shown.items()
        if name in inner
    }
