"""The stage: words and voices in, one transcript out, the same shape for every form of audio."""

from collections import defaultdict
from collections.abc import Sequence

from pipeline.domain.insight import Roster
from pipeline.domain.speech import ChunkText, Diarization, Heard, LayoutKind, Speaker, Transcript, Turn, Voiceprint
from pipeline.speakers import roles, turns
from pipeline.speakers.roles import RoleOptions
from pipeline.speakers.turns import TurnOptions
from pipeline.speakers.voiceprint import match


def attribute(
    heard: Heard,
    texts: Sequence[ChunkText],
    diarization: Diarization | None,
    rep_voiceprint: Voiceprint | None,
    roster: Roster,
    user_id: str | None,
    engine: str,
    turn_options: TurnOptions | None = None,
    role_options: RoleOptions | None = None,
) -> Transcript:
    """Who said what.

    With separated channels the channel decides and `rep_voiceprint` may tell which member the rep is;
    otherwise `diarization` tells the voices apart (None: all words are one speaker's). A transcript without words
    says why in `note`.
    """
    if heard.layout.kind.separated:
        speakers, joined = _separated(texts, rep_voiceprint, roster, user_id, turn_options, role_options)
    else:
        speakers, joined = _mixed(texts, diarization, roster, user_id, turn_options, role_options)
    language, probability = _language(texts)
    return Transcript(
        language=language,
        language_probability=probability,
        duration=heard.duration,
        speakers=speakers,
        turns=joined,
        layout=heard.layout,
        engine=engine,
        note=None if joined else _why_empty(heard, texts),
    )


def _separated(
    texts: Sequence[ChunkText],
    rep_voiceprint: Voiceprint | None,
    roster: Roster,
    user_id: str | None,
    turn_options: TurnOptions | None,
    role_options: RoleOptions | None,
) -> tuple[tuple[Speaker, ...], tuple[Turn, ...]]:
    if user_id is None:
        known: dict[str, list[Voiceprint]] = defaultdict(list)
        for entry in roster.voiceprints:
            known[entry.user_id].append(entry.voiceprint)
        found = match(rep_voiceprint, known, (role_options or RoleOptions()).voice)
        user_id = found.name if found else None
    speakers = roles.by_channel(user_id)
    words = turns.by_channel(texts, [speaker.label for speaker in speakers])
    return speakers, turns.join(words, turn_options)


def _mixed(
    texts: Sequence[ChunkText],
    diarization: Diarization | None,
    roster: Roster,
    user_id: str | None,
    turn_options: TurnOptions | None,
    role_options: RoleOptions | None,
) -> tuple[tuple[Speaker, ...], tuple[Turn, ...]]:
    spans = diarization.spans if diarization else ()
    joined = turns.join(turns.by_spans(texts, spans), turn_options)
    voiceprints = diarization.voiceprints if diarization else {}
    return roles.assign(joined, voiceprints, roster, user_id, role_options), joined


def _language(texts: Sequence[ChunkText]) -> tuple[str | None, float | None]:
    """The language most words are in, and the mean probability of it over the seconds of chunks with words."""
    spoken = [text for text in texts if text.words]
    if not spoken:
        return None, None
    words: dict[str, int] = defaultdict(int)
    for text in spoken:
        words[text.language] += len(text.words)
    language = min(words, key=lambda code: (-words[code], code))
    weights = [(text.chunk.duration, text.language_probability) for text in spoken if text.language == language]
    seconds = sum(weight for weight, _ in weights) or 1.0
    return language, round(sum(weight * probability for weight, probability in weights) / seconds, 4)


def _why_empty(heard: Heard, texts: Sequence[ChunkText]) -> str:
    if not any(heard.speech):
        return f"No speech was found in {heard.duration:.1f} s of audio."
    if not texts:
        return "Speech was found, but no chunk of it was long enough to recognise."
    side = " in the one channel that carries sound" if heard.layout.kind is LayoutKind.ONE_SIDED else ""
    return f"Something like speech was found{side}, but the recogniser heard no words in it."
