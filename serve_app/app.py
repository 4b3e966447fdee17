"""The system on one screen: which deployments there are, how they are bound, on what hardware.

Four Serve applications, so that models can be exchanged while calls are taken in, and reading keeps no call waiting:

    intake   Intake                                       HTTP, under `base_url`
    api      Api                                          HTTP, under `base_url`/api/v1
    console  Console                                      HTTP, under `base_url`/console
    calls    Conductor -> Transcriber, Diarizer           no HTTP: work comes from PostgreSQL

Replicas read their settings from the environment of their node; nothing secret is passed as an argument, because
Ray's dashboard shows arguments. The options of every deployment are built here and nowhere else: `switchboard up` and
`serve deploy` (`deploy/serve.yaml`) differ only in the bounds, `scaling`.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

import ray
from ray import serve
from ray.serve.deployment import Application
from ray.serve.handle import DeploymentHandle

from pipeline.observability import logs, tracing
from pipeline.runtime.actors import Diarizer, RayWorkers, Transcriber
from serve_app.operations.autoscaling import autoscaling, gpu_share, replica_config
from serve_app.operations.scaling_options import ScalingOptions
from serve_app.settings import Settings

log = logging.getLogger("ray.serve")

EVENTS_POOL_SIZE = 6
LAST_SPANS_SECONDS = 2.0  # that a stopping Conductor gives to a collector of traces


class ConductorReplica:
    """Thin wrapper: opens the database, runs the loops, reports their health, drains on shutdown."""

    async def __init__(  # type: ignore[misc]
        self, transcriber: DeploymentHandle, diarizer: DeploymentHandle, scaling: dict[str, Any]
    ) -> None:
        """`scaling`: the `ScalingOptions` that the application was deployed with, which may differ from the node's."""
        from db.core.database import Database
        from serve_app.conductor.loop import ConductorLoop
        from serve_app.conductor.passages import PassageLoop
        from serve_app.conductor.runs import RunLoop
        from serve_app.conductor.webhooks import WebhookDispatcher
        from serve_app.experiments.engines import ClusterEngines
        from serve_app.operations.database_metrics import DatabaseMetrics, report_connections

        logs.install()
        tracing.start("conductor")
        settings = Settings(scaling=ScalingOptions(**scaling))
        self._database = await Database.open(settings.require_database_url(), pool_size=settings.processing.POOL_SIZE)
        workers = RayWorkers(transcriber, diarizer, settings.scaling.task_cpus)
        sealer = settings.sealer()
        engines = ClusterEngines(settings, transcriber, diarizer, recognizer_environment())

        def set_peer_count(sharing: int) -> None:
            workers.set_peer_count(sharing)
            engines.set_peer_count(sharing)

        self._loop = ConductorLoop(
            self._database,
            workers,
            settings.processing,
            settings.process_options(),
            sealer,
            set_peer_count,
            settings.url_sealer(),
        )
        # Connections of its own: many receivers that answer at once must not keep a lease from being renewed.
        self._events_database = await Database.open(settings.require_database_url(), pool_size=EVENTS_POOL_SIZE)
        self._events = WebhookDispatcher(self._events_database, settings.webhooks, sealer, settings.fetch.ca_file)
        self._passages = PassageLoop(
            self._events_database, workers.of("passages").compute, settings.embedding, settings.checkpoints
        )
        self._drain_seconds = settings.processing.drain_seconds
        await self._loop.start()
        await self._events.start()
        self._runs = RunLoop(self._events_database, engines, settings, settings.processing, self._loop.llm)
        await self._passages.start()
        await self._runs.start()
        self._facts = DatabaseMetrics(self._events_database, settings.scaling)
        self._facts.start()
        self._telling = [
            asyncio.create_task(self._tell_fixed(settings)),
            asyncio.create_task(report_connections(self._database, "Conductor")),
            asyncio.create_task(report_connections(self._events_database, "Events")),
        ]

    async def _tell_fixed(self, settings: Settings) -> None:
        """Of deployments with a fixed number of replicas no scaling policy tells how many there are.

        Nothing but figures hangs on it, so a failure is no reason to be away.
        """
        from db.queue import backlog

        try:
            for name in settings.scaling.assumed_rtfx:
                bounds = settings.scaling.replicas_of(name)
                if bounds.min_replicas == bounds.max_replicas:
                    await backlog.note_replicas(self._database, name, bounds.max_replicas, bounds.max_replicas)
        except Exception as error:
            log.warning("the number of replicas could not be told to operators: %s", type(error).__name__)

    async def check_health(self) -> None:
        if not self._loop.alive:
            raise RuntimeError("The Conductor's loop is dead or stuck.")
        if not self._events.alive:
            raise RuntimeError("The loop that delivers events is dead.")
        if not self._passages.alive:
            raise RuntimeError("The loop that makes passages is dead.")
        if not self._runs.alive:
            raise RuntimeError("The loop that works off runs is dead.")

    async def pid(self) -> int:
        """The process that runs this replica, for operators and fault tests."""
        return os.getpid()

    async def __del__(self) -> None:
        if hasattr(self, "_events"):
            await asyncio.gather(
                self._loop.stop(),
                self._events.stop(self._drain_seconds),
                self._passages.stop(self._drain_seconds),
                self._runs.stop(),
                self._facts.stop(),
            )
            for task in self._telling:
                task.cancel()
            await self._events_database.close()
            await self._database.close()
            await asyncio.to_thread(tracing.stop, LAST_SPANS_SECONDS)


