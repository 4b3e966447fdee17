from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pipeline.domain.speech import SAMPLE_RATE


def write_flac(
    target: IO[bytes],
    blocks: Iterable[npt.NDArray[np.int16]],
    channels: int,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write blocks of int16 at 16 kHz, each of shape (channels, n), as FLAC of one or two channels."""
    import av

    layout = "mono" if channels == 1 else "stereo"
    with av.open(target, "w", format="flac") as container:
        stream: Any = container.add_stream("flac", rate=SAMPLE_RATE, layout=layout, format="s16")
        container.metadata.update(tags or {})
        for block in blocks:
            interleaved = np.ascontiguousarray(block.T.reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(interleaved, format="s16", layout=layout)
            frame.sample_rate = SAMPLE_RATE
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
