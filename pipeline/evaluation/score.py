"""One call as a machine heard it, against what people know of it: counts, so that many calls can be pooled.

Words by `jiwer`, speakers' words by `meeteval` (cpWER), speakers by `pyannote.metrics` (DER and JER, without a collar,
overlaps included). The normalizer is OpenAI's of Whisper (`whisper-normalizer`): English spelling and numbers for
English, marks and case only for other languages. Where channels were recorded apart, words are aligned channel by
channel, otherwise all together in the order of their turns.
"""

import logging
import string
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.evaluation.found import MatchCounts, match_contact, match_tasks
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord

_MARKS = string.punctuation + "…“”„‘’«»–—¿¡。，、？！"


@dataclass(frozen=True, slots=True)
class Errors:
    """Of words. `said`: how many there were."""

    said: int = 0
    substituted: int = 0
    deleted: int = 0
    inserted: int = 0

    @property
    def all(self) -> int:
        """How many words are wrong, missing or invented."""
        return self.substituted + self.deleted + self.inserted

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.said + other.said,
            self.substituted + other.substituted,
            self.deleted + other.deleted,
            self.inserted + other.inserted,
        )


@dataclass(frozen=True, slots=True)
class CallScore:
    """Counts of one call. None where the truth, or what was heard, does not hold what is needed."""

    name: str
    seconds: float  # of the recording; where nobody says how long it is, to the end of the last turn of either
    normalized: Errors | None
    written: Errors | None  # marks and case count
    cp: Errors | None  # of each speaker's words, speakers paired so that there are fewest errors
    spoken: float | None  # seconds of speech, of each speaker
    diarization: float | None  # of those, seconds missed, invented, or given to another speaker
    speakers: float | None  # of the truth
    jaccard: float | None  # sum of their Jaccard errors
    times: tuple[float, ...]  # seconds by which words that were heard right begin elsewhere, without sign
    tasks: MatchCounts | None = None
    contact: MatchCounts | None = None
    processing: float | None = None  # seconds that the system took
    cost: float | None = None  # of these, in the currency of the price


def score(truth: TrueCall, heard: TrueCall, price_per_hour: float | None = None) -> CallScore:
    """How `heard` differs from `truth`. `price_per_hour`: of the system's processing, where it tells no cost."""
    words = truth.has_words and heard.has_words
    speakers = truth.speakers_known and heard.speakers_known
    language = truth.language or heard.language
    end = max((turn.end for call in (truth, heard) for turn in call.turns), default=0.0)
    diarized = _diarized(truth, heard, end) if speakers else None
    return CallScore(
        name=truth.name,
        seconds=truth.duration or heard.duration or end,
        normalized=_errors(truth, heard, language) if words else None,
        written=_errors(truth, heard, None, written=True) if words else None,
        cp=_cp(truth, heard, language) if words and speakers else None,
        spoken=diarized and diarized[0],
        diarization=diarized and diarized[1],
        speakers=diarized and diarized[2],
        jaccard=diarized and diarized[3],
        times=_times(truth, heard) if words and truth.words_timed and heard.words_timed else (),
        tasks=match_tasks(truth, heard),
        contact=match_contact(truth, heard),
        processing=heard.processing,
        cost=_cost(heard, price_per_hour),
    )


def _cost(heard: TrueCall, price_per_hour: float | None) -> float | None:
    if heard.cost is not None or heard.processing is None or price_per_hour is None:
        return heard.cost
    return heard.processing * price_per_hour / 3600


def normalized(text: str, language: str | None) -> str:
    """Text as Whisper's normalizers leave it. `language`: ISO 639-1; None counts as another than English."""
    from whisper_normalizer.basic import BasicTextNormalizer
    from whisper_normalizer.english import EnglishTextNormalizer

    chosen = "en" if language == "en" else "other"
    if chosen not in _NORMALIZERS:
        _NORMALIZERS[chosen] = EnglishTextNormalizer() if chosen == "en" else BasicTextNormalizer()
    return " ".join(_NORMALIZERS[chosen](text).split())


_NORMALIZERS: dict[str, Any] = {}


def streams(truth: TrueCall, heard: TrueCall) -> list[tuple[list[TrueTurn], list[TrueTurn]]]:
    """Turns that are aligned with each other: by channel where both know it of each turn."""
    if any(turn.channel is None for call in (truth, heard) for turn in call.turns):
        return [(list(truth.turns), list(heard.turns))]
    channels = sorted({turn.channel for call in (truth, heard) for turn in call.turns if turn.channel is not None})
    return [
        ([t for t in truth.turns if t.channel == one], [t for t in heard.turns if t.channel == one]) for one in channels
    ]


def _errors(truth: TrueCall, heard: TrueCall, language: str | None, written: bool = False) -> Errors:
    import jiwer

    found = Errors()
    for said, got in streams(truth, heard):
        one, two = (" ".join(turn.text for turn in turns) for turns in (said, got))
        if not written:
            one, two = normalized(one, language), normalized(two, language)
        counts = jiwer.process_words(one, two)
        found += Errors(len(one.split()), counts.substitutions, counts.deletions, counts.insertions)
    return found


def _cp(truth: TrueCall, heard: TrueCall, language: str | None) -> Errors:
    import meeteval

    sides = []
    for call in (truth, heard):
        of: dict[str, list[str]] = defaultdict(list)
        for turn in call.turns:
            of[str(turn.speaker)].append(turn.text)
        sides.append({speaker: normalized(" ".join(texts), language) for speaker, texts in of.items()})
    logging.getLogger("preprocess").setLevel(logging.ERROR)  # meeteval's: it remarks that texts have no times
    found = meeteval.wer.cp_word_error_rate(*sides)
    return Errors(found.length, found.substitutions, found.deletions, found.insertions)


def _diarized(truth: TrueCall, heard: TrueCall, end: float) -> tuple[float, float, float, float]:
    """Seconds of speech, seconds wrong; speakers of the truth, the sum of their Jaccard errors."""
    from pyannote.core import Annotation, Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate, JaccardErrorRate

    sides = []
    for call in (truth, heard):
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


def _times(truth: TrueCall, heard: TrueCall) -> tuple[float, ...]:
    """Words are the same where they are but for case and marks."""
    import jiwer

    found: list[float] = []
    for said, got in streams(truth, heard):
        one, two = plain_words(said), plain_words(got)
        (chunks,) = jiwer.process_words(" ".join(text for text, _ in one), " ".join(text for text, _ in two)).alignments
        for chunk in chunks:
            if chunk.type == "equal":
                places = range(chunk.ref_start_idx, chunk.ref_end_idx), range(chunk.hyp_start_idx, chunk.hyp_end_idx)
                found += [
                    abs(float(two[j][1].start or 0) - float(one[i][1].start or 0)) for i, j in zip(*places, strict=True)
                ]
    return tuple(found)


def plain_words(turns: Sequence[TrueTurn]) -> list[tuple[str, TrueWord]]:
    """Words without case and marks, each with what it was made of; those of marks alone are left out."""
    words = [(word.text.strip(_MARKS).casefold(), word) for turn in turns for word in turn.words or ()]
    return [("".join(text.split()), word) for text, word in words if text]
