"""A pyannote pipeline put together from single checkpoints instead of loaded from one repository of the hub."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyannote.audio import Model
from pyannote.audio.core.plda import PLDA
from pyannote.audio.pipelines import SpeakerDiarization

from pipeline.diarization import campplus
from pipeline.diarization.campplus_embedding import CAMPlusPlusEmbedding
from pipeline.voice.calibration import PipelineParameters

SEGMENTATION_FILE = "pytorch_model.bin"
EMBEDDING_FILE = "campplus_cn_en_common.pt"


def assemble(segmentation: Path, embedding: Path, parameters: PipelineParameters, center: Sequence[float]) -> Any:
    """Return `SpeakerDiarization` with agglomerative clustering, on the CPU, from a folder for each network.

    `center` (192 values) is what `CAMPlusPlusEmbedding` subtracts. The segmentation file is a pickle: call this within
    `weights_only`. Raises what torch raises for files that hold other networks.
    """
    network = campplus.load(embedding / EMBEDDING_FILE)
    pipeline = SpeakerDiarization(
        segmentation=Model.from_pretrained(segmentation / SEGMENTATION_FILE),
        segmentation_step=parameters.step,
        embedding=CAMPlusPlusEmbedding(network, center),
        embedding_exclude_overlap=True,
        plda=_UnusedPLDA(),
        clustering="AgglomerativeClustering",
    )
    clustering = {
        "method": "average",
        "min_cluster_size": parameters.min_cluster_size,
        "threshold": parameters.clustering_threshold,
    }
    return pipeline.instantiate({"segmentation": {"min_duration_off": 0.0}, "clustering": clustering})


class _UnusedPLDA(PLDA):  # type: ignore[misc]
    """`SpeakerDiarization` wants a PLDA for any clustering, and looks for one on the hub where it is given none."""

    def __init__(self) -> None:
        pass
