"""The safety net on the batched path: which windows are suspect, and what becomes of them.

`review` judges every window after the first pass; the caller has the suspect ones decoded again, alone, and hands
them to `settle`, which takes the better of the two texts, marks what stays doubtful and takes out only what nobody can
have said. Nothing is hidden: what was taken out is in a `Doubt`. Both are pure, need no model, and hold the samples of
one window at a time.
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

AGREEMENT = 0.5  # share of words that a second text must have in common with an improbable first
BROKEN = {"compressible", "loop", "too_many_words", "too_few_words"}  # a decoding that failed, whatever else it lacks
UNSURE_OF_ITSELF = {"improbable", "no_speech"}  # a loop that is cured has nothing in common with its cure


class SafetyOptions(BaseModel):
    """What is done about suspect windows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    second_pass: bool = Field(
        True,
        description="Whether a window whose text is suspect is decoded a second time, alone and with fallbacks. "
        "Without it, calls cost less and more of their words are marked doubtful.",
    )


@dataclass(frozen=True, slots=True)
class Suspect:
    """`texts[index]` is suspect; `reasons` are names of `REASONS`, in that order; see `WindowVerdict.lacks_loud_speech`."""

    index: int
    reasons: tuple[str, ...]
    lacks_loud_speech: bool = False


def review(audio: Audio, analysis: AudioAnalysis, texts: Sequence[ChunkText]) -> tuple[Suspect, ...]:
    """The windows whose text is suspect, by index; `texts` in any order, of any channels of `audio`."""
    judged = verdicts.judge(audio, analysis, texts, verdicts.levels_of(audio, texts))
    return tuple(
        Suspect(i, verdict.reasons, verdict.lacks_loud_speech) for i, verdict in enumerate(judged) if verdict.reasons
    )


def should_retry(suspect: Suspect, text: ChunkText) -> bool:
    """Whether a second decoding of the suspect's `text` is likely to be used and to be better.

    Not where all that is wrong with a text is that softer speech lacks words beside its own: that is babble behind a
    voice, and what the recognizer writes for it nobody said. On the development half of `bench/real` (tiny.en) 13 such
    windows made half of what decoding again cost, and the second texts that were taken had 11 words more wrong and 17
    more invented. What is missing is marked all the same.
    """
    beside_words = "missing_speech" in suspect.reasons and bool(text.words)
    return not beside_words or suspect.lacks_loud_speech or not BROKEN.isdisjoint(suspect.reasons)


def settle(
    audio: Audio,
    analysis: AudioAnalysis,
    texts: Sequence[ChunkText],
    again: Mapping[int, ChunkText],
    calibration: DoubtCalibration | None = None,
) -> tuple[tuple[ChunkText, ...], tuple[Doubt, ...]]:
    """The texts to keep, in the order of `texts`, and what is not sure about them, by channel and time.

    `again[i]` is the second decoding of `texts[i]`: taken if it is in another language (it was asked for because of
    that), if fewer reasons speak against it, or if as many do and it is at least as probable; one without words only if
    fewer reasons do, and what it drops is in a doubt. Word times of a channel rise, do not overlap, and lie in their
    chunk. With a `calibration`, words that are probably wrong are marked one by one. Raises ValueError for an index
    that `texts` lacks.
    """
    if any(not 0 <= i < len(texts) for i in again):
        raise ValueError(f"decoded again: {sorted(again)}; there are {len(texts)} texts")
    levels = verdicts.levels_of(audio, texts)
    before = verdicts.judge(audio, analysis, texts, levels)
    second = [again.get(i, text) for i, text in enumerate(texts)]
    after = verdicts.judge(audio, analysis, second, levels)
    chosen = _choose(texts, before, second, after)
    judged = verdicts.judge(audio, analysis, chosen, levels)
    for first, text, first_verdict, verdict in zip(texts, chosen, before, judged, strict=True):
        if not first_verdict.reason_names.isdisjoint(UNSURE_OF_ITSELF) and agreement(first, text) < AGREEMENT:
            verdict.doubt("unstable", range(len(text.words)))
        if calibration is not None:
            verdict.doubt("unsure", _unsure(text, calibration))
    settled = [_clear(_mark(text, verdict), analysis) for text, verdict in zip(chosen, judged, strict=True)]
    doubts = [d for text, verdict in zip(chosen, judged, strict=True) for d in _doubts(text, verdict)]
    doubts += [
        _doubt(text, text.words, verdict.reasons, kept=False)
        for text, verdict, settled_text in zip(texts, before, chosen, strict=True)
        if text.words and not settled_text.words
    ]
    return _in_order(settled), tuple(sorted(doubts, key=lambda d: (d.channel, d.start, d.end, d.kept)))


