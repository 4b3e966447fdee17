"""Gauges that the Conductor reads from the database for the whole service.

Each of several Conductors records the same values: `max by (state)`, not `sum`.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from db.core.database import OUTAGES, Database
from db.events import endpoints
from db.queue import backlog as queue
from db.records import file_deletions
from db.server import readiness
from pipeline.fetch.room import free_bytes
from pipeline.observability.metrics import Gauge
from serve_app.operations import cluster, metric_names
from serve_app.operations.estimates import STAGES, Estimate
from serve_app.operations.options import ScalingOptions

EMPTY: Mapping[str, str | Path] = MappingProxyType({})
# Between two reports. Ray drops a gauge that is 20 s old, and a gap restarts the time that an alert waits.
SECONDS = 5.0
log = logging.getLogger("ray.serve")


class DatabaseMetrics:
    """Refreshes the gauges until `stop`."""

    def __init__(self, database: Database, scaling: ScalingOptions, places: Mapping[str, str | Path] = EMPTY) -> None:
        """`places`: folders, as paths or URLs, whose disks are reported, by name."""
        self._database, self._places = database, places
        self._scaling = scaling
        self._series: dict[tuple[Gauge, tuple[tuple[str, str], ...]], None] = {}  # series with a value
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever(), name="facts for metrics")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _forever(self) -> None:
        while True:
            with contextlib.suppress(*OUTAGES):  # logged by every loop of the Conductor
                try:
                    await self.look()
                except OUTAGES:
                    raise
                except Exception:
                    log.exception("metrics: the gauges of the database could not be read")
            await asyncio.sleep(SECONDS)

    async def look(self) -> None:
        """Set every gauge. Without a response of the database they are removed: an old value would look current."""
        for place, url in self._places.items():
            if (free := await asyncio.to_thread(free_bytes, url)) is not None:
                metric_names.DISK_FREE.set(float(free), place=place)
        try:
            backlog = await queue.backlog(self._database)
            ages = await queue.ages(self._database)
            unsent, lag = await endpoints.backlog(self._database)
            files = await file_deletions.waiting(self._database)
            has_room, backup_age = await readiness.has_room(self._database), await readiness.backup_age(self._database)
        except BaseException:
            for gauge, labels in self._series:
                gauge.set(math.nan, **dict(labels))
            self._series.clear()
            metric_names.DATABASE_UP.set(0.0)
            raise
        metric_names.DATABASE_UP.set(1.0)
        self._set_queue(backlog, ages)
        self._set_deployments(backlog)
        self._set_gauge(metric_names.WEBHOOK_UNSENT, unsent)
        self._set_gauge(metric_names.WEBHOOK_LAG, lag)
        self._set_gauge(metric_names.FILES_TO_DELETE, files)
        self._set_gauge(metric_names.DATABASE_ROOM, has_room)
        if backup_age is not None:
            self._set_gauge(metric_names.BACKUP_AGE, backup_age)

    def _set_queue(self, backlog: queue.Backlog, ages: dict[str, float]) -> None:
        states = {"fetching": 0, "queued": 0, "running": 0, "later": backlog.later}
        for group in backlog.groups:
            states["fetching" if group.fetching else "running" if group.running else "queued"] += group.calls
        for state, calls in states.items():
            self._set_gauge(metric_names.JOBS, calls, state=state)
        for deployment, seconds in ages.items():
            self._set_gauge(metric_names.QUEUE_AGE, seconds, deployment=deployment)

    def _set_deployments(self, backlog: queue.Backlog) -> None:
        estimate = Estimate(backlog, self._scaling.assumed_rtfx)
        for deployment in STAGES:
            work, hour = estimate.work(deployment), estimate.per_audio_hour(deployment)
            self._set_gauge(metric_names.QUEUE_AUDIO, sum(work.audio_seconds.values()), deployment=deployment)
            self._set_gauge(metric_names.QUEUE_DRAIN, estimate.drain_seconds(deployment), deployment=deployment)
            self._set_gauge(metric_names.RTFX, 3600.0 / hour, deployment=deployment)
            if (price := self._scaling.replicas_of(deployment).price_per_hour) is not None:
                self._set_gauge(metric_names.COST, price * hour / 3600, deployment=deployment)
        for state in backlog.engines:
            if state.name != readiness.BACKUP:
                self._set_gauge(metric_names.REPLICAS, state.replicas, deployment=state.name, state="running")
                self._set_gauge(metric_names.REPLICAS, state.wanted, deployment=state.name, state="wanted")

    def _set_gauge(self, gauge: Gauge, value: float, **labels: str) -> None:
        self._series[gauge, tuple(labels.items())] = None
        gauge.set(float(value), **labels)


async def report_connections(database: Database, deployment: str) -> None:
    """Record the connections of a process, until canceled."""
    seconds_waited, seen_at = database.pools()["statements"].seconds_waited, time.monotonic()
    while True:
        pools = database.pools()
        for pool, state in pools.items():
            for name, count in (("used", state.used), ("idle", state.idle), ("limit", state.limit)):
                metric_names.POSTGRES_CONNECTIONS.set(float(count), deployment=deployment, pool=pool, state=name)
        # An average: a statement waits for seconds at most, so a look now and then would often see none.
        waited, now = pools["statements"].seconds_waited - seconds_waited, time.monotonic()
        waiting = waited / max(now - seen_at, SECONDS)
        seconds_waited, seen_at = seconds_waited + waited, now
        metric_names.POSTGRES_WAITING.set(waiting, deployment=deployment)
        await asyncio.sleep(SECONDS)


async def report_replicas(database: Database) -> None:
    """Store the running and the wanted replicas of each deployment, until canceled."""
    while True:
        try:
            counts = await asyncio.to_thread(cluster.replica_counts)
            for name in ("Intake", "Api", "Console", *STAGES):
                await queue.note_replicas(database, name, *counts.get(name, (0, 0)))
        except OUTAGES:
            pass  # logged by every loop of the Conductor
        except Exception as error:  # Serve's controller is starting again
            log.warning("metrics: the number of replicas could not be stored: %s", type(error).__name__)
        await asyncio.sleep(SECONDS)
