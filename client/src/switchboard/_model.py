"""What every model has in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from switchboard.submission import WIRE_NAMES


def _wire_name(name: str) -> str:
    return WIRE_NAMES.get(name) or to_camel(name)


class Model(BaseModel):
    """Part of an answer, immutable. What a newer service adds is in `model_extra`; names are camelCase over HTTP."""

    model_config = ConfigDict(alias_generator=_wire_name, populate_by_name=True, extra="allow", frozen=True)
