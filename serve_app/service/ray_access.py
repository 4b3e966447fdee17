"""Access to Ray: with a token, and on one machine only over its loopback address.

Ray runs any code it is sent, as the service's user, and its processes have the database's address and the keys that
seal secrets. With `RAY_AUTH_MODE=token` Ray refuses requests without the token. Processes get the path of its file: the
environment of a process is visible to others, the token must not be.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serve_app.service.run_folder import running

TOKEN = "ray_token"  # noqa: S105 (the name of its file)
START_TRIES = 3
# Ray binds its ports to the loopback address if it assumes a single machine, as it does on macOS.
ONE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def own_ray(folder: Path) -> dict[str, str]:
    """Return the variables for a Ray of this machine alone: a token, loopback, and its files in `folder`, a
    `RunFolder`'s.

    They must be set before Ray is imported.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(make_token(folder)),
        "RAY_TMPDIR": str(folder),
        **ONE_MACHINE,
    }


def joined_ray(address: str) -> dict[str, str]:
    """Return the variables for joining the Ray at `address`, with the token of this user's service if it is one.

    For any other cluster the operator sets RAY_AUTH_TOKEN_PATH, or Ray reads ~/.ray/auth_token.
    """
    for service in running():
        if service.facts.get("ray_address") == address and (service.path / TOKEN).is_file():
            token = str(service.path / TOKEN)
            return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token, **ONE_MACHINE}
    return {"RAY_AUTH_MODE": "token"}


def join(address: str | None = None) -> str:
    """Set the variables for joining a Ray, and return the address for `ray.init`. Call it before Ray is imported.

    `address`: host:port or "auto"; default: RAY_ADDRESS, or else the service of this user on this machine.
    Raises `LookupError` if there is neither, or more than one service.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        addresses = [str(service.facts["ray_address"]) for service in running() if "ray_address" in service.facts]
        if len(addresses) != 1:
            count = "no service" if not addresses else f"{len(addresses)} services ({', '.join(addresses)})"
            raise LookupError(f"This user runs {count} on this machine: set the address of a Ray.")
        (address,) = addresses
    for name, value in joined_ray(address).items():
        os.environ.setdefault(name, value)
    return address


def make_token(folder: Path) -> Path:
    """Return the path of the folder's token, created at random if there is none, readable by this user only."""
    path = folder / TOKEN
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def start(address: str, on_step: Callable[[str], None], end: Callable[[], None], **options: Any) -> str | None:
    """Join the Ray at `address`, or start one ("local"); return host:port of its dashboard, if it has one.

    Requires the variables of `own_ray` or `joined_ray`. `end` stops the remains of a failed start. Raises what
    `ray.init` raises.
    """
    import ray

    for last in (*(False,) * (START_TRIES - 1), True):
        try:
            with _without_idle_parts(keep_dashboard=options.get("include_dashboard", True)):
                begun = ray.init(
                    address, namespace="switchboard", log_to_driver=False, logging_level="WARNING", **options
                )
            return begun.dashboard_url or None
        except Exception as error:  # the 30 s are fixed in Ray, and so is the class of the error
            if last or "timed out during startup" not in str(error):
                raise
            on_step("Ray did not start within 30 s (is the machine busy?): starting it again")
            ray.shutdown()
            end()
    raise AssertionError


@contextlib.contextmanager
def _without_idle_parts(keep_dashboard: bool) -> Iterator[None]:
    """Start a head without the processes that have nothing to do on one machine (170 MB); Ray has no option for that.

    The autoscaler's monitor starts no nodes here. The log monitor sends lines to drivers, and the dashboard's process
    shows them: only people who submit jobs to the dashboard need both.
    """
    from ray._private.node import Node

    names = ["start_monitor", *([] if keep_dashboard else ["start_api_server", "start_log_monitor"])]
    originals = {name: getattr(Node, name) for name in names}
    for name in names:
        setattr(Node, name, lambda _node, **_options: None)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(Node, name, original)
