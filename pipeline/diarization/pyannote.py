"""Speaker diarization and voice embeddings through a pyannote.audio 4 pipeline, in memory and without telemetry."""

import contextlib
import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import checkpoints
from pipeline.diarization.engine import DiarizationOptions, Samples
from pipeline.domain.speech import SAMPLE_RATE, Diarization, SpeakerSpan, Voiceprint
from pipeline.errors import CheckpointMissing, EngineError

CPU_BATCH, GPU_BATCH = 4, 32  # on a CPU larger batches are slower: 3.6 CPU seconds at 1, 5.3 at 128 for 60 s of audio
PIECE = 6.0  # seconds of speech at least in one embedding of a voiceprint (below 12), where there are so many

logger = logging.getLogger(__name__)


class Pyannote:
    """A diarization engine; see `pipeline.diarization.Engine`."""

    def __init__(self, options: DiarizationOptions) -> None:
        os.environ["PYANNOTE_METRICS_ENABLED"] = "0"  # read at every event; on by default
        import torch

        if options.threads:
            torch.set_num_threads(options.threads)
        device = options.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        checkpoint = checkpoints.resolve(options.pipeline, checkpoints.DIARIZATION, device)
        batch = GPU_BATCH if device == "cuda" else CPU_BATCH
        self._pipeline = _load(checkpoint)
        self._pipeline.segmentation_batch_size = options.segmentation_batch_size or batch
        self._pipeline.embedding_batch_size = options.embedding_batch_size or batch
        self._pipeline.to(torch.device(device))
        self._options = options
        self.name = f"pyannote {checkpoint.name}"

    def diarize(self, samples: Samples) -> Diarization:
        """See `pipeline.diarization.Engine`."""
        if len(samples) < SAMPLE_RATE // 10:
            return Diarization((), {}, self.name)
        output = self._apply(samples)
        spans = _spans(output.exclusive_speaker_diarization)
        letters = _by_first_appearance(spans)
        # pyannote's rows are in the order of the labels of the diarization with overlaps
        rows = dict(zip(output.speaker_diarization.labels(), output.speaker_embeddings, strict=False))
        voiceprints = {}
        for label, letter in letters.items():
            seconds = sum(span.end - span.start for span in spans if span.speaker == label)
            voiceprint = self._voiceprint(rows.get(label), seconds)
            if voiceprint is not None:
                voiceprints[letter] = voiceprint
        named = tuple(SpeakerSpan(span.start, span.end, letters[span.speaker]) for span in spans)
        return Diarization(named, voiceprints, self.name)

    def voiceprint(self, spoken: Sequence[Samples]) -> Voiceprint | None:
        """See `pipeline.diarization.Engine`: joined, cut into like pieces of 6 s or more, embedded, averaged."""
        speech = np.concatenate([np.asarray(x, np.float32) for x in spoken]) if spoken else np.zeros(0, np.float32)
        seconds = len(speech) / SAMPLE_RATE
        if seconds < self._options.min_voiceprint_seconds:
            return None
        vectors = np.stack([self._embed(part) for part in np.array_split(speech, max(1, int(seconds // PIECE)))])
        made = self._voiceprint(vectors.mean(axis=0), seconds)
        return made and replace(made, agreement=_agreement(vectors))

    def _apply(self, samples: Samples) -> Any:
        import torch

        if not np.isfinite(samples).all():
            raise EngineError("The recording's samples are not all finite numbers.")
        waveform = torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32))[None]
        file = {"waveform": waveform, "sample_rate": SAMPLE_RATE, "uri": "call"}  # a fresh one: pyannote writes into it
        bounds = {"min_speakers": self._options.min_speakers, "max_speakers": self._options.max_speakers}
        try:
            with _quiet():
                return self._pipeline(file, **bounds)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"Diarization failed: {error}") from error

    def _embed(self, speech: Samples) -> npt.NDArray[np.float64]:
        """The unit vector of one piece of speech; not finite when the model cannot tell."""
        import torch

        embedding = self._pipeline._embedding
        waveform = torch.from_numpy(np.ascontiguousarray(speech))[None]
        try:
            waveform, _ = embedding.model_.audio.downmix_and_resample(waveform, SAMPLE_RATE)
            vector = np.asarray(embedding(waveform[None])[0], dtype=np.float64)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"The voice could not be embedded: {error}") from error
        return vector / (np.linalg.norm(vector) or 1.0)

    def _voiceprint(self, vector: npt.NDArray[np.floating] | None, seconds: float) -> Voiceprint | None:
        """None for too little speech, and for the NaN or zero rows that pyannote gives when it had nothing to embed."""
        if vector is None or seconds < self._options.min_voiceprint_seconds:
            return None
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0:
            return None
        return Voiceprint(tuple(float(v) for v in vector / norm), self.name, round(seconds, 2))


def _agreement(vectors: npt.NDArray[np.float64]) -> float | None:
    """How like the others the piece is that is least so: cosine to their mean, low where two voices were taken for one.

    None for a single piece.
    """
    if len(vectors) < 2:
        return None
    others = (vectors.sum(axis=0) - vectors) / (len(vectors) - 1)
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = (others * vectors).sum(axis=1) / np.where(norms > 0, norms, 1.0)
    return round(float(cosines.min()), 4)


def _load(checkpoint: checkpoints.Checkpoint) -> Any:
    with warnings.catch_warnings():
        # pyannote is handed samples and never decodes a file itself; its message begins with a line break
        warnings.filterwarnings("ignore", message=r"\s*torchcodec is not installed correctly", category=UserWarning)
        # the embedding probes the shortest input it can take, on inputs that are too short
        warnings.filterwarnings("ignore", message=r"std\(\): degrees of freedom", category=UserWarning)
        from pyannote.audio import Pipeline
        from pyannote.audio.pipelines import SpeakerDiarization

        from pipeline.diarization.shared_trunk import SharedTrunk

        try:
            pipeline: Any = Pipeline.from_pretrained(checkpoint.folder)
        except OSError as error:  # a part of the pipeline that lies in another repository of the hub
            raise CheckpointMissing(
                f"The diarization pipeline {checkpoint.name!r} needs a model that is not here: {error}. Take "
                "one whose parts lie in one folder (pyannote/speaker-diarization-community-1), or set HF_TOKEN to the "
                "token of an account that accepted the licences of all parts; the setting is "
                "SWITCHBOARD_DIARIZATION__PIPELINE."
            ) from error
        if not isinstance(pipeline, SpeakerDiarization):
            raise CheckpointMissing(f"{checkpoint.name!r} is no pyannote speaker diarization pipeline.")
        if SharedTrunk.fits(pipeline):
            pipeline.__class__ = SharedTrunk  # adds methods only; the loaded state is the stock pipeline's
        assert pipeline._embedding.min_num_samples > 0  # probed here once, under the filter above
    return pipeline


_print_lock = threading.Lock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """pyannote prints when it finds fewer clusters than asked for, and warns of harmless things: logged instead."""
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


def _by_first_appearance(spans: Sequence[SpeakerSpan]) -> dict[str, str]:
    """pyannote's label -> "A", "B", ...; pyannote's own order is not that of appearance."""
    labels = list(dict.fromkeys(span.speaker for span in spans))
    return {label: chr(ord("A") + i) if i < 26 else f"S{i + 1}" for i, label in enumerate(labels)}
