"""Sampling that gives the same text each time.

CTranslate2 draws from one generator per worker thread, seeded when the thread first draws: `set_random_seed` has no
effect afterwards, and what is drawn depends on what the thread sampled before. Here the draws are our own. A greedy
pass hands back the distribution of every step; we walk along it and draw each token at the temperature asked for.
While the draw is the greedy token, its distributions are those that sampling would have met; where it differs, a new
greedy pass starts from what was drawn. The result is an ordinary sample at that temperature, and a chunk costs one pass
for each place where the draw left the greedy path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]  # shape (vocabulary,), before or after normalization
Greedy = Callable[[Sequence[int]], tuple[Sequence[int], Sequence[Logits]]]


@dataclass(frozen=True, slots=True)
class Draw:
    """Tokens without the end of text; `log_probability` is the sum over them and the end, at temperature 1."""

    tokens: tuple[int, ...]
    log_probability: float


def sample(greedy: Greedy, end: int, temperature: float, seed: int, max_tokens: int, max_passes: int) -> Draw:
    """Draw one text.

    `greedy(prefix)` continues `prefix` greedily and returns the tokens it chose, without `end`, and the logits of each
    step (one more where it came to the end). Tokens above `end` (times, tasks, languages) are never drawn. After
    `max_passes` passes the rest follows the greedy path. Raises ValueError for a temperature of 0 or less.
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
    """The Gumbel-max trick: the argmax of scores with Gumbel noise is a draw from their softmax."""
    return int(np.argmax(scores / temperature + random.gumbel(size=len(scores))))


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = logits - logits.max()
    normalized: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return normalized
