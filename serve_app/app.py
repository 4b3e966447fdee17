"""The system on one screen: which deployments there are, how they are bound, on what hardware.

Four Serve applications, so that models can be exchanged while calls are taken in, and readers delay no call:

    intake   Intake                                       HTTP, under `base_url`
    api      Api                                          HTTP, under `base_url`/api/v1
    console  Console                                      HTTP, under `base_url`/console
    calls    Conductor -> Transcriber, Diarizer           no HTTP: work comes from PostgreSQL

Replicas read their settings from the environment of their node; nothing secret is passed as an argument, because
Ray's dashboard shows arguments. The options of every deployment are built here and nowhere else: `switchboard up` and
`serve deploy` (`deploy/serve.yaml`) differ only in the bounds, `scaling`.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.deployment import Application
from ray.serve.handle import DeploymentHandle

from pipeline.observability import logs, tracing
from pipeline.runtime.actors import Diarizer, RayWorkers, Transcriber
from serve_app.operations.autoscaling import autoscaling, gpu_share, replica_config
from serve_app.operations.options import ScalingOptions
from serve_app.settings import Settings

EVENTS_POOL_SIZE = 6
LAST_SPANS_SECONDS = 2.0  # for a stopping Conductor to send its last spans


class ConductorReplica:
    """Opens the database, runs the loops, reports their health, and drains on shutdown."""

    async def __init__(  # type: ignore[misc]
        self, transcriber: DeploymentHandle, diarizer: DeploymentHandle, scaling: dict[str, Any]
    ) -> None:
        """`scaling`: the `ScalingOptions` that the application was deployed with, which may differ from the node's."""
        from db.core.database import Database
        from serve_app.operations.database_metrics import DatabaseMetrics, report_connections, report_replicas

        logs.install()
        tracing.start("conductor")
        settings = Settings(scaling=ScalingOptions(**scaling))
        self._drain_seconds = settings.processing.drain_seconds
        url, call_keys = settings.require_database_url(), settings.call_keys()
        self._database = await Database.open(url, pool_size=settings.processing.POOL_SIZE, call_keys=call_keys)
        # Separate connections: many receivers that answer at once must not delay the renewal of a lease.
        self._events_database = await Database.open(url, pool_size=EVENTS_POOL_SIZE, call_keys=call_keys)
        self._create_loops(settings, transcriber, diarizer)
        await self._loop.start()
        for loop in self._other_loops.values():
            await loop.start()
        places: dict[str, str | Path] = {"recordings": settings.storage_url}
        if settings.data_dir.is_dir():
            places["data"] = settings.data_dir
        self._facts = DatabaseMetrics(self._events_database, settings.scaling, places)
        self._facts.start()
        self._reports = [
            asyncio.create_task(report_replicas(self._events_database)),
            asyncio.create_task(report_connections(self._database, "Conductor")),
            asyncio.create_task(report_connections(self._events_database, "Events")),
        ]

    def _create_loops(self, settings: Settings, transcriber: DeploymentHandle, diarizer: DeploymentHandle) -> None:
        from serve_app.backup.ledger_copies import LedgerCopies
        from serve_app.conductor.erasure import ErasureLoop, RetentionLoop
        from serve_app.conductor.lease_loop import LeaseLoop
        from serve_app.conductor.loop import ConductorLoop
        from serve_app.conductor.passages import PassageLoop
        from serve_app.conductor.runs import RunLoop
        from serve_app.conductor.webhooks import WebhookDispatcher
        from serve_app.experiments.engines import ClusterEngines

        workers = RayWorkers(transcriber, diarizer, settings.scaling.task_cpus)
        engines = ClusterEngines(settings, transcriber, diarizer, recognizer_environment())

        def set_peer_count(sharing: int) -> None:
            workers.set_peer_count(sharing)
            engines.set_peer_count(sharing)

        process, events, sealer = settings.process_options(), self._events_database, settings.sealer()
        process.claim_scratch()
        self._loop = ConductorLoop(
            self._database, workers, settings.processing, process, sealer, set_peer_count, settings.url_sealer()
        )
        self._events = WebhookDispatcher(events, settings.webhooks, sealer, settings.fetch.ca_file)
        compute = workers.of("passages").compute
        self._passages = PassageLoop(events, compute, settings.embedding, settings.checkpoints)
        self._runs = RunLoop(events, engines, settings, settings.processing, self._loop.llm)
        copies = LedgerCopies(settings.storage_url, settings.sealing_keys())
        self._erasure = ErasureLoop(events, settings.erasure, copies, process.handed_in, settings.voices())
        self._retention = RetentionLoop(events, settings.erasure, settings.voices())
        self._other_loops: dict[str, LeaseLoop[Any]] = {
            "erasure": self._erasure,
            "event": self._events,
            "passage": self._passages,
            "retention": self._retention,
            "run": self._runs,
        }

    async def check_health(self) -> None:
        if not self._loop.alive:
            raise RuntimeError("The job loop has stopped or is stuck.")
        for name, loop in self._other_loops.items():
            if not loop.alive:
                raise RuntimeError(f"The {name} loop has stopped.")

    async def pid(self) -> int:
        """Return the number of this process, for operators and fault tests."""
        return os.getpid()

    async def __del__(self) -> None:
        if hasattr(self, "_events"):
            await asyncio.gather(
                self._loop.stop(),
                self._events.stop(self._drain_seconds),
                self._passages.stop(self._drain_seconds),
                self._runs.stop(),
                self._erasure.stop(),
                self._retention.stop(),
                self._facts.stop(),
            )
            for task in self._reports:
                task.cancel()
            await self._events_database.close()
            await self._database.close()
            await asyncio.to_thread(tracing.stop, LAST_SPANS_SECONDS)


