"""How many chunks fit into what is free of a GPU's memory: an upper bound, from the shapes of Whisper alone.

Shapes: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022; heads are 64 wide in all of
its sizes. Counted for one window: the encoder's attention scores (before and after the softmax) and the activations
of its widest layer; the decoder's keys and values of the encoder's frames, once for all beams; its own keys and values
for each token of each beam, twice, since they are copied when beams change places.
"""

import math
from collections.abc import Mapping
from typing import Any

FRAMES = 1500  # of the encoder, for 30 s
HEAD = 64
ACTIVATIONS = 12  # rows as wide as the model that an encoder layer holds at once: query, key, value, 4 + 4 inside, one
SHARE = 0.5  # of the free memory: another engine may share the device
UNSEEN = 1.25  # the deepest alignment head of OpenAI's checkpoints lies in the last fifth of the layers


def decoder_layers(config: Mapping[str, Any]) -> int:
    """Of a checkpoint in CTranslate2's format, at least: told from its `alignment_heads`. 32 where there are none."""
    heads = config.get("alignment_heads") or []
    return math.ceil(UNSEEN * (1 + max(layer for layer, _ in heads))) if heads else 32


def of_a_chunk(width: int, layers: int, beams: int, tokens: int, bytes_each: int) -> int:
    """Bytes that a window needs on the device: `width` of the model, `layers` of its decoder, `tokens` decoded."""
    encoder = 2 * (width // HEAD or 1) * FRAMES**2 + ACTIVATIONS * FRAMES * width
    decoder = 2 * layers * width * (FRAMES + 2 * beams * tokens)
    return bytes_each * (encoder + decoder)


def batch_size(free: int, each: int, at_once: int, most: int) -> int:
    """Chunks in each of `at_once` batches, of which each chunk needs `each` bytes: from 1 to `most`."""
    return max(1, min(most, int(SHARE * free / (each * at_once))))
