"""Bringing the service up in one process: state, Ray, Serve; and taking it down without losing anything.

`switchboard up`, `switchboard demo` and the acceptance tests all start it here. A production cluster does the same in
its own pieces: `ray up cluster.yaml`, `switchboard migrate`, `serve deploy serve_app/deploy/serve.yaml`.
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

from pipeline.fetch import handed_in
from serve_app.service import children, ray_access
from serve_app.service.environment import LOCAL, haproxy_available, prepare_environment
from serve_app.service.ports import agent_is_ours, own_port, refuse_taken_port
from serve_app.service.run_folder import own
from serve_app.service.state import ServiceError, State
from serve_app.settings import Settings

if TYPE_CHECKING:
    from pipeline.runtime.replica import ModelInUse

VITAL = ("gcs_server", "raylet")
INTAKE, API, CONSOLE, CALLS = "intake", "api", "console", "calls"  # names of the Serve applications
ENGINES = {"Transcriber": "recognition", "Diarizer": "diarization"}  # deployments and their stages
PROBLEM_SECONDS = 30.0  # for an engine's replica to say whether it has its model
METRICS_PORT = 9102  # of Ray's agent, on this machine's loopback address, or the next that is free
OBJECT_STORE_BYTES = 400 * 2**20  # decoded audio of a few calls; Ray spills to disk beyond it


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What is where."""

    submit_url: str
    database_url: str
    ray_address: str
    haproxy: bool
    seconds: float  # from start() until POST /submit was answered
    console_url: str | None = None  # of the pages, in a browser on this machine; None: they are left out
    logs: str | None = None  # folder of the logs of replicas; None: another Ray's
    metrics_url: str | None = None  # for Prometheus; None: another Ray's nodes have theirs
    dashboard: str | None = None  # Ray's, host:port; also where jobs are submitted. None: it was not asked for
    takes_jobs: bool = True  # False: another Ray on this machine has the port of the agent that starts them


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The models in use by stage, and by deployment the problems of engines without one."""

    models: "dict[str, ModelInUse]"
    problems: dict[str, str]


class Service:
    """The service on this machine: started by this process and gone with it.

    `address`: None starts Ray here; "auto" or host:port joins a running cluster.
    `on_step(sentence)` is told what happens, for progress displays.
    `proxy_location`: where requests are taken in, "HeadOnly" or "EveryNode"; None: every node of a cluster it joins.
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
        self._before: set[psutil.Process] | None = None  # descendants of this process that are none of the service's

    @property
    def may_have_standby(self) -> bool:
        """Whether a standby can share the port: with HAProxy, on this machine alone."""
        return self._owns_ray and haproxy_available() and sys.platform == "linux"

    def refuse(self) -> State:
        """Raise `ServiceError` for what would fail: no shared database, no model in the folder that a setting names, a
        held data folder, a taken port.

        Returns the state that it holds.
        """
        self._refuse_lonely_state()
        if self._owns_ray:  # on a cluster the engines' nodes have folders of their own
            _refuse_empty_folders(self._settings)
        self._state.hold()
        if self._owns_ray and self._standby is None:
            refuse_taken_port(self._settings.http.host, self._settings.http.port)
        return self._state

    def start(self, on_ray_gone: Callable[[str], None] | None = None) -> Endpoints:
        """Returns once POST /submit answers. Engines load after that: calls are taken in meanwhile.

        `on_ray_gone(what)` is called from a thread if a process dies without which a Ray started here does nothing.
        """
        started = time.monotonic()
        self.refuse()
        self._tell()
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
            own().tell(ray_address=ray_address)
        own().tell(engines="loading")
        return Endpoints(
            submit_url,
            database_url,
            ray_address,
            os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1",
            time.monotonic() - started,
            self._settings.console_url if self._settings.scaling.console.max_replicas else None,
            f"{own().path}/ray/session_latest/logs/serve" if self._owns_ray else None,
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
        readers = [name for name, one in ((API, scaling.api), (CONSOLE, scaling.console)) if one.max_replicas]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            applications = serve.status().applications
            for name in (CALLS, *readers):
                if name in applications and applications[name].status == "DEPLOY_FAILED":
                    raise ServiceError(_reason(applications[name]))
            if all(name in applications and applications[name].status == "RUNNING" for name in (CALLS, *readers)):
                report = _report()
                own().tell(engines="ready", **asdict(report))
                return report
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
                    for application in (INTAKE, API, CONSOLE, CALLS):
                        with contextlib.suppress(Exception):
                            serve.delete(application)
                self._ending.set()
                ray.shutdown()
        self._end_ray()
        self._state.close()

    def _tell(self) -> None:
        """Who runs where, for the other commands of this user. Files are handed in on one machine only."""
        settings = self._settings
        here = {"handed_in": str(handed_in.make_private(settings.handed_in))} if self._owns_ray else {}
        own().tell(
            url=settings.base_url,
            data_dir=str(settings.data_dir),
            started=time.time(),
            engines="starting",
            problems={},
            models={},
            **here,
        )

    def _end_ray(self) -> None:
        """Ray leaves processes behind where its start failed: nothing that this process started outlives it."""
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
        """Returns the URL of POST /submit once it answers."""
        from ray import serve

        from serve_app.app import build_calls, build_intake

        # on_step tells what people need to know. Not before the import, which sets a level of its own.
        logging.getLogger("ray.serve").setLevel(logging.WARNING)

        self._on_step("Starting the intake")
        settings = self._settings
        # Behind HAProxy on this machine, replicas listen for it alone; HAProxy itself where the settings say.
        behind = self._owns_ray and os.environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
        http_options = {"host": "127.0.0.1" if behind else settings.http.host, "port": settings.http.port}
        with ThreadPoolExecutor(1) as pool:
            # serve.start returns when the proxies are ready; the replica is started beside them, not after.
            logging_config, where = settings.serve_logging, self._proxy_location
            started = pool.submit(
                serve.start, proxy_location=where, http_options=http_options, logging_config=logging_config
            )
            self._wait_for_controller(started)
            self._deploy(serve.RunTarget(build_intake(settings), name=INTAKE, route_prefix=settings.route_prefix))
            with contextlib.suppress(
                TimeoutError
            ):  # a slow machine's proxies take longer than Serve waits: see _wait_for
                started.result()
        submit_url = f"{settings.base_url}/submit"
        self._wait_for(submit_url)
        # Only now: loading models would take the cores from what answers the first call.
        self._on_step("Loading the engines")
        self._deploy(serve.RunTarget(build_calls(settings), name=CALLS, route_prefix=None))
        self._start_readers()
        return submit_url

    def _start_readers(self) -> None:
        """What results are read from, as far as the settings want it."""
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
        """The intake is there when a proxy knows of it, and an unauthenticated POST is answered by us with a 401.

        A standby answers alike, but knows nothing of routes.
        """
        deadline = time.monotonic() + timeout
        routes = httpx.URL(submit_url).copy_with(path="/-/routes")
        with httpx.Client(timeout=2.0, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.HTTPError):
                    found = client.get(routes)
                    known = found.is_success and INTAKE in found.json().values()
                    if known and client.post(submit_url, json={}).status_code == 401:
                        return
                time.sleep(0.1)
        raise ServiceError(f"Nothing answered at {submit_url} within {timeout:.0f} s; Ray's logs say why.")


def _refuse_empty_folders(settings: Settings) -> None:
    """A model's folder that does not hold one is a slip, to be told before anything starts."""
    from pipeline.checkpoints.resolve import check_folder, is_path
    from pipeline.errors import CheckpointMissing
    from serve_app.service.configured_models import configured_models

    try:
        for model, kind in configured_models(settings):
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
    """Without its GCS or its raylet a Ray does nothing more, but notices after a minute, or never."""
    vital = {process.name(): process for process in psutil.Process().children() if process.name() in VITAL}
    while not ending.wait(0.3):
        for name, process in vital.items():
            if not children.is_alive(process) and not ending.is_set():
                on_gone(name)
                return


def _reason(application: Any) -> str:
    """The last line of Serve's account of a failed deployment that says something."""
    for deployment in application.deployments.values():
        lines = [line.strip() for line in deployment.message.splitlines() if line.strip()]
        for line in reversed(lines):
            if "Error" in line or "Missing" in line:
                return str(line)
    return str(application.message)
