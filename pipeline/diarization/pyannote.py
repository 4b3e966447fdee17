import contextlib
import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.checkpoints import CheckpointKind, hub
from pipeline.diarization.engine import DiarizationOptions, Samples
from pipeline.diarization.torch_engine import TorchEngine, letters
from pipeline.diarization.weights import weights_only
from pipeline.domain.speech import SAMPLE_RATE, Audio, Diarization, SpeakerSpan
from pipeline.errors import CheckpointMissing, EngineError
from pipeline.voice.calibration import calibration_of

if TYPE_CHECKING:
    from pipeline.diarization.batched_diarization import WindowOutput
    from pipeline.diarization.windows import Window

MIN_SAMPLES = SAMPLE_RATE // 10  # too short for a voice
COMMUNITY = "pyannote/speaker-diarization-community-1"  # gated: the hub requires an accepted license and a token
UNGATED = "segmentation-3.0+campplus"

logger = logging.getLogger(__name__)


class PyannoteOptions(DiarizationOptions):
    model_config = ConfigDict(extra="forbid")

    trust_checkpoint: bool = Field(
        False, description="Read checkpoints with more than weights, which can run code of their author."
    )


def _ranked(_: str) -> tuple[str, ...]:
    from huggingface_hub import get_token

    if get_token() or hub.cached(COMMUNITY, CHECKPOINTS.patterns, CHECKPOINTS.required):
        return COMMUNITY, UNGATED
    logger.info(
        "No hub token: speakers are separated by %s. For %s accept its license at https://huggingface.co/%s and set "
        "HF_TOKEN.",
        *(UNGATED, COMMUNITY, COMMUNITY),
    )
    return (UNGATED,)


def _advice(repository: str | None) -> list[str]:
    accept = f"Accept the license at https://huggingface.co/{repository} and set HF_TOKEN to a token of that account."
    return [*([accept] if repository else []), f"{CHECKPOINTS.setting}={UNGATED} needs no license and no token."]


CHECKPOINTS = CheckpointKind(
    title="diarization pipeline",
    setting="SWITCHBOARD_DIARIZATION__PIPELINE",
    auto=_ranked,
    stored={UNGATED: {"segmentation": "segmentation-3.0", "embedding": "campplus"}},
    required=("config.yaml",),
    patterns=("config.yaml", "*.bin", "*.npz", "*.safetensors"),
    advice=_advice,
)


class Pyannote(TorchEngine):
    """A diarization engine; see `pipeline.diarization.Engine`."""

    Options = PyannoteOptions
    CHECKPOINTS = CHECKPOINTS
    # On a CPU larger batches are slower: 3.6 CPU seconds at 1, 5.3 at 128 for 60 s of audio.
    CPU_BATCH, GPU_BATCH = 4, 32

    def __init__(self, options: PyannoteOptions, store: Path | None = None) -> None:
        os.environ["PYANNOTE_METRICS_ENABLED"] = "0"  # read at every event; on by default
        import torch

        device = self._prepare(options)
        checkpoint = checkpoints.resolve(options.pipeline, CHECKPOINTS, device, store)
        self.name = self.name_of(checkpoint.name)
        with checkpoints.loading(checkpoint.folder), weights_only(checkpoint.name, options.trust_checkpoint):
            self._pipeline = _load(checkpoint, self.name, torch.device(device))
        self._pipeline.segmentation_batch_size = self._pipeline.embedding_batch_size = self.batch_size
        self.options = options
        self.checkpoint = checkpoint

    @staticmethod
    def name_of(checkpoint: str) -> str:
        return f"pyannote {checkpoint}"

    def parts(self, sound: Samples | Audio) -> "Iterator[Window]":
        """See `pipeline.diarization.Engine`: yields windows of 10 s, one every second."""
        length = sound.length if isinstance(sound, Audio) else len(sound)
        return self._pipeline.cutter.cut(sound) if length >= MIN_SAMPLES else iter(())

    def infer(self, parts: "Sequence[Window]") -> "list[WindowOutput]":
        try:
            return list(self._pipeline.infer(parts))
        except (RuntimeError, ValueError, MemoryError) as error:
            raise EngineError(f"Diarization failed ({type(error).__name__}).") from error

    def finalize(self, inferred: "Sequence[WindowOutput]") -> Diarization:
        if not inferred:
            return Diarization((), {}, self.name)
        try:
            with _quiet():
                output = self._pipeline.finalize(inferred, self.options.min_speakers, self.options.max_speakers)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise EngineError(f"Diarization failed ({type(error).__name__}).") from error
        return self._diarization(output)

    def _diarization(self, output: Any) -> Diarization:
        spans = _spans(output.exclusive_speaker_diarization)
        # pyannote does not order labels by appearance
        letter_of = letters(span.speaker for span in spans)
        # rows are in the order of the labels of the diarization with overlaps
        rows = dict(zip(output.speaker_diarization.labels(), output.speaker_embeddings, strict=False))
        voiceprints = {}
        for label, letter in letter_of.items():
            seconds = sum(span.end - span.start for span in spans if span.speaker == label)
            voiceprint = self.of_speaker(rows.get(label), seconds)
            if voiceprint is not None:
                voiceprints[letter] = voiceprint
        spoken = tuple(SpeakerSpan(span.start, span.end, letter_of[span.speaker]) for span in spans)
        return Diarization(spoken, voiceprints, self.name)

    @property
    def min_samples(self) -> int:
        return int(self._pipeline._embedding.min_num_samples)

    def embedded(self, sounds: Sequence[Samples]) -> npt.NDArray[np.float64]:
        try:
            vectors = np.asarray(self._vectors(sounds), dtype=np.float64)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"The voice could not be embedded ({type(error).__name__}).") from error
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(norms == 0, 1.0, norms)

    def _vectors(self, sounds: Sequence[Samples]) -> npt.NDArray[np.float32]:
        import torch

        from pipeline.diarization.campplus_pipeline import CAMPlusPlusEmbedding

        embedding = self._pipeline._embedding
        model, device = embedding.model_, embedding.device
        waveforms = [torch.from_numpy(np.ascontiguousarray(sound, np.float32)) for sound in sounds]
        if isinstance(model, CAMPlusPlusEmbedding):
            with torch.inference_mode():
                return model.of_sounds([waveform.to(device) for waveform in waveforms]).cpu().numpy()  # type: ignore[no-any-return]
        resampled = [model.audio.downmix_and_resample(waveform[None], SAMPLE_RATE)[0] for waveform in waveforms]
        return np.concatenate([embedding(waveform[None]) for waveform in resampled])


