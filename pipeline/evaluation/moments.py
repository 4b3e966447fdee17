"""Where in a call words are wrong: turns of the truth, and what each system heard in their place."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.evaluation.score import plain_words, streams
from pipeline.evaluation.truth import TrueCall, TrueTurn

AROUND = 8  # words that are right and are kept beside those that are wrong

Kind = Literal["same", "said", "heard"]


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """Some words. `kind`: same: said and heard; said: not heard so; heard: not said."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class SystemTurn:
    """A turn as a system has it; `wrong` words of it are wrong, missing or invented."""

    system: str
    pieces: tuple[TurnPiece, ...]
    wrong: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A turn of which words are wrong in some system. `start`: seconds; `speaker`: None where nobody spoke."""

    start: float
    speaker: str | None
    heard: tuple[SystemTurn, ...]


def moments(truth: TrueCall, heard: Mapping[str, TrueCall], most: int) -> list[Moment]:
    """The turns with most words wrong in any of the systems, as they were said. Case and marks do not count."""
    if not truth.has_words:
        return []
    found: dict[tuple[float, str | None], list[SystemTurn]] = defaultdict(list)
    for system, call in heard.items():
        if call.has_words:
            for said, got in streams(truth, call):
                for start, speaker, pieces, wrong in _of_stream(said, got):
                    found[start, speaker].append(SystemTurn(system, _joined(pieces), wrong))
    worst = sorted(found.items(), key=lambda one: (-max(some.wrong for some in one[1]), one[0][0]))[:most]
    kept = [Moment(start, who, tuple(some)) for (start, who), some in worst if any(one.wrong for one in some)]
    return sorted(kept, key=lambda one: one.start)


def _of_stream(
    said: Sequence[TrueTurn], got: Sequence[TrueTurn]
) -> list[tuple[float, str | None, list[TurnPiece], int]]:
    """Start and speaker of each turn, its words as they were heard, and how many are wrong."""
    import jiwer

    one, two = plain_words(said), plain_words(got)
    if not one:  # nobody speaks
        first = next((turn.start for turn in got if turn.words), 0.0)
        return [(first, None, [TurnPiece(word.text, "heard") for _, word in two], len(two))] if two else []
    turn_of = [at for at, turn in enumerate(said) for _ in plain_words([turn])]
    (chunks,) = jiwer.process_words(" ".join(text for text, _ in one), " ".join(text for text, _ in two)).alignments
    pieces: list[list[TurnPiece]] = [[] for _ in said]
    wrong = [0] * len(said)
    at = turn_of[0]
    for chunk in chunks:
        kind: Kind = "same" if chunk.type == "equal" else "heard"
        theirs = list(range(chunk.hyp_start_idx, chunk.hyp_end_idx))
        for step, index in enumerate(range(chunk.ref_start_idx, chunk.ref_end_idx)):
            at = turn_of[index]
            wrong[at] += kind != "same"
            if kind != "same":
                pieces[at].append(TurnPiece(one[index][1].text, "said"))
            if chunk.type != "delete":
                pieces[at].append(TurnPiece(two[theirs[step]][1].text, kind))
        if chunk.type == "insert":
            pieces[at] += [TurnPiece(two[index][1].text, "heard") for index in theirs]
            wrong[at] += len(theirs)
    return [(turn.start, turn.speaker, pieces[at], wrong[at]) for at, turn in enumerate(said)]


def _joined(pieces: Sequence[TurnPiece]) -> tuple[TurnPiece, ...]:
    """Neighbors of a kind as one; of words that are wrong first what was said, then what was heard."""
    made: list[TurnPiece] = []
    for piece in pieces:
        last = made[-1] if made else None
        if last is not None and last.kind == piece.kind:
            made[-1] = TurnPiece(f"{last.text} {piece.text}", piece.kind)
        elif piece.kind == "said" and last is not None and last.kind == "heard" and _said_before(made):
            made[-2] = TurnPiece(f"{made[-2].text} {piece.text}", "said")
        else:
            made.append(piece)
    return tuple(_cut(piece, at == 0, at == len(made) - 1) for at, piece in enumerate(made))


def _said_before(made: Sequence[TurnPiece]) -> bool:
    return len(made) > 1 and made[-2].kind == "said"


def _cut(piece: TurnPiece, first: bool, last: bool) -> TurnPiece:
    """Without words that are right and far from those that are wrong."""
    words = piece.text.split()
    if piece.kind != "same" or len(words) <= AROUND * (1 if first or last else 2):
        return piece
    head, tail = [] if first else words[:AROUND], [] if last and not first else words[-AROUND:]
    return replace(piece, text=" ".join([*head, "…", *tail]))
