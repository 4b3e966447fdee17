import asyncio
from typing import Any

import pytest
from cryptography.fernet import Fernet
from typer.testing import CliRunner

from db.secrets import credentials, rotate
from db.secrets.credentials import CredentialUnfit, NewCredential, Server
from db.secrets.encryption import Sealer, SecretSealed
from db.workspace import directory
from serve_app.cli import app
from tests.postgres import World

KEYS = [Fernet.generate_key().decode() for _ in range(2)]
PBX = Server("pbx.example", 8443)


async def put(world: World, new: NewCredential, sealer: Sealer | None = None) -> bool:
    return await credentials.put(world.database, world.workspace_id, PBX, new, sealer or Sealer(KEYS[:1]))


async def test_a_credential_is_found_for_its_server_and_workspace_only(world: World) -> None:
    sealer = Sealer(KEYS[:1])
    assert not await put(world, NewCredential("bearer", None, "old"))
    assert await put(world, NewCredential("bearer", None, "hush"))
    credential = await credentials.find(world.database, world.workspace_id, sealer, "pbx.example", 8443)
    assert credential is not None
    assert (credential.header, credential.value) == ("Authorization", "Bearer hush")
    other = await directory.create_workspace(world.database, "Other")
    for workspace, host, port in (
        (world.workspace_id, "pbx.example", 443),
        (world.workspace_id, "sub.pbx.example", 8443),
        (world.workspace_id, "example", 8443),
        (other.workspace_id, "pbx.example", 8443),
    ):
        assert await credentials.find(world.database, workspace, sealer, host, port) is None
    assert await credentials.remove(world.database, world.workspace_id, PBX)
    assert not await credentials.remove(world.database, world.workspace_id, PBX)


@pytest.mark.parametrize(
    ("new", "header", "value"),
    [
        (NewCredential("basic", "Aladdin", "open sesame"), "Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        (NewCredential("basic", "test", "123£"), "Authorization", "Basic dGVzdDoxMjPCow=="),  # RFC 7617, 2.1
        (NewCredential("header", "X-Api-Key", "k-1"), "X-Api-Key", "k-1"),
    ],
)
async def test_each_kind_has_its_header(world: World, new: NewCredential, header: str, value: str) -> None:
    await put(world, new)
    credential = await credentials.find(world.database, world.workspace_id, Sealer(KEYS[:1]), "pbx.example", 8443)
    assert credential is not None
    assert (credential.header, credential.value) == (header, value)


async def test_what_no_request_could_carry_is_refused(world: World, subtests: pytest.Subtests) -> None:
    for new in [
        NewCredential("bearer", None, ""),
        NewCredential("bearer", None, "hush\r\nHost: elsewhere"),
        NewCredential("bearer", None, "hüsh"),
        NewCredential("basic", "a:b", "hush"),
        NewCredential("basic", "a", "hu\nsh"),
        NewCredential("basic", "a", "hush\udcff"),  # a byte of the environment that is no UTF-8
        NewCredential("header", "Host", "hush"),
        NewCredential("header", "Range", "hush"),
        NewCredential("header", "X Y", "hush"),
        NewCredential("header", "X:\r\nY", "hush"),
    ]:
        with subtests.test(f"{new.kind} {new.secret!r}"):
            with pytest.raises(CredentialUnfit) as refusal:
                await put(world, new)
            assert "hush" not in str(refusal.value)
            assert "hush" not in repr(new)


async def test_a_stored_secret_is_sealed_and_carried_over_to_a_new_key(world: World) -> None:
    await put(world, NewCredential("bearer", None, "hush"))
    (row,) = await world.rows("SELECT * FROM host_credentials")
    assert "hush" not in str(dict(row))
    with pytest.raises(SecretSealed, match="SWITCHBOARD_SECRETS_KEYS"):
        await credentials.find(world.database, world.workspace_id, Sealer(KEYS[1:]), "pbx.example", 8443)
    both = Sealer([KEYS[1], KEYS[0]])
    (info,) = await credentials.list_credentials(world.database, world.workspace_id, both)
    assert not info.fresh
    assert await rotate.reseal_secrets(world.database, both, rotate.CREDENTIALS) == rotate.Resealed(1)
    assert await rotate.reseal_secrets(world.database, both, rotate.CREDENTIALS) == rotate.Resealed(0)
    assert await credentials.find(world.database, world.workspace_id, Sealer(KEYS[1:]), "pbx.example", 8443)


async def test_the_command_line_takes_a_secret_from_elsewhere_and_shows_none(world: World) -> None:
    def invoke(*arguments: str, stdin: str = "", code: int = 0, **variables: str) -> str:
        environment = {"SWITCHBOARD_DATABASE_URL": world.database.url, "COLUMNS": "200", **variables}
        result = CliRunner().invoke(app, ["credentials", *arguments], env=environment, input=stdin)
        assert result.exit_code == code, result.output
        return result.output

    async def run(*arguments: str, **options: Any) -> str:
        return await asyncio.to_thread(invoke, *arguments, **options)

    keys = {"SWITCHBOARD_SECRETS_KEYS": f'["{KEYS[0]}"]'}
    output = await run("add", "PBX.example.:8443", "--user", "rec", "-w", "Acme", stdin="open-sesame\n", **keys)
    output += await run(
        "add", "pbx2.example", "--bearer", "-w", "Acme", "--secret-env", "TOKEN", TOKEN="open-sesame", **keys
    )
    output += await run("list", "-w", "Acme", "--json", **keys) + await run("list", "-w", "Acme")
    output += await run("add", "http://pbx.example/x", "--bearer", "-w", "Acme", stdin="open-sesame", code=2)
    assert "pbx.example" in output
    assert "8443" in output
    assert "open-sesame" not in output
    credential = await credentials.find(world.database, world.workspace_id, Sealer(KEYS[:1]), "pbx.example", 8443)
    assert credential is not None
    assert credential.value == "Basic cmVjOm9wZW4tc2VzYW1l"
    assert "no credential" in await run("remove", "pbx3.example", "-w", "Acme", code=1)
