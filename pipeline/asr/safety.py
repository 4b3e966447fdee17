"""Safety checks of the batched path: which windows are suspect, and how they are settled.

`review` judges every window after the first pass. The caller decodes the suspect ones again, alone, and passes them to
`settle`, which takes the better of the two texts, marks doubtful words and removes only impossible ones. Removed words
are in a `Doubt`. Both functions are pure, need no model, and hold the samples of one window at a time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field

from pipeline.asr import doubt, verdicts
from pipeline.asr.doubt import DoubtCalibration
from pipeline.asr.plausible import plain
from pipeline.asr.verdicts import REASONS, WindowVerdict
from pipeline.asr.words import clear_of, in_pieces
from pipeline.domain.speech import Audio, AudioAnalysis, ChunkText, Doubt, LabelKind, Span, Word, text_of

__all__ = ["REASONS", "SafetyOptions", "Suspect", "review", "settle", "should_retry"]

AGREEMENT = 0.5  # min. share of words that a second text has in common with an improbable first
BROKEN = {"compressible", "loop", "too_many_words", "too_few_words"}  # reasons for a failed decoding
UNSURE = {"improbable", "no_speech"}  # not "loop": a fixed loop has nothing in common with the first text


class SafetyOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    second_pass: bool = Field(
        True,
        description="Decode a suspect window a second time. Without it, calls cost less and more words are doubtful.",
    )


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspect `texts[index]`; `reasons` are names of `REASONS`, in that order; see `WindowVerdict`."""

    index: int
    reasons: tuple[str, ...]
    lacks_loud_speech: bool = False


def review(audio: Audio, analysis: AudioAnalysis, texts: Sequence[ChunkText]) -> tuple[Suspect, ...]:
    """Return the windows with a suspect text; `texts` in any order, of any channels of `audio`."""
    judged = verdicts.judge(audio, analysis, texts, verdicts.levels_of(audio, texts))
    return tuple(
        Suspect(i, verdict.reasons, verdict.lacks_loud_speech) for i, verdict in enumerate(judged) if verdict.reasons
    )


def should_retry(suspect: Suspect, text: ChunkText) -> bool:
    """Return whether a second decoding of the suspect's `text` is likely to be better and to be used.

    False if the only problem is that softer speech next to recognized words has no words: that is babble behind a
    voice, and the recognizer's words for it are invented. On the development half of `bench/real` (tiny.en), 13 such
    windows made up half the cost of second decodings, and the accepted second texts had 11 more wrong and 17 more
    invented words. The missing speech is marked all the same.
    """
    lacks_softer_speech = "missing_speech" in suspect.reasons and bool(text.words)
    return not lacks_softer_speech or suspect.lacks_loud_speech or not BROKEN.isdisjoint(suspect.reasons)


def settle(
    audio: Audio,
    analysis: AudioAnalysis,
    texts: Sequence[ChunkText],
    second_texts: Mapping[int, ChunkText],
    calibration: DoubtCalibration | None = None,
) -> tuple[tuple[ChunkText, ...], tuple[Doubt, ...]]:
    """Return the final texts, in the order of `texts`, and their doubts by channel and time.

    `second_texts[i]` is the second decoding of `texts[i]`. It wins if it is in another language (the reason for
    decoding again), if fewer reasons speak against it, or if as many do and it is at least as probable; without words
    it wins only with fewer reasons, and the dropped words are in a doubt. Word times of a channel rise, do not overlap,
    and stay in their chunk. With a `calibration`, words that are probably wrong are marked one by one. Raises
    ValueError for an index that `texts` lacks.
    """
    if any(not 0 <= i < len(texts) for i in second_texts):
        raise ValueError(f"second texts for {sorted(second_texts)}, but there are {len(texts)} texts")
    levels = verdicts.levels_of(audio, texts)
    before = verdicts.judge(audio, analysis, texts, levels)
    second = [second_texts.get(i, text) for i, text in enumerate(texts)]
    after = verdicts.judge(audio, analysis, second, levels)
    chosen = _choose(texts, before, second, after)
    judged = verdicts.judge(audio, analysis, chosen, levels)
    for first, text, first_verdict, verdict in zip(texts, chosen, before, judged, strict=True):
        if not first_verdict.reason_names.isdisjoint(UNSURE) and agreement(first, text) < AGREEMENT:
            verdict.doubt("unstable", range(len(text.words)))
        if calibration is not None:
            verdict.doubt("unsure", _unsure(text, calibration))
    settled = [_clear(_mark(text, verdict), analysis) for text, verdict in zip(chosen, judged, strict=True)]
    doubts = [d for text, verdict in zip(chosen, judged, strict=True) for d in _doubts(text, verdict)]
    doubts += [
        _doubt(text, text.words, verdict.reasons, is_kept=False)
        for text, verdict, settled_text in zip(texts, before, chosen, strict=True)
        if text.words and not settled_text.words
    ]
    return _in_order(settled), tuple(sorted(doubts, key=lambda d: (d.channel, d.start, d.end, d.kept)))


