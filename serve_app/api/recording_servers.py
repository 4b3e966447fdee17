from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator
from starlette.responses import Response

from db.core.pages import Page
from db.secrets import credentials
from db.secrets.credentials import CredentialInfo, CredentialUnfit, Kind, NewCredential, Server
from db.workspace import settings
from serve_app.api.access import ApiRequest, admin_route, answer_with, json_answer
from serve_app.api.bodies import Text, read_admin_body
from serve_app.api.errors import AdminBodyRefused, NoSuchObject
from serve_app.api.queries import NoQuery
from serve_app.http.json_body import Body, Fault

Reading = ApiRequest[NoQuery]
Secret = Annotated[str, Field(min_length=1, max_length=10_000, description="Never returned.", repr=False)]


class CredentialBody(Body):
    """A credential for exactly one recording server; it replaces an earlier one."""

    host: Annotated[str, Field(pattern=r"^[a-z0-9.:\[\]-]{1,253}$", description="Host as in its URLs, in lower case.")]
    port: int = Field(443, ge=1, le=65535, description="Port of its URLs.")
    kind: Kind = Field(description="basic: user and password; bearer: a token; header: another header.")
    name: Text | None = Field(None, description="The user of basic, the header of header; unset for bearer.")
    secret: Secret

    @model_validator(mode="after")
    def _complete(self) -> "CredentialBody":
        if (self.name is None) is not (self.kind == "bearer"):
            raise ValueError("name is required for basic and header, and must be unset for bearer")
        return self


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts in a private network that recordings are fetched from and events are sent to; set by the operator."""

    hosts: tuple[str, ...]


async def list_hosts(reading: Reading) -> Response:
    reading.require_workspace_key("the hosts")
    return json_answer(reading, Hosts(await settings.allowed_hosts(reading.database, reading.home)))


async def list_credentials(reading: Reading) -> Response:
    reading.require_workspace_key("credentials")
    sealer = reading.tools.sealer
    return json_answer(reading, Page(tuple(await credentials.list_credentials(reading.database, reading.home, sealer))))


async def set_credential(writing: Reading) -> Response:
    writing.require_workspace_key("credentials")
    body = await read_admin_body(writing.request, CredentialBody)
    server, new = Server(body.host, body.port), NewCredential(body.kind, body.name, body.secret)
    try:
        await credentials.put(writing.database, writing.home, server, new, writing.tools.sealer)
    except CredentialUnfit as error:
        raise AdminBodyRefused([Fault("/secret", str(error))]) from None
    return answer_with(await _credential(writing, server), 201)


async def delete_credential(writing: Reading) -> Response:
    writing.require_workspace_key("credentials")
    server = Server(writing.request.path_params["host"], writing.request.path_params["port"])
    credential = await _credential(writing, server)
    await credentials.remove(writing.database, writing.home, server)
    return answer_with(credential)


async def _credential(reading: Reading, server: Server) -> CredentialInfo:
    for credential in await credentials.list_credentials(reading.database, reading.home, reading.tools.sealer):
        if credential.server == server:
            return credential
    raise NoSuchObject


ROUTES = (
    admin_route("GET", "/hosts", list_hosts, "List hosts in your network that the service may reach", Hosts),
    admin_route(
        "GET",
        "/credentials",
        list_credentials,
        "List credentials of recording servers, without secrets",
        Page[CredentialInfo],
    ),
    admin_route(
        "POST",
        "/credentials",
        set_credential,
        "Set the credential of a recording server",
        CredentialInfo,
        CredentialBody,
    ),
    admin_route(
        "DELETE",
        "/credentials/{host}/{port:int}",
        delete_credential,
        "Delete the credential of a recording server",
        CredentialInfo,
    ),
)
