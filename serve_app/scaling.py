"""How many replicas each deployment has, on what hardware, and the policy that scales on queued work."""

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from db.database import Database

log = logging.getLogger("ray.serve")


class Replicas(BaseModel):
    """Replicas of one deployment. Equal bounds switch autoscaling off for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(1, ge=0, description="Replicas that are always there; 0 lets an idle deployment vanish.")
    max_replicas: int = Field(1, ge=1, description="Most replicas.")
    num_cpus: float = Field(0.0, ge=0, description="Cores that Ray reserves for a replica.")

    @model_validator(mode="after")
    def _ordered(self) -> "Replicas":
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not exceed max_replicas")
        return self


class EngineReplicas(Replicas):
    """Replicas of an engine, which may run on a GPU or on a share of one."""

    num_gpus: float | None = Field(
        None, ge=0, description="Share of a GPU for a replica; left out: the default share if the cluster has a GPU."
    )


class ScalingOptions(BaseModel):
    """Replicas by deployment, and how work becomes replicas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    intake: Replicas = Field(default_factory=Replicas)
    conductor: Replicas = Field(default_factory=Replicas)
    transcriber: EngineReplicas = Field(default_factory=EngineReplicas)
    diarizer: EngineReplicas = Field(default_factory=EngineReplicas)
    task_cpus: float = Field(1.0, gt=0, description="Cores that Ray reserves for a CPU task (decoding, analysis).")
    calls_per_conductor: int = Field(16, ge=1, description="Queued and running calls that one Conductor is meant for.")
    poll_seconds: float = Field(2.0, gt=0, description="How often the scaling policy looks at the queue.")


DEFAULT_GPU_SHARE = {"transcriber": 0.7, "diarizer": 0.3}  # together one GPU: mono calls need both


def gpu_share(name: str, replicas: EngineReplicas, cluster_gpus: float) -> float:
    """The GPU share of a replica: as set, or the default one if the cluster has a GPU at all."""
    if replicas.num_gpus is not None:
        return replicas.num_gpus
    return DEFAULT_GPU_SHARE[name] if cluster_gpus >= 1 else 0.0


def replica_config(replicas: Replicas, **autoscaling: Any) -> dict[str, Any]:
    """Serve options: a fixed number, or an autoscaling configuration."""
    if replicas.min_replicas == replicas.max_replicas:
        return {"num_replicas": replicas.max_replicas}
    return {
        "num_replicas": None,
        "autoscaling_config": {
            "min_replicas": replicas.min_replicas,
            "max_replicas": replicas.max_replicas,
            **autoscaling,
        },
    }


class QueuedCalls:
    """Serve autoscaling policy: Conductors by the calls that wait or run, read from PostgreSQL.

    Lives in the Serve controller and is asked every 0.1 s, so it never blocks: each look at the queue is a task of its
    own. When PostgreSQL has not answered for 30 s the number of replicas stays as it is.
    """

    def __init__(self, calls_per_replica: int, poll_seconds: float = 2.0) -> None:
        self._calls_per_replica = calls_per_replica
        self._poll_seconds = poll_seconds
        self._depth = 0
        self._seen = -math.inf
        self._asked = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._database: Database | None = None

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        now = time.monotonic()
        if (self._task is None or self._task.done()) and now - self._asked >= self._poll_seconds:
            self._asked = now
            self._task = asyncio.get_running_loop().create_task(self._look())
        if now - self._seen > 30:
            return context.target_num_replicas, {}
        wanted = math.ceil(self._depth / self._calls_per_replica)
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return max(low, min(high, wanted)), {}

    async def _look(self) -> None:
        # The address is read here, in the controller, and not passed as an argument: the dashboard shows arguments.
        from db import jobs
        from db.database import Database
        from serve_app.settings import Settings

        try:
            async with asyncio.timeout(5):
                if self._database is None:
                    self._database = await Database.open(Settings().require_database_url(), pool_size=1)
                depth = await jobs.depth(self._database)
            # Calls that wait for their recording need nobody until then.
            self._depth, self._seen = depth.queued - depth.delayed + depth.running, time.monotonic()
        except Exception as error:
            log.warning("the scaling policy cannot read the queue: %s", type(error).__name__)
