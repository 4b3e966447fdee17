"""Score the output for one call against the truth. Returns counts, so that many calls can be pooled.

Words by `jiwer`, words by speaker by `meeteval` (cpWER), speakers by `pyannote.metrics` (DER and JER, without a collar,
overlaps included). The normalizer is Whisper's (`whisper-normalizer`): English spelling and numbers for English, only
punctuation and case for other languages. Words of separate channels are aligned channel by channel, otherwise all
together in the order of their turns.
"""

import logging
import string
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.evaluation.extraction import MatchCounts, match_actions, match_contact, match_tasks
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord

_MARKS = string.punctuation + "…“”„‘’«»–—¿¡。，、？！"


@dataclass(frozen=True, slots=True)
class Errors:
    """Word errors; `reference` counts the words of the truth."""

    reference: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0

    @property
    def all(self) -> int:
        return self.substituted + self.deleted + self.inserted

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.reference + other.reference,
            self.substituted + other.substituted,
            self.deleted + other.deleted,
            self.inserted + other.inserted,
        )


@dataclass(frozen=True, slots=True)
class CallScore:
    """Counts of one call; None if the truth or the output lacks the data."""

    name: str
    seconds: float  # of the recording; if unknown, to the end of the last turn of either
    normalized: Errors | None
    written: Errors | None  # marks and case count
    cp: Errors | None  # by speaker, with the pairing of speakers that minimizes errors
    spoken: float | None  # seconds of speech, summed over speakers
    diarization: float | None  # seconds missed, invented, or assigned to another speaker
    speakers: float | None  # of the truth
    jaccard: float | None  # sum of their Jaccard errors
    times: tuple[float, ...]  # absolute differences in seconds of the starts of correct words
    tasks: MatchCounts | None = None
    contact: MatchCounts | None = None
    processing: float | None = None  # seconds that the system took
    cost: float | None = None  # of the processing, in the currency of the price
    actions: MatchCounts | None = None


def score(truth: TrueCall, hypothesis: TrueCall, price_per_hour: float | None = None) -> CallScore:
    """Score `hypothesis` against `truth`. `price_per_hour`: of processing, if the hypothesis has no cost."""
    words = truth.has_words and hypothesis.has_words
    speakers = truth.speakers_known and hypothesis.speakers_known
    language = truth.language or hypothesis.language
    end = max((turn.end for call in (truth, hypothesis) for turn in call.turns), default=0.0)
    diarized = _diarized(truth, hypothesis, end) if speakers else None
    return CallScore(
        name=truth.name,
        seconds=truth.duration or hypothesis.duration or end,
        normalized=_errors(truth, hypothesis, language) if words else None,
        written=_errors(truth, hypothesis, None, written=True) if words else None,
        cp=_cp(truth, hypothesis, language) if words and speakers else None,
        spoken=diarized and diarized[0],
        diarization=diarized and diarized[1],
        speakers=diarized and diarized[2],
        jaccard=diarized and diarized[3],
        times=_times(truth, hypothesis) if words and truth.words_timed and hypothesis.words_timed else (),
        tasks=match_tasks(truth, hypothesis),
        contact=match_contact(truth, hypothesis),
        processing=hypothesis.processing,
        cost=_cost(hypothesis, price_per_hour),
        actions=match_actions(truth, hypothesis),
    )


def _cost(hypothesis: TrueCall, price_per_hour: float | None) -> float | None:
    if hypothesis.cost is not None or hypothesis.processing is None or price_per_hour is None:
        return hypothesis.cost
    return hypothesis.processing * price_per_hour / 3600


def normalized(text: str, language: str | None) -> str:
    """Normalize text with Whisper's normalizers. `language`: ISO 639-1; None counts as not English."""
    from whisper_normalizer.basic import BasicTextNormalizer
    from whisper_normalizer.english import EnglishTextNormalizer

    kind = "en" if language == "en" else "other"
    if kind not in _NORMALIZERS:
        _NORMALIZERS[kind] = EnglishTextNormalizer() if kind == "en" else BasicTextNormalizer()
    return " ".join(_NORMALIZERS[kind](text).split())


_NORMALIZERS: dict[str, Any] = {}


