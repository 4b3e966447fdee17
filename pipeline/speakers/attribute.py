from collections import defaultdict
from collections.abc import Sequence

from pipeline.domain.insight import Roster
from pipeline.domain.speech import (
    AudioAnalysis,
    ChunkText,
    Diarization,
    Recognized,
    Speaker,
    Transcript,
    Turn,
    Voiceprint,
)
from pipeline.language.of_call import decide
from pipeline.speakers import roles, turns
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.seconds import Labels, no_speech_note, party_speech, seconds_in
from pipeline.speakers.voiceprint import match


def attribute(
    analysis: AudioAnalysis,
    recognized: Recognized,
    diarization: Diarization | None,
    rep_voiceprint: Voiceprint | None,
    roster: Roster,
    user_id: str | None,
    role_options: RoleOptions | None = None,
) -> Transcript:
    """Assign words to speakers and return the transcript.

    With separated channels the channel decides, and `rep_voiceprint` may identify the member who is the rep; otherwise
    `diarization` separates the voices (None: all words have one speaker). Words of machines according to the labels of
    `analysis` (`machines.refine`) stay with the channel's speaker, in separate turns marked as such. A transcript
    without a word of a party has the reason in `note`.
    """
    texts = recognized.texts
    user_id = user_id or roster.rep
    labels = analysis.labels
    if analysis.layout.kind.separated:
        speakers, joined = _separated(texts, labels, rep_voiceprint, roster, user_id, role_options)
    else:
        speakers, joined = _mixed(texts, labels, diarization, roster, user_id, role_options)
    speech = party_speech(analysis, labels)
    language = decide(texts, lambda text: seconds_in(text, speech))
    return Transcript(
        language=language.code,
        language_probability=language.probability,
        duration=analysis.duration,
        speakers=speakers,
        turns=joined,
        layout=analysis.layout,
        engine=recognized.engine,
        note=None if any(not turn.machine for turn in joined) else no_speech_note(analysis, recognized, labels),
        labels=labels,
        languages=recognized.languages,
        language_note=language.note,
        doubts=recognized.doubts,
    )


def _separated(
    texts: Sequence[ChunkText],
    labels: Labels,
    rep_voiceprint: Voiceprint | None,
    roster: Roster,
    user_id: str | None,
    role_options: RoleOptions | None,
) -> tuple[tuple[Speaker, ...], tuple[Turn, ...]]:
    if user_id is None and rep_voiceprint is not None:
        options = role_options or RoleOptions()
        voiceprints: dict[str, list[Voiceprint]] = defaultdict(list)
        for entry in roster.voiceprints:
            voiceprints[entry.user_id].append(entry.voiceprint)
        matched = match(rep_voiceprint, voiceprints, options.calibration_of(rep_voiceprint.model))
        user_id = matched.name if matched else None
    speakers = roles.by_channel(user_id)
    words = turns.by_channel(texts, [speaker.label for speaker in speakers], labels)
    return speakers, turns.join(words)


def _mixed(
    texts: Sequence[ChunkText],
    labels: Labels,
    diarization: Diarization | None,
    roster: Roster,
    user_id: str | None,
    role_options: RoleOptions | None,
) -> tuple[tuple[Speaker, ...], tuple[Turn, ...]]:
    spans = diarization.spans if diarization else ()
    joined = turns.join(turns.by_spans(texts, spans, labels))
    voiceprints = diarization.voiceprints if diarization else {}
    return roles.assign(joined, voiceprints, roster, user_id, role_options), joined