Conductor = serve.deployment(name="Conductor")(ConductorReplica)


ONE_LOOP = {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}
"""Intake's code never blocks, so it needs no thread beside Serve's own, and no hand-over between two loops for each
request: a fifth more submissions a second (`bench/submit.py`)."""


RELEASE = "RELEASE_OF_SWITCHBOARD"
"""The variable that tells a process which release of the code it runs."""


HEAP = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
}
"""How glibc gets the Transcriber's memory, on a CPU. A forward pass takes and gives back hundreds of MB, each time page
by page: with huge pages a tenth as many page faults, and a few per cent of its processor time; with fixed thresholds
half the memory is kept (glibc 2.35 or later, others ignore it). The thresholds by their old names, since glibc 2.36
hands on to a child only the first of the tunables in one variable."""


def recognizer_environment() -> dict[str, str]:
    """The variables of a process that recognizes: `HEAP`, as far as the environment does not say otherwise."""
    return HEAP | {name: os.environ[name] for name in HEAP if name in os.environ}


def build_intake(settings: Settings, release: str | None = None) -> Application:
    """The application that takes calls in. `release`: as in `_environment`, here and below."""
    from serve_app.intake.deployment import Intake

    return Intake.options(
        **replica_config(settings.scaling.intake, target_ongoing_requests=16),
        logging_config=settings.serve_logging,
        ray_actor_options={"num_cpus": settings.scaling.replica_cpus, **_environment(release, ONE_LOOP)},
        # Above CONCURRENCY Intake itself answers 503, in our own form; Serve's limit lies beyond it.
        max_ongoing_requests=settings.limits.CONCURRENCY + settings.limits.QUEUE,
        max_queued_requests=settings.limits.QUEUE,
        backpressure_config={"status_code": 503, "retry_after_s": settings.limits.RETRY_AFTER_SECONDS},
        max_surge_percent=100,  # a rolling update starts new replicas before it stops old ones
        health_check_period_s=1,  # a dead replica is missed within a second
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.5,
    ).bind()


def build_api(settings: Settings, release: str | None = None) -> Application:
    """The application that results are read from."""
    from serve_app.api.deployment import Api

    options = settings.api
    return Api.options(
        **replica_config(settings.scaling.api, target_ongoing_requests=8),
        logging_config=settings.serve_logging,
        ray_actor_options={"num_cpus": settings.scaling.replica_cpus, **_environment(release)},
        max_ongoing_requests=options.CONCURRENCY + options.STREAMS + settings.limits.QUEUE,
        max_queued_requests=settings.limits.QUEUE,
        backpressure_config={"status_code": 503, "retry_after_s": options.RETRY_AFTER_SECONDS},
        max_surge_percent=100,
        health_check_period_s=1,
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=5,  # streams do not end by themselves
    ).bind()