def streams(truth: TrueCall, hypothesis: TrueCall) -> list[tuple[list[TrueTurn], list[TrueTurn]]]:
    """Return pairs of turns to align: by channel if every turn has one."""
    if any(turn.channel is None for call in (truth, hypothesis) for turn in call.turns):
        return [(list(truth.turns), list(hypothesis.turns))]
    channels = sorted({turn.channel for call in (truth, hypothesis) for turn in call.turns if turn.channel is not None})
    return [
        ([t for t in truth.turns if t.channel == channel], [t for t in hypothesis.turns if t.channel == channel])
        for channel in channels
    ]


def _errors(truth: TrueCall, hypothesis: TrueCall, language: str | None, written: bool = False) -> Errors:
    import jiwer

    errors = Errors()
    for truth_turns, output_turns in streams(truth, hypothesis):
        truth_text, output_text = (" ".join(turn.text for turn in turns) for turns in (truth_turns, output_turns))
        if not written:
            truth_text, output_text = normalized(truth_text, language), normalized(output_text, language)
        counts = jiwer.process_words(truth_text, output_text)
        errors += Errors(len(truth_text.split()), counts.substitutions, counts.deletions, counts.insertions)
    return errors


def _cp(truth: TrueCall, hypothesis: TrueCall, language: str | None) -> Errors:
    import meeteval

    sides = []
    for call in (truth, hypothesis):
        texts_by_speaker: dict[str, list[str]] = defaultdict(list)
        for turn in call.turns:
            texts_by_speaker[str(turn.speaker)].append(turn.text)
        sides.append({speaker: normalized(" ".join(texts), language) for speaker, texts in texts_by_speaker.items()})
    logging.getLogger("preprocess").setLevel(logging.ERROR)  # meeteval warns that texts have no times
    result = meeteval.wer.cp_word_error_rate(*sides)
    return Errors(result.length, result.substitutions, result.deletions, result.insertions)


def _diarized(truth: TrueCall, hypothesis: TrueCall, end: float) -> tuple[float, float, float, float]:
    """Return seconds of speech, seconds wrong, speakers of the truth, and the sum of their Jaccard errors."""
    from pyannote.core import Annotation, Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate, JaccardErrorRate

    sides = []
    for call in (truth, hypothesis):
        side = Annotation()
        for number, turn in enumerate(call.turns):
            if turn.end > turn.start:
                side[Segment(turn.start, turn.end), number] = turn.speaker
        sides.append(side)
    everything = Timeline([Segment(0.0, max(end, 0.001))])
    rate = DiarizationErrorRate()(*sides, uem=everything, detailed=True)
    jaccard = JaccardErrorRate()(*sides, uem=everything, detailed=True)
    wrong = rate["missed detection"] + rate["false alarm"] + rate["confusion"]
    return rate["total"], wrong, jaccard["speaker count"], jaccard["speaker error"]


def _times(truth: TrueCall, hypothesis: TrueCall) -> tuple[float, ...]:
    """Return the differences between the starts of equal words, ignoring case and punctuation."""
    import jiwer

    differences: list[float] = []
    for truth_turns, output_turns in streams(truth, hypothesis):
        truth_words, output_words = plain_words(truth_turns), plain_words(output_turns)
        (chunks,) = jiwer.process_words(
            " ".join(text for text, _ in truth_words), " ".join(text for text, _ in output_words)
        ).alignments
        for chunk in chunks:
            if chunk.type == "equal":
                places = range(chunk.ref_start_idx, chunk.ref_end_idx), range(chunk.hyp_start_idx, chunk.hyp_end_idx)
                differences += [
                    abs(float(output_words[j][1].start or 0) - float(truth_words[i][1].start or 0))
                    for i, j in zip(*places, strict=True)
                ]
    return tuple(differences)


def plain_words(turns: Sequence[TrueTurn]) -> list[tuple[str, TrueWord]]:
    """Return words without case and punctuation, each with its original; marks alone are left out."""
    words = [(word.text.strip(_MARKS).casefold(), word) for turn in turns for word in turn.words or ()]
    return [("".join(text.split()), word) for text, word in words if text]