def _clear(text: ChunkText, analysis: AudioAnalysis) -> ChunkText:
    labels = analysis.labels[text.chunk.channel] if text.chunk.channel < len(analysis.labels) else ()
    gaps = [Span(label.start, label.end) for label in labels if label.kind is LabelKind.GAP]
    return replace(text, words=clear_of(text.words, gaps)) if gaps else text


def _unsure(text: ChunkText, calibration: DoubtCalibration) -> list[int]:
    return [i for i, risk in enumerate(doubt.risks(text, calibration)) if risk >= calibration.threshold]


def _choose(
    texts: Sequence[ChunkText],
    before: Sequence[WindowVerdict],
    second: Sequence[ChunkText],
    after: Sequence[WindowVerdict],
) -> list[ChunkText]:
    """Return the better decoding of each window; `before` and `after` are the verdicts on first and second."""
    return [
        second[i]
        if _in_another_language(text, second[i]) or _rank(after[i], second[i]) >= _rank(before[i], text)
        else text
        for i, text in enumerate(texts)
    ]


def _in_another_language(first: ChunkText, second: ChunkText) -> bool:
    """Return whether the language changed; a text without words has none."""
    return second.language != first.language and (bool(second.words) or not first.words)


def agreement(first: ChunkText, second: ChunkText) -> float:
    """Return the share of words that two texts have in common in order, 0..1: normalized Levenshtein similarity."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(*([plain(word.text) for word in text.words] for text in (first, second)))


def _rank(verdict: WindowVerdict, text: ChunkText) -> tuple[int, float]:
    return -len(verdict.reasons), text.mean_log_probability if text.words else -math.inf  # meaningless without words


def _mark(text: ChunkText, verdict: WindowVerdict) -> ChunkText:
    indices = [i for i in range(len(text.words)) if i not in verdict.withheld]
    words = tuple(replace(text.words[i], doubtful=True) if i in verdict.doubtful else text.words[i] for i in indices)
    has_supports = len(text.supports) == len(text.words)
    return replace(text, words=words, supports=tuple(text.supports[i] for i in indices) if has_supports else ())


def _doubts(text: ChunkText, verdict: WindowVerdict) -> list[Doubt]:
    doubts = [
        _doubt(
            text, [text.words[i] for i in run], verdicts.ordered({reason for i in run for reason in marked[i]}), is_kept
        )
        for is_kept, marked in ((False, verdict.withheld), (True, verdict.doubtful))
        for run in _runs(sorted(marked))
    ]
    channel = text.chunk.channel
    return doubts + [Doubt(channel, span.start, span.end, ("missing_speech",)) for span in verdict.missing]


def _doubt(text: ChunkText, words: Sequence[Word], reasons: tuple[str, ...], is_kept: bool) -> Doubt:
    return Doubt(text.chunk.channel, words[0].start, words[-1].end, reasons, text_of(words), is_kept)


def _runs(indices: Sequence[int]) -> list[list[int]]:
    """Group consecutive indices: words between two doubtful ones may be certain."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _in_order(texts: Sequence[ChunkText]) -> tuple[ChunkText, ...]:
    """Trim words so that those of a channel do not overlap, even if chunks do."""
    result = list(texts)
    latest: dict[int, float] = {}
    for i in sorted(range(len(texts)), key=lambda i: (texts[i].chunk.channel, texts[i].chunk.start)):
        chunk = texts[i].chunk
        first = min(max(chunk.start, latest.get(chunk.channel, chunk.start)), chunk.end)
        words = in_pieces(texts[i].words, [Span(max(s.start, first), s.end) for s in chunk.sound if s.end >= first])
        result[i] = replace(texts[i], words=words)
        if words:
            latest[chunk.channel] = words[-1].end
    return tuple(result)
