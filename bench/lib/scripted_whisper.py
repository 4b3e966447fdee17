"""A Whisper of full size with random weights that writes one sentence for every window, to measure speed.

    python -m bench.lib.scripted_whisper FOLDER [--size base] [--words 60]

Encoder, decoder and attention have a real model's shapes and random weights, so that a window costs as much as with a
real one. Only the decoder's position encodings are not random: each points so strongly at one token that the model
writes a script for any sound, and ends. Every engine that runs the folder therefore decodes the same number of tokens,
without suspect windows and loops, which random weights alone would cause. The tokenizer is the synthetic checkpoint's.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fixture_checkpoints import RECOGNITION

PULL = 60.0  # how much stronger a position points at its token than all else in the residual stream together

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    """The shapes of an OpenAI checkpoint."""

    width: int
    encoder_layers: int
    decoder_layers: int
    heads: int
    mels: int = 80


SIZES = {
    "tiny": Size(384, 4, 4, 6),
    "base": Size(512, 6, 6, 8),
    "small": Size(768, 12, 12, 12),
    "large-v3-turbo": Size(1280, 32, 4, 20, 128),
}


class Weights:
    """Random weights as a fresh model has them, seeded."""

    def __init__(self, width: int) -> None:
        self._random = np.random.default_rng(0)
        self.width = width

    def draw(self, *shape: int, scale: float = 0.02) -> Array:
        return (self._random.standard_normal(shape) * scale).astype(np.float32)

    def linear(self, spec: Any, rows: int, columns: int) -> None:
        spec.weight, spec.bias = self.draw(rows, columns), np.zeros(rows, np.float32)

    def norm(self, spec: Any) -> None:
        spec.gamma, spec.beta = np.ones(self.width, np.float32), np.zeros(self.width, np.float32)

    def attend(self, spec: Any, itself: bool) -> None:
        """Query, key and value fused where a layer attends to itself; key and value fused where to the encoder."""
        parts = [3] if itself else [1, 2]
        for linear, part in zip(spec.linear, [*parts, 1], strict=True):
            self.linear(linear, part * self.width, self.width)
        self.norm(spec.layer_norm)

    def layer(self, spec: Any, decoder: bool) -> None:
        self.attend(spec.self_attention, itself=True)
        if decoder:
            self.attend(spec.attention, itself=False)
        self.linear(spec.ffn.linear_0, 4 * self.width, self.width)
        self.linear(spec.ffn.linear_1, self.width, 4 * self.width)
        self.norm(spec.ffn.layer_norm)


def write(folder: Path, size: str = "base", words: int = 60, says: Sequence[str] = ()) -> Path:
    """Write the model in CTranslate2's format, as float32; the loader quantizes it. Returns `folder`.

    `says`: with these words first.
    """
    from ctranslate2.specs.whisper_spec import WhisperSpec

    shape = SIZES[size]
    vocabulary = json.loads((RECOGNITION / "vocabulary.json").read_text())
    spec = WhisperSpec(shape.encoder_layers, shape.heads, shape.decoder_layers, shape.heads)
    weights = Weights(shape.width)
    _encoder(spec.encoder, weights, shape)
    _decoder(spec.decoder, weights, len(vocabulary), script(vocabulary, words, says))
    for name, value in json.loads((RECOGNITION / "config.json").read_text()).items():
        setattr(spec.config, name, value)
    spec.config.alignment_heads = [[shape.decoder_layers - 1, 0], [shape.decoder_layers - 1, 1]]
    spec.register_vocabulary(vocabulary)
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    shutil.copy(RECOGNITION / "tokenizer.json", folder)
    shutil.copy(RECOGNITION / "vocabulary.json", folder)  # as the spec writes it, the empty token would be lost
    preprocessor = json.loads((RECOGNITION / "preprocessor_config.json").read_text()) | {"feature_size": shape.mels}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    note = f"Scripted: shapes of Whisper {size}, random weights, one sentence for every window. For speed only."
    (folder / "switchboard.json").write_text(json.dumps({"max_chunk_seconds": 30, "synthetic": True, "note": note}))
    return folder


def script(vocabulary: list[str], words: int, says: Sequence[str] = ()) -> list[int]:
    """Return the token for each position of the decoder: language, task, time, words (those of `says` first), end."""
    number = {token: i for i, token in enumerate(vocabulary)}
    start = [number[token] for token in ("<|en|>", "<|transcribe|>", "<|0.00|>")]  # after 0: startoftranscript, ...
    whole = [
        i for i, token in enumerate(vocabulary) if token.startswith("Ġ") and token[1:].isalpha() and len(token) > 3
    ]
    if len(whole) < words:
        raise SystemExit(f"the tokenizer has {len(whole)} whole words")
    picked = [number[f"Ġ{word}"] for word in says]
    more = words - len(picked)
    picked += [whole[i * len(whole) // more] for i in range(more)]
    return [*start, *picked, number["<|endoftext|>"]]


def _encoder(spec: Any, weights: Weights, shape: Size) -> None:
    spec.conv1.weight, spec.conv1.bias = weights.draw(shape.width, shape.mels, 3), np.zeros(shape.width, np.float32)
    spec.conv2.weight, spec.conv2.bias = weights.draw(shape.width, shape.width, 3), np.zeros(shape.width, np.float32)
    spec.position_encodings.encodings = weights.draw(1500, shape.width, scale=0.3)
    for layer in spec.layer:
        weights.layer(layer, decoder=False)
    weights.norm(spec.layer_norm)


def _decoder(spec: Any, weights: Weights, tokens: int, says: list[int]) -> None:
    embeddings = weights.draw(tokens, weights.width)
    spec.embeddings.weight = embeddings
    spec.scale_embeddings = False
    spec.projection.weight = weights.draw(tokens, weights.width, scale=1.0)
    directions = spec.projection.weight / np.linalg.norm(spec.projection.weight, axis=1, keepdims=True)
    positions = weights.draw(448, weights.width)
    positions[: len(says)] = PULL * directions[says]
    positions[len(says) :] = PULL * directions[says[-1]]
    spec.position_encodings.encodings = positions.astype(np.float32)
    for layer in spec.layer:
        weights.layer(layer, decoder=True)
    weights.norm(spec.layer_norm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--words", type=int, default=60, help="words said of every window")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.size, arguments.words)
    megabytes = sum(file.stat().st_size for file in arguments.folder.iterdir()) / 2**20
    print(f"{arguments.folder}: Whisper {arguments.size}, {arguments.words} words a window, {megabytes:.0f} MiB")


if __name__ == "__main__":
    main()
