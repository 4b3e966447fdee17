"""What a route of the API is."""

from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from db.workspace.admin_log import ADMIN
from serve_app.api.access import Handler
from serve_app.api.queries import QueryParameters
from serve_app.http.auth import EDIT, READ


@dataclass(frozen=True, slots=True)
class Route:
    """One path and method. `answer`: what JSON it answers with; `media`: what else; `body`: what JSON it takes.

    What is read needs a key with the scope `read`, what is written one with `edit`; with `admin`, that scope alone.
    """

    path: str
    handler: Handler
    query: type[QueryParameters]
    summary: str
    answer: Any = None
    media: tuple[str, ...] = ()
    lasts: bool = False
    method: str = "GET"
    body: Any = None
    admin: bool = False
    named: str | None = None

    @property
    def name(self) -> str:
        """The operation, as its handler is called unless it is `named`: listCalls."""
        return self.named or to_camel(self.handler.__name__)

    @property
    def scope(self) -> str:
        """That a key needs."""
        if self.admin:
            return ADMIN
        return READ if self.method == "GET" else EDIT
