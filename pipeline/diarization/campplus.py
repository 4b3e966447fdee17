"""CAM++, a speaker embedding network: a densely connected TDNN with context-aware masking.

H. Wang, S. Zheng, Y. Chen, L. Cheng, Q. Chen: "CAM++: A Fast and Efficient Network for Speaker Verification Using
Context-Aware Masking", Interspeech 2023, arXiv 2303.00332. Sections 2.1 (front-end convolution module), 2.2 (D-TDNN
blocks) and 2.3 (context-aware masking) are the classes below. Names of modules are those of the published state dict
(3D-Speaker, Apache-2.0), which `load` reads strictly.
"""
# mypy: allow-subclassing-any

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torchaudio.compliance import kaldi

from pipeline.domain.speech import SAMPLE_RATE

BINS = 80  # of the log-mel filterbank
DIMENSION = 192
MIN_FRAMES = 40  # of 10 ms; fewer do not characterize a voice
FRAME, HOP = SAMPLE_RATE // 40, SAMPLE_RATE // 100  # samples per frame, and between frames
GROWTH = 32  # channels that each layer of a dense block adds
BOTTLENECK = 128  # channels inside a layer
SEGMENT = 100  # frames of 20 ms whose mean is a frame's local context
HEAD_CHANNELS = 32
BLOCKS = ((12, 1), (24, 2), (16, 2))  # layers, dilation
TOGETHER_GPU = 16_000  # frames per pass, including padding: 160 MB for each map of the front end
TOGETHER_CPU = 1_200  # likewise, without padding; more exceed the cache and take longer


class CAMPlusPlus(nn.Module):
    """Embeds the filterbank frames of a voice. Inference only: normalization uses stored statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.head = FrontEnd()
        self.xvector = _backbone(HEAD_CHANNELS * BINS // 8)

    @property
    def device(self) -> torch.device:
        return self.head.conv1.weight.device

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return (batch, 192) of (batch, frames, 80): log-mel frames of 10 ms whose mean over time is zero.

        Means over time include every frame. So for voices padded with zeros to a common length, `lengths` (batch,) has
        the number of frames of each, and each embedding is the same as without padding.
        """
        inside = None if lengths is None else _inside(lengths, frames.shape[1])
        signal = self.head(frames.transpose(1, 2).unsqueeze(1), inside)
        if lengths is not None:
            inside = _inside((lengths + 1) // 2, (frames.shape[1] + 1) // 2)  # the first layer has stride 2
        for layer in self.xvector:
            signal = layer(signal, inside) if isinstance(layer, DenseBlock | StatisticsPooling) else layer(signal)
        embedding: Tensor = signal
        return embedding


def load(path: Path) -> CAMPlusPlus:
    """Return the network with the weights of a published state dict, ready for inference.

    Raises `RuntimeError` for a state dict of another network, `UnpicklingError` for a file that is no state dict.
    """
    network = CAMPlusPlus()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), strict=True)
    network.eval().requires_grad_(False)
    return network


def filterbank(waveform: Tensor) -> Tensor:
    """Return (frames, 80) of (1, samples) at 16 kHz: Kaldi's log-mel energies; no frames for sound shorter than one."""
    if waveform.shape[1] < FRAME:
        return waveform.new_zeros(0, BINS)
    return kaldi.fbank(waveform, num_mel_bins=BINS, sample_frequency=SAMPLE_RATE, dither=0.0)


def filterbanks(sounds: Sequence[Tensor]) -> list[Tensor]:
    """Return the `filterbank` of each sound, (samples,); on a GPU in one pass, since its steps are small and many."""
    if not sounds or sounds[0].device.type == "cpu":
        return [filterbank(sound[None]) for sound in sounds]
    return filterbanks_together(sounds)


