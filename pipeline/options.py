"""The options of every stage in one model, which `serve_app.settings` fills from the environment."""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pipeline import scratch
from pipeline.analysis import AnalysisOptions
from pipeline.asr.safety import SafetyOptions
from pipeline.audio.decode import sound
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.errors import StorageError
from pipeline.fetch.options import FetchOptions
from pipeline.fetch.storage import Store
from pipeline.runtime.deadlines import DeadlineOptions
from pipeline.speakers.roles import RoleOptions

log = logging.getLogger(__name__)


class ProcessOptions(BaseModel):
    """Options of the stages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage: str = Field("file://.data/recordings", description="Fsspec folder for fetched recordings.")
    scratch: str | None = Field(
        None,
        description="Fsspec folder for decoded sound while a call is processed or played; every node must reach "
        "it. Unset: decoded/ in `storage`.",
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

    def claim_scratch(self) -> None:
        """Create the folders of this process for decoded sound and unfinished copies of recordings.

        From now on this process removes the folders of processes that have ended. A folder that cannot be created
        fails the work that needs it, not the start of the process.
        """
        try:
            scratch.local_folder(self.scratch_folder)
            Store(self.storage).claim_incoming()
        except StorageError as error:
            log.warning("%s", error)
