"""The language model's scaling policy in place: calls in PostgreSQL become replicas of a separate Ray Serve.

Everything between is real: the Conductor's metrics, Ray's agent that exposes them, Prometheus, Serve's controller.
"""

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from serve_app.operations import database_metrics
from serve_app.operations.database_metrics import DatabaseMetrics
from serve_app.operations.options import ScalingOptions
from serve_app.service.ports import free_port
from tests import cluster
from tests.integration.serve_app.operations.test_scaling_in_serve import Engine, running
from tests.postgres import World
from tests.prometheus import prometheus

DEPLOY = cluster.ROOT / "serve_app/deploy"
QUICK = {"upscale_delay_s": 0.5, "downscale_delay_s": 0.5, "metrics_interval_s": 1, "look_back_period_s": 2}


def as_shipped(**changes: Any) -> dict[str, Any]:
    (model,) = yaml.safe_load((DEPLOY / "llm.yaml").read_text())["applications"][0]["args"]["llm_configs"]
    return dict(model["deployment_config"]["autoscaling_config"]) | changes


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_replicas_come_for_calls_before_any_asks_and_go_when_these_are_done_or_nobody_tells_of_them(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import serve

    port, metrics_port = free_port(), free_port()
    environment = {
        "PYTHONPATH": f"{cluster.ROOT}:{DEPLOY}",
        "RAY_PROMETHEUS_HOST": f"http://127.0.0.1:{port}",
        "RAY_metrics_report_interval_ms": "500",
    }
    monkeypatch.syspath_prepend(DEPLOY)
    monkeypatch.setattr(database_metrics, "SECONDS", 0.5)
    policy = as_shipped()["policy"] | {"policy_kwargs": {"calls_per_replica": 2}}
    model = serve.deployment(name="Model")(Engine).options(
        autoscaling_config=as_shipped(min_replicas=0, policy=policy, **QUICK),
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_wait_loop_s=0.1,
    )
    conductor = DatabaseMetrics(world.database, ScalingOptions())
    with (
        cluster.serving(metrics_port, **environment),
        prometheus(tmp_path, port, {"switchboard": f"127.0.0.1:{metrics_port}"}) as telling,
    ):
        conductor.start()
        try:
            serve.run(model.bind(), name="model", route_prefix=None)

            def status() -> Any:
                return serve.status().applications["model"].deployments["Model"]

            await running(status, 0)
            await world.submit(recording_url="https://store.example/a.wav")
            await running(status, 1)
            for name in "bcd":
                await world.submit(call_id=uuid4(), recording_url=f"https://store.example/{name}.wav")
            await running(status, 2)
            await world.execute("UPDATE jobs SET state = 'done', finished_at = now()")
            await running(status, 0)
            await world.submit(call_id=uuid4(), recording_url="https://store.example/e.wav")
            await running(status, 1)
            telling.kill()
            await running(status, 0)  # requests alone count, and there are none
        finally:
            await conductor.stop()