def filterbanks_together(sounds: Sequence[Tensor]) -> list[Tensor]:
    """Compute `filterbanks` of joined sounds, each starting at a frame; drop frames that contain two sounds."""
    hops = [-(-len(sound) // HOP) for sound in sounds]
    padded = [nn.functional.pad(sound, (0, -len(sound) % HOP)) for sound in sounds]
    joined = filterbank(nn.functional.pad(torch.cat(padded), (0, FRAME))[None])
    counts = [max(0, 1 + (len(sound) - FRAME) // HOP) for sound in sounds]
    pieces = joined.split([*hops, len(joined) - sum(hops)])
    return [piece[:count] for piece, count in zip(pieces, counts, strict=False)]


def embedded(network: CAMPlusPlus, voices: Sequence[Tensor]) -> Tensor:
    """Return (voices, 192) of the log-mel frames of each voice, (frames, 80); NaN for fewer than `MIN_FRAMES`.

    On a GPU voices of several lengths share a pass: launching its hundreds of small steps takes longer than computing
    them. On a CPU, where padding costs as much as speech, only voices of equal length share one.
    """
    embeddings = torch.full((len(voices), DIMENSION), torch.nan, device=network.device)
    lengths = [len(voice) for voice in voices]
    for group in _groups(lengths, on_gpu=network.device.type == "cuda"):
        centered = [voices[at] - voices[at].mean(dim=0) for at in group]
        if len({lengths[at] for at in group}) == 1:
            embeddings[group] = network(torch.stack(centered))
        else:
            counts = torch.tensor([lengths[at] for at in group], device=network.device)
            embeddings[group] = network(pad_sequence(centered, batch_first=True), counts)
    return embeddings


def _groups(lengths: Sequence[int], on_gpu: bool) -> Iterator[list[int]]:
    """Yield the indices of voices that share a pass."""
    max_frames = TOGETHER_GPU if on_gpu else TOGETHER_CPU
    group: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        if lengths[at] < MIN_FRAMES:
            break
        longest = lengths[group[0]] if group else lengths[at]
        if (len(group) + 1) * longest > max_frames or not (on_gpu or lengths[at] == longest):
            if group:
                yield group
            group = []
        group.append(at)
    if group:
        yield group


def _inside(lengths: Tensor, frames: int) -> Tensor:
    """Return (batch, 1, frames): 1 in the frames of a voice, 0 in its padding."""
    return (torch.arange(frames, device=lengths.device) < lengths[:, None]).float()[:, None]


def _only(signal: Tensor, inside: Tensor | None) -> Tensor:
    """Silence the padding of `signal`, (batch, ..., frames), in place."""
    if inside is None:
        return signal
    return signal.mul_(inside if signal.dim() == 3 else inside[:, None])


class FrontEnd(nn.Module):
    """Two-dimensional residual convolutions over frequency and time; frequency is reduced to an eighth."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, HEAD_CHANNELS, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(HEAD_CHANNELS)
        self.layer1 = nn.Sequential(Residual(stride=2), Residual(stride=1))
        self.layer2 = nn.Sequential(Residual(stride=2), Residual(stride=1))
        self.conv2 = nn.Conv2d(HEAD_CHANNELS, HEAD_CHANNELS, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(HEAD_CHANNELS)

    def forward(self, spectrum: Tensor, inside: Tensor | None) -> Tensor:
        """Convert (batch, 1, bins, frames) to (batch, channels * bins / 8, frames). `inside`: see `_inside`."""
        maps = _only(self.bn1(self.conv1(spectrum)).relu_(), inside)
        for residual in (*self.layer1, *self.layer2):
            maps = residual(maps, inside)
        return _only(self.bn2(self.conv2(maps)).relu_(), inside).flatten(1, 2)


class Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut; `stride` is that of the frequency axis."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        channels = HEAD_CHANNELS
        self.conv1 = nn.Conv2d(channels, channels, 3, stride=(stride, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.append(nn.Conv2d(channels, channels, 1, stride=(stride, 1), bias=False))
            self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, maps: Tensor, inside: Tensor | None) -> Tensor:
        inner = _only(self.bn1(self.conv1(maps)).relu_(), inside)
        return _only(self.bn2(self.conv2(inner)).add_(self.shortcut(maps)).relu_(), inside)


class DenseBlock(nn.Module):
    """Layers that each receive the block's input and the output of all layers before."""

    def __init__(self, channels: int, layers: int, dilation: int) -> None:
        super().__init__()
        self.made = layers * GROWTH
        for number in range(layers):
            self.add_module(f"tdnnd{number + 1}", DenseLayer(channels + number * GROWTH, dilation))

    def forward(self, signal: Tensor, inside: Tensor | None) -> Tensor:
        """Convert (batch, channels, frames) to (batch, channels + layers * 32, frames)."""
        batch, filled, frames = signal.shape
        joined = signal.new_empty(batch, filled + self.made, frames)
        joined[:, :filled] = signal
        for layer in self.children():
            joined[:, filled : filled + GROWTH] = layer(joined[:, :filled], inside)
            filled += GROWTH
        return joined


class DenseLayer(nn.Module):
    """A bottleneck, then a convolution over time under a context-aware mask."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _normalized(channels)
        self.linear1 = nn.Conv1d(channels, BOTTLENECK, 1, bias=False)
        self.nonlinear2 = _normalized(BOTTLENECK)
        self.cam_layer = MaskedConvolution(dilation)

    def forward(self, signal: Tensor, inside: Tensor | None) -> Tensor:
        narrow = _only(self.nonlinear2(self.linear1(self.nonlinear1(signal))), inside)
        masked: Tensor = self.cam_layer(narrow, inside)
        return masked


class MaskedConvolution(nn.Module):
    """A convolution over time whose channels are weighted, 0..1, by the context of the whole voice and the segment."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(BOTTLENECK, GROWTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.linear1 = nn.Conv1d(BOTTLENECK, BOTTLENECK // 2, 1)
        self.linear2 = nn.Conv1d(BOTTLENECK // 2, GROWTH, 1)

    def forward(self, signal: Tensor, inside: Tensor | None) -> Tensor:
        """Convert (batch, 128, frames) to (batch, 32, frames); all frames of a segment share a mask."""
        segments = nn.functional.avg_pool1d(signal, SEGMENT, SEGMENT, ceil_mode=True)  # (batch, 128, segments)
        mean = signal.mean(dim=2, keepdim=True)
        if inside is not None:  # relative to the unpadded frames
            filled = nn.functional.avg_pool1d(inside, SEGMENT, SEGMENT, ceil_mode=True)
            segments, mean = segments / filled.clamp(min=1 / SEGMENT), mean / inside.mean(dim=2, keepdim=True)
        context = segments + mean
        mask = self.linear2(self.linear1(context).relu_()).sigmoid_()
        frames = mask.repeat_interleave(SEGMENT, dim=2)[:, :, : signal.shape[2]]
        return self.linear_local(signal).mul_(frames)


class StatisticsPooling(nn.Module):
    """Mean and standard deviation over time: (batch, channels, frames) to (batch, 2 * channels, 1)."""

    def forward(self, signal: Tensor, inside: Tensor | None) -> Tensor:
        if inside is None:
            return torch.cat([signal.mean(dim=2, keepdim=True), signal.std(dim=2, keepdim=True)], dim=1)
        count = inside.sum(dim=2, keepdim=True)
        mean = (signal * inside).sum(dim=2, keepdim=True) / count
        squares = (signal - mean).square_().mul_(inside).sum(dim=2, keepdim=True)
        return torch.cat([mean, (squares / (count - 1)).sqrt_()], dim=1)


class Flattened(nn.Module):
    """(batch, channels, 1) to (batch, channels)."""

    def forward(self, signal: Tensor) -> Tensor:
        return signal.squeeze(2)


def _backbone(channels: int) -> nn.Sequential:
    """Build the D-TDNN: 20 ms per frame from the first layer on; channels are halved after each dense block."""
    width = BOTTLENECK
    backbone = nn.Sequential()
    first = nn.Conv1d(channels, width, 5, stride=2, padding=2, bias=False)
    backbone.add_module("tdnn", _named(linear=first, nonlinear=_normalized(width)))
    for number, (layers, dilation) in enumerate(BLOCKS, start=1):
        backbone.add_module(f"block{number}", DenseBlock(width, layers, dilation))
        width += layers * GROWTH
        transit = _named(nonlinear=_normalized(width), linear=nn.Conv1d(width, width // 2, 1, bias=False))
        backbone.add_module(f"transit{number}", transit)
        width //= 2
    backbone.add_module("out_nonlinear", _normalized(width))
    backbone.add_module("stats", StatisticsPooling())
    dense = nn.Conv1d(2 * width, DIMENSION, 1, bias=False)
    last = _named(batchnorm=nn.BatchNorm1d(DIMENSION, affine=False))
    backbone.add_module("dense", _named(linear=dense, nonlinear=last, flat=Flattened()))
    return backbone


def _normalized(channels: int) -> nn.Sequential:
    return _named(batchnorm=nn.BatchNorm1d(channels), relu=nn.ReLU(inplace=True))


def _named(**modules: nn.Module) -> nn.Sequential:
    sequence = nn.Sequential()
    for name, module in modules.items():
        sequence.add_module(name, module)
    return sequence
