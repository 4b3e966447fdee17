"""What the database says of the whole service, as gauges: recorded by the Conductor, whatever its calls do.

Where several Conductors run each records the same: `max by (state)`, not `sum`.
"""

import asyncio
import contextlib
import logging
import math

from db.core.database import OUTAGES, Database
from db.events import deliveries
from db.queue import backlog as queue
from pipeline.observability.metrics import Gauge
from serve_app.operations import metric_names
from serve_app.operations.estimates import STAGES, Estimate
from serve_app.operations.scaling_options import ScalingOptions

SECONDS = 10.0  # between two looks
log = logging.getLogger("ray.serve")


class DatabaseMetrics:
    """Looks again and again, until `stop`."""

    def __init__(self, database: Database, scaling: ScalingOptions) -> None:
        self._database = database
        self._scaling = scaling
        self._set: dict[tuple[Gauge, tuple[tuple[str, str], ...]], None] = {}  # series that there are
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever(), name="facts for metrics")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _forever(self) -> None:
        while True:
            with contextlib.suppress(*OUTAGES):  # every loop of the Conductor says so
                try:
                    await self.look()
                except OUTAGES:
                    raise
                except Exception:
                    log.exception("metrics: what the database says could not be read")
            await asyncio.sleep(SECONDS)

    async def look(self) -> None:
        """Set every gauge. Where the database does not answer they are taken away: an old value would look like one."""
        try:
            backlog = await queue.backlog(self._database)
            ages = await queue.ages(self._database)
            unsent, lag = await deliveries.backlog(self._database)
        except BaseException:
            for gauge, labels in self._set:
                gauge.set(math.nan, **dict(labels))
            self._set.clear()
            metric_names.DATABASE_UP.set(0.0)
            raise
        metric_names.DATABASE_UP.set(1.0)
        self._of_queue(backlog, ages)
        self._of_stages(backlog)
        self._tell(metric_names.WEBHOOK_UNSENT, unsent)
        self._tell(metric_names.WEBHOOK_LAG, lag)

    def _of_queue(self, backlog: queue.Backlog, ages: dict[str, float]) -> None:
        states = {"fetching": 0, "queued": 0, "running": 0, "later": backlog.later}
        for group in backlog.groups:
            states["fetching" if group.fetching else "running" if group.running else "queued"] += group.calls
        for state, calls in states.items():
            self._tell(metric_names.JOBS, calls, state=state)
        for stage, seconds in ages.items():
            self._tell(metric_names.QUEUE_AGE, seconds, stage=stage)

    def _of_stages(self, backlog: queue.Backlog) -> None:
        estimate = Estimate(backlog, self._scaling.assumed_rtfx)
        for stage in STAGES:
            work, hour = estimate.work(stage), estimate.per_audio_hour(stage)
            self._tell(metric_names.QUEUE_AUDIO, sum(work.audio_seconds.values()), stage=stage)
            self._tell(metric_names.QUEUE_DRAIN, estimate.drain_seconds(stage), stage=stage)
            self._tell(metric_names.RTFX, 3600.0 / hour, stage=stage)
            if (there := estimate.state(stage)) is not None:
                self._tell(metric_names.REPLICAS, there.replicas, stage=stage, state="running")
                self._tell(metric_names.REPLICAS, there.wanted, stage=stage, state="wanted")
            if (price := self._scaling.replicas_of(stage).price_per_hour) is not None:
                self._tell(metric_names.COST, price * hour / 3600, stage=stage)

    def _tell(self, gauge: Gauge, value: float, **labels: str) -> None:
        self._set[gauge, tuple(labels.items())] = None
        gauge.set(float(value), **labels)


async def report_connections(database: Database, deployment: str) -> None:
    """Record the connections of a process, until canceled."""
    while True:
        pools = database.pools()
        for pool, state in pools.items():
            for name, count in (("used", state.used), ("idle", state.idle), ("limit", state.limit)):
                metric_names.POSTGRES_CONNECTIONS.set(float(count), deployment=deployment, pool=pool, state=name)
        metric_names.POSTGRES_WAITING.set(float(pools["statements"].waiting), deployment=deployment)
        await asyncio.sleep(SECONDS)
