"""A small Ray cluster with Serve in this process, for tests of single deployments."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.host import patiently

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20, "log_to_driver": False}


@contextmanager
def serving(metrics_port: int | None = None, **environment: str) -> Iterator[None]:
    """Serve without a proxy; its processes see `environment` and can import the tests.

    `metrics_port`: where its Ray tells its metrics and ours.
    """
    import ray
    from ray import serve

    environment = {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"} | environment
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    patiently(lambda: ray.init("local", **CLUSTER, _metrics_export_port=metrics_port))
    try:
        serve.start(proxy_location="Disabled")
        yield
    finally:
        serve.shutdown()
        ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
