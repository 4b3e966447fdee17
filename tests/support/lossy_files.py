"""Files that lack packets, as a network or a recorder loses them."""

import io
from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt

FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "500000"}
"""Settings of an MP4 that is written in pieces."""


def without_packets(
    samples: npt.NDArray[np.int16],
    rate: int,
    container: str,
    codec: str,
    lost: Callable[[float], bool],
    settings: dict[str, str] | None = None,
) -> bytes:
    """Return a mono file of samples (n,) at `rate` Hz without the packets at whose time, in seconds, `lost` is true."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=settings or {}) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono")
        if codec == "aac":
            stream.codec_context.format = "fltp"
        packets = []
        for start in range(0, len(samples), 1000):
            frame = av.AudioFrame.from_ndarray(samples[None, start : start + 1000], "s16", "mono")
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), start
            packets += stream.encode(frame)
        for packet in [*packets, *stream.encode(None)]:
            if not lost(float(packet.pts * packet.time_base)):
                output.mux(packet)
    return buffer.getvalue()
