"""A small Ray cluster with Serve, for tests of single deployments."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.chaos.host import patiently

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20, "log_to_driver": False}


_shared = ExitStack()  # the cluster of `ray_cluster`, while it runs


@pytest.fixture(scope="module")
def ray_cluster() -> None:
    """Start one Ray with Serve for all modules that need no settings of their own.

    It ends with the process, or when a module starts another one: a process has one cluster at a time.
    """
    import ray

    if not ray.is_initialized():
        _shared.enter_context(_running())


def pytest_sessionfinish() -> None:
    _shared.close()


@contextmanager
def serving(metrics_port: int | None = None, **environment: str) -> Iterator[None]:
    """Run Serve without a proxy, in place of a shared cluster. Its processes have `environment`, and import the tests.

    `metrics_port`: where Ray exports its metrics and those of the service.
    """
    _shared.close()
    with _running(metrics_port, **environment):
        yield


@contextmanager
def _running(metrics_port: int | None = None, **environment: str) -> Iterator[None]:
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
