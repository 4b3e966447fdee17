from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.evaluation.score import plain_words, streams
from pipeline.evaluation.truth import TrueCall, TrueTurn

AROUND = 8  # correct words to show next to wrong ones

Kind = Literal["same", "said", "heard"]


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """Some words. `kind`: same: in truth and output; said: only in the truth; heard: only in the output."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class SystemTurn:
    """A turn in a system's output; `wrong` counts its wrong, missing and invented words."""

    system: str
    pieces: tuple[TurnPiece, ...]
    wrong: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A turn with wrong words in some system. `start`: seconds; `speaker`: None for a call without speech."""

    start: float
    speaker: str | None
    outputs: tuple[SystemTurn, ...]

    @property
    def wrong(self) -> int:
        return max(output.wrong for output in self.outputs)


def moments(truth: TrueCall, outputs: Mapping[str, TrueCall], max_moments: int) -> list[Moment]:
    """Return the turns with the most wrong words in any system, by time. Ignores case and punctuation."""
    if not truth.has_words:
        return []
    turns: dict[tuple[float, str | None], list[SystemTurn]] = defaultdict(list)
    for system, call in outputs.items():
        if call.has_words:
            for reference, output in streams(truth, call):
                for start, speaker, pieces, wrong in _of_stream(reference, output):
                    turns[start, speaker].append(SystemTurn(system, _joined(pieces), wrong))
    all_moments = [Moment(start, speaker, tuple(outputs)) for (start, speaker), outputs in turns.items()]
    worst = sorted(all_moments, key=lambda moment: (-moment.wrong, moment.start))[:max_moments]
    return sorted((moment for moment in worst if moment.wrong), key=lambda moment: moment.start)


def _of_stream(
    reference: Sequence[TrueTurn], output: Sequence[TrueTurn]
) -> list[tuple[float, str | None, list[TurnPiece], int]]:
    """Return start and speaker of each turn, its aligned words, and how many are wrong."""
    import jiwer

    reference_words, output_words = plain_words(reference), plain_words(output)
    if not reference_words:  # no speech in the truth
        first = next((turn.start for turn in output if turn.words), 0.0)
        pieces_heard = [TurnPiece(word.text, "heard") for _, word in output_words]
        return [(first, None, pieces_heard, len(output_words))] if output_words else []
    turn_of = [at for at, turn in enumerate(reference) for _ in plain_words([turn])]
    (chunks,) = jiwer.process_words(
        " ".join(text for text, _ in reference_words), " ".join(text for text, _ in output_words)
    ).alignments
    pieces: list[list[TurnPiece]] = [[] for _ in reference]
    wrong = [0] * len(reference)
    at = turn_of[0]
    for chunk in chunks:
        kind: Kind = "same" if chunk.type == "equal" else "heard"
        output_indices = list(range(chunk.hyp_start_idx, chunk.hyp_end_idx))
        for step, index in enumerate(range(chunk.ref_start_idx, chunk.ref_end_idx)):
            at = turn_of[index]
            wrong[at] += kind != "same"
            if kind != "same":
                pieces[at].append(TurnPiece(reference_words[index][1].text, "said"))
            if chunk.type != "delete":
                pieces[at].append(TurnPiece(output_words[output_indices[step]][1].text, kind))
        if chunk.type == "insert":
            pieces[at] += [TurnPiece(output_words[index][1].text, "heard") for index in output_indices]
            wrong[at] += len(output_indices)
    return [(turn.start, turn.speaker, pieces[at], wrong[at]) for at, turn in enumerate(reference)]


def _joined(pieces: Sequence[TurnPiece]) -> tuple[TurnPiece, ...]:
    """Join adjacent pieces of one kind; of wrong words, the truth comes first."""
    joined: list[TurnPiece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.kind == piece.kind:
            joined[-1] = TurnPiece(f"{last.text} {piece.text}", piece.kind)
        elif piece.kind == "said" and last is not None and last.kind == "heard" and _said_before(joined):
            joined[-2] = TurnPiece(f"{joined[-2].text} {piece.text}", "said")
        else:
            joined.append(piece)
    return tuple(_cut(piece, at == 0, at == len(joined) - 1) for at, piece in enumerate(joined))


def _said_before(pieces: Sequence[TurnPiece]) -> bool:
    return len(pieces) > 1 and pieces[-2].kind == "said"


def _cut(piece: TurnPiece, first: bool, last: bool) -> TurnPiece:
    """Cut correct words that are far from wrong ones."""
    words = piece.text.split()
    if piece.kind != "same" or len(words) <= AROUND * (1 if first or last else 2):
        return piece
    head, tail = [] if first else words[:AROUND], [] if last and not first else words[-AROUND:]
    return replace(piece, text=" ".join([*head, "…", *tail]))
