import asyncio
import time
from typing import Any

from serve_app.operations.readiness import DEPLOYMENTS, IDLE, Parts, PartState

CALLS = "calls"  # the Serve application
ENGINES = ("Transcriber", "Diarizer")
PROBLEM_SECONDS = 2.0  # for an engine to report on its model
WELL_SECONDS = 900.0  # until an engine with a model is queried again: a query keeps an idle replica running


class Cluster:
    """Queries Serve's controller for the state of each deployment, and running engines for their model."""

    def __init__(self) -> None:
        self._well: dict[str, tuple[int, float]] = {}  # replicas with their model, and when to query again

    async def parts(self) -> Parts:
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> Parts:
        from ray import serve

        application = serve.status().applications.get(CALLS)
        deployed = application.deployments if application else {}
        return {name: self._part(name, deployed.get(name)) for name in DEPLOYMENTS}

    def _part(self, name: str, deployment: Any) -> PartState:
        if deployment is None:
            return PartState(False, "not deployed")
        running = deployment.replica_states.get("RUNNING", 0)
        if running:
            return self._model(name, running)
        self._well.pop(name, None)
        if deployment.status == "HEALTHY":
            return IDLE
        return PartState(False, f"no replica runs ({str(deployment.status.value).lower()})")

    def _model(self, name: str, running: int) -> PartState:
        if name not in ENGINES:
            return PartState(True)
        replicas, until = self._well.get(name, (0, 0.0))
        if replicas == running and time.monotonic() < until:
            return PartState(True)
        from ray import serve

        problem = serve.get_deployment_handle(name, CALLS).problem.remote().result(timeout_s=PROBLEM_SECONDS)
        if problem is None:
            self._well[name] = (running, time.monotonic() + WELL_SECONDS)
            return PartState(True)
        return PartState(False, "no model; see `switchboard status`")


def replica_counts() -> dict[str, tuple[int, int]]:
    """Return the running and the wanted replicas of each deployment, as Serve's controller reports them."""
    from ray.serve.context import _get_global_client  # `serve.status` omits the wanted number

    deployments: dict[str, tuple[int, int]] = {}
    for application in _get_global_client().get_serve_details()["applications"].values():
        for name, deployment in application["deployments"].items():
            running = sum(replica["state"] == "RUNNING" for replica in deployment["replicas"])
            deployments[name] = (running, deployment["target_num_replicas"])
    return deployments
