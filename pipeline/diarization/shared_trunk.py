"""pyannote's speaker diarization with one pass of the embedding network per chunk instead of one per speaker in it.

The stock pipeline stacks a chunk's waveform once for each of its (mostly three) local speakers and runs the whole
network on every copy, though only the pooling at its end depends on the speaker. Pooling takes weights of shape
(batch, speakers, frames), so one pass of the trunk serves all. The result is the stock pipeline's; embedding takes
half of the time with the demo checkpoint's small network and, by single passes timed, a third with ResNet34.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pyannote.audio.pipelines import SpeakerDiarization


class SharedTrunk(SpeakerDiarization):  # type: ignore[misc]
    """`SpeakerDiarization` whose `get_embeddings` runs the embedding network once per chunk."""

    @staticmethod
    def fits(pipeline: SpeakerDiarization) -> bool:
        """Whether the pipeline's embedding is a pyannote model that pools with weights per speaker."""
        from pyannote.audio.models.embedding import WeSpeakerResNet34, XVectorMFCC, XVectorSincNet

        known = (WeSpeakerResNet34, XVectorMFCC, XVectorSincNet)
        return type(pipeline) is SpeakerDiarization and isinstance(getattr(pipeline._embedding, "model_", None), known)

    def get_embeddings(
        self,
        file: Any,
        binary_segmentations: Any,
        exclude_overlap: bool = False,
        hook: Callable[..., Any] | None = None,
    ) -> npt.NDArray[np.float32]:
        """One embedding per chunk and local speaker, shape (chunks, speakers, dimension), as the stock method gives."""
        masks = self._masks(binary_segmentations, exclude_overlap)  # (chunks, speakers, frames)
        size = self.embedding_batch_size
        total = math.ceil(len(masks) / size)
        if hook is not None:
            hook("embeddings", None, total=total, completed=0)
        found = []
        for n, first in enumerate(range(0, len(masks), size), 1):
            part = range(first, min(first + size, len(masks)))
            waveforms = [self._audio.crop(file, binary_segmentations.sliding_window[c], mode="pad")[0] for c in part]
            embeddings = self._embedding(torch.stack(waveforms), masks=torch.from_numpy(masks[first : part.stop]))
            found.append(embeddings)  # (batch, speakers, dimension)
            if hook is not None:
                hook("embeddings", embeddings, total=total, completed=n)
        return np.concatenate(found)

    def _masks(self, segmentations: Any, exclude_overlap: bool) -> npt.NDArray[np.float32]:
        """Frames to pool for each chunk and speaker: without overlapped speech, unless too few frames are left."""
        active = np.nan_to_num(segmentations.data, nan=0.0).astype(np.float32)  # (chunks, frames, speakers)
        if not exclude_overlap:
            return np.ascontiguousarray(active.transpose(0, 2, 1))
        alone = 1.0 * (np.sum(segmentations.data, axis=2, keepdims=True) < 2)
        clean = np.nan_to_num(segmentations.data * alone, nan=0.0).astype(np.float32)
        samples = segmentations.sliding_window.duration * self._embedding.sample_rate
        fewest = math.ceil(active.shape[1] * self._embedding.min_num_samples / samples)
        enough = clean.sum(axis=1, keepdims=True) > fewest
        return np.ascontiguousarray(np.where(enough, clean, active).transpose(0, 2, 1))