def _clear(text: ChunkText, analysis: AudioAnalysis) -> ChunkText:
    """No word lasts through what the recording lacks."""
    labels = analysis.labels[text.chunk.channel] if text.chunk.channel < len(analysis.labels) else ()
    gaps = [Span(label.start, label.end) for label in labels if label.kind is LabelKind.GAP]
    return replace(text, words=clear_of(text.words, gaps)) if gaps else text


def _unsure(text: ChunkText, calibration: DoubtCalibration) -> list[int]:
    """The words that are probably wrong, by index."""
    return [i for i, risk in enumerate(doubt.risks(text, calibration)) if risk >= calibration.threshold]


def _choose(
    texts: Sequence[ChunkText],
    before: Sequence[WindowVerdict],
    second: Sequence[ChunkText],
    after: Sequence[WindowVerdict],
) -> list[ChunkText]:
    """The better decoding of each window; `before` and `after` are the verdicts on the first and the second."""
    return [
        second[i]
        if _in_another_language(text, second[i]) or _rank(after[i], second[i]) >= _rank(before[i], text)
        else text
        for i, text in enumerate(texts)
    ]


def _in_another_language(first: ChunkText, second: ChunkText) -> bool:
    """Silence is in none."""
    return second.language != first.language and (bool(second.words) or not first.words)


def agreement(first: ChunkText, second: ChunkText) -> float:
    """Words that two texts share in order, 0..1: 1 less the Levenshtein distance by the longer one's words."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(*([plain(word.text) for word in text.words] for text in (first, second)))


def _rank(verdict: WindowVerdict, text: ChunkText) -> tuple[int, float]:
    return -len(verdict.reasons), text.mean_log_probability if text.words else -math.inf  # of no words it says nothing


def _mark(text: ChunkText, verdict: WindowVerdict) -> ChunkText:
    indices = [i for i in range(len(text.words)) if i not in verdict.withheld]
    words = tuple(replace(text.words[i], doubtful=True) if i in verdict.doubtful else text.words[i] for i in indices)
    has_supports = len(text.supports) == len(text.words)
    return replace(text, words=words, supports=tuple(text.supports[i] for i in indices) if has_supports else ())


def _doubts(text: ChunkText, verdict: WindowVerdict) -> list[Doubt]:
    """What was taken out, what is kept and marked, and where words are missing."""
    doubts = [
        _doubt(
            text, [text.words[i] for i in run], verdicts.ordered({reason for i in run for reason in marked[i]}), kept
        )
        for kept, marked in ((False, verdict.withheld), (True, verdict.doubtful))
        for run in _runs(sorted(marked))
    ]
    channel = text.chunk.channel
    return doubts + [Doubt(channel, span.start, span.end, ("missing_speech",)) for span in verdict.missing]


def _doubt(text: ChunkText, words: Sequence[Word], reasons: tuple[str, ...], kept: bool) -> Doubt:
    return Doubt(text.chunk.channel, words[0].start, words[-1].end, reasons, text_of(words), kept)


def _runs(indices: Sequence[int]) -> list[list[int]]:
    """Rising indices, those that follow each other together: what lies between two doubtful words may be sure."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _in_order(texts: Sequence[ChunkText]) -> tuple[ChunkText, ...]:
    """Chunks of a channel do not overlap, but what was made by hand or cut again may; words never do."""
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
