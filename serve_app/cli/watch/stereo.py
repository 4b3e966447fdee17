from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.audio.decode.decoder import decode_file
from pipeline.audio.decode.options import DecodeOptions
from pipeline.audio.flac import write_flac
from pipeline.domain.speech import SAMPLE_RATE, Audio
from pipeline.errors import RecordingEmpty

BLOCK = 60 * SAMPLE_RATE  # samples


def combine(agent: Path, customer: Path, target: Path) -> float:
    """Write the agent's file as the left channel and the customer's as the right one.

    Return the difference of their lengths in seconds. The files begin at the same moment; the shorter one is filled
    with silence. The same files give the same bytes, so that a repeated upload starts nothing. Raises `RecordingEmpty`
    if one has no sound, and what decoding raises.
    """
    folder = f"file://{target.parent}"
    first, second = (decode_file(file, DecodeOptions(), folder=folder).audio for file in (agent, customer))
    if not first.length or not second.length:
        raise RecordingEmpty("The recording has no sound.")
    with target.open("wb") as file:
        write_flac(file, _blocks(first, second), 2)
    return abs(first.length - second.length) / SAMPLE_RATE


def _blocks(agent: Audio, customer: Audio) -> Iterator[npt.NDArray[np.int16]]:
    for first in range(0, max(agent.length, customer.length), BLOCK):
        rows = [audio.read(0, first, first + BLOCK) for audio in (agent, customer)]
        length = max(map(len, rows))
        yield np.stack([np.pad(row, (0, length - len(row))) for row in rows])
