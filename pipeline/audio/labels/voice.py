"""Which moments are speech: the detector's word, heard a second time with other sounds taken away, and its limits.

After a minute of music the detector is slow to hear a voice again. So what is certainly a tone, music, or an even hiss
is silenced and the channel is judged once more; whatever either hearing takes for speech is speech. It is overruled by
what no voice can make: tones, keys, and a moment it doubts itself amid music. In doubt it is speech.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels import detector, music
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.evidence import Mask, SoundEvidence, steady, widened
from pipeline.audio.labels.frames import HOP, STEP, Frames
from pipeline.domain.speech import Audio, Span
from pipeline.voice.activity import FRAME, Probabilities

SOFTENED = 64  # 36 dB softer: after digital silence the detector misses first syllables
WORTHWHILE = 1.0  # seconds; less than that in other sounds does not dull the detector
BESIDE_MUSIC = 6  # frames, 120 ms
MEMORY = 5  # frames, 100 ms for which the detector goes on after a tone
REACH = 0.5  # seconds before and after a span in which sound that is joined to it belongs to it
MISSED_SECONDS, MISSED_LINES, MISSED_PROBABILITY = 0.25, 0.05, 0.1  # what is taken though the detector doubts it
LOUDER = 12.0  # dB over the quiet moments around, for what is joined to speech
QUIETEST = -50.0  # dBFS


@dataclass(frozen=True, slots=True, eq=False)
class Muted(Audio):
    """One channel of another audio with some frames so soft that nobody hears them."""

    audio: Audio
    channel: int
    silenced: Mask

    @property
    def channels(self) -> int:
        """Always 1."""
        return 1

    @property
    def length(self) -> int:
        """Samples."""
        return self.audio.length

    def read(self, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
        """See `Audio.read`."""
        samples = self.audio.read(self.channel, first, last).copy()
        at = max(0, first)
        frames = np.repeat(self.silenced[at // HOP : (at + len(samples)) // HOP + 1], HOP)[at % HOP :][: len(samples)]
        samples[: len(frames)][frames] //= SOFTENED
        return samples


def listen_again(audio: Audio, channel: int, probabilities: Probabilities, silenced: Mask) -> Probabilities:
    """The higher of the detector's first judgement and the one it makes with `silenced` frames silent."""
    if silenced.sum() < WORTHWHILE * STEP:
        return probabilities
    again = detector.activity(Muted(audio, channel, silenced), 0)
    centres = (np.arange(len(again)) * FRAME + FRAME // 2) // HOP
    again[silenced[np.minimum(centres, len(silenced) - 1)]] = 0  # soft music, too, may pass for a voice
    return np.maximum(probabilities, again)


def frames_of(
    spans: Sequence[Span], probabilities: Probabilities, frames: Frames, evidence: SoundEvidence, options: SpeechOptions
) -> Mask:
    """The frames that are speech."""
    count = len(frames)
    judged = probabilities[np.minimum((np.arange(count) * HOP + HOP // 2) // FRAME, len(probabilities) - 1)]
    heard = judged >= options.threshold
    kept = np.zeros(count, bool)
    near = widened(evidence.tone, MEMORY)
    for span in spans:
        first, last = int(span.start * STEP), min(count, int(np.ceil(span.end * STEP - 1e-6)))
        core = np.flatnonzero(heard[first:last])
        begin, end = (first + int(core[0]), first + int(core[-1]) + 1) if len(core) else (first, last)
        if music.mistaken(frames, evidence.playing, begin, end, float(np.mean(judged[begin:end]))):
            continue
        kept[first:last] = ~evidence.tone[first:last]
        if evidence.tone[first:last].any():  # of what is left beside a tone, pieces that are only its padding go
            for a, b in music.runs(kept[first:last]):
                if not (heard & ~near)[first + a : first + b].any():
                    kept[first + a : first + b] = False
    other = widened(evidence.sounding(), 2)
    kept |= _missed(kept | other | steady(frames), judged, frames, widened(evidence.playing, BESIDE_MUSIC))
    return _reaching(kept, frames, other, widened(evidence.playing, 2))


def _missed(known: Mask, judged: npt.NDArray[np.float32], frames: Frames, beside_music: Mask) -> Mask:
    """Utterances that the detector half heard: loud beside what is around, lines as of a voice, some probability.

    Clicks and bursts of noise have no lines; what has a second of steady level is no utterance; what goes over into
    music is its first bar.
    """
    found = np.zeros(len(known), bool)
    loud = (frames.level > np.maximum(QUIETEST, _ground(frames.level) + LOUDER)) & ~known
    for first, last in music.runs(_closed(loud, round(0.2 * STEP)) & ~known):
        voiced = float(np.mean(frames.lines[first:last])) >= MISSED_LINES
        apart = not beside_music[first:last].any()
        if (
            apart
            and last - first >= MISSED_SECONDS * STEP
            and voiced
            and judged[first:last].max() >= MISSED_PROBABILITY
        ):
            found[first:last] = True
    return widened(found, round(0.1 * STEP)) & ~known


def _ground(level: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The level of the quiet moments within some ten seconds: the tenth percentile of each five, smoothed."""
    size = round(5 * STEP)
    blocks = [float(np.percentile(level[i : i + size], 10)) for i in range(0, len(level), size)]
    lowest = [min(blocks[max(0, i - 1) : i + 2]) for i in range(len(blocks))]
    return np.repeat(np.asarray(lowest), size)[: len(level)]


def _closed(mask: Mask, gap: int) -> Mask:
    """Gaps of at most `gap` frames filled."""
    filled = mask.copy()
    for (_, end), (start, _) in pairwise(music.runs(mask)):
        if start - end <= gap:
            filled[end:start] = True
    return filled


def _reaching(kept: Mask, frames: Frames, other: Mask, playing: Mask) -> Mask:
    """With the sound that is joined to speech on either side: the detector misses first and last syllables.

    Music is judged over seconds, so its edge may lie inside the first word: where a pause divides that word from the
    piece, the word is speech.
    """
    reached = kept.copy()
    reach = round(REACH * STEP)
    loud = frames.level > np.maximum(QUIETEST, _ground(frames.level) + LOUDER)
    apart = loud & (~other | playing)  # what may be reached where a pause ends it
    joined = loud & ~other
    for first, last in music.runs(kept):
        for step, edge in ((-1, first - 1), (1, last)):
            within = np.arange(edge, edge + step * reach, step)
            within = within[(within >= 0) & (within < len(kept))]
            divided = len(within) > 0 and not loud[within].all()
            taken = np.logical_and.accumulate((apart if divided else joined)[within])
            reached[within[taken]] = True
    return reached
