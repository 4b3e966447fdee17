"""Scales the language model of llm.yaml on the calls in Switchboard's queue, before their requests arrive.

Runs in the Serve controller of the model's Ray cluster, which has no Switchboard: the length of the queue comes from
the Prometheus that scrapes Switchboard. Ray calls the policy every 5 s, and a value counts for 15 s.
"""

import logging
from typing import Any

from ray.serve.autoscaling_policy import PrometheusQueryMixin

QUEUED_CALLS = 'sum(max by (state) (ray_switchboard_jobs{state=~"fetching|queued|running"}))'
"""Unfinished calls. Each Conductor records the same figures."""
log = logging.getLogger("ray.serve")


class QueuedCalls(PrometheusQueryMixin):  # type: ignore[misc]
    """As many replicas as the unfinished calls need, or the running and waiting requests: the larger number.

    A model takes minutes to load, so calls count while they are fetched and recognized. Without the queue (no
    Prometheus, or no response) requests alone count. Serve keeps the result within the bounds of `autoscaling_config`.
    """

    def __init__(self, calls_per_replica: float, query: str = QUEUED_CALLS, **where: Any) -> None:
        """`where` as in Ray's mixin; default: RAY_PROMETHEUS_HOST (and RAY_PROMETHEUS_HEADERS)."""
        super().__init__(prometheus_queries=[query], **where)
        self._query = query
        self._calls_per_replica = calls_per_replica
        if not self._prometheus_address:
            log.warning("llm: RAY_PROMETHEUS_HOST is not set; replicas follow requests, not queued calls")

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        calls = (self.prometheus_metrics or {}).get(self._query, 0.0)
        requests = context.total_num_requests / context.config.get_target_ongoing_requests()
        return max(calls / self._calls_per_replica, requests), {}
