from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from pipeline.domain.speech import SAMPLE_RATE

START_SECONDS = 20  # processor time for any file
MIN_BYTES_PER_SECOND = 600  # of any telephony codec
MIN_SPEED = 25.0  # seconds of sound decoded per processor second; a slow processor reaches 200


class DecodeOptions(BaseModel):
    """Options of decoding: limits on length, samples and size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    MEMORY_BYTES: ClassVar[int] = 1 << 30  # that one decoder may allocate after its start

    SAMPLES_PER_SECOND: ClassVar[float] = 2 * 96_000  # of the longest recording: stereo at 96 kHz
    DECODED_BYTES_PER_SECOND: ClassVar[float] = 3 * 2 * SAMPLE_RATE  # likewise: three channels of speech

    max_seconds: float = Field(
        6 * 3600.0,
        gt=0,
        description="Longest recording, in seconds; the number of samples and the decoded size are limited in "
        "proportion.",
    )

    @property
    def max_samples(self) -> int:
        """Channels x rate x seconds of all tracks: as declared before decoding, and as counted during decoding."""
        return round(self.max_seconds * self.SAMPLES_PER_SECOND)

    @property
    def max_decoded_bytes(self) -> int:
        """Limit of one decoded recording in the scratch folder: 115 MB per hour and channel that is not silent."""
        return round(self.max_seconds * self.DECODED_BYTES_PER_SECOND)

    def max_sound_seconds(self, size: int) -> float:
        """Return the max. seconds of sound, of all tracks, in a file of `size` bytes."""
        return min(size / MIN_BYTES_PER_SECOND, 2 * self.max_seconds)

    def processor_seconds(self, size: int) -> int:
        """Return the limit of processor time for decoding a file of `size` bytes."""
        return START_SECONDS + int(self.max_sound_seconds(size) / MIN_SPEED)
