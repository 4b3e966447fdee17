from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from serve_app.operations.options import EngineReplicas, Replicas, ScalingOptions

if TYPE_CHECKING:
    from serve_app.operations.backlog import BacklogMonitor

LOOK_BACK_SECONDS = 2.0  # for which an answered request still counts, and keeps the last replica


DEFAULT_GPU_SHARE = {"transcriber": 0.7, "diarizer": 0.3}  # together one GPU: mono calls need both


def gpu_share(name: str, replicas: EngineReplicas, cluster_gpus: float) -> float:
    """Return the GPU share of a replica: as set, or the default if the cluster has a GPU."""
    if replicas.num_gpus is not None:
        return replicas.num_gpus
    return DEFAULT_GPU_SHARE[name] if cluster_gpus >= 1 else 0.0


def replica_config(replicas: Replicas, **autoscaling: Any) -> dict[str, Any]:
    """Return Serve options: a fixed number of replicas, or an autoscaling configuration."""
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


class QueuedAudio:
    """Serve autoscaling policy of one deployment: enough replicas to drain queued audio in `target_drain_seconds`.

    Runs in the Serve controller, which sends it along with each new replica: it stores nothing but its arguments, and
    looks up the monitor that the policies of a process share. Backlog and real-time factors are read from PostgreSQL
    (`db.queue.backlog`); while it is unreachable, the number of replicas stays the same. A request without a job (from
    a notebook) keeps one replica.
    """

    def __init__(
        self, name: str, assumed_rtfx: Mapping[str, float], target_drain_seconds: float, poll_seconds: float
    ) -> None:
        self._name = name
        self._target_drain_seconds = target_drain_seconds
        self._assumed_rtfx = dict(assumed_rtfx)
        self._poll_seconds = poll_seconds

    @property
    def monitor(self) -> "BacklogMonitor":
        """Monitor of this process for these arguments."""
        # Imported here: Serve sends this class by value, with all module globals that it refers to.
        from serve_app.operations.backlog import monitor_for

        return monitor_for(self._assumed_rtfx, self._poll_seconds)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        estimate = self.monitor.estimate
        if estimate is None:
            target = context.target_num_replicas
        else:
            target = max(estimate.wanted(self._name, self._target_drain_seconds), int(context.total_num_requests > 0))
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return max(low, min(high, target)), {}


def autoscaling(name: str, options: ScalingOptions) -> dict[str, Any]:
    """Return the autoscaling configuration of a deployment that processes calls, for `replica_config`."""
    from ray.serve.config import AutoscalingPolicy

    policy = AutoscalingPolicy(
        policy_function=QueuedAudio,
        policy_kwargs={
            "name": name,
            "assumed_rtfx": options.assumed_rtfx,
            "target_drain_seconds": options.target_drain_seconds,
            "poll_seconds": options.POLL_SECONDS,
        },
    )
    return {
        "policy": policy,
        "upscale_delay_s": options.UP_SECONDS,
        "downscale_delay_s": options.down_seconds,
        # An idle replica is noticed after a while, and Serve counts from there.
        "downscale_to_zero_delay_s": max(0.0, options.idle_seconds - max(options.POLL_SECONDS, LOOK_BACK_SECONDS)),
        "metrics_interval_s": 1,
        "look_back_period_s": LOOK_BACK_SECONDS,
    }
