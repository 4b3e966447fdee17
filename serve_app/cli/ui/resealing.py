from typing import TYPE_CHECKING

from serve_app.cli.ui.lazy import lazy
from serve_app.cli.ui.output import counted
from serve_app.cli.ui.resource import Result

if TYPE_CHECKING:
    import sqlalchemy as sa

    from db.core.database import Database
    from db.secrets import rotate
    from serve_app import settings
else:
    rotate, settings = lazy("db.secrets.rotate", "serve_app.settings")


async def reseal(database: "Database", table: "sa.Table", noun: str, advice: str) -> Result:
    """Seal the secrets of a table in every workspace with the first key.

    `advice`: what helps where a key is lost.
    """
    sealer = settings.Settings().sealer()
    done = await rotate.reseal_secrets(database, sealer, table)
    unopened = (
        f"{done.unopened} more are sealed with a key that is not among SWITCHBOARD_SECRETS_KEYS. Add that key after "
        f"the first one and run this again; without it, {advice}."
    )
    unsealed = "SWITCHBOARD_SECRETS_KEYS is not set: secrets are stored unsealed."
    return Result(
        {"resealed": done.changed, "unopened": done.unopened, "sealed": sealer.seals},
        f"{counted(done.changed, noun)} sealed with the current key.",
        warnings=(*((unopened,) if done.unopened else ()), *(() if sealer.seals else (unsealed,))),
        failed=bool(done.unopened),
    )
