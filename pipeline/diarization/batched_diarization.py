"""pyannote's speaker diarization split in two, so that windows of many calls share passes through its networks.

The stock pipeline runs one recording through all its steps. Here the networks (`infer`) are separate from the steps for
one call (`finalize`); clustering, counting and labeling remain pyannote's code, and so does the result.

The stock pipeline also stacks a window's waveform once for each of its (mostly three) local speakers and runs the whole
embedding network on every copy, though only the pooling at its end depends on the speaker. Pooling takes weights of
shape (batch, speakers, frames), so one pass of the trunk serves all, and a window without speech needs none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pyannote.audio.pipelines import SpeakerDiarization
from pyannote.audio.utils.signal import binarize
from pyannote.core import SlidingWindow, SlidingWindowFeature

from pipeline.diarization.windows import Cutter, Window
from pipeline.domain.speech import SAMPLE_RATE

MAX_CLUSTERED = 8000  # voices of windows: their distances need 256 MB, which clustering copies once

SEGMENTATIONS, EMBEDDINGS = "switchboard/segmentations", "switchboard/embeddings"  # keys in pyannote's file


@dataclass(frozen=True, slots=True, eq=False)
class WindowOutput:
    """The networks' output for one window: a few kB in place of hundreds of kB of sound."""

    scores: npt.NDArray[Any]  # (frames, speakers): uint8 0 or 1 of a powerset model, float32 0..1 of others
    embeddings: npt.NDArray[np.float32]  # (speakers, dimension)


