"""Starts and stops the service from one process: state, Ray, Serve.

`switchboard up`, `switchboard demo` and the acceptance tests use it. A production cluster runs the same steps one by
one: `ray up cluster.yaml`, `switchboard migrate`, `serve deploy serve_app/deploy/serve.yaml`.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from pipeline import scratch
from pipeline.fetch import handed_in
from serve_app.service import children, ray_access
from serve_app.service.environment import LOCAL, haproxy_available, prepare_environment
from serve_app.service.ports import agent_is_ours, own_port, refuse_taken_port
from serve_app.service.run_folder import own_folder
from serve_app.service.state import ServiceError, State
from serve_app.settings import Settings

if TYPE_CHECKING:
    from pipeline.runtime.replica import ModelInUse

VITAL = ("gcs_server", "raylet")
INTAKE, API, CONSOLE, CALLS = "intake", "api", "console", "calls"  # names of the Serve applications
ENGINES = {"Transcriber": "recognition", "Diarizer": "diarization"}  # deployments and their stages
PROBLEM_SECONDS = 30.0  # for an engine's replica to report on its model
METRICS_PORT = 9102  # of Ray's agent, on this machine's loopback address, or the next free one
OBJECT_STORE_BYTES = 400 * 2**20  # decoded audio of a few calls; Ray spills the rest to disk


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of the parts."""

    submit_url: str
    database_url: str
    ray_address: str
    haproxy: bool
    seconds: float  # from start() to the first answer of POST /submit
    console_url: str | None = None  # on this machine; None: switched off
    logs: str | None = None  # folder of the logs of replicas; None: of the cluster it joined
    metrics_url: str | None = None  # for Prometheus; None: of the cluster it joined
    dashboard: str | None = None  # Ray's, host:port; also for submitting jobs. None: not requested
    takes_jobs: bool = True  # False: another Ray on this machine has the agent's port


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The models in use by stage, and by deployment the problems of engines without one."""

    models: "dict[str, ModelInUse]"
    problems: dict[str, str]


class Service:
    """The service on this machine: started by this process and gone with it.

    `address`: None starts Ray here; "auto" or host:port joins a running cluster.
    `on_step(sentence)` receives what happens, for progress displays.
    `proxy_location`: of the HTTP proxies, "HeadOnly" or "EveryNode"; None: every node of a cluster it joins.
    `standby`: the socket of the intake's standby, which may listen at the service's address already; None: no standby.
    """

    def __init__(
        self,
        settings: Settings,
        address: str | None = None,
        dashboard: bool = False,
        on_step: Callable[[str], None] = lambda _: None,
        proxy_location: str | None = None,
        standby: Path | None = None,
    ) -> None:
        self._settings = settings
        self._dashboard = dashboard
        self._address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        self._on_step = on_step
        self._standby = standby
        self._owns_ray = self._address == LOCAL
        self._proxy_location = proxy_location or ("HeadOnly" if self._owns_ray else "EveryNode")
        self._state = State(settings, on_step)
        self._ending = threading.Event()
        self._metrics_port = 0  # none
        self._dashboard_at: str | None = None
        self._before: set[psutil.Process] | None = None  # descendants of this process from before the service

    @property
    def may_have_standby(self) -> bool:
        """True if a standby can share the port: with HAProxy, on this machine alone."""
        return self._owns_ray and haproxy_available() and sys.platform == "linux"

    def refuse(self) -> State:
        """Check what would fail later, lock the data folder, and return its state.

        Raises `ServiceError` for a cluster without a shared database, a folder without its model, a data folder in use,
        and a taken port.
        """
        self._refuse_lonely_state()
        if self._owns_ray:  # on a cluster the folders are those of the engines' nodes
            _refuse_empty_folders(self._settings)
        self._state.hold()
        if self._owns_ray and self._standby is None:
            refuse_taken_port(self._settings.http.host, self._settings.http.port)
        return self._state

    def start(self, on_ray_gone: Callable[[str], None] | None = None) -> Endpoints:
        """Start everything; return once POST /submit answers. Engines load after that, while calls are taken in.

        `on_ray_gone(name)` is called from a thread if a process dies without which a Ray started here does nothing.
        """
        started = time.monotonic()
        self.refuse()
        self._settings.process_options().claim_scratch()
        self._publish()
        database_url = self._state.open()
        self._migrate(database_url)
        prepare_environment(self._settings.with_folder_key(), database_url, self._address, self._standby)
        self._before = children.descendants()
        self._start_ray()
        if self._owns_ray and on_ray_gone:
            threading.Thread(target=_watch_ray, args=(on_ray_gone, self._ending), daemon=True).start()
        submit_url = self._start_serve()
        import ray

        ray_address = ray.get_runtime_context().gcs_address
        if self._owns_ray:
            own_folder().publish(ray_address=ray_address)
        own_folder().publish(engines="loading")
        return Endpoints(
            submit_url,
            database_url,
            ray_address,
            os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1",
            time.monotonic() - started,
            self._settings.console_url if self._settings.scaling.console.max_replicas else None,
            f"{own_folder().path}/ray/session_latest/logs/serve" if self._owns_ray else None,
            f"http://127.0.0.1:{self._metrics_port}/metrics" if self._owns_ray else None,
            self._dashboard_at,
            not self._owns_ray or agent_is_ours(),
        )

    def wait_for_engines(self, timeout: float = 1800.0) -> EngineReport:
        """Return when the Conductor, both engines and the readers run.

        Raises `ServiceError` with Serve's reason if they cannot run.
        """
        from ray import serve

        scaling = self._settings.scaling
        readers = [name for name, replicas in ((API, scaling.api), (CONSOLE, scaling.console)) if replicas.max_replicas]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            applications = serve.status().applications
            for name in (CALLS, *readers):
                if name in applications and applications[name].status == "DEPLOY_FAILED":
                    raise ServiceError(_reason(applications[name]))
            if all(name in applications and applications[name].status == "RUNNING" for name in (CALLS, *readers)):
                report = _report()
                own_folder().publish(engines="ready", **asdict(report))
                return report
            time.sleep(0.3)
        raise ServiceError(f"The engines were not ready within {timeout:.0f} s.")

    def stop(self) -> None:
        """Drain: running calls end or are requeued, then everything this process started is stopped."""
        with contextlib.suppress(ImportError):
            import ray
            from ray import serve

            if ray.is_initialized():
                self._on_step("Draining")
                if self._owns_ray:
                    # Deleting an application drains its replicas, all at the same time; then wait for each of them.
                    for blocking in (False, True):
                        for application in (INTAKE, API, CONSOLE, CALLS):
                            with contextlib.suppress(Exception):
                                serve.delete(application, _blocking=blocking)
                self._ending.set()
                ray.shutdown()
        self._end_ray()
        scratch.close()
        self._state.close()

    def _publish(self) -> None:
        """Publish the service for the other commands of this user. Only a service of one machine accepts files."""
        settings = self._settings
        here = {"handed_in": str(handed_in.make_private(settings.handed_in))} if self._owns_ray else {}
        own_folder().publish(
            url=settings.base_url,
            data_dir=str(settings.data_dir),
            started=time.time(),
            engines="starting",
            problems={},
            models={},
            **here,
        )

    def _end_ray(self) -> None:
        """End what a failed start of Ray leaves behind: no process that this one started may outlive it."""
        if self._owns_ray and self._before is not None:
            spared = self._before
            children.end(spared=lambda: spared | self._state.processes())

    def _refuse_lonely_state(self) -> None:
        if not self._owns_ray and self._settings.database_url is None:
            raise ServiceError(
                "A cluster of several nodes needs a PostgreSQL server that every node can reach: set "
                "SWITCHBOARD_DATABASE_URL on every node. The embedded PostgreSQL serves one machine only."
            )

    def _migrate(self, database_url: str) -> None:
        from db.server import migrate

        migrate.migrate(database_url)

    def _start_ray(self) -> None:
        self._on_step("Starting Ray" if self._owns_ray else f"Joining Ray at {self._address}")
        self._metrics_port = own_port(METRICS_PORT) if self._owns_ray else 0
        local: dict[str, Any] = (
            {
                "include_dashboard": self._dashboard,
                "object_store_memory": OBJECT_STORE_BYTES,
                "configure_logging": True,
                "_metrics_export_port": self._metrics_port,
            }
            if self._owns_ray
            else {}
        )
        at = ray_access.start(self._address, self._on_step, self._end_ray, **local)
        self._dashboard_at = at if self._dashboard else None

    def _start_serve(self) -> str:
        from ray import serve

        from serve_app.app import build_calls, build_intake

        # After the import, which sets a level itself; on_step reports what people need.
        logging.getLogger("ray.serve").setLevel(logging.WARNING)

        self._on_step("Starting the intake")
        settings = self._settings
        # Behind HAProxy, replicas listen on loopback; HAProxy listens at the address of the settings.
        behind = self._owns_ray and os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
        http_options = {"host": "127.0.0.1" if behind else settings.http.host, "port": settings.http.port}
        with ThreadPoolExecutor(1) as pool:
            # serve.start returns when the proxies are ready; the replica starts in parallel with them.
            logging_config, where = settings.serve_logging, self._proxy_location
            started = pool.submit(
                serve.start, proxy_location=where, http_options=http_options, logging_config=logging_config
            )
            self._wait_for_controller(started)
            self._deploy(serve.RunTarget(build_intake(settings), name=INTAKE, route_prefix=settings.route_prefix))
            with contextlib.suppress(TimeoutError):  # slow proxies take longer than Serve waits: see _wait_for
                started.result()
        submit_url = f"{settings.base_url}/submit"
        self._wait_for(submit_url)
        # Only now: loading models would take the cores from the intake.
        self._on_step("Loading the engines")
        self._deploy(serve.RunTarget(build_calls(settings), name=CALLS, route_prefix=None))
        self._start_readers()
        return submit_url

    def _start_readers(self) -> None:
        from ray import serve

        from serve_app.api.deployment import PATH
        from serve_app.app import build_api, build_console

        settings = self._settings
        if settings.scaling.console.max_replicas:
            self._deploy(serve.RunTarget(build_console(settings), name=CONSOLE, route_prefix=settings.console_path))
        if settings.scaling.api.max_replicas:
            read_path = settings.route_prefix.rstrip("/") + PATH
            self._deploy(serve.RunTarget(build_api(settings), name=API, route_prefix=read_path))

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
        """Wait until a proxy has the route of the intake and an unauthenticated POST gets a 401.

        The status alone is not enough: a standby answers alike, but has no routes.
        """
        deadline = time.monotonic() + timeout
        routes = httpx.URL(submit_url).copy_with(path="/-/routes")
        with httpx.Client(timeout=2.0, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.HTTPError):
                    response = client.get(routes)
                    is_routed = response.is_success and INTAKE in response.json().values()
                    if is_routed and client.post(submit_url, json={}).status_code == 401:
                        return
                time.sleep(0.1)
        raise ServiceError(f"No response from {submit_url} within {timeout:.0f} s; see Ray's logs.")


def _refuse_empty_folders(settings: Settings) -> None:
    """Refuse a setting whose folder contains no model before anything starts."""
    from pipeline.checkpoints.resolve import check_folder, is_path
    from pipeline.errors import CheckpointMissing

    try:
        for model, kind in settings.models():
            if is_path(model):
                check_folder(model, kind)
    except CheckpointMissing as error:
        raise ServiceError(error.message) from error


def _report() -> EngineReport:
    from ray import serve

    deployments = serve.status().applications[CALLS].deployments
    report = EngineReport({}, {})
    for name, stage in ENGINES.items():
        if not deployments[name].replica_states.get("RUNNING"):
            continue
        replica = serve.get_deployment_handle(name, CALLS)
        if model := replica.model.remote().result(timeout_s=PROBLEM_SECONDS):
            report.models[stage] = model
        elif problem := replica.problem.remote().result(timeout_s=PROBLEM_SECONDS):
            report.problems[name] = problem
    return report


def _watch_ray(on_gone: Callable[[str], None], ending: threading.Event) -> None:
    """Report when Ray's GCS or raylet is gone: Ray itself notices after a minute, or never."""
    vital = {process.name(): process for process in psutil.Process().children() if process.name() in VITAL}
    while not ending.wait(0.3):
        for name, process in vital.items():
            if not children.is_alive(process) and not ending.is_set():
                on_gone(name)
                return


def _reason(application: Any) -> str:
    """Return the last informative line of Serve's message about a failed deployment."""
    for deployment in application.deployments.values():
        lines = [line.strip() for line in deployment.message.splitlines() if line.strip()]
        for line in reversed(lines):
            if "Error" in line or "Missing" in line:
                return str(line)
    return str(application.message)
