"""Metrics for Prometheus: a process records its own in memory, and the Ray agent of its node exposes those of all.

Without Ray (a notebook, a command, most tests) nothing is recorded: nothing could read it. Names have no prefix here;
Prometheus sees `ray_switchboard_...` (`Metric.exposed`).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

PREFIX = "ray_"  # added to every name by Ray's agent


@dataclass(eq=False)
class Metric:
    """A metric and its row in the reference.

    `process`: the deployment whose processes record it. `labels`: the values of each label: few, and never a number, an
    id or anything that was sent.
    """

    KIND: ClassVar[str]

    name: str
    text: str
    process: str
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[float] = ()  # of a histogram
    _recorder: Any = field(default=None, init=False, repr=False)

    @property
    def exposed(self) -> str:
        return PREFIX + self.name

    def record(self, value: float, labels: dict[str, str]) -> None:
        """Record a value, in about two microseconds. Raises ValueError for labels other than the metric's."""
        if labels.keys() != self.labels.keys():
            raise ValueError(f"{self.name} has the labels {sorted(self.labels)}, not {sorted(labels)}.")
        recorder = self._recorder or self._find_ray()
        if recorder is not None:
            recorder(value, labels)

    def _find_ray(self) -> Any:
        ray = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            self._recorder = self._in_ray()
        return self._recorder

    def _in_ray(self) -> Any:
        raise NotImplementedError


class Counter(Metric):
    """A number that only grows, from 0 when its process starts."""

    KIND = "counter"

    def inc(self, value: float = 1.0, **labels: str) -> None:
        if value > 0:
            self.record(value, labels)

    def _in_ray(self) -> Any:
        from ray.util import metrics

        return metrics.Counter(self.name, self.text, tuple(self.labels)).inc


class Gauge(Metric):
    """A current value."""

    KIND = "gauge"

    def set(self, value: float, **labels: str) -> None:
        """Set the value; NaN removes the series until the next value."""
        self.record(value, labels)

    def _in_ray(self) -> Any:
        from ray.util import metrics

        return metrics.Gauge(self.name, self.text, tuple(self.labels)).set


class Histogram(Metric):
    """Values counted by bucket. Ray's agent counts each as the middle of its bucket, so sums are estimates."""

    KIND = "histogram"

    def observe(self, value: float, **labels: str) -> None:
        self.record(value, labels)

    def _in_ray(self) -> Any:
        from ray.util import metrics

        return metrics.Histogram(self.name, self.text, list(self.buckets), tuple(self.labels)).observe


BATCH_FILL = Histogram(
    "switchboard_batch_fill_ratio",
    "Share of a recognition batch that is filled. Low with a long queue: the Transcriber starves.",
    "Transcriber",
    buckets=[0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0],
)