class BatchedSpeakerDiarization(SpeakerDiarization):  # type: ignore[misc]
    """`SpeakerDiarization` as `infer` and `finalize`; `to_batched` converts a loaded pipeline."""

    @cached_property
    def cutter(self) -> Cutter:
        segmentation = self._segmentation
        size, step = segmentation.duration * SAMPLE_RATE, segmentation.step * SAMPLE_RATE
        return Cutter(round(size), round(step), self._embedding.sample_rate)

    def infer(self, windows: Sequence[Window]) -> list[WindowOutput]:
        """Run both networks on windows of any calls; the windows do not affect each other."""
        scores = self._segmentation.infer(torch.stack([window.samples for window in windows])[:, None])
        masks = self._masks(self._binary(scores))  # (windows, speakers, frames)
        embeddings = self._embed([window.voice for window in windows], masks)
        if self._powerset:
            scores = scores.astype(np.uint8)
        # copies, since a view of one window would keep the whole batch
        return [WindowOutput(binary.copy(), vectors.copy()) for binary, vectors in zip(scores, embeddings, strict=True)]

    def finalize(self, inferred: Sequence[WindowOutput], min_speakers: int, max_speakers: int | None) -> Any:
        """Return the `DiarizeOutput` of one call from all its windows in order: clustering and reconstruction."""
        window = SlidingWindow(start=0.0, duration=self._segmentation.duration, step=self._segmentation.step)
        file = {
            "uri": "call",
            SEGMENTATIONS: SlidingWindowFeature(np.stack([output.scores for output in inferred]), window),
            EMBEDDINGS: np.stack([output.embeddings for output in inferred]),
        }
        return self.apply(file, min_speakers=min_speakers, max_speakers=max_speakers)

    def get_segmentations(self, file: Any, hook: Any = None) -> Any:
        return file[SEGMENTATIONS]

    def get_embeddings(self, file: Any, *_: Any, **__: Any) -> npt.NDArray[np.float32]:
        """Return the embeddings from `infer`, shape (windows, speakers, dimension)."""
        return file[EMBEDDINGS]  # type: ignore[no-any-return]

    def reconstruct(self, segmentations: Any, hard_clusters: Any, count: Any) -> Any:
        """Reconstruct like the stock method, but per window instead of in one float64 array per speaker."""
        frames, windows = count.sliding_window, segmentations.sliding_window
        clusters = max(int(hard_clusters.max()) + 1, int(count.data.max()))
        votes = np.zeros((len(count.data), clusters), np.float32)
        for number, (scores, local_clusters) in enumerate(zip(segmentations.data, hard_clusters, strict=True)):
            first = frames.closest_frame(windows[number].start + 0.5 * frames.duration)
            for cluster in np.unique(local_clusters[local_clusters >= 0]):
                votes[first : first + len(scores), cluster] += scores[:, local_clusters == cluster].max(axis=1)
        ranked = np.argsort(-votes, axis=-1)
        chosen = (np.arange(clusters) < count.data).astype(np.float32)
        activations = np.zeros_like(votes)
        np.put_along_axis(activations, ranked, chosen, axis=-1)
        return SlidingWindowFeature(activations, frames)

    @property
    def _powerset(self) -> bool:
        return bool(self._segmentation.model.specifications.powerset)

    def _binary(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the active speakers per frame, 0 or 1, shape (windows, frames, speakers), like the stock pipeline."""
        if self._powerset:
            return scores
        window = SlidingWindow(start=0.0, duration=self._segmentation.duration, step=self._segmentation.step)
        onset = self.segmentation.threshold
        binarized = binarize(SlidingWindowFeature(scores, window), onset=onset, initial_state=False)
        return binarized.data.astype(np.float32)  # type: ignore[no-any-return]

    def _masks(self, active: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the frames to pool per window and speaker: without overlapped speech, unless too few frames remain."""
        if self.embedding_exclude_overlap:
            clean = active * (active.sum(axis=2, keepdims=True) < 2)
            samples = self._segmentation.duration * self._embedding.sample_rate
            min_frames = math.ceil(active.shape[1] * self._embedding.min_num_samples / samples)
            active = np.where(clean.sum(axis=1, keepdims=True) > min_frames, clean, active)
        return np.ascontiguousarray(active.transpose(0, 2, 1), np.float32)

    def _embed(self, voices: Sequence[torch.Tensor], masks: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return one embedding per window and local speaker, shape (windows, speakers, dimension)."""
        if not self.takes_weights_per_speaker:
            return self._embed_one_by_one(voices, masks)
        embeddings = np.broadcast_to(self._empty_embedding, (*masks.shape[:2], len(self._empty_embedding))).copy()
        spoken = np.flatnonzero(masks.any(axis=(1, 2)))
        size = self.embedding_batch_size
        for part in (spoken[first : first + size] for first in range(0, len(spoken), size)):
            waveforms = torch.stack([voices[i] for i in part])[:, None]
            embeddings[part] = self._pooled(waveforms, torch.from_numpy(masks[part]))
        return embeddings

    def _pooled(self, voices: torch.Tensor, masks: torch.Tensor) -> npt.NDArray[np.float32]:
        model, device = self._embedding.model_, self._embedding.device
        with torch.inference_mode():
            return model(voices.to(device), weights=masks.to(device)).cpu().numpy()  # type: ignore[no-any-return]

    def _embed_one_by_one(
        self, voices: Sequence[torch.Tensor], masks: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Embed like the stock pipeline, for networks whose pooling may not take weights per speaker."""
        speakers, size, embeddings = masks.shape[1], self.embedding_batch_size, []
        rows = [(voice, mask) for voice, window_masks in zip(voices, masks, strict=True) for mask in window_masks]
        for part in (rows[first : first + size] for first in range(0, len(rows), size)):
            weights = torch.from_numpy(np.stack([mask for _, mask in part]))
            embeddings.append(self._embedding(torch.stack([voice for voice, _ in part])[:, None], masks=weights))
        return np.concatenate(embeddings).reshape(len(voices), speakers, -1)

    @cached_property
    def takes_weights_per_speaker(self) -> bool:
        """Whether the embedding network serves all speakers of a window in one pass: tested once, on noise."""
        model = getattr(self._embedding, "model_", None)
        return model is not None and _takes_weights_per_speaker(model, self._embedding)

    @cached_property
    def _empty_embedding(self) -> npt.NDArray[np.float32]:
        """The network's embedding without pooled frames, shape (dimension,): the same for every sound."""
        noise = torch.randn(1, 1, self._embedding.sample_rate, generator=torch.Generator().manual_seed(0))
        return self._pooled(noise, torch.zeros(1, 1, 100))[0, 0]  # type: ignore[no-any-return]


class _Bounded:
    """Clustering of max. `MAX_CLUSTERED` voices; the others join the nearest cluster.

    Clustering compares all voices with each other, so memory and time grow with the square of the length: at two
    windows' voices per second, 8000 are more than an hour.
    """

    def filter_embeddings(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Return the embeddings to cluster, their windows and local speakers: evenly spread if too many."""
        embeddings, windows, speakers = super().filter_embeddings(*args, **kwargs)  # type: ignore[misc]
        if len(embeddings) > MAX_CLUSTERED:
            rows = np.linspace(0, len(embeddings) - 1, MAX_CLUSTERED).astype(np.intp)
            embeddings, windows, speakers = embeddings[rows], windows[rows], speakers[rows]
        return embeddings, windows, speakers


def _takes_weights_per_speaker(model: Any, embedding: Any) -> bool:
    """Return whether weights of (batch, speakers, frames) give the same result as (batch, frames) per speaker."""
    seeded = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 1, 2 * embedding.sample_rate, generator=seeded).to(embedding.device)
    weights = torch.ones(2, 3, 100, device=embedding.device)
    weights[:, 1, 50:], weights[1, 2, :50] = 0, 0
    with torch.inference_mode():
        try:
            together = model(noise, weights=weights)
            alone = torch.stack([model(noise, weights=weights[:, speaker]) for speaker in range(3)], dim=1)
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            return False
    return together.shape == alone.shape and bool(torch.allclose(together, alone, atol=1e-3, equal_nan=True))


def to_batched(pipeline: Any) -> Any:
    """Convert a loaded pipeline in place to `BatchedSpeakerDiarization`. Raises `ValueError`."""
    rate = pipeline._segmentation.model.audio.sample_rate
    if rate != SAMPLE_RATE:
        raise ValueError(f"its segmentation model needs {rate} Hz, not {SAMPLE_RATE}")
    if not pipeline.instantiated:
        pipeline.instantiate(pipeline.default_parameters())
    pipeline.__class__ = BatchedSpeakerDiarization
    kind = type(pipeline.clustering)
    pipeline.clustering.__class__ = type(kind.__name__, (_Bounded, kind), {})
    return pipeline
