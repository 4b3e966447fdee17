"""Speech frames: the detector's result, a second pass with other sounds muted, and its limits.

After a minute of music the detector is slow to notice a voice. So definite tones, music and even hiss are muted and the
channel is analyzed again; speech in either pass is speech. It is overridden by sounds no voice can make (tones, keys)
and for uncertain moments amid music. In doubt it is speech.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.audio.labels import detector, music
from pipeline.audio.labels.detector import SpeechOptions
from pipeline.audio.labels.evidence import Mask, SoundEvidence, steady, widened
from pipeline.audio.labels.frames import HOP, STEP, Frames
from pipeline.domain.speech import Audio, Span
from pipeline.voice.activity import FRAME, Probabilities

SOFTENED = 64  # 36 dB softer: after digital silence the detector misses first syllables
MIN_MUTED_SECONDS = 1.0  # seconds; less of other sounds does not dull the detector
MUSIC_MARGIN = 6  # frames, 120 ms
MEMORY = 5  # frames, 100 ms by which the detector's speech outlasts a tone
REACH = 0.5  # seconds before and after a span in which adjoining sound belongs to it
MISSED_SECONDS, MISSED_LINES, MISSED_PROBABILITY = 0.25, 0.05, 0.1  # minima of an utterance that the detector missed
LOUDER = 12.0  # dB over the surrounding quiet moments, for sound joined to speech
MIN_LEVEL = -50.0  # dBFS


@dataclass(frozen=True, slots=True, eq=False)
class MutedAudio(Audio):
    """One channel of another audio with some frames inaudibly soft."""

    audio: Audio
    channel: int
    silenced: Mask

    @property
    def channels(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return self.audio.length

    def read(self, channel: int, first: int, last: int) -> npt.NDArray[np.int16]:
        samples = self.audio.read(self.channel, first, last).copy()
        at = max(0, first)
        frames = np.repeat(self.silenced[at // HOP : (at + len(samples)) // HOP + 1], HOP)[at % HOP :][: len(samples)]
        samples[: len(frames)][frames] //= SOFTENED
        return samples


def detect_again(audio: Audio, channel: int, probabilities: Probabilities, silenced: Mask) -> Probabilities:
    """Return the higher of the first probabilities and those with `silenced` frames muted."""
    if silenced.sum() < MIN_MUTED_SECONDS * STEP:
        return probabilities
    second_pass = detector.activity(MutedAudio(audio, channel, silenced), 0)
    centers = (np.arange(len(second_pass)) * FRAME + FRAME // 2) // HOP
    second_pass[silenced[np.minimum(centers, len(silenced) - 1)]] = 0  # soft music, too, may pass for a voice
    return np.maximum(probabilities, second_pass)


def frames_of(
    spans: Sequence[Span], probabilities: Probabilities, frames: Frames, evidence: SoundEvidence, options: SpeechOptions
) -> Mask:
    count = len(frames)
    probability = probabilities[np.minimum((np.arange(count) * HOP + HOP // 2) // FRAME, len(probabilities) - 1)]
    detected = probability >= options.threshold
    speech = np.zeros(count, bool)
    near = widened(evidence.tone, MEMORY)
    for span in spans:
        first, last = int(span.start * STEP), min(count, int(np.ceil(span.end * STEP - 1e-6)))
        core = np.flatnonzero(detected[first:last])
        begin, end = (first + int(core[0]), first + int(core[-1]) + 1) if len(core) else (first, last)
        if music.mistaken(frames, evidence.playing, begin, end, float(np.mean(probability[begin:end]))):
            continue
        speech[first:last] = ~evidence.tone[first:last]
        if evidence.tone[first:last].any():  # drop pieces next to a tone that are only padding
            for a, b in music.runs(speech[first:last]):
                if not (detected & ~near)[first + a : first + b].any():
                    speech[first + a : first + b] = False
    other = widened(evidence.sounding(), 2)
    speech |= _missed(speech | other | steady(frames), probability, frames, widened(evidence.playing, MUSIC_MARGIN))
    return _reaching(speech, frames, other, widened(evidence.playing, 2))


def _missed(labeled: Mask, probability: npt.NDArray[np.float32], frames: Frames, near_music: Mask) -> Mask:
    """Mark missed utterances: louder than their surroundings, with lines as of a voice, and some probability.

    Clicks and noise have no lines, a steady second is no utterance, and what merges into music is its first bar.
    """
    missed = np.zeros(len(labeled), bool)
    loud = (frames.level > np.maximum(MIN_LEVEL, _ground(frames.level) + LOUDER)) & ~labeled
    for first, last in music.runs(music.filled(loud, round(0.2 * STEP)) & ~labeled):
        voiced = float(np.mean(frames.lines[first:last])) >= MISSED_LINES
        apart = not near_music[first:last].any()
        if (
            apart
            and last - first >= MISSED_SECONDS * STEP
            and voiced
            and probability[first:last].max() >= MISSED_PROBABILITY
        ):
            missed[first:last] = True
    return widened(missed, round(0.1 * STEP)) & ~labeled


def _ground(level: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the level of quiet moments within about ten seconds: the tenth percentile of each five, smoothed."""
    size = round(5 * STEP)
    blocks = [float(np.percentile(level[i : i + size], 10)) for i in range(0, len(level), size)]
    lowest = [min(blocks[max(0, i - 1) : i + 2]) for i in range(len(blocks))]
    return np.repeat(np.asarray(lowest), size)[: len(level)]


def _reaching(speech: Mask, frames: Frames, other: Mask, playing: Mask) -> Mask:
    """Add the sound adjoining speech on either side: the detector misses first and last syllables.

    Music is detected over seconds: its edge may be inside the first word, which is speech if a pause separates it.
    """
    reached = speech.copy()
    reach = round(REACH * STEP)
    loud = frames.level > np.maximum(MIN_LEVEL, _ground(frames.level) + LOUDER)
    apart = loud & (~other | playing)  # reachable if a pause ends it
    joined = loud & ~other
    for first, last in music.runs(speech):
        for step, edge in ((-1, first - 1), (1, last)):
            within = np.arange(edge, edge + step * reach, step)
            within = within[(within >= 0) & (within < len(speech))]
            divided = len(within) > 0 and not loud[within].all()
            joins = np.logical_and.accumulate((apart if divided else joined)[within])
            reached[within[joins]] = True
    return reached
