"""multilingual-e5-small with four bits for each weight, computed with numpy: no GPU, no framework to load.

L. Wang, N. Yang, X. Huang, L. Yang, R. Majumder, F. Wei: "Multilingual E5 Text Embeddings: A Technical Report",
arXiv 2402.05672. A BERT of 12 layers whose mean over all tokens is the text's vector; questions begin with "query: ",
what is searched with "passage: ". About a hundred languages, questions in one find passages in another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict
from threadpoolctl import threadpool_limits

from pipeline import checkpoints
from pipeline.checkpoints import WHOLE, CheckpointKind
from pipeline.embedding.engine import EmbeddingOptions, Vectors
from pipeline.embedding.q4 import FILE, Q4Model
from pipeline.embedding.tokens import Tokenizer

Floats = npt.NDArray[np.float32]

MOST_TOKENS = 510  # beside the first and the last one, which are marks

CHECKPOINTS = CheckpointKind(
    title="embedding model",
    setting="SWITCHBOARD_EMBEDDING__MODEL",
    auto=lambda _: ("multilingual-e5-small-q4",),
    stored={"multilingual-e5-small-q4": {WHOLE: "multilingual-e5-small-q4"}},
    required=(FILE,),
    patterns=(FILE,),
)


class E5Options(EmbeddingOptions):
    """What this engine can be told."""

    model_config = ConfigDict(extra="forbid")


class E5:
    """An embedding engine; see `pipeline.embedding.Engine`. 100 MB of memory beside the file, which is mapped."""

    Options = E5Options
    CHECKPOINTS = CHECKPOINTS

    def __init__(self, options: E5Options, store: Path | None) -> None:
        """Raises `CheckpointMissing` where the model is not in the store: nothing is downloaded here."""
        checkpoint = checkpoints.present(options.model, CHECKPOINTS, store)
        self.name = checkpoint.name
        model = Q4Model(checkpoint.folder / FILE)
        self.dimension = model.dimension
        self._heads, self._epsilon = model.heads, model.epsilon
        self._tokenizer = Tokenizer(model)
        self._words = model.rows("emb.word", model.dimension)
        self._positions = (
            model.array("emb.pos").reshape(-1, model.dimension) + model.array("emb.type")[: self.dimension]
        )
        self._norm = model.array("emb.ln.w"), model.array("emb.ln.b")
        self._layers = [_Layer(model, number) for number in range(model.layers)]

    @staticmethod
    def device_of(options: Any) -> str:
        """Always the CPU: a passage takes some tens of milliseconds there."""
        return "cpu"

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed([f"passage: {text}" for text in texts])

    def query(self, text: str) -> Vectors:
        return self._embed([f"query: {text}"])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        tokens = [self._tokenizer.tokens(text, MOST_TOKENS) for text in texts]
        with threadpool_limits(1, "blas"):  # threads that spin on a busy machine: a question takes a minute
            means = [self._hidden(one).mean(axis=0) for one in tokens]
        found = np.array(means, np.float32).reshape(len(texts), self.dimension)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)

    def _hidden(self, tokens: Sequence[int]) -> Floats:
        """The last layer's states of one text, (tokens, dimension)."""
        hidden = _normalized(self._words.take(tokens) + self._positions[: len(tokens)], self._norm, self._epsilon)
        for layer in self._layers:
            hidden = layer(hidden, self._heads, self._epsilon)
        return hidden


class _Layer:
    """Attention of each token to all, and a feed-forward network; each is added to its input and normalized."""

    def __init__(self, model: Q4Model, number: int) -> None:
        size, inner = model.dimension, model.inner
        shapes = {"q": (size, size), "k": (size, size), "v": (size, size), "ao": (size, size)}
        shapes |= {"fi": (inner, size), "fo": (size, inner)}
        self._linear = {
            name: (model.rows(f"l{number}.{name}.w", shape[1]).whole().T, model.array(f"l{number}.{name}.b"))
            for name, shape in shapes.items()
        }
        self._norms = {
            name: (model.array(f"l{number}.{name}.w"), model.array(f"l{number}.{name}.b")) for name in ("aln", "oln")
        }

    def __call__(self, hidden: Floats, heads: int, epsilon: float) -> Floats:
        query, key, value = (self._heads_of(self._apply(name, hidden), heads) for name in "qkv")
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ value
        attended = self._apply("ao", mixed.transpose(1, 0, 2).reshape(hidden.shape))
        hidden = _normalized(hidden + attended, self._norms["aln"], epsilon)
        return _normalized(hidden + self._apply("fo", _gelu(self._apply("fi", hidden))), self._norms["oln"], epsilon)

    def _apply(self, name: str, given: Floats) -> Floats:
        weights, bias = self._linear[name]
        return np.asarray(given @ weights + bias, np.float32)

    @staticmethod
    def _heads_of(states: Floats, heads: int) -> Floats:
        return states.reshape(len(states), heads, -1).transpose(1, 0, 2)


def _normalized(states: Floats, norm: tuple[Floats, Floats], epsilon: float) -> Floats:
    """Layer normalization."""
    weight, bias = norm
    centered = states - states.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + np.float32(epsilon))
    return np.asarray(centered / spread * weight + bias, np.float32)


def _gelu(states: Floats) -> Floats:
    from scipy.special import erf  # slow to import, and this module is asked for its options everywhere

    return np.asarray(0.5 * states * (1.0 + erf(states / np.float32(np.sqrt(2.0)))), np.float32)
