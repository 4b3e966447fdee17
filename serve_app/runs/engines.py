"""Which engines a run asks: the service's own where they are what the run names, else engines of its own."""

from typing import Any

import ray
from ray.serve.handle import DeploymentHandle

from pipeline.engines import EngineOptions
from pipeline.runtime.actors import ClusterCpus
from pipeline.runtime.background import BackgroundWorkers, NicedDiarizer, NicedTranscriber, OnDemand
from pipeline.runtime.workers import Workers
from pipeline.runtime.yielding import places
from serve_app.runs.configuration import RunOptions
from serve_app.scaling.policy import gpu_share
from serve_app.settings import Settings

START_SECONDS = 10.0  # that an engine works, about, until it is loaded


class ClusterEngines:
    """Workers of runs on the cluster."""

    def __init__(
        self, settings: Settings, transcriber: DeploymentHandle, diarizer: DeploymentHandle, environment: dict[str, str]
    ) -> None:
        """`environment`: variables of a process that recognizes."""
        self._settings = settings
        self._handles = {"asr": transcriber, "diarization": diarizer}
        self._environment = environment
        self._cpus = ClusterCpus()
        self._sharing = 1

    def set_peer_count(self, sharing: int) -> None:
        """Set how many processes work on runs on this cluster, this one included."""
        self._sharing = sharing

    def room(self) -> int:
        """How many pieces of work there is room for while no call waits."""
        return places(self._cpus(), self._sharing)

    def start_seconds(self, workers: Workers) -> float:
        """How long engines that the service lacks work, about, until they are loaded; 0: it has all."""
        return START_SECONDS * workers.started if isinstance(workers, BackgroundWorkers) else 0.0

    def workers(self, options: RunOptions) -> Workers:
        """Workers of these options; engines that the service lacks are started when they are asked."""
        return BackgroundWorkers(
            self._engine("asr", "transcriber", NicedTranscriber, options.asr, self._environment),
            self._engine("diarization", "diarizer", NicedDiarizer, options.diarization, {}),
            self.room,
        )

    def close(self, workers: Workers) -> None:
        """Give back what was started for them."""
        if isinstance(workers, BackgroundWorkers):
            workers.close()

    def _engine(self, group: str, name: str, kind: type, wanted: dict[str, Any], environment: dict[str, str]) -> Any:
        own: EngineOptions = getattr(self._settings, group)
        if own.own().model_dump(mode="json") == wanted:
            return self._handles[group]
        store = str(self._settings.checkpoints) if self._settings.checkpoints else None
        gpus = gpu_share(name, getattr(self._settings.scaling, name), ray.cluster_resources().get("GPU", 0.0))
        return OnDemand(kind, (wanted, store), gpus, environment)
