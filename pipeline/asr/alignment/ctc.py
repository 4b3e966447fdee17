"""CTC model as an aligner: the likeliest path through its frames for the given text (torchaudio).

Works with any CTC model of onnx-asr: NeMo's Parakeet and FastConformer CTC, GigaAM, T-one, or a local folder.
Characters that a model cannot write (digits, another script) are a wildcard, which takes the sound between the adjacent
words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from pipeline import checkpoints
from pipeline.asr import edges, onnx, words
from pipeline.asr.alignment.engine import AlignmentOptions, Samples
from pipeline.asr.words import TextToken
from pipeline.domain.speech import Chunk, Word
from pipeline.errors import CheckpointMissing, EngineError

SPACE = " "  # begins a word in onnx-asr's vocabularies


class CtcAlignerOptions(AlignmentOptions):
    model_config = ConfigDict(extra="forbid")

    quantization: str | None = Field(
        None, pattern=r"^\w+$", description="Variant of the model: int8 takes *.int8.onnx; unset: the plain one."
    )


CHECKPOINTS = replace(
    onnx.CHECKPOINTS,
    title="CTC model for alignment",
    setting="SWITCHBOARD_ALIGNMENT__MODEL",
    auto=lambda _: ("nemo-parakeet-ctc-0.6b",),
    sizes=lambda: {name: repository for name, repository in onnx.repositories().items() if "ctc" in name},
)


@dataclass(frozen=True, slots=True)
class _Target:
    """The tokens of a text, and the span of tokens of each word."""

    tokens: list[int]
    spans: list[tuple[int, int]]


class CtcAligner:
    """Aligner; see `pipeline.asr.alignment.Aligner`. Each text is a separate pass."""

    Options = CtcAlignerOptions
    CHECKPOINTS = CHECKPOINTS

    def __init__(self, options: CtcAlignerOptions, store: Path | None = None) -> None:
        device = self.device_of(options)
        checkpoint = checkpoints.resolve(options.model, CHECKPOINTS, device, store)
        self.options, self.checkpoint = options, checkpoint  # identify its times
        self._asr = onnx.load_model(checkpoint, device, options.quantization).asr
        if type(self._asr)._decoding.__qualname__.partition(".")[0] != "_AsrWithCtcDecoding":
            raise CheckpointMissing(f"{checkpoint.name!r} is not a CTC model; only CTC models can align.")
        self._tokens = {token: index for index, token in self._asr._vocab.items() if not token.startswith("<")}
        self._longest = max(map(len, self._tokens))
        self._blank = int(self._asr._blank_idx)
        self.name = f"ctc {checkpoint.name}"
        self.max_chunk_seconds = checkpoint.max_chunk_seconds or onnx.MAX_CHUNK_SECONDS

    @staticmethod
    def device_of(options: AlignmentOptions) -> str:
        return onnx.device_of(options.device, "SWITCHBOARD_ALIGNMENT__DEVICE")

    def align(
        self, samples: Sequence[Samples], chunks: Sequence[Chunk], texts: Sequence[str]
    ) -> list[tuple[Word, ...]]:
        return [self._aligned(*row) for row in zip(samples, chunks, texts, strict=True)]

    def _aligned(self, samples: Samples, chunk: Chunk, text: str) -> tuple[Word, ...]:
        tokens = words.in_words([f" {part}" for part in text.split()])
        if not tokens:
            return ()
        edges.check_sound(samples, chunk, self.max_chunk_seconds)
        emission = self._emission(samples)
        target = self._target(tokens, emission.shape[1])
        frames, scores = _path(emission, target.tokens, self._blank)
        step = float(self._asr.window_step * self._asr._subsampling_factor)
        timed = [
            _word(token, frames[first:last], scores[first:last], step)
            for token, (first, last) in zip(tokens, target.spans, strict=True)
        ]
        return edges.placed(timed, samples, chunk)

    def _emission(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Return log probabilities of every token in every frame, shape (frames, tokens)."""
        sound, length = np.ascontiguousarray(samples)[None], np.array([len(samples)], np.int64)
        try:
            emission, lengths = self._asr._encode(*self._asr._preprocessor(sound, length))
        except Exception as error:  # onnxruntime's own classes share no other base
            raise EngineError(f"Alignment failed ({type(error).__name__}).") from error
        log_probabilities: npt.NDArray[np.float32] = emission[0, : lengths[0]]
        return log_probabilities

    def _target(self, text_tokens: Sequence[TextToken], wildcard: int) -> _Target:
        target = _Target([], [])
        for token in text_tokens:
            spelling = self._spelled(token.text, bool(target.tokens)) or [wildcard]
            target.spans.append((len(target.tokens), len(target.tokens) + len(spelling)))
            target.tokens.extend(spelling)
        return target

    def _spelled(self, text: str, spaced: bool) -> list[int]:
        """Spell a word with the longest tokens, in the case of the vocabulary; unknown characters are skipped."""
        forms = {form(text) for form in (str, str.lower, str.upper)}
        spelled = (self._longest_tokens(SPACE + form, spaced) for form in sorted(forms))
        return max(spelled, key=lambda spelling: sum(len(self._asr._vocab[token].strip()) for token in spelling))

    def _longest_tokens(self, text: str, spaced: bool) -> list[int]:
        tokens, at = list[int](), 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self._tokens), None)
            if end is not None and (spaced or text[at:end] != SPACE):
                tokens.append(self._tokens[text[at:end]])
            at = end or at + 1
        return [] if all(self._asr._vocab[token].strip() == "" for token in tokens) else tokens


def _path(
    emission: npt.NDArray[np.float32], tokens: Sequence[int], blank: int
) -> tuple[list[tuple[int, int]], list[float]]:
    """Return for each token its frames first..last (exclusive) and their mean probability.

    The last column is the wildcard's. Raises `EngineError` for a text that is too long for the sound.
    """
    import torch
    from torchaudio.functional import forced_align, merge_tokens

    with_wildcard = torch.from_numpy(np.pad(emission, ((0, 0), (0, 1))))[None]  # any sound, at no cost
    try:
        path, scores = forced_align(with_wildcard, torch.tensor([list(tokens)], dtype=torch.int32), blank=blank)
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"The text has {len(tokens)} tokens: too many for its sound.") from error
    spans = merge_tokens(path[0], scores[0].exp(), blank=blank)
    return [(span.start, span.end) for span in spans], [float(span.score) for span in spans]


def _word(token: TextToken, frames: Sequence[tuple[int, int]], scores: Sequence[float], step: float) -> Word:
    confidence = round(min(1.0, max(0.0, min(scores))), 4)
    return Word(frames[0][0] * step, frames[-1][1] * step, token.text, confidence, joined=token.joined)
