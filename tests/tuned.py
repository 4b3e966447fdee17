"""Options with other constants than their own: what no setting turns, tests may."""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

Options = TypeVar("Options", bound=BaseModel)


def tuned(kind: type[Options], **values: Any) -> Options:
    """Options of a kind; a value that is no field replaces the constant of that name (`poll_seconds`: POLL_SECONDS)."""
    constants = {name.upper(): value for name, value in values.items() if name not in kind.model_fields}
    if not constants:
        return kind(**values)
    assert constants.keys() <= vars(kind).keys(), f"{kind.__name__} has no {constants.keys() - vars(kind).keys()}"
    annotations = dict.fromkeys(constants, ClassVar[Any])
    subclass = type(
        kind.__name__, (kind,), {"__module__": kind.__module__, "__annotations__": annotations, **constants}
    )
    return subclass(**{name: value for name, value in values.items() if name in kind.model_fields})
