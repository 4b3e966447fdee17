"""Repeatable sampling.

CTranslate2 samples with one generator per worker thread, seeded at the thread's first use: `set_random_seed` has no
effect afterwards, and a sample depends on the thread's earlier ones. Here the random numbers are ours. A greedy pass
returns the distribution of every step; we walk along it and sample each token at the given temperature. While the
sampled token is the greedy one, the distributions are those of ordinary sampling; otherwise a new greedy pass starts
from the sampled tokens. The result is an ordinary sample at that temperature, and a chunk costs one pass for each
departure from the greedy path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]  # shape (vocabulary,), before or after normalization
Greedy = Callable[[Sequence[int]], tuple[Sequence[int], Sequence[Logits]]]


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampled tokens without the end of text; `log_probability` is their sum with the end, at temperature 1."""

    tokens: tuple[int, ...]
    log_probability: float


def sample(greedy: Greedy, end: int, temperature: float, seed: int, max_tokens: int, max_passes: int) -> Draw:
    """Sample one text.

    `greedy(prefix)` continues `prefix` greedily and returns its tokens, without `end`, and the logits of each step (one
    more if it reached the end). Tokens above `end` (times, tasks, languages) are never sampled. After `max_passes`
    passes the rest follows the greedy path. Raises ValueError for a temperature of 0 or less.
    """
    if temperature <= 0:
        raise ValueError(f"a temperature of {temperature} draws nothing")
    random = np.random.default_rng(seed)
    tokens: list[int] = []
    total, passes = 0.0, 0
    while len(tokens) < max_tokens:
        path, steps = greedy(tokens)
        passes += 1
        has_diverged = False
        for greedy_token, logits in zip([*path, end], steps, strict=False):
            scores = _log_softmax(np.asarray(logits, dtype=np.float64)[: end + 1])
            token = greedy_token if passes >= max_passes else _draw(scores, temperature, random)
            total += float(scores[min(token, end)])
            if token >= end or len(tokens) >= max_tokens:
                return Draw(tuple(tokens), total)
            tokens.append(token)
            if token != greedy_token:
                has_diverged = True
                break
        if not has_diverged:
            break
    return Draw(tuple(tokens), total)


def _draw(scores: npt.NDArray[np.float64], temperature: float, random: np.random.Generator) -> int:
    """Sample with the Gumbel-max trick: the argmax of scores plus Gumbel noise is a sample from their softmax."""
    return int(np.argmax(scores / temperature + random.gumbel(size=len(scores))))


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = logits - logits.max()
    normalized: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return normalized
