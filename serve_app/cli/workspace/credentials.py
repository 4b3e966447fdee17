"""`switchboard credentials`: what a workspace shows to recording servers. Secrets are stored sealed and never shown."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.ui import lookup
from serve_app.cli.ui.errors import FAILED, USAGE, CommandError
from serve_app.cli.ui.output import Json, command_group, err, moment, out, print_json, print_list, say

if TYPE_CHECKING:
    from db.secrets.credentials import CredentialInfo, Server

Host = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="Exactly this server; without a port 443. No wildcards.")
]

app = command_group("""Credentials of recording servers: one for each server of a workspace.

    They are sent to exactly that host and port, over https (or to a host on SWITCHBOARD_FETCH__ALLOWED_HOSTS), and
    never along a redirect to another server.

    Examples:

      switchboard credentials add pbx.example --bearer

      switchboard credentials add pbx.example:8443 --user recordings < password.txt

      switchboard credentials list

      switchboard credentials remove pbx.example
""")


@app.command()
def add(
    host: Host,
    workspace: lookup.Workspace = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Basic: the user; the secret is the password.")
    ] = None,
    bearer: Annotated[bool, typer.Option("--bearer", help="Bearer: the secret is the token.")] = False,
    header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A custom header, such as X-Api-Key; the secret is its value."),
    ] = None,
    secret_env: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="Read the secret from this variable.", show_default="prompt, or stdin"),
    ] = None,
    json_: Json = False,
) -> None:
    """Store a credential; it replaces the one that the server had.

    The secret is asked for, read from standard input where that is no terminal, or taken from a variable of the
    environment; it is no argument, for those are seen by others and kept by shells.

    Examples:

      switchboard credentials add pbx.example --bearer --secret-env PBX_TOKEN

      switchboard credentials add pbx.example --header X-Api-Key
    """
    from db.secrets.credentials import CredentialUnfit, NewCredential, put
    from serve_app.settings import Settings

    if sum((user is not None, bearer, header is not None)) != 1:
        raise CommandError("Which kind of credential is it?", "Give one of --user, --bearer and --header.", USAGE)
    server = _server(host)
    new = NewCredential("basic" if user else "bearer" if bearer else "header", user or header, _secret(secret_env))
    try:
        # The database first: the sealer's key is made in its folder, and none where a command is refused.
        replaced = lookup.run(
            workspace,
            lambda database, home: put(database, home.workspace_id, server, new, Settings().sealer()),
            writes=True,
        )
    except CredentialUnfit as error:
        raise CommandError(str(error), "", USAGE) from None
    told = f"{'Replaced' if replaced else 'Stored'} the credential of {server.host}, port {server.port} ({new.kind})."
    say(told, {"host": server.host, "port": server.port, "kind": new.kind, "replaced": replaced}, json_)
    if not Settings().sealer().seals:
        err().print(
            "It is stored unsealed: set SWITCHBOARD_SECRETS_KEYS (`openssl rand -base64 32` makes a key), then "
            "`switchboard credentials reseal`.",
            style="yellow",
        )


@app.command("list")
def list_(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """List the servers that have a credential. Secrets are not shown.

    Example:

      switchboard credentials list --workspace acme
    """
    from db.secrets.credentials import list_credentials
    from serve_app.settings import Settings

    found = lookup.run(
        workspace, lambda database, home: list_credentials(database, home.workspace_id, Settings().sealer())
    )
    sealer = Settings().sealer()

    def row(one: "CredentialInfo") -> tuple[str, ...]:
        sealed = "no" if not sealer.seals else "yes" if one.fresh else "reseal"
        return one.server.host, str(one.server.port), one.kind, sealed, moment(one.created_at), one.name or ""

    columns = ("!host", "#port", "!kind", "!sealed", "!stored", "name")
    print_list(found, json_, columns, row, "No credentials yet: `switchboard credentials add HOST` stores one.")


@app.command()
def remove(host: Host, workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Remove the credential of a server; the next request is sent without one.

    Example:

      switchboard credentials remove pbx.example:8443
    """
    from db.secrets import credentials

    server = _server(host)
    removed = lookup.run(
        workspace, lambda database, home: credentials.remove(database, home.workspace_id, server), writes=True
    )
    if json_:
        print_json({"host": server.host, "port": server.port, "removed": removed})
    elif removed:
        out().print(f"Removed the credential of {server.host}, port {server.port}.", markup=False)
    if not removed:
        err().print(f"{server.host}, port {server.port}, has no credential.", markup=False)
        raise typer.Exit(FAILED)


@app.command()
def reseal(workspace: lookup.Workspace = None, json_: Json = False) -> None:
    """Seal stored credentials with the first of SWITCHBOARD_SECRETS_KEYS, after it was set or replaced.

    Example:

      switchboard credentials reseal
    """
    from db.secrets import credentials
    from serve_app.settings import Settings

    changed = lookup.run(
        workspace,
        lambda database, home: credentials.reseal(database, home.workspace_id, Settings().sealer()),
        writes=True,
    )
    say(f"{changed} resealed.", {"resealed": changed}, json_)


def _server(named: str) -> "Server":
    """The server as the fetcher knows it: what no URL could name would never be used."""
    from db.secrets.credentials import Server
    from pipeline.errors import AddressForbidden
    from pipeline.fetch.address import AddressGuard

    host, colon, port = named.rpartition(":") if not named.endswith("]") else (named, "", "")
    if not colon:
        host, port = named, "443"
    try:
        target = AddressGuard(ports=("1-65535",)).check(f"https://{host}:{int(port)}/")
    except (AddressForbidden, ValueError):
        raise CommandError(
            f"{named!r} is not a host.", "Give a host name or address, optionally with a port: pbx.example:8443.", USAGE
        ) from None
    return Server(target.host, target.port)


def _secret(variable: str | None) -> str:
    if variable is not None:
        if not os.environ.get(variable):
            raise CommandError(f"The variable {variable} is not set.", "", USAGE)
        return os.environ[variable]
    if sys.stdin.isatty():
        return str(typer.prompt("Secret", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
