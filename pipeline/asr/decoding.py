from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.asr import sampling
from pipeline.asr.words import in_words

NO_REPEAT = {"repetition_penalty": 1.1, "no_repeat_ngram_size": 3}
MAX_PASSES = 8  # per sampled window: each costs one decoding
MAX_VOCABULARY = 223  # tokens: half of Whisper's 448, less <|startofprev|>, as OpenAI limits text before a window


@dataclass(frozen=True, slots=True)
class Decoding:
    """One hypothesis for one window, with its scores."""

    tokens: list[int]
    mean_log_probability: float
    no_speech_probability: float
    compression: float
    passes: int = 1  # of the decoder over the window
    hypotheses: tuple[tuple[tuple[str, ...], float], ...] = ()  # words and log probability of each, the best included


def beam(
    model: Any,
    tokenizers: Sequence[Any],
    encoded: Any,
    terms: Sequence[Sequence[int]],
    size: int,
    no_repeat: bool,
    time_tokens: bool = False,
) -> list[Decoding]:
    """Run beam search for all rows of `encoded` at once, each in the language of its tokenizer.

    `model` is a faster-whisper `WhisperModel`. `terms` holds the vocabulary tokens of each row, all of one length:
    CTranslate2 needs <|startoftranscript|> at the same position in all prompts. `time_tokens` is for a checkpoint
    trained only with timestamps; they are dropped from the result. Real Whisper with timestamps stops after the last
    segment that ends inside a window and loses the rest. Raises the errors of CTranslate2.
    """
    from faster_whisper.transcribe import get_suppressed_tokens

    before = [[tokenizers[0].sot_prev, *row] if row else [] for row in terms]
    prompts = [
        model.get_prompt(tokenizer, previous_tokens=[], without_timestamps=not time_tokens) for tokenizer in tokenizers
    ]
    results = model.model.generate(
        encoded,
        [[*b, *prompt] for b, prompt in zip(before, prompts, strict=True)],
        max_length=model.max_length,
        return_scores=True,
        return_no_speech_prob=True,
        suppress_blank=True,
        suppress_tokens=get_suppressed_tokens(tokenizers[0], [-1]),
        beam_size=size,
        num_hypotheses=size,  # the search computes them anyway; they show which words are certain
        patience=1,  # language: ok
        **(NO_REPEAT if no_repeat else {}),
    )
    return [_with_hypotheses(tokenizer, result) for tokenizer, result in zip(tokenizers, results, strict=True)]


def _with_hypotheses(tokenizer: Any, result: Any) -> Decoding:
    best = _decoding(tokenizer, list(result.sequences_ids[0]), result.scores[0], result.no_speech_prob)
    scored = zip(result.sequences_ids, result.scores, strict=True)
    hypotheses = tuple((_words(tokenizer, tokens), score * len(tokens)) for tokens, score in scored)
    return replace(best, hypotheses=hypotheses)


def sample(model: Any, tokenizer: Any, encoded: Any, temperature: float, seed: int) -> Decoding:
    """Sample the only row of `encoded` at a temperature above 0; deterministic for a seed.

    Raises the errors of CTranslate2.
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
    draw = sampling.sample(greedy, tokenizer.eot, temperature, seed, longest, MAX_PASSES)
    mean = draw.log_probability / max(1, len(draw.tokens))
    return replace(_decoding(tokenizer, list(draw.tokens), mean, no_speech[0]), passes=len(no_speech))


def _decoding(tokenizer: Any, tokens: list[int], score: float, no_speech: float) -> Decoding:
    """Return a decoding; `score` is CTranslate2's mean over the tokens, Whisper's mean also counts the end of text."""
    from faster_whisper.transcribe import get_compression_ratio

    mean = score * len(tokens) / (len(tokens) + 1)
    text_tokens = [token for token in tokens if token < tokenizer.eot]  # time tokens may appear unrequested
    text = tokenizer.decode(text_tokens).strip()
    return Decoding(text_tokens if text else [], mean, no_speech, get_compression_ratio(text) if text else 0.0)


def _words(tokenizer: Any, tokens: Sequence[int]) -> tuple[str, ...]:
    units, _ = tokenizer.split_tokens_on_unicode([token for token in tokens if token < tokenizer.eot])
    return tuple(token.text for token in in_words(units))


def _array(view: Any) -> npt.NDArray[np.float32]:
    """Return one step's scores, shape (vocabulary,), from any device and number format."""
    import ctranslate2

    if view.device != "cpu":
        view = view.to_device(ctranslate2.Device.cpu)
    return np.asarray(view.to(ctranslate2.DataType.float32), dtype=np.float32).copy()


def stacked(encoded: Sequence[Any]) -> Any:
    """Concatenate encoder outputs of one length on a CPU, shape (rows, frames, dimension)."""
    from faster_whisper.transcribe import get_ctranslate2_storage

    return get_ctranslate2_storage(np.concatenate([np.asarray(output) for output in encoded]))


def rows_of(encoded: Any, rows: Sequence[int]) -> Any:
    """Select rows of an encoder output, shape (rows, frames, dimension), without leaving its device."""
    if len(rows) == encoded.shape[0] and list(rows) == list(range(len(rows))):
        return encoded
    if encoded.device == "cpu":
        from faster_whisper.transcribe import get_ctranslate2_storage

        return get_ctranslate2_storage(np.asarray(encoded)[list(rows)])
    import ctranslate2
    import torch

    device = f"cuda:{encoded.device_index}"  # CTranslate2 and torch share the array through __cuda_array_interface__
    selected = torch.as_tensor(encoded, device=device)[torch.as_tensor(list(rows), device=device)].contiguous()
    torch.cuda.current_stream(encoded.device_index).synchronize()  # CTranslate2 reads it in its own stream
    return ctranslate2.StorageView.from_array(selected)


def terms(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct terms, ignoring case, in their order, without blanks and control characters."""
    by_folded: dict[str, str] = {}
    for term in vocabulary:
        plain = " ".join("".join(c if c.isprintable() else " " for c in term).split())
        if plain:
            by_folded.setdefault(plain.casefold(), plain)
    return tuple(by_folded.values())


def prompt(vocabulary: Iterable[str], fits: Callable[[str], bool]) -> str:
    """Return "Ada Lovelace, Grundig, ..." up to the first term that does not fit: the most important come first."""
    text = ""
    for term in terms(vocabulary):
        longer = f"{text}, {term}" if text else term
        if not fits(longer):
            break
        text = longer
    return text


def vocabulary_tokens(vocabulary: Sequence[str], encode: Callable[[str], list[int]]) -> list[int]:
    """Return the tokens of names and terms, which Whisper takes as text that came before (`<|startofprev|>`)."""
    text = prompt(vocabulary, lambda longer: len(encode(f" {longer}")) <= MAX_VOCABULARY)
    return encode(f" {text}") if text else []
