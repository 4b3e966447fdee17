"""How aroused a party sounds in a turn, against how the same party sounds in the rest of the call.

Arousal, not pleasure: raised pitch, loudness, liveliness and pace with fewer pauses mark hot anger and elation alike,
lowered ones sadness and boredom (Banse & Scherer 1996; Juslin & Laukka 2003). So the voice never says whether somebody
is pleased, only how strongly they mean it. No figure is compared between speakers or calls: lines differ in loudness,
people in pitch.

Whose voice is judged, `Material.tone_by_voice` says. By default only a customer's: inferring employees' emotions from
their voices is prohibited in the European Union (AI Act, Article 5(1)(f)). In a mixed recording, where roles follow
from what is said, a customer is somebody of whom that is sure (`SURE`).
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from pipeline.analysis.talk import roles
from pipeline.domain.insight import Material
from pipeline.domain.speech import CUSTOMER, REP, Prosody, Role, Transcript, Turn

FLOORS = {"pitch": 1.0, "level": 2.0, "spread": 0.5, "pace": 0.5, "pauses": 0.08}
"""What a feature varies by at least, so that a monotonous speaker's smallest stir is no outburst: semitones, dB,
semitones, words a second, share of the turn."""
TURNS, SLICES = 6, 2  # a baseline needs so many turns; a turn so many slices (1 s of speech)
RAISED = 1.0  # mean deviation of all features, in robust standard deviations
MOST = 3.0  # of one feature
PAUSE = 0.25  # seconds between words
SURE = 0.9  # probability of a role in a mixed recording; of 81 calls above it none had parties mixed up
LONG = 1.5  # seconds of a turn whose pace means something

Features = dict[str, float]


@dataclass(frozen=True, slots=True)
class VoiceArousal:
    """`arousal` in robust standard deviations from the speaker's own middle; `raised` names what stands out."""

    arousal: float
    raised: tuple[str, ...]

    @property
    def label(self) -> str:
        return "raised" if self.arousal >= RAISED else "lowered" if self.arousal <= -RAISED else "even"


def voices(material: Material) -> dict[int, VoiceArousal]:
    """By turn, for the speakers whose voice may be judged and of whom enough is heard to tell what is usual for them;
    nobody without prosody."""
    judged = judged_speakers(material)
    if material.prosody is None or not judged:
        return {}
    found: dict[str, dict[int, Features]] = defaultdict(dict)
    for turn in material.transcript.turns:
        own = turn.speaker in judged and not turn.machine
        features = _features(turn, material.transcript, material.prosody) if own else {}
        if features:
            found[turn.speaker][turn.index] = features
    return {index: voice for own in found.values() if len(own) >= TURNS for index, voice in _against(own).items()}


def judged_speakers(material: Material) -> set[str]:
    """The labels of those whose voice may say in what tone they speak."""
    if material.tone_by_voice == "nobody":
        return set()
    speakers = material.transcript.speakers
    if material.tone_by_voice == "everybody":
        return {speaker.label for speaker in speakers}
    sure = 0.0 if material.transcript.layout.kind.separated else SURE
    return {one.label for one in speakers if one.role is Role.CUSTOMER and one.role_confidence >= sure}


def _against(own: dict[int, Features]) -> dict[int, VoiceArousal]:
    """One speaker's turns against their median and their median deviation from it (Iglewicz & Hoaglin 1993)."""
    middle, scale = {}, {}
    for name, least in FLOORS.items():
        values = [features[name] for features in own.values() if name in features]
        if len(values) >= TURNS:
            middle[name] = median(values)
            scale[name] = max(least, 1.4826 * median(abs(value - middle[name]) for value in values))
    made = {}
    for index, features in own.items():
        apart = {name: (features[name] - middle[name]) / scale[name] for name in middle if name in features}
        if len(apart) < 2:
            continue
        signed = {name: max(-MOST, min(MOST, -z if name == "pauses" else z)) for name, z in apart.items()}
        standing_out = tuple(name for name, z in signed.items() if z >= RAISED)
        made[index] = VoiceArousal(round(fmean(signed.values()), 3), standing_out)
    return made


def _features(turn: Turn, transcript: Transcript, prosody: Prosody) -> Features:
    """What is known of a turn; {} where less than a second of it is speech of this party alone."""
    channel = _channel(turn, transcript)
    if channel >= len(prosody.channels):
        return {}
    heard = prosody.channels[channel]
    alone = [at for at, index in enumerate(heard.index) if _within(turn, (index + 0.5) * prosody.seconds, transcript)]
    if len(alone) < SLICES:
        return {}
    features = {"level": fmean(heard.level[at] for at in alone)}
    pitches = [12 * math.log2(pitch) for at in alone if (pitch := heard.pitch[at])]
    spreads = [spread for at in alone if (spread := heard.spread[at]) is not None]
    if pitches:
        features |= {"pitch": median(pitches), "spread": median(spreads)}
    if turn.end - turn.start >= LONG and len(turn.words) > 2:
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
    """In a mixed recording, what two say at once belongs to no voice."""
    if not turn.start <= moment <= turn.end:
        return False
    if transcript.layout.kind.separated:
        return True
    near = transcript.turns[max(0, turn.index - 2) : turn.index + 3]
    return not any(one.speaker != turn.speaker and one.start <= moment <= one.end for one in near)