def _load(checkpoint: checkpoints.Checkpoint, name: str, device: Any) -> Any:
    with warnings.catch_warnings():
        # pyannote receives samples and never decodes a file; its message begins with a line break
        warnings.filterwarnings("ignore", message=r"\s*torchcodec is not installed correctly", category=UserWarning)
        # the embedding probes its minimum input with inputs that are too short
        warnings.filterwarnings("ignore", message=r"std\(\): degrees of freedom", category=UserWarning)
        # TF32 is off, as in pyannote's calls: with it nearly equal voices would be swapped
        warnings.filterwarnings("ignore", message=r"TensorFloat-32", category=UserWarning)
        from pyannote.audio.pipelines import SpeakerDiarization
        from pyannote.audio.utils.reproducibility import fix_reproducibility

        from pipeline.diarization.batched_diarization import to_batched

        pipeline = _assembled(checkpoint, name) if checkpoint.parts else _from_folder(checkpoint)
        if not isinstance(pipeline, SpeakerDiarization):
            raise CheckpointMissing(f"{checkpoint.name!r} is not a pyannote speaker diarization pipeline.")
        try:
            pipeline = to_batched(pipeline)
        except ValueError as error:
            raise CheckpointMissing(f"{checkpoint.name!r} cannot be used: {error}.") from error
        pipeline.to(device)
        fix_reproducibility(device)
        # probed here once, under the filters above
        assert pipeline._embedding.min_num_samples > 0
        logger.debug("embeds all speakers of a window at once: %s", pipeline.takes_weights_per_speaker)
    return pipeline


def _from_folder(checkpoint: checkpoints.Checkpoint) -> Any:
    from pyannote.audio import Pipeline

    try:
        return Pipeline.from_pretrained(checkpoint.folder)
    except OSError as error:  # a part of the pipeline is in another repository of the hub
        raise CheckpointMissing(
            f"The diarization pipeline {checkpoint.name!r} needs a missing model: {error}. Set "
            "SWITCHBOARD_DIARIZATION__PIPELINE to a pipeline whose parts are in one folder "
            "(pyannote/speaker-diarization-community-1), or set HF_TOKEN to the token of an account that accepted "
            "the licenses of all parts."
        ) from error


def _assembled(checkpoint: checkpoints.Checkpoint, name: str) -> Any:
    """Assemble the pipeline from the store's parts, the way it was calibrated."""
    from pipeline.diarization.campplus_pipeline import assemble

    calibration = calibration_of(name)
    if calibration is None or calibration.pipeline is None:
        raise CheckpointMissing(
            f"The diarization pipeline {checkpoint.name!r} was not calibrated: it has no parameters."
        )
    networks = checkpoint.parts["segmentation"], checkpoint.parts["embedding"]
    return assemble(*networks, calibration.pipeline, calibration.center)


_print_lock = threading.Lock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log pyannote's prints about fewer clusters than requested, and its harmless warnings."""
    printed = io.StringIO()
    with _print_lock, contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
        yield
    for text in [*(str(w.message) for w in caught), printed.getvalue()]:
        if text.strip():
            logger.debug("pyannote: %s", " ".join(text.split()))


def _spans(annotation: Any) -> list[SpeakerSpan]:
    spans = [
        SpeakerSpan(round(float(segment.start), 3), round(float(segment.end), 3), str(label))
        for segment, _, label in annotation.itertracks(yield_label=True)
    ]
    return sorted(spans, key=lambda span: (span.start, span.end))
