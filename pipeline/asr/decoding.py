"""Encoder output to tokens, by CTranslate2: beam search for a batch, or one window drawn at a temperature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.asr import sampling

MAX_INITIAL_TIMESTAMP = 1.0  # seconds; OpenAI's default: text begins at most this far into a window
NO_REPEAT = {"repetition_penalty": 1.1, "no_repeat_ngram_size": 3}
MAX_PASSES = 8  # of a sampled window: each costs a decoding


@dataclass(frozen=True, slots=True)
class Decoding:
    """One hypothesis for one window, with what speaks for and against it."""

    tokens: list[int]
    mean_log_probability: float
    no_speech_probability: float
    compression: float


def beam(
    model: Any, tokenizers: Sequence[Any], encoded: Any, terms: Sequence[Sequence[int]], size: int, no_repeat: bool
) -> list[Decoding]:
    """Beam search for all rows of `encoded` at once, each in the language of its tokenizer.

    `model` is a faster-whisper `WhisperModel`, `terms` the tokens of names and terms of each row, as many for each:
    CTranslate2 wants prompts of one length with <|startoftranscript|> at one place. Raises what CTranslate2 raises.
    """
    from faster_whisper.transcribe import get_suppressed_tokens

    before = [[tokenizers[0].sot_prev, *row] if row else [] for row in terms]
    results = model.model.generate(
        encoded,
        [[*b, *model.get_prompt(t, previous_tokens=[])] for b, t in zip(before, tokenizers, strict=True)],
        max_length=model.max_length,
        return_scores=True,
        return_no_speech_prob=True,
        suppress_blank=True,
        suppress_tokens=get_suppressed_tokens(tokenizers[0], [-1]),
        max_initial_timestamp_index=round(MAX_INITIAL_TIMESTAMP / model.time_precision),
        beam_size=size,
        patience=1,
        **(NO_REPEAT if no_repeat else {}),
    )
    return [
        _decoding(tokenizer, list(result.sequences_ids[0]), result.scores[0], result.no_speech_prob)
        for tokenizer, result in zip(tokenizers, results, strict=True)
    ]


def drawn(model: Any, tokenizer: Any, encoded: Any, temperature: float, seed: int) -> Decoding:
    """The only row of `encoded`, drawn at a temperature above 0; the same text for the same seed.

    Without Whisper's time tokens, since CTranslate2 cannot go on with a text that has some. Raises what CTranslate2
    raises.
    """
    from faster_whisper.transcribe import get_suppressed_tokens

    start = model.get_prompt(tokenizer, previous_tokens=[], without_timestamps=True)
    suppressed = get_suppressed_tokens(tokenizer, [-1])
    no_speech: list[float] = []

    def greedy(prefix: Sequence[int]) -> tuple[list[int], list[npt.NDArray[np.float32]]]:
        result = model.model.generate(
            encoded,
            [[*start, *prefix]],
            beam_size=1,
            max_length=model.max_length,
            return_logits_vocab=True,
            return_no_speech_prob=True,
            suppress_blank=not prefix,
            suppress_tokens=suppressed,
        )[0]
        no_speech.append(result.no_speech_prob)
        return list(result.sequences_ids[0]), [_array(step) for step in result.logits[0]]

    longest = model.max_length // 2 - len(start)
    sample = sampling.sample(greedy, tokenizer.eot, temperature, seed, longest, MAX_PASSES)
    mean = sample.log_probability / max(1, len(sample.tokens))
    return _decoding(tokenizer, list(sample.tokens), mean, no_speech[0])


def _decoding(tokenizer: Any, tokens: list[int], score: float, no_speech: float) -> Decoding:
    """`score` is the mean over the tokens, as CTranslate2 gives it; Whisper's counts the end of text as one more."""
    from faster_whisper.transcribe import get_compression_ratio

    text = tokenizer.decode(tokens).strip()
    mean = score * len(tokens) / (len(tokens) + 1)
    return Decoding(tokens, mean, no_speech, get_compression_ratio(text) if text else 0.0)


def _array(view: Any) -> npt.NDArray[np.float32]:
    """One step's scores, shape (vocabulary,), from whatever device and number format."""
    import ctranslate2

    if view.device != "cpu":
        view = view.to_device(ctranslate2.Device.cpu)
    return np.asarray(view.to(ctranslate2.DataType.float32), dtype=np.float32).copy()


def rows_of(encoded: Any, rows: Sequence[int]) -> Any:
    """Some rows of an encoder output, shape (rows, frames, dimension), without leaving its device."""
    if len(rows) == encoded.shape[0] and list(rows) == list(range(len(rows))):
        return encoded
    if encoded.device == "cpu":
        from faster_whisper.transcribe import get_ctranslate2_storage

        return get_ctranslate2_storage(np.asarray(encoded)[list(rows)])
    import ctranslate2
    import torch

    device = f"cuda:{encoded.device_index}"  # CTranslate2 and torch share the array through __cuda_array_interface__
    taken = torch.as_tensor(encoded, device=device)[torch.as_tensor(list(rows), device=device)].contiguous()
    torch.cuda.current_stream(encoded.device_index).synchronize()  # CTranslate2 reads it in a stream of its own
    return ctranslate2.StorageView.from_array(taken)
