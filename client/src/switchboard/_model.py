from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from switchboard.submission import WIRE_NAMES


def _wire_name(name: str) -> str:
    return WIRE_NAMES.get(name) or to_camel(name)


class Model(BaseModel):
    """Immutable base of all models. `model_extra` has fields of newer services; names are camelCase over HTTP."""

    model_config = ConfigDict(alias_generator=_wire_name, populate_by_name=True, extra="allow", frozen=True)
