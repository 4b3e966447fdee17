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
from pipeline.asr.verdicts import REASONS, Verdict
from pipeline.asr.words import clear_of, in_pieces
from pipeline.domain.speech import Audio, ChunkText, Doubt, Heard, LabelKind, Span, Word, text_of

__all__ = ["REASONS", "SafetyOptions", "Suspect", "review", "settle"]

UNSURE_OF_ITSELF = {"improbable", "no_speech"}  # a loop that is cured has nothing in common with its cure


class SafetyOptions(BaseModel):
    """When a window is suspect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log_probability: float = Field(-0.65, le=0, description="Mean log probability per token below this is suspect.")
    compression: float = Field(2.4, gt=1, description="Text that gzip shrinks by more than this is suspect.")
    no_speech: float = Field(0.6, ge=0, le=1, description="Words with a probability of no speech above this.")
    words_per_second: float = Field(7.0, gt=0, description="More words than this in a second of speech.")
    impossible_words_per_second: float = Field(
        12.0, gt=0, description="Repetitions that come faster than this are taken out: nobody speaks so fast."
    )
    fewest_words_per_second: float = Field(0.4, ge=0, description="Fewer words than this in a second of loud speech.")
    missing_seconds: float = Field(1.0, gt=0, description="Loud seconds of detected speech that have no words.")
    quiet_db: float = Field(
        35.0, gt=0, description="A word that stays this far below the channel's speech level has no sound."
    )
    far_seconds: float = Field(
        0.5, ge=0, description="A word at least this far from any detected speech is outside of it."
    )
    not_on_speech_share: float = Field(
        0.8, gt=0, description="A word is not on speech if this share of it lies on a tone, music, noise or silence."
    )
    agreement: float = Field(
        0.5, ge=0, le=1, description="Share of words that a second text must have in common with an improbable first."
    )
    doubtful_from: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Probability of being wrong from which a word is marked; left out: the recognizer's calibration's.",
    )
    echo_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of a channel's power that the other one explains, from which it is its echo.",
    )
    echo_unsure_share: float = Field(0.3, gt=0, le=1, description="Share from which equal words are doubtful.")
    echo_quieter_db: float = Field(6.0, ge=0, description="An echo is at least this much quieter than its source.")


@dataclass(frozen=True, slots=True)
class Suspect:
    """`texts[index]` is to be decoded again; `reasons` are names of `REASONS`, in that order."""

    index: int
    reasons: tuple[str, ...]


def review(
    audio: Audio, heard: Heard, texts: Sequence[ChunkText], options: SafetyOptions | None = None
) -> tuple[Suspect, ...]:
    """The windows whose text is suspect, by index; `texts` in any order, of any channels of `audio`."""
    judged = verdicts.judge(audio, heard, texts, verdicts.levels_of(audio, texts), options or SafetyOptions())
    return tuple(Suspect(i, verdict.reasons) for i, verdict in enumerate(judged) if verdict.reasons)


def settle(
    audio: Audio,
    heard: Heard,
    texts: Sequence[ChunkText],
    again: Mapping[int, ChunkText],
    options: SafetyOptions | None = None,
    calibration: DoubtCalibration | None = None,
) -> tuple[tuple[ChunkText, ...], tuple[Doubt, ...]]:
    """The texts to keep, in the order of `texts`, and what is not sure about them, by channel and time.

    `again[i]` is the second decoding of `texts[i]`: taken if it is in another language (it was asked for because of
    that), if fewer reasons speak against it, or if as many do and it is at least as probable; one without words only if
    fewer reasons do, and what it drops is in a doubt. Word times of a channel rise, do not overlap, and lie in their
    chunk. With a `calibration`, words that are probably wrong are marked one by one. Raises ValueError for an index
    that `texts` lacks.
    """
    options = options or SafetyOptions()
    if any(not 0 <= i < len(texts) for i in again):
        raise ValueError(f"decoded again: {sorted(again)}; there are {len(texts)} texts")
    levels = verdicts.levels_of(audio, texts)
    before = verdicts.judge(audio, heard, texts, levels, options)
    second = [again.get(i, text) for i, text in enumerate(texts)]
    after = verdicts.judge(audio, heard, second, levels, options)
    chosen = _choose(texts, before, second, after)
    judged = verdicts.judge(audio, heard, chosen, levels, options)
    for first, text, was, verdict in zip(texts, chosen, before, judged, strict=True):
        if not was.found.isdisjoint(UNSURE_OF_ITSELF) and agreement(first, text) < options.agreement:
            verdict.doubt("unstable", range(len(text.words)))
        if calibration is not None:
            verdict.doubt("unsure", _unsure(text, calibration, options))
    settled = [_clear(_mark(text, verdict), heard) for text, verdict in zip(chosen, judged, strict=True)]
    doubts = [d for text, verdict in zip(chosen, judged, strict=True) for d in _doubts(text, verdict)]
    doubts += [
        _doubt(text, text.words, verdict.reasons, kept=False)
        for text, verdict, taken in zip(texts, before, chosen, strict=True)
        if text.words and not taken.words
    ]
    return _in_order(settled), tuple(sorted(doubts, key=lambda d: (d.channel, d.start, d.end, d.kept)))


def _clear(text: ChunkText, heard: Heard) -> ChunkText:
    """No word lasts through what the recording lacks."""
    labels = heard.labels[text.chunk.channel] if text.chunk.channel < len(heard.labels) else ()
    gaps = [Span(label.start, label.end) for label in labels if label.kind is LabelKind.GAP]
    return replace(text, words=clear_of(text.words, gaps)) if gaps else text


def _unsure(text: ChunkText, calibration: DoubtCalibration, options: SafetyOptions) -> list[int]:
    """The words that are probably wrong, by index."""
    threshold = calibration.threshold if options.doubtful_from is None else options.doubtful_from
    return [i for i, risk in enumerate(doubt.risks(text, calibration)) if risk >= threshold]


def _choose(
    texts: Sequence[ChunkText], before: Sequence[Verdict], second: Sequence[ChunkText], after: Sequence[Verdict]
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


def _rank(verdict: Verdict, text: ChunkText) -> tuple[int, float]:
    return -len(verdict.reasons), text.mean_log_probability if text.words else -math.inf  # of no words it says nothing


def _mark(text: ChunkText, verdict: Verdict) -> ChunkText:
    kept = [i for i in range(len(text.words)) if i not in verdict.withheld]
    words = tuple(replace(text.words[i], doubtful=True) if i in verdict.doubtful else text.words[i] for i in kept)
    known = len(text.supports) == len(text.words)
    return replace(text, words=words, supports=tuple(text.supports[i] for i in kept) if known else ())


def _doubts(text: ChunkText, verdict: Verdict) -> list[Doubt]:
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
    """Chunks of a channel do not overlap, but what was made by hand or cut anew may; words never do."""
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
