"""Whisper's encoder in PyTorch with bfloat16, for CPUs with tile multiplication (Intel's AMX).

CTranslate2 multiplies weights in int8 on such CPUs, but computes attention in float32 and stores all scores of a window
at once. PyTorch stores one block of them, in bfloat16. Both use the weights of the same checkpoint.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.errors import EngineError

LAYOUT = 6  # of the file, as CTranslate2 writes it since version 2
FORMATS = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by CTranslate2's numbers
ADVICE = "Set SWITCHBOARD_ASR__ENCODER=ctranslate2 to use CTranslate2's encoder."
PREFIX = "encoder/"
FLAG = "amx_bf16"
CPU_INFO = Path("/proc/cpuinfo")

Features = npt.NDArray[np.float32]  # shape (mels, frames)


def suits_this_cpu(about: Path = CPU_INFO) -> bool:
    """Return whether the CPU multiplies bfloat16 in tiles; False if the system does not report it."""
    try:
        text = about.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(FLAG in line.split() for line in text.splitlines() if line.startswith("flags"))


class BFloat16Encoder:
    """The encoder of one checkpoint, on a CPU. Re-entrant."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Read the weights of the checkpoint in `folder`; `threads` per pass.

        Raises `EngineError` if its file has another layout or lacks the weights of Whisper's encoder.
        """
        self._threads = threads
        path = folder / "model.bin"
        try:
            with path.open("rb") as file:
                variables = dict(_variables(file))
            self._heads = int(variables.pop("num_heads"))
            self._positions = variables["position_encodings/encodings"].float()
            self._weights = {
                name: _whole(value, variables.get(f"{name}_scale")).to(_format(name))
                for name, value in variables.items()
                if not name.endswith("_scale")
            }
        except (KeyError, struct.error, ValueError, IndexError, RuntimeError) as error:
            raise EngineError(f"{path} has no readable encoder ({type(error).__name__}). {ADVICE}") from error
        self._layers = sum(name.endswith("/ffn/linear_0/weight") for name in variables)

    def __call__(self, features: Features) -> npt.NDArray[np.float32]:
        """Return the encoder's output for one window, shape (1, frames / 2, dimension)."""
        import torch

        before = torch.get_num_threads()  # of the calling thread, which may run other networks later
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                return np.asarray(self._encoded(torch.from_numpy(features[None])).numpy())
        finally:
            torch.set_num_threads(before)

    def _encoded(self, features: Any) -> Any:
        from torch.nn import functional

        x = features.bfloat16()
        for name, stride in (("conv1", 1), ("conv2", 2)):
            weight, bias = self._weights[f"{name}/weight"], self._weights[f"{name}/bias"]
            x = functional.gelu(functional.conv1d(x, weight, bias, stride=stride, padding=1))
        x = x.transpose(1, 2).float()
        x = x + self._positions[: x.shape[1]]
        for layer in range(self._layers):
            x = x + self._attention(f"layer_{layer}/self_attention", x)
            x = x + self._feed_forward(f"layer_{layer}/ffn", x)
        return self._norm("layer_norm", x)

    def _attention(self, name: str, x: Any) -> Any:
        from torch.nn import functional

        rows, frames, width = x.shape
        joint = self._linear(f"{name}/linear_0", self._norm(f"{name}/layer_norm", x).bfloat16())
        queries, keys, values = joint.view(rows, frames, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        return self._linear(f"{name}/linear_1", mixed.transpose(1, 2).reshape(rows, frames, width)).float()

    def _feed_forward(self, name: str, x: Any) -> Any:
        from torch.nn import functional

        inner = self._linear(f"{name}/linear_0", self._norm(f"{name}/layer_norm", x).bfloat16())
        return self._linear(f"{name}/linear_1", functional.gelu(inner)).float()

    def _linear(self, name: str, x: Any) -> Any:
        from torch.nn import functional

        return functional.linear(x, self._weights[f"{name}/weight"], self._weights[f"{name}/bias"])

    def _norm(self, name: str, x: Any) -> Any:
        from torch.nn import functional

        return functional.layer_norm(
            x, x.shape[-1:], self._weights[f"{name}/gamma"], self._weights[f"{name}/beta"], 1e-5
        )


def _variables(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of the encoder's variables in a CTranslate2 `model.bin`, scalars included.

    The layout is that of `ModelSpec.save` in CTranslate2: version, name and revision of the specification, then name,
    shape, format and bytes of each variable, little-endian.
    """
    import torch

    version = _number(file, "I")
    if version != LAYOUT:
        raise EngineError(f"The weights are in a file of layout {version}, not {LAYOUT}. {ADVICE}")
    _name(file)
    _number(file, "I")
    for _ in range(_number(file, "I")):
        name = _name(file)
        shape = [_number(file, "I") for _ in range(_number(file, "B"))]
        kind, size = FORMATS[_number(file, "B")], _number(file, "I")
        if name.startswith(PREFIX):
            values = torch.frombuffer(bytearray(file.read(size)), dtype=getattr(torch, kind))
            yield name.removeprefix(PREFIX), values.reshape(shape)
        else:
            file.seek(size, 1)


def _number(file: BinaryIO, kind: str) -> int:
    size = struct.calcsize(f"<{kind}")
    return int(struct.unpack(f"<{kind}", file.read(size))[0])


def _name(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()


def _whole(value: Any, scale: Any) -> Any:
    """Return weights in float32; quantized rows are divided by their scale."""
    return value.float() if scale is None else value.float() / scale.float().reshape(-1, *[1] * (value.dim() - 1))


def _format(name: str) -> Any:
    """Return the data type of a variable: float32 for norms and their sums, bfloat16 for matrix products."""
    import torch

    return torch.float32 if "norm" in name else torch.bfloat16
