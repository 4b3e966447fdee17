"""Who may use Ray: those who have the token, and on one machine only over its loopback address.

Ray runs what it is told, as the service's user, and its processes know the database's address and the keys that
seal secrets. `RAY_AUTH_MODE=token` makes Ray refuse requests without the token. A token is known by the path of its
file: that path may be seen in the environment of processes, the token may not.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_app.service.run_folder import running

TOKEN = "ray_token"  # noqa: S105 (the name of its file)
START_TRIES = 3
# Ray binds its ports to the loopback address if it assumes a single machine, as it does on macOS.
ONE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def own_ray(folder: Path) -> dict[str, str]:
    """Variables for a Ray of this machine alone: a token, loopback, and its files in `folder`, a `RunFolder`'s.

    They must be set before Ray is imported.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(make_token(folder)),
        "RAY_TMPDIR": str(folder),
        **ONE_MACHINE,
    }


def joined_ray(address: str) -> dict[str, str]:
    """Variables for a process that joins the Ray at `address`: the token of a service of this user, if it is one's.

    For any other cluster the operator names the token (RAY_AUTH_TOKEN_PATH), or Ray reads ~/.ray/auth_token.
    """
    for service in running():
        if service.facts.get("ray_address") == address and (service.path / TOKEN).is_file():
            token = str(service.path / TOKEN)
            return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token, **ONE_MACHINE}
    return {"RAY_AUTH_MODE": "token"}


def join(address: str | None = None) -> str:
    """Set the variables for joining a Ray, and return the address for `ray.init`. Call it before Ray is imported.

    `address`: host:port or "auto"; left out, that of RAY_ADDRESS, or else of the service of this user on this machine.
    Raises `LookupError` where there is neither, or more than one service.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        there = [str(one.facts["ray_address"]) for one in running() if "ray_address" in one.facts]
        if len(there) != 1:
            found = "no service" if not there else f"{len(there)} services ({', '.join(there)})"
            raise LookupError(f"There is {found} of this user on this machine: give the address of a Ray.")
        (address,) = there
    for name, value in joined_ray(address).items():
        os.environ.setdefault(name, value)
    return address


def make_token(folder: Path) -> Path:
    """The path of the folder's token, a random one that only this user may read; written where there is none."""
    path = folder / TOKEN
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def start(address: str, on_step: Callable[[str], None], end: Callable[[], None], **options: Any) -> str | None:
    """Join the Ray at `address`, or start one ("local"); host:port of its dashboard, if it has one.

    The environment of `ray_access` is set before.

    `end` stops what a start that failed left behind. Raises what `ray.init` raises.
    """
    import ray

    for last in (*(False,) * (START_TRIES - 1), True):
        try:
            begun = ray.init(address, namespace="switchboard", log_to_driver=False, logging_level="WARNING", **options)
            return begun.dashboard_url or None
        except Exception as error:  # Ray gives its node 30 s to come up, which is no setting, and raises this itself
            if last or "timed out during startup" not in str(error):
                raise
            on_step("Ray did not come up within 30 s, is the machine busy? Starting it again")
            ray.shutdown()
            end()
    raise AssertionError
