from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Replicas(BaseModel):
    """Replicas of one deployment. Equal bounds switch autoscaling off for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(
        1, ge=0, description="Replicas that are always running; 0 lets an idle deployment scale to zero."
    )
    max_replicas: int = Field(1, ge=1, description="Max. number of replicas.")

    @model_validator(mode="after")
    def _ordered(self) -> "Replicas":
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not exceed max_replicas")
        return self


class ReaderReplicas(Replicas):
    """Replicas that serve results. With a maximum of 0 the deployment is left out."""

    max_replicas: int = Field(1, ge=0, description="Max. number of replicas; 0 leaves the deployment out.")

    @model_validator(mode="before")
    @classmethod
    def _none_at_all(cls, values: Any) -> Any:
        """Let max_replicas = 0 imply min_replicas = 0."""
        if isinstance(values, Mapping) and str(values.get("max_replicas")) == "0":
            return {"min_replicas": 0, **values}
        return values


class PricedReplicas(Replicas):
    """Replicas whose cost `switchboard queue` shows."""

    price_per_hour: float | None = Field(None, ge=0, description="Cost of a replica per hour, in any currency.")


class EngineReplicas(PricedReplicas):
    """Replicas of an engine, which may run on a GPU or on a share of one."""

    num_cpus: float = Field(0.0, ge=0, description="Cores that Ray reserves for a replica.")
    num_gpus: float | None = Field(
        None, ge=0, description="Share of a GPU per replica; unset: the default share if the cluster has a GPU."
    )


class ScalingOptions(BaseModel):
    """Replicas by deployment, and the rules by which they scale."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    UP_SECONDS: ClassVar[float] = 2.0  # how long more replicas must be needed before they are added
    CONDUCTOR_RTFX: ClassVar[float] = 20.0  # seconds of audio per second, assumed until it is measured
    TRANSCRIBER_RTFX: ClassVar[float] = 10.0  # likewise
    DIARIZER_RTFX: ClassVar[float] = 10.0  # likewise, of mixed audio
    POLL_SECONDS: ClassVar[float] = 2.0  # how often the scaling policies read the queue

    intake: Replicas = Field(default_factory=Replicas)
    api: ReaderReplicas = Field(default_factory=ReaderReplicas)
    console: ReaderReplicas = Field(default_factory=ReaderReplicas)
    conductor: PricedReplicas = Field(default_factory=PricedReplicas)
    transcriber: EngineReplicas = Field(default_factory=EngineReplicas)
    diarizer: EngineReplicas = Field(default_factory=EngineReplicas)
    replica_cpus: float = Field(
        0.0, ge=0, description="Cores that Ray reserves for a replica of Intake, Api, Console or Conductor."
    )
    task_cpus: float = Field(1.0, gt=0, description="Cores that Ray reserves for a CPU task (decoding, analysis).")
    target_drain_seconds: float = Field(
        300.0, gt=0, description="Replicas are added until they drain the backlog in this time."
    )
    down_seconds: float = Field(
        120.0, ge=0, description="How long fewer replicas must be needed before one is removed."
    )
    idle_seconds: float = Field(300.0, ge=0, description="How long the last idle replica is kept if min_replicas is 0.")

    @property
    def assumed_rtfx(self) -> dict[str, float]:
        """Real-time factor of a replica by deployment, until it is measured."""
        return {"Conductor": self.CONDUCTOR_RTFX, "Transcriber": self.TRANSCRIBER_RTFX, "Diarizer": self.DIARIZER_RTFX}

    def replicas_of(self, name: str) -> PricedReplicas:
        """Return the bounds of a deployment that processes calls, by its name."""
        return {"Conductor": self.conductor, "Transcriber": self.transcriber, "Diarizer": self.diarizer}[name]
