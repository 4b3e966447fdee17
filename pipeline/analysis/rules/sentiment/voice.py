"""Arousal of a party's voice in a turn, relative to the rest of the call.

Raised pitch, loudness, liveliness and pace with fewer pauses mark hot anger and elation alike, lowered ones sadness and
boredom (Banse & Scherer 1996; Juslin & Laukka 2003). So the voice does not show whether a speaker is pleased, only how
strongly. Values are not compared between speakers or calls: lines differ in loudness, people in pitch.

`Material.tone_by_voice` selects whose voice is judged. By default only a customer's: inferring employees' emotions from
their voices is prohibited in the European Union (AI Act, Article 5(1)(f)). In a mixed recording, where roles follow
from the words, only a speaker with a confidence of `MIN_ROLE_CONFIDENCE` counts as a customer.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from pipeline.analysis.talk import roles
from pipeline.domain.insight import Material
from pipeline.domain.speech import CUSTOMER, REP, Prosody, Role, Transcript, Turn

MIN_SCALE = {"pitch": 1.0, "level": 2.0, "spread": 0.5, "pace": 0.5, "pauses": 0.08}
"""Minimum scale of a feature, so that small variations of a monotonous speaker do not count: semitones, dB,
semitones, words a second, share of the turn."""
MIN_TURNS, MIN_SLICES = 6, 2  # of a baseline; of a turn (1 s of speech)
RAISED = 1.0  # mean deviation of all features, in robust standard deviations
MAX_DEVIATION = 3.0  # of one feature
PAUSE = 0.25  # seconds between words
MIN_ROLE_CONFIDENCE = 0.9  # of a role in a mixed recording; above it, none of 81 calls had swapped parties
MIN_SECONDS = 1.5  # of a turn with a meaningful pace

Features = dict[str, float]


@dataclass(frozen=True, slots=True)
class VoiceArousal:
    """`arousal` in robust standard deviations from the speaker's median; `raised` lists the raised features."""

    arousal: float
    raised: tuple[str, ...]

    @property
    def label(self) -> str:
        return "raised" if self.arousal >= RAISED else "lowered" if self.arousal <= -RAISED else "even"


def voices(material: Material) -> dict[int, VoiceArousal]:
    """Return the arousal by turn, for speakers whose voice may be judged and who have enough turns for a baseline.

    Empty without prosody.
    """
    judged = judged_speakers(material)
    if material.prosody is None or not judged:
        return {}
    features_by_speaker: dict[str, dict[int, Features]] = defaultdict(dict)
    for turn in material.transcript.turns:
        is_judged = turn.speaker in judged and not turn.machine
        features = _features(turn, material.transcript, material.prosody) if is_judged else {}
        if features:
            features_by_speaker[turn.speaker][turn.index] = features
    speakers = (turns for turns in features_by_speaker.values() if len(turns) >= MIN_TURNS)
    return {index: voice for turns in speakers for index, voice in _arousals(turns).items()}


def judged_speakers(material: Material) -> set[str]:
    """Return the labels of the speakers whose voice may be judged."""
    if material.tone_by_voice == "nobody":  # language: ok
        return set()
    speakers = material.transcript.speakers
    if material.tone_by_voice == "everybody":
        return {speaker.label for speaker in speakers}
    min_confidence = 0.0 if material.transcript.layout.kind.separated else MIN_ROLE_CONFIDENCE
    customers = (speaker for speaker in speakers if speaker.role is Role.CUSTOMER)
    return {speaker.label for speaker in customers if speaker.role_confidence >= min_confidence}


def _arousals(turns: dict[int, Features]) -> dict[int, VoiceArousal]:
    """Compare one speaker's turns with their median, in median absolute deviations (Iglewicz & Hoaglin 1993)."""
    middle, scale = {}, {}
    for name, min_scale in MIN_SCALE.items():
        values = [features[name] for features in turns.values() if name in features]
        if len(values) >= MIN_TURNS:
            middle[name] = median(values)
            scale[name] = max(min_scale, 1.4826 * median(abs(value - middle[name]) for value in values))
    arousals = {}
    for index, features in turns.items():
        apart = {name: (features[name] - middle[name]) / scale[name] for name in middle if name in features}
        if len(apart) < 2:
            continue
        signed = {name: -z if name == "pauses" else z for name, z in apart.items()}
        signed = {name: max(-MAX_DEVIATION, min(MAX_DEVIATION, z)) for name, z in signed.items()}
        standing_out = tuple(name for name, z in signed.items() if z >= RAISED)
        arousals[index] = VoiceArousal(round(fmean(signed.values()), 3), standing_out)
    return arousals


def _features(turn: Turn, transcript: Transcript, prosody: Prosody) -> Features:
    """Return the features of a turn; {} if less than a second of it is speech of this party alone."""
    channel = _channel(turn, transcript)
    if channel >= len(prosody.channels):
        return {}
    track = prosody.channels[channel]
    alone = [at for at, index in enumerate(track.index) if _within(turn, (index + 0.5) * prosody.seconds, transcript)]
    if len(alone) < MIN_SLICES:
        return {}
    features = {"level": fmean(track.level[at] for at in alone)}
    pitches = [12 * math.log2(pitch) for at in alone if (pitch := track.pitch[at])]
    spreads = [spread for at in alone if (spread := track.spread[at]) is not None]
    if pitches:
        features |= {"pitch": median(pitches), "spread": median(spreads)}
    if turn.end - turn.start >= MIN_SECONDS and len(turn.words) > 2:
        features |= _flow(turn)
    return features


def _flow(turn: Turn) -> Features:
    seconds = turn.end - turn.start
    gaps = (after.start - before.end for before, after in pairwise(turn.words))
    return {"pace": len(turn.words) / seconds, "pauses": sum(gap for gap in gaps if gap > PAUSE) / seconds}


def _channel(turn: Turn, transcript: Transcript) -> int:
    if not transcript.layout.kind.separated:
        return 0
    return CUSTOMER if roles(transcript).get(turn.speaker) is Role.CUSTOMER else REP


def _within(turn: Turn, moment: float, transcript: Transcript) -> bool:
    """Return whether the turn's speaker speaks alone at `moment`: in a mixed recording, overlaps belong to no voice."""
    if not turn.start <= moment <= turn.end:
        return False
    if transcript.layout.kind.separated:
        return True
    near = transcript.turns[max(0, turn.index - 2) : turn.index + 3]
    return not any(other.speaker != turn.speaker and other.start <= moment <= other.end for other in near)
