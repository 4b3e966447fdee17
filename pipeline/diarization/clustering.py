"""Speaker diarization without a segmentation network: windows of speech, embedded by CAM++, clustered by voice.

Speech is detected by Silero VAD and cut at pauses, where speakers change. Each run of speech is cut into windows of
about a second and a half; a window is one part of a recording. `regions.py` has the steps for a whole call.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from pipeline import checkpoints
from pipeline.checkpoints import CheckpointKind
from pipeline.checkpoints.resolve import WHOLE
from pipeline.diarization.engine import DiarizationOptions, Samples, reader
from pipeline.diarization.regions import Region, diarized
from pipeline.diarization.torch_engine import TorchEngine
from pipeline.domain.speech import SAMPLE_RATE, Audio, Diarization
from pipeline.errors import CheckpointMissing, EngineError
from pipeline.voice import activity
from pipeline.voice.calibration import calibration_of

WEIGHTS = "campplus_cn_en_common.pt"
FRAME = activity.FRAME  # samples
HOP = SAMPLE_RATE // 100  # samples between frames of the filterbank
MARGIN = SAMPLE_RATE // 10  # samples on either side of a run of speech, embedded with it


class ClusteringOptions(DiarizationOptions):
    model_config = ConfigDict(extra="forbid")


CHECKPOINTS = CheckpointKind(
    title="speaker embedding model",
    setting="SWITCHBOARD_DIARIZATION__PIPELINE",
    auto=lambda _: ("campplus",),
    stored={"campplus": {WHOLE: "campplus"}},
    required=(WEIGHTS,),
    patterns=(WEIGHTS,),
)


@dataclass(frozen=True, slots=True, eq=False)
class SpeechWindow:
    """A stretch of speech between two pauses, or a part of a longer one."""

    region: Region
    samples: Samples


class Clustering(TorchEngine):
    """A diarization engine; see `pipeline.diarization.Engine`."""

    Options = ClusteringOptions
    CHECKPOINTS = CHECKPOINTS
    CPU_BATCH, GPU_BATCH = 8, 64

    def __init__(self, options: ClusteringOptions, store: Path | None = None) -> None:
        import torch

        from pipeline.diarization import campplus

        self._device = self._prepare(options)
        checkpoint = checkpoints.resolve(options.pipeline, CHECKPOINTS, self._device, store)
        self.name = self.name_of(checkpoint.name)
        calibration = calibration_of(self.name)
        if calibration is None or calibration.clustering is None:
            raise CheckpointMissing(
                f"The speaker embedding model {checkpoint.name!r} was not calibrated for clustering. "
                "Set SWITCHBOARD_DIARIZATION__PIPELINE to campplus."
            )
        self._parameters = calibration.clustering
        with checkpoints.loading(checkpoint.folder):
            self._network = campplus.load(checkpoint.folder / WEIGHTS).to(self._device)
        self._center = torch.tensor(calibration.center, dtype=torch.float32, device=self._device)
        self.options = options
        self.checkpoint = checkpoint

    @staticmethod
    def name_of(checkpoint: str) -> str:
        return f"clustering {checkpoint}"

    def parts(self, sound: Samples | Audio) -> Iterator[SpeechWindow]:
        """See `pipeline.diarization.Engine`: yields windows of speech, after a first pass to detect it."""
        read, length = reader(sound)
        probable = activity.probabilities(read, length)
        speech = list(activity.runs(probable, self._parameters.speech_threshold, self._parameters.min_silence))
        for number, run in enumerate(speech):
            first, last = run.first * FRAME, min(run.last * FRAME, length)
            for start, end in self._cut(first, last):
                wide = max(0, start - MARGIN if start == first else start), end + MARGIN if end == last else end
                region = Region(number, start / SAMPLE_RATE, end / SAMPLE_RATE)
                yield SpeechWindow(region, read(wide[0], min(wide[1], length)))

    def _cut(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return windows of one length, evenly spread over a run of speech; a short run is one window."""
        size, step = (round(x * SAMPLE_RATE) for x in (self._parameters.window, self._parameters.step))
        if last - first <= size:
            return [(first, last)]
        count = 1 + math.ceil((last - first - size) / step)
        starts = np.linspace(first, last - size, count).astype(int).tolist()
        return [(start, start + size) for start in starts]

    def infer(self, parts: Sequence[SpeechWindow]) -> list[tuple[Region, npt.NDArray[np.float32]]]:
        """See `pipeline.diarization.Engine`: returns each window's region and unit vector, NaN if it is too short."""
        vectors = self._vectors([part.samples for part in parts])
        return [(part.region, vector) for part, vector in zip(parts, vectors, strict=True)]

    def finalize(self, inferred: Sequence[tuple[Region, npt.NDArray[np.float32]]]) -> Diarization:
        regions = [region for region, _ in inferred]
        vectors = np.array([vector for _, vector in inferred], np.float32)
        spans, means = diarized(
            regions, vectors, self._parameters, self.options.min_speakers, self.options.max_speakers
        )
        voiceprints = {}
        for speaker, mean in means.items():
            seconds = sum(span.end - span.start for span in spans if span.speaker == speaker)
            if voiceprint := self.of_speaker(mean, seconds):
                voiceprints[speaker] = voiceprint
        return Diarization(spans, voiceprints, self.name)

    @property
    def min_samples(self) -> int:
        from pipeline.diarization.campplus import MIN_FRAMES

        return (MIN_FRAMES + 2) * HOP  # a frame of the filterbank is 25 ms

    def embedded(self, sounds: Sequence[Samples]) -> npt.NDArray[np.float64]:
        return self._vectors(sounds).astype(np.float64)

    def _vectors(self, sounds: Sequence[Samples]) -> npt.NDArray[np.float32]:
        """Return unit vectors, shape (sounds, 192); NaN for sounds that are too short."""
        import torch

        from pipeline.diarization.campplus import embedded, filterbanks

        try:
            with torch.inference_mode():
                frames = filterbanks([torch.tensor(sound, device=self._device) for sound in sounds])
                embeddings = embedded(self._network, frames) - self._center
                return torch.nn.functional.normalize(embeddings, dim=1).cpu().numpy()  # type: ignore[no-any-return]
        except (RuntimeError, ValueError, MemoryError) as error:
            raise EngineError(f"The voices could not be embedded ({type(error).__name__}).") from error
