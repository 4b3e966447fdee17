"""`switchboard credentials`: what a workspace shows to recording servers. Secrets are stored sealed and never shown."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from db.secrets import credentials
from db.secrets.credentials import CredentialUnfit, NewCredential, Server
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.cli.ui.output import moment
from serve_app.cli.ui.resource import Answer, Group, Home, listing
from serve_app.settings import Settings

if TYPE_CHECKING:
    from db.secrets.credentials import CredentialInfo

UNSEALED = (
    "It is stored unsealed: set SWITCHBOARD_SECRETS_KEYS (`openssl rand -base64 32` makes a key), then "
    "`switchboard credentials reseal`."
)


def _server(text: str) -> Server:
    """Return the server as the fetcher knows it: what no URL can name would never be used."""
    from pipeline.errors import AddressForbidden
    from pipeline.fetch.address import AddressGuard

    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, "443"
    try:
        target = AddressGuard(ports=("1-65535",)).check(f"https://{host}:{int(port)}/")
    except (AddressForbidden, ValueError):
        hint = "Give a host name or address, optionally with a port: pbx.example:8443."
        raise CommandError(f"{text!r} is not a host.", hint, USAGE) from None
    return Server(target.host, target.port)


def _of_variable(name: str) -> str:
    if not os.environ.get(name):
        raise CommandError(f"The variable {name} is not set.", "", USAGE)
    return os.environ[name]


Host = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="Exactly this server; without a port 443. No wildcards.")
]

app = Group(
    """Credentials of recording servers: one for each server of a workspace.

    They are sent to exactly that host and port, over https (or to a host on SWITCHBOARD_FETCH__ALLOWED_HOSTS), and
    never along a redirect to another server.

    Examples:

      switchboard credentials add pbx.example --bearer

      switchboard credentials add pbx.example:8443 --user recordings < password.txt

      switchboard credentials list

      switchboard credentials remove pbx.example
""",
    {CredentialUnfit: ("", USAGE)},
)


def _has_kind(given: set[str]) -> bool:
    if len(given & {"user", "bearer", "header"}) != 1:
        raise CommandError("Which kind of credential is it?", "Give one of --user, --bearer and --header.", USAGE)
    return True


@app.checked(_has_kind)
async def add(
    home: Home,
    host: Host,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Basic: the user; the secret is the password.")
    ] = None,
    bearer: Annotated[bool, typer.Option("--bearer", help="Bearer: the secret is the token.")] = False,
    header: Annotated[
        str | None, typer.Option(metavar="NAME", help="A custom header, such as X-Api-Key; the secret is its value.")
    ] = None,
    secret_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            parser=_of_variable,
            help="Read the secret from this variable.",
            show_default="prompt, or stdin",
        ),
    ] = None,
) -> Answer:
    """Store a credential; it replaces the one that the server had.

    The secret is asked for, read from standard input where that is no terminal, or taken from a variable of the
    environment; it is no argument, for those are seen by others and kept by shells.

    Examples:

      switchboard credentials add pbx.example --bearer --secret-env PBX_TOKEN

      switchboard credentials add pbx.example --header X-Api-Key
    """
    server = _server(host)
    kind: Literal["basic", "bearer", "header"] = "basic" if user else "bearer" if bearer else "header"
    new = NewCredential(kind, user or header, secret_env or _read_secret())
    # The database is open by now: the sealer's key is made in its folder, and none where a command is refused.
    sealer = Settings().sealer()
    replaced = await credentials.put(home.database, home.id, server, new, sealer)
    return Answer(
        {"host": server.host, "port": server.port, "kind": kind, "replaced": replaced},
        f"{'Replaced' if replaced else 'Stored'} the credential of {server.host}, port {server.port} ({kind}).",
        warnings=() if sealer.seals else (UNSEALED,),
    )


@app.reads()
async def list_(home: Home) -> Answer:
    """List the servers that have a credential. Secrets are not shown.

    Example:

      switchboard credentials list --workspace acme
    """
    sealer = Settings().sealer()

    def cells(one: "CredentialInfo") -> tuple[str, ...]:
        sealed = "no" if not sealer.seals else "yes" if one.fresh else "reseal"
        return one.server.host, str(one.server.port), one.kind, sealed, moment(one.created_at), one.name or ""

    return listing(
        await credentials.list_credentials(home.database, home.id, sealer),
        ("!host", "#port", "!kind", "!sealed", "!stored", "name"),
        cells,
        "No credentials yet: `switchboard credentials add HOST` stores one.",
    )


@app.writes()
async def remove(home: Home, host: Host) -> Answer:
    """Remove the credential of a server; the next request is sent without one.

    Example:

      switchboard credentials remove pbx.example:8443
    """
    server = _server(host)
    removed = await credentials.remove(home.database, home.id, server)
    return Answer(
        {"host": server.host, "port": server.port, "removed": removed},
        f"Removed the credential of {server.host}, port {server.port}." if removed else (),
        warnings=() if removed else (f"{server.host}, port {server.port}, has no credential.",),
        failed=not removed,
    )


@app.writes()
async def reseal(home: Home) -> Answer:
    """Seal stored credentials with the first of SWITCHBOARD_SECRETS_KEYS, after it was set or replaced.

    Example:

      switchboard credentials reseal
    """
    changed = await credentials.reseal(home.database, home.id, Settings().sealer())
    return Answer({"resealed": changed}, f"{changed} resealed.")


def _read_secret() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Secret", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
