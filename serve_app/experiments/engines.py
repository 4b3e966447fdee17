"""Engines for a run: the service's if its options are the run's, otherwise engines started for the run."""

from typing import Any

import ray
from ray.serve.handle import DeploymentHandle

from pipeline.runtime.actors import ClusterCpus
from pipeline.runtime.background import BackgroundWorkers, OnDemand, Processes
from pipeline.runtime.low_priority import LowPriorityDiarizer, LowPriorityEngine, LowPriorityTranscriber
from pipeline.runtime.preemption import places
from pipeline.runtime.workers import Workers
from serve_app.experiments.configuration import RunOptions, without_secrets
from serve_app.operations.autoscaling import gpu_share
from serve_app.settings import Settings

START_SECONDS = 10.0  # about, to load an engine


class ClusterEngines:
    """Creates the workers of runs on the cluster."""

    def __init__(
        self, settings: Settings, transcriber: DeploymentHandle, diarizer: DeploymentHandle, environment: dict[str, str]
    ) -> None:
        """`environment`: variables of a process that recognizes."""
        self._settings = settings
        self._store = str(settings.checkpoints) if settings.checkpoints else None
        self._handles = {"asr": transcriber, "diarization": diarizer}
        self._environment = environment
        self._cpus = ClusterCpus()
        self._sharing = 1
        self._processes = Processes(self.room)

    def set_peer_count(self, sharing: int) -> None:
        """Set how many processes work on runs on this cluster, this one included."""
        self._sharing = sharing

    def room(self) -> int:
        """Return how many pieces of work have room while no call waits."""
        return places(self._cpus(), self._sharing)

    def start_seconds(self, workers: Workers) -> float:
        """Return about how long engines that are started for the run need to load; 0: it uses the service's."""
        return START_SECONDS * workers.started if isinstance(workers, BackgroundWorkers) else 0.0

    def workers(self, options: RunOptions) -> Workers:
        """Return workers with these options; engines that the service lacks are started at their first request."""
        return BackgroundWorkers(self._transcriber(options), self._diarizer(options), self._processes)

    def close(self, workers: Workers) -> None:
        """Stop the engines that were started for these workers."""
        if isinstance(workers, BackgroundWorkers):
            workers.close()

    def _transcriber(self, options: RunOptions) -> DeploymentHandle | OnDemand:
        settings = self._settings
        if (options.asr, options.alignment) == (without_secrets(settings.asr), without_secrets(settings.alignment)):
            return self._handles["asr"]
        server = options.asr.get("base_url")
        secrets = f"serve_app.settings:asr_secrets:{server}" if server and settings.asr.secrets() else None
        return self._own(
            "transcriber",
            LowPriorityTranscriber,
            (options.asr, self._store, options.alignment, secrets),
            self._environment,
        )

    def _diarizer(self, options: RunOptions) -> DeploymentHandle | OnDemand:
        if options.diarization == without_secrets(self._settings.diarization):
            return self._handles["diarization"]
        return self._own("diarizer", LowPriorityDiarizer, (options.diarization, self._store), {})

    def _own(
        self, name: str, kind: type[LowPriorityEngine], arguments: tuple[Any, ...], environment: dict[str, str]
    ) -> OnDemand:
        gpus = gpu_share(name, getattr(self._settings.scaling, name), ray.cluster_resources().get("GPU", 0.0))
        return OnDemand(kind, arguments, gpus, environment)