def build_console(settings: Settings, release: str | None = None) -> Application:
    """The application of the pages."""
    from serve_app.console.deployment import Console

    return Console.options(
        **replica_config(settings.scaling.console, target_ongoing_requests=16),
        logging_config=settings.serve_logging,
        ray_actor_options={"num_cpus": settings.scaling.replica_cpus, **_environment(release)},
        max_ongoing_requests=64,
        max_queued_requests=256,
        max_surge_percent=100,
        health_check_period_s=2,
        health_check_timeout_s=30,
        graceful_shutdown_wait_loop_s=0.5,
    ).bind()


def build_calls(settings: Settings, release: str | None = None) -> Application:
    """The application that works on calls."""
    cluster_gpus = ray.cluster_resources().get("GPU", 0.0) if ray.is_initialized() else 0.0
    store = str(settings.checkpoints) if settings.checkpoints else None
    transcriber = Transcriber.options(
        **_engine_options("transcriber", settings, cluster_gpus, _environment(release, recognizer_environment())),
        max_ongoing_requests=64,
    ).bind(
        settings.asr.model_dump(mode="json", exclude=set(settings.asr.secrets())),
        store,
        settings.alignment.model_dump(mode="json"),
        "serve_app.settings:asr_secrets" if settings.asr.secrets() else None,
    )
    diarizer = Diarizer.options(
        **_engine_options("diarizer", settings, cluster_gpus, _environment(release)), max_ongoing_requests=32
    ).bind(settings.diarization.model_dump(mode="json"), store)
    return Conductor.options(
        **replica_config(settings.scaling.conductor, **autoscaling("Conductor", settings.scaling)),
        logging_config=settings.serve_logging,
        ray_actor_options={"num_cpus": settings.scaling.replica_cpus, **_environment(release)},
        health_check_period_s=1,  # a dead replica is missed within a second
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=settings.processing.drain_seconds + 10,
    ).bind(transcriber, diarizer, settings.scaling.model_dump(mode="json"))


def _engine_options(name: str, settings: Settings, cluster_gpus: float, environment: dict[str, Any]) -> dict[str, Any]:
    replicas = getattr(settings.scaling, name)
    return {
        **replica_config(replicas, **autoscaling(name.capitalize(), settings.scaling)),
        "logging_config": settings.serve_logging,
        "ray_actor_options": {
            "num_cpus": replicas.num_cpus,
            "num_gpus": gpu_share(name, replicas, cluster_gpus),
            **environment,
        },
        "health_check_period_s": 1,
        "health_check_timeout_s": 30,
        "graceful_shutdown_wait_loop_s": 0.5,
    }


def intake(args: dict[str, Any]) -> Application:
    """Builder for `serve deploy`; `args` as in `_settings`."""
    return build_intake(_settings(args), args.get("release"))


def api(args: dict[str, Any]) -> Application:
    """Builder for `serve deploy`; `args` as in `_settings`."""
    return build_api(_settings(args), args.get("release"))


def console(args: dict[str, Any]) -> Application:
    """Builder for `serve deploy`; `args` as in `_settings`."""
    return build_console(_settings(args), args.get("release"))


def calls(args: dict[str, Any]) -> Application:
    """Builder for `serve deploy`; `args` as in `_settings`."""
    return build_calls(_settings(args), args.get("release"))


def _environment(release: str | None, own: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Ray's option for a replica's variables: its own, and the release of the code (`deploy/release.py`).

    Its tasks inherit them, and Ray hands no task of one release to a worker that has loaded another.
    """
    variables = {**(own or {}), **({RELEASE: release} if release else {})}
    return {"runtime_env": {"env_vars": variables}} if variables else {}


def _settings(args: dict[str, Any]) -> Settings:
    """The settings of this node's environment, with `args["scaling"]` over them.

    `args["release"]` is of no effect on them: with another one Serve replaces the replicas. Raises ValueError for any
    other argument: replicas would not see it.
    """
    if others := sorted(args.keys() - {"scaling", "release"}):
        raise ValueError(
            f"args may hold `scaling` only, not {', '.join(others)}: set it in the environment of every node instead."
        )
    return Settings(**{name: value for name, value in args.items() if name == "scaling"})