Conductor = serve.deployment(name="Conductor")(ConductorReplica)


ONE_LOOP = {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}
"""Intake's code never blocks, so it needs no second thread, and no hand-over between two event loops for each request:
a fifth more submissions per second (`bench/submit.py`)."""


RELEASE = "RELEASE_OF_SWITCHBOARD"
"""The variable with the release of the code that a process runs."""


HEAP = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
}
"""glibc's allocation of the Transcriber's memory, on a CPU. Each forward pass allocates and frees hundreds of MB, page
by page: huge pages save nine of ten page faults and a few per cent of its processor time, and fixed thresholds half the
memory (glibc 2.35 or later, others ignore it). The thresholds use their old names because glibc 2.36 passes only the
first of several tunables in one variable on to a child."""


def recognizer_environment() -> dict[str, str]:
    """Return the variables of a process that recognizes: `HEAP`, overridden by the environment."""
    return HEAP | {name: os.environ[name] for name in HEAP if name in os.environ}


SERVICE_NODE = "service_node"
"""The resource of nodes without a GPU (cluster.yaml, start.sh, the chart): Intake, Api, Console and Conductor run there
and keep no GPU node from going."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """What `serve deploy` adds. `release`: as in `_environment`; `service_nodes`: whether to use `SERVICE_NODE`."""

    release: str | None = None
    service_nodes: bool = False

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> "Shipped":
        return cls(args.get("release"), bool(args.get("service_nodes")))


HERE = Shipped()


def build_intake(settings: Settings, shipped: Shipped = HERE) -> Application:
    from serve_app.intake.deployment import Intake

    return Intake.options(
        **replica_config(settings.scaling.intake, target_ongoing_requests=16),
        logging_config=settings.serve_logging,
        ray_actor_options=_service_actor(settings, shipped, ONE_LOOP),
        # Above its places Intake itself answers, as a problem document; Serve's limit is higher.
        max_ongoing_requests=settings.limits.REQUESTS,
        max_queued_requests=settings.limits.QUEUE,
        backpressure_config={"status_code": 503, "retry_after_s": settings.limits.RETRY_AFTER_SECONDS},
        max_surge_percent=100,  # a rolling update starts new replicas before it stops old ones
        health_check_period_s=1,  # a dead replica is missed within a second
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.5,
    ).bind()


def build_api(settings: Settings, shipped: Shipped = HERE) -> Application:
    from serve_app.api.deployment import Api

    options = settings.api
    return Api.options(
        **replica_config(settings.scaling.api, target_ongoing_requests=8),
        logging_config=settings.serve_logging,
        ray_actor_options=_service_actor(settings, shipped),
        max_ongoing_requests=options.REQUESTS,
        max_queued_requests=settings.limits.QUEUE,
        backpressure_config={"status_code": 503, "retry_after_s": options.RETRY_AFTER_SECONDS},
        max_surge_percent=100,
        health_check_period_s=1,
        health_check_timeout_s=10,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=5,  # streams do not end by themselves
    ).bind()


def build_console(settings: Settings, shipped: Shipped = HERE) -> Application:
    from serve_app.console.deployment import Console

    return Console.options(
        **replica_config(settings.scaling.console, target_ongoing_requests=16),
        logging_config=settings.serve_logging,
        ray_actor_options=_service_actor(settings, shipped),
        max_ongoing_requests=settings.api.REQUESTS,
        max_queued_requests=256,
        max_surge_percent=100,
        health_check_period_s=2,
        health_check_timeout_s=30,
        graceful_shutdown_wait_loop_s=0.5,
    ).bind()


def build_calls(settings: Settings, shipped: Shipped = HERE) -> Application:
    cluster_gpus = ray.cluster_resources().get("GPU", 0.0) if ray.is_initialized() else 0.0
    store = str(settings.checkpoints) if settings.checkpoints else None
    recognizing = _environment(shipped.release, recognizer_environment())
    transcriber = Transcriber.options(
        **_engine_options("transcriber", settings, cluster_gpus, recognizing),
        max_ongoing_requests=64,
    ).bind(
        settings.asr.model_dump(mode="json", exclude=set(settings.asr.secrets())),
        store,
        settings.alignment.model_dump(mode="json"),
        "serve_app.settings:asr_secrets" if settings.asr.secrets() else None,
    )
    diarizer = Diarizer.options(
        **_engine_options("diarizer", settings, cluster_gpus, _environment(shipped.release)), max_ongoing_requests=32
    ).bind(settings.diarization.model_dump(mode="json"), store)
    return Conductor.options(
        **replica_config(settings.scaling.conductor, **autoscaling("Conductor", settings.scaling)),
        logging_config=settings.serve_logging,
        ray_actor_options=_service_actor(settings, shipped),
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
    """Build for `serve deploy`; `args` as in `_settings`."""
    return build_intake(_settings(args), Shipped.of(args))


def api(args: dict[str, Any]) -> Application:
    """Build for `serve deploy`; `args` as in `_settings`."""
    return build_api(_settings(args), Shipped.of(args))


def console(args: dict[str, Any]) -> Application:
    """Build for `serve deploy`; `args` as in `_settings`."""
    return build_console(_settings(args), Shipped.of(args))


def calls(args: dict[str, Any]) -> Application:
    """Build for `serve deploy`; `args` as in `_settings`."""
    return build_calls(_settings(args), Shipped.of(args))


def _service_actor(settings: Settings, shipped: Shipped, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    place = {"resources": {SERVICE_NODE: 0.001}} if shipped.service_nodes else {}
    return {"num_cpus": settings.scaling.replica_cpus, **place, **_environment(shipped.release, variables)}


def _environment(release: str | None, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return Ray's option for a replica's variables, with the release of the code (`deploy/release.py`).

    Tasks inherit them, and Ray gives no task of one release to a worker that has loaded another.
    """
    variables = {**(extra or {}), **({RELEASE: release} if release else {})}
    return {"runtime_env": {"env_vars": variables}} if variables else {}


def _settings(args: dict[str, Any]) -> Settings:
    """Return the settings of this node's environment, with `args["scaling"]` over them.

    The others of `Shipped` do not change them; with another release Serve replaces the replicas. Raises ValueError for
    any other argument: replicas would not see it.
    """
    if others := sorted(args.keys() - {"scaling", "release", "service_nodes"}):
        raise ValueError(
            f"args may hold `scaling` only, not {', '.join(others)}: set it in the environment of every node instead."
        )
    return Settings(**{name: value for name, value in args.items() if name == "scaling"})
