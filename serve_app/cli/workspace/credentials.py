import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db.secrets import credentials, rotate
from db.secrets.credentials import CredentialUnfit, NewCredential, Server
from serve_app.cli.ui import resealing
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Group, Result, Scope, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.core.database import Database
    from db.secrets.credentials import CredentialInfo

UNSEALED = (
    "It is stored unsealed: set SWITCHBOARD_SECRETS_KEYS (`openssl rand -base64 32` creates a key), then "
    "`switchboard credentials reseal`."
)


def _server(text: str) -> Server:
    """Return the server as normalized by the fetcher. Raises `CommandError` if no URL can have this host."""
    from pipeline.errors import AddressForbidden
    from pipeline.fetch.address import AddressGuard

    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, "443"
    try:
        target = AddressGuard(ports=("1-65535",)).check(f"https://{host}:{int(port)}/")
    except (AddressForbidden, ValueError):
        hint = "Write a host name or address, optionally with a port: pbx.example:8443."
        raise CommandError(f"{text!r} is not a host.", hint, USAGE) from None
    return Server(target.host, target.port)


def _read_variable(name: str) -> str:
    if not os.environ.get(name):
        raise CommandError(f"The variable {name} is not set.", "", USAGE)
    return os.environ[name]


Host = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="The exact server; the default port is 443. No wildcards.")
]

app = Group(
    """Credentials of recording servers: one for each server of a workspace.

    They are sent only to that host and port, over https (or to a host of SWITCHBOARD_FETCH__ALLOWED_HOSTS), and never
    after a redirect to another server.
""",
    {CredentialUnfit: ("", USAGE)},
)


def _require_kind(present: set[str]) -> bool:
    if len(present & {"user", "bearer", "header"}) != 1:
        raise CommandError("The kind of credential is unclear.", "Use one of --user, --bearer and --header.", USAGE)
    return True


User = Annotated[str | None, typer.Option(metavar="NAME", help="Basic: the user; the secret is the password.")]
Header = Annotated[
    str | None, typer.Option(metavar="NAME", help="A custom header, such as X-Api-Key; the secret is its value.")
]
SecretFrom = Annotated[
    str | None,
    typer.Option(
        metavar="VARIABLE",
        parser=_read_variable,
        help="Read the secret from this variable.",
        show_default="prompt, or stdin",
    ),
]


@app.checked(_require_kind)
async def add(
    scope: Scope,
    host: Host,
    user: User = None,
    bearer: Annotated[bool, typer.Option("--bearer", help="Bearer: the secret is the token.")] = False,
    header: Header = None,
    secret_env: SecretFrom = None,
) -> Result:
    """Store a credential; it replaces an existing one of the server.

    The secret is prompted for, or read from standard input without a terminal, or from an environment variable. It is
    not an argument, since other users can see arguments and shells record them.

    Examples:

      switchboard credentials add pbx.example --bearer --secret-env PBX_TOKEN

      switchboard credentials add pbx.example --header X-Api-Key
    """
    server = _server(host)
    kind: Literal["basic", "bearer", "header"] = "basic" if user else "bearer" if bearer else "header"
    new = NewCredential(kind, user or header, secret_env or _read_secret())
    # Only now: the sealer creates a key in the data folder, which a rejected command must not do.
    sealer = Settings().sealer()
    replaced = await credentials.put(scope.database, scope.id, server, new, sealer)
    return Result(
        {"host": server.host, "port": server.port, "kind": kind, "replaced": replaced},
        f"{'Replaced' if replaced else 'Stored'} the credential of {server.host}, port {server.port} ({kind}).",
        warnings=() if sealer.seals else (UNSEALED,),
    )


@app.reads()
async def list_(scope: Scope) -> Result:
    """List the servers that have a credential. Secrets are not shown."""
    sealer = Settings().sealer()

    def cells(info: "CredentialInfo") -> tuple[str, ...]:
        sealed = "no" if not sealer.seals else "yes" if info.fresh else "reseal"
        return info.server.host, str(info.server.port), info.kind, sealed, moment(info.created_at), info.name or ""

    return listing(
        await credentials.list_credentials(scope.database, scope.id, sealer),
        ("!host", "#port", "!kind", "!sealed", "!stored", "name"),
        cells,
        "No credentials yet: `switchboard credentials add HOST` stores one.",
    )


@app.writes()
async def remove(scope: Scope, host: Host) -> Result:
    """Remove the credential of a server; the next request is sent without one."""
    server = _server(host)
    removed = await credentials.remove(scope.database, scope.id, server)
    return Result(
        {"host": server.host, "port": server.port, "removed": removed},
        f"Removed the credential of {server.host}, port {server.port}." if removed else (),
        warnings=() if removed else (f"{server.host}, port {server.port}, has no credential.",),
        failed=not removed,
    )


@app.writes()
async def reseal(database: "Database") -> Result:
    """Seal the credentials of all workspaces with the first of SWITCHBOARD_SECRETS_KEYS.

    Example:

      SWITCHBOARD_SECRETS_KEYS=NEW,OLD switchboard credentials reseal
    """
    return await resealing.reseal(database, rotate.CREDENTIALS, "credential", "`credentials add` replaces them")


def _read_secret() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Secret", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
