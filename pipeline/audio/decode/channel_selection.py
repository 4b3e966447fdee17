"""Selection of the two parties among more than two channels, or several tracks, decided from the samples.

Recorders add empty channels (5.1 around a telephone call), a copy, or the mix of the others; conferences have a channel
per party. So silent channels, copies and mixes of others are ignored. The first two that remain are used, the sender's
line and the other party; further ones with distinct sound are dropped, and the layout mentions it. If the first channel
of the file is silent, no channel identifies the rep, and the two become one mixed channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.decode.sound import in_all, keep_only
from pipeline.domain.speech import SAMPLE_RATE, Audio, Span

Matrix = npt.NDArray[np.float64]

MAX_CHANNELS = 8  # compared
WINDOW = SAMPLE_RATE  # samples, 1 s
BLOCK = 60  # windows read at once
QUIET = 32.0**2  # mean square of int16 samples, -60 dB of full scale: a softer second is silent
FAINT = 10**-3.0  # of a channel's loudest second, -30 dB: in softer seconds copies look like codec noise
OWN = 0.25  # min. share of a second's energy in no other channel, -6 dB
OWN_SHARE = 0.02  # min. share of such seconds in a used channel
WEIGHT = 0.2  # min. weight of a channel that is part of a mix


@dataclass(frozen=True, slots=True)
class SelectedChannels(Audio):
    """Channels composed of rows of other audio: each is the sum of its rows, given as (source, channel)."""

    sources: tuple[Audio, ...]
    rows: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def channels(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> int:
        return max(source.length for source in self.sources)

    def drop_unused(self) -> None:
        """Remove the scratch files of channels that no row uses."""
        for at, source in enumerate(self.sources):
            keep_only(source, {channel for row in self.rows for of, channel in row if of == at})

    def gaps(self, channel: int) -> tuple[Span, ...]:
        return in_all([self.sources[source].gaps(row) for source, row in self.rows[channel]])

    def read(self, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
        first, last = max(0, first), min(last, self.length)
        total = np.zeros(max(0, last - first), np.int32)
        for source, row in self.rows[channel]:
            piece = self.sources[source].read(row, first, last)
            total[: len(piece)] += piece
        return np.clip(total, -32768, 32767).astype(np.int16)


def choose(sources: Sequence[Audio]) -> tuple[Audio, str | None]:
    """Select one or two channels of a file, with the reason in a sentence; None if there is no choice.

    `sources`: the audio of each track, max. `MAX_CHANNELS` channels in total. Raises `StorageError`.
    """
    rows = [(at, channel) for at, source in enumerate(sources) for channel in range(source.channels)]
    everything = SelectedChannels(tuple(sources), tuple((row,) for row in rows))
    if len(sources) == len(rows) == 2:
        return everything, "The file has two tracks of one channel each; they are used as channels 0 and 1."
    if len(rows) <= 2:
        return sources[0], None
    fates = judge(_energies(everything))
    usable = [at for at, fate in enumerate(fates) if fate is None] or [0]
    parties = usable[:2]
    groups = [parties[:1], parties[1:]] if len(parties) > 1 and fates[0] != SILENT else [parties]
    selected = SelectedChannels(tuple(sources), tuple(tuple(rows[at] for at in group) for group in groups))
    return selected, _reason(fates, groups, usable[2:])


SILENT, COPY, MIX = "silent", "a copy", "a mix of others"


def judge(windows: Matrix) -> list[str | None]:
    """Return why each channel is ignored or None; `windows`: mean products (seconds, channels, channels) of pairs."""
    count = windows.shape[1]
    loudest = np.array([windows[:, at, at].max(initial=0.0) for at in range(count)])
    fates: list[str | None] = [None if level >= QUIET else SILENT for level in loudest]
    for at in range(count):  # the later of two equal channels is the copy
        before = [other for other in range(at) if fates[other] is None]
        if fates[at] is None and any(_made_of(windows, at, [other]) is not None for other in before):
            fates[at] = COPY
    for at in range(count):
        others = [other for other in range(count) if other != at and fates[other] is None]
        if fates[at] is None and len(others) > 1:
            weights = _made_of(windows, at, others)
            # A sum has positive parts; a party is not "the mix less the other party".
            if weights is not None and (weights > -WEIGHT).all() and (weights > WEIGHT).sum() > 1:
                fates[at] = MIX
    return fates


def _made_of(windows: Matrix, at: int, others: list[int]) -> Matrix | None:
    """Return the weights with which a channel is the sum of others in nearly all its seconds, or None."""
    total = windows.sum(axis=0)
    weights: Matrix = np.linalg.lstsq(total[others][:, others], total[others, at], rcond=1e-9)[0]
    energy = windows[:, at, at]
    audible = energy >= max(QUIET, FAINT * energy.max(initial=0.0))
    inside = windows[audible][:, others][:, :, others]
    cross = windows[audible][:, others, at]
    rest = energy[audible] - 2 * cross @ weights + np.einsum("i,nij,j->n", weights, inside, weights)
    return weights if (rest > OWN * energy[audible]).mean() < OWN_SHARE else None


def _energies(audio: Audio) -> Matrix:
    """Return the mean products of all pairs of channels per second, without their offsets."""
    energies = [np.zeros((0, audio.channels, audio.channels))]
    for first in range(0, audio.length, BLOCK * WINDOW):
        last = min(first + BLOCK * WINDOW, audio.length)
        block = np.stack([audio.read(channel, first, last) for channel in range(audio.channels)]).astype(np.float32)
        for start in range(0, block.shape[1], WINDOW):
            window = block[:, start : start + WINDOW].astype(np.float64)
            window -= window.mean(axis=1, keepdims=True)
            energies.append((window @ window.T / window.shape[1])[None])
    return np.concatenate(energies)


def _reason(fates: Sequence[str | None], groups: Sequence[Sequence[int]], left_out: Sequence[int]) -> str:
    def listed(channels: Sequence[int]) -> str:
        return ("channel " if len(channels) == 1 else "channels ") + " and ".join(str(at) for at in channels)

    parts = []
    for why in (SILENT, COPY, MIX):
        channels = [at for at, fate in enumerate(fates) if fate == why]
        if channels:
            parts.append(f"{listed(channels)} {'is' if len(channels) == 1 else 'are'} {why}")
    if len(groups) == 2:
        used = f"{listed(groups[0])} is the rep, {listed(groups[1])} the customer"
    elif len(groups[0]) > 1:
        used = f"the first channel is silent and does not identify the rep, so {listed(groups[0])} are mixed into one"
    else:
        used = f"only {listed(groups[0])} is used"
    more = ""
    if left_out:
        holds = "has distinct sound but is" if len(left_out) == 1 else "have distinct sound but are"
        more = f"; {listed(left_out)} {holds} ignored: a call has two parties"
    return f"Of {len(fates)} channels {'; '.join([*parts, used])}{more}."
