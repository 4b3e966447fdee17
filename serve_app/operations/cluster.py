"""What Ray Serve and the engines say of themselves, from within a replica."""

import asyncio
import time
from typing import Any

from serve_app.operations.readiness import DEPLOYMENTS, IDLE, Parts, PartState

CALLS = "calls"  # the Serve application
ENGINES = ("Transcriber", "Diarizer")
PROBLEM_SECONDS = 2.0  # for an engine to say whether it has its model
WELL_SECONDS = 900.0  # for which one that has is not asked again: each question would keep an idle replica from leaving


class Cluster:
    """Asks Serve's controller for the state of each deployment, and an engine that runs whether it has its model."""

    def __init__(self) -> None:
        self._well: dict[str, tuple[int, float]] = {}  # replicas that had their model, and until when that holds

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
        return PartState(False, "it has no model (`switchboard status` says why)")
