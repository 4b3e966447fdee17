from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from db.workspace.admin_log import ADMIN
from serve_app.api.access import Handler
from serve_app.api.queries import QueryParameters
from serve_app.http.auth import EDIT, READ
from serve_app.http.options import Work


@dataclass(frozen=True, slots=True)
class Route:
    """A path and method. `answer`: type of the JSON response; `media`: other media types; `body`: type of the body.

    `work`: whose places it takes. Reads need the scope `read`, writes `edit`; with `admin`, only the scope `admin` is
    accepted.
    """

    path: str
    handler: Handler
    query: type[QueryParameters]
    summary: str
    answer: Any = None
    media: tuple[str, ...] = ()
    work: Work = Work.READ
    method: str = "GET"
    body: Any = None
    admin: bool = False
    operation: str | None = None

    @property
    def name(self) -> str:
        """The operation id, by default the name of the handler in camelCase: listCalls."""
        return self.operation or to_camel(self.handler.__name__)

    @property
    def scope(self) -> str:
        """The required scope."""
        if self.admin:
            return ADMIN
        return READ if self.method == "GET" else EDIT
