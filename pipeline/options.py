"""The options of every stage in one model, which `serve_app.settings` fills from the environment."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pipeline.analysis import AnalysisOptions
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.decode import sound
from pipeline.audio.decode.decoder import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.fetch.fetcher import FetchOptions
from pipeline.runtime.deadlines import DeadlineOptions
from pipeline.speakers.roles import RoleOptions


class ProcessOptions(BaseModel):
    """Options of the stages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: str = Field("file://.data/recordings", description="Fsspec folder for fetched recordings.")
    scratch: str | None = Field(
        None,
        description="Fsspec folder for decoded sound while a call is processed; every node must reach it. Unset: "
        "decoded/ in `storage`.",
    )
    handed_in: Path | None = Field(
        None,
        description="Folder through which commands of the service's user hand files in; unset: not accepted.",
    )
    fetch: FetchOptions = Field(default_factory=FetchOptions)
    decode: DecodeOptions = Field(default_factory=DecodeOptions)
    speech: SpeechOptions = Field(default_factory=SpeechOptions)
    roles: RoleOptions = Field(default_factory=RoleOptions)
    safety: SafetyOptions = Field(default_factory=SafetyOptions)
    analysis: AnalysisOptions = Field(default_factory=AnalysisOptions)
    deadlines: DeadlineOptions = Field(default_factory=DeadlineOptions)

    @property
    def scratch_folder(self) -> str:
        """Fsspec address of the folder for decoded sound."""
        return self.scratch or sound.join(self.storage, "decoded")
