from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.domain.insight import Finding
    from serve_app.console.conversation import Conversation

WIDTH = 1000.0  # of a chart over time, in its own units
MIN_MARK_WIDTH = 3.0  # so that short turns are visible


@dataclass(frozen=True, slots=True)
class Share:
    """One party's part of a bar; `at` and `share` are fractions of the whole."""

    label: str
    name: str
    side: str
    at: float
    share: float
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """A turn on a time axis; `x` and `width` in units of `WIDTH`, `score` from -1 to 1."""

    x: float
    width: float
    score: float
    label: str
    side: str
    start: float


def talk_share(statistics: "Finding | None", conversation: "Conversation") -> list[Share]:
    """Return the parties' shares of talk time, in the order of speakers; empty without speech."""
    parties = (statistics.value.get("parties") if statistics else None) or {}
    shares, at = [], 0.0
    for label, figures in parties.items():
        share = float(figures.get("talk_ratio") or 0.0)
        name = conversation.display_name(label)
        shares.append(Share(label, name, conversation.sides.get(label, "other"), at, share, figures))
        at += share
    return shares if at > 0 else []


def tone_over_time(conversation: "Conversation") -> list[Mark]:
    """Return a mark for each turn whose sentiment is not neutral."""
    transcript = conversation.transcript
    seconds = max(transcript.duration, 1.0)
    scores = {"positive": 1.0, "negative": -1.0}
    marks = []
    for turn in transcript.turns:
        label = conversation.tones.get(turn.index, "neutral")
        if label in scores and not turn.machine:
            x, width = turn.start / seconds * WIDTH, max((turn.end - turn.start) / seconds * WIDTH, MIN_MARK_WIDTH)
            side = conversation.sides.get(turn.speaker, "other")
            marks.append(Mark(round(x, 1), round(width, 1), scores[label], label, side, turn.start))
    return marks
