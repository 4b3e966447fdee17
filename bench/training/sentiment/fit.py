"""Fits the weights that derive tone from words, and scores them on calls that were not used for fitting.

    python -m bench.training.sentiment.fit [--folds 5] [--leave-one-out] [--corpus-only] [--write] [--detail] [--json
    FILE]

Calls of `analysis_cases/dev` are scored, each with weights fitted only on the corpus here and on the other folds'
calls: the turns' weights, and the rule of parties for turns that were scored in the same way. `--corpus-only` fits the
turns on the corpus alone, so that no turn of those calls is used. `--write` fits on everything and writes the weights
that ship. Needs scikit-learn.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from bench.training.sentiment import corpus
from bench.training.sentiment.corpus import MarkedCall
from pipeline.analysis.rules.sentiment.change_point import change_point
from pipeline.analysis.rules.sentiment.lexicon import LexiconScore, score_turn
from pipeline.analysis.rules.sentiment.party import party_features, predict_party
from pipeline.analysis.rules.sentiment.sentiment import CLEAR, tone
from pipeline.analysis.rules.sentiment.turn import FILE, LABELS, TABLE, SentimentWeights, TurnSentiment, hashed

STRENGTH = 3.0  # of turns: inverse of regularization
CALL_WEIGHT, NEUTRAL_WEIGHT = 4.0, 0.5  # of a case's turn relative to one of the corpus; of a neutral one
RULE_STRENGTH, DOUBTFUL_WEIGHT = 0.3, 0.6  # of parties: inverse of regularization, weight of a doubtful label
RARE = 2  # turns in which a feature must occur
NEAR = 3  # turns from a turning point
INNER = 8  # folds by which the turns are judged that the rule of parties is fitted on
STEPS = 80  # of the solver


@dataclass(frozen=True)
class ReadCall:
    """A call with the features and the word lists' findings of its turns."""

    call: MarkedCall
    features: sparse.csr_matrix
    scores: tuple[LexiconScore, ...]


def table(turns: Sequence[tuple[Any, LexiconScore]]) -> sparse.csr_matrix:
    rows = [hashed(turn, score) for turn, score in turns]
    ends = np.cumsum([0, *map(len, rows)])
    columns = [column for row in rows for column in row]
    values = [value for row in rows for value in row.values()]
    return sparse.csr_matrix((values, columns, ends), shape=(len(rows), TABLE))


def prepared(call: MarkedCall) -> ReadCall:
    scores = tuple(score_turn(turn) for turn in call.turns)
    return ReadCall(call, table(list(zip(call.turns, scores, strict=True))), scores)


@dataclass(frozen=True)
class Single:
    """The corpus of single turns."""

    features: sparse.csr_matrix
    marks: NDArray[np.int64]


def fit_turns(single: Single, reads: Iterable[ReadCall]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """SentimentWeights (TABLE x labels) and bias of one multinomial regression; rare features weigh nothing."""
    reads = list(reads)
    features = sparse.vstack([single.features, *(read.features for read in reads)]).tocsc()
    marks = np.concatenate([single.marks, *(np.array(read.call.marks) for read in reads)])
    of_calls = [np.full(len(read.call.marks), 1.0 if read.call.written else CALL_WEIGHT) for read in reads]
    weight = np.concatenate([np.ones(len(single.marks)), *of_calls])
    weight *= np.where(marks == 1, NEUTRAL_WEIGHT, 1.0)
    frequent = np.flatnonzero(np.diff(features.indptr) >= RARE)
    model = LogisticRegression(C=STRENGTH, max_iter=STEPS, tol=3e-3)
    model.fit(features[:, frequent].tocsr(), marks, sample_weight=weight)
    weights = np.zeros((TABLE, len(LABELS)))
    weights[frequent] = model.coef_.T
    return weights, model.intercept_


def likely(read: ReadCall, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> list[TurnSentiment]:
    sums = np.asarray(read.features @ weights + bias)
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return [TurnSentiment(float(row[0]), float(row[2])) for row in shares]


def judged_apart(single: Single, reads: list[ReadCall], folds: int) -> dict[str, list[TurnSentiment]]:
    """Return the turns of each call by weights that were fitted without it."""
    judged = {}
    for fold in range(folds):
        held_out = reads[fold::folds]
        names = {read.call.name for read in held_out}
        fitted = fit_turns(single, [read for read in reads if read.call.name not in names])
        judged.update({read.call.name: likely(read, *fitted) for read in held_out})
    return judged


def row(read: ReadCall, turns: list[TurnSentiment], party: str) -> list[float] | None:
    party_turns = set(read.call.of(party))
    if not party_turns or party not in read.call.tones:
        return None
    weights = [score.weight for at, score in enumerate(read.scores) if at in party_turns]
    others = [turn for at, turn in enumerate(turns) if at not in party_turns]
    exclaimed = sum("!" in read.call.turns[at].text for at in party_turns)
    return party_features([turns[at] for at in sorted(party_turns)], weights, party == "rep", others, exclaimed)


def fit_rule(reads: Iterable[ReadCall], turns: dict[str, list[TurnSentiment]]) -> NDArray[np.float64]:
    """Fit the rule of parties for unscaled features (the fit itself uses standardized ones)."""
    rows, labels, weight = [], [], []
    for read in reads:
        for party, label in read.call.tones.items():
            features = row(read, turns[read.call.name], party)
            if features:
                rows.append(features[:-1])
                labels.append(label)
                weight.append(DOUBTFUL_WEIGHT if party in read.call.doubtful else 1.0)
    table_rows = np.array(rows)
    middle, spread = table_rows.mean(axis=0), table_rows.std(axis=0) + 1e-6
    model = LogisticRegression(C=RULE_STRENGTH, max_iter=1000)
    model.fit((table_rows - middle) / spread, labels, sample_weight=np.array(weight))
    scaled = model.coef_ / spread
    return np.hstack([scaled, (model.intercept_ - scaled @ middle)[:, None]])


def weights_with(rule: NDArray[np.float64]) -> SentimentWeights:
    return SentimentWeights(np.zeros((0, 3), dtype=np.int8), 1.0, np.zeros(3), rule)


def judged(single: Single, reads: list[ReadCall], folds: int, corpus_only: bool) -> list[dict[str, Any]]:
    """One entry for each party of the cases: what was found, what is known, and of its turns."""
    written = [read for read in reads if read.call.written]
    cases = [read for read in reads if not read.call.written]
    order = list(np.random.RandomState(0).permutation(len(cases)))
    entries: list[dict[str, Any]] = []
    alone = fit_turns(single, written) if corpus_only else None
    for fold in range(folds):
        held_out = [cases[at] for at in order[fold::folds]]
        names = {read.call.name for read in held_out}
        rest = [*written, *(read for read in cases if read.call.name not in names)]
        if alone:
            turns = {read.call.name: likely(read, *alone) for read in rest}
            turns |= judged_apart(single, written, INNER)
        else:
            turns = judged_apart(single, rest, INNER)
        fitted, rule = alone or fit_turns(single, rest), weights_with(fit_rule(rest, turns))
        entries += [entry for read in held_out for entry in parties(read, likely(read, *fitted), rule)]
        print(f"fold {fold + 1} of {folds}", file=sys.stderr)
    return entries


def parties(read: ReadCall, turns: list[TurnSentiment], rule: SentimentWeights) -> Iterable[dict[str, Any]]:
    for party, expected in read.call.tones.items():
        features = row(read, turns, party)
        if features:
            predicted = predict_party(features, rule)
            party_turns = read.call.of(party)
            at = turned(turns, party_turns)
            yield {
                "call": read.call.name,
                "language": read.call.language,
                "party": party,
                "known": LABELS[expected],
                "found": predicted.label,
                "confidence": predicted.confidence,
                "doubtful": party in read.call.doubtful,
                "turns": [(read.call.marks[place], turns[place]) for place in party_turns],
                "turns_at": None if at is None else read.call.turns[party_turns[at]].turn.index,
                "call_turns": read.call.turning,
            }


def turned(turns: list[TurnSentiment], party_turns: list[int]) -> int | None:
    """Return where the party's tone turns, as in the step `tone`: a position in `party_turns`."""
    scores = [turns[place].score for place in party_turns]
    point = change_point(scores)
    if point is None:
        return None
    before, after = (tone(fmean(part)).label for part in (scores[: point.at], scores[point.at :]))
    return point.at if before != after else None


def figures(entries: list[dict[str, Any]]) -> dict[str, Any]:
    expected, predicted = ([entry[key] for entry in entries] for key in ("known", "found"))
    return {
        "parties": len(entries),
        "right": fmean(a == b for a, b in zip(expected, predicted, strict=True)),
        "macro F1": float(f1_score(expected, predicted, average="macro", labels=LABELS, zero_division=0)),
        "always neutral": fmean(tone == "neutral" for tone in expected),
    }


def report(entries: list[dict[str, Any]]) -> dict[str, Any]:
    groups = {"all": entries}
    for key in ("language", "party", "doubtful"):
        for value in sorted({entry[key] for entry in entries}):
            groups[f"{key} {value}"] = [entry for entry in entries if entry[key] == value]
    groups_figures = {name: figures(group) for name, group in groups.items()}
    for least, most in ((0.0, 0.5), (0.5, 0.65), (0.65, 0.8), (0.8, 1.01)):
        sure = [entry for entry in entries if least <= entry["confidence"] < most]
        if sure:
            mean = fmean(entry["confidence"] for entry in sure)
            groups_figures[f"confidence {least}-{most}"] = figures(sure) | {"mean confidence": mean}
    return groups_figures | {"turns": of_turns(entries), "turning points": of_turning_points(entries)}


def of_turns(entries: list[dict[str, Any]]) -> dict[str, Any]:
    turns = [pair for entry in entries for pair in entry["turns"]]
    labels = [2 if sentiment.positive >= CLEAR else 0 if sentiment.negative >= CLEAR else 1 for _, sentiment in turns]
    marks = [mark for mark, _ in turns]
    return {
        "turns": len(turns),
        "right": fmean(a == b for a, b in zip(marks, labels, strict=True)),
        "macro F1": float(f1_score(marks, labels, average="macro")),
    }


def of_turning_points(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Right: by the same party, within `NEAR` turns."""
    right = [entry for entry in entries if _turned(entry)]
    turning = [entry for entry in entries if entry["turns_at"] is not None]
    marked = {entry["call"] for entry in entries if entry["call_turns"]}
    return {
        "known": len(marked),
        "right": len(right),
        "found": len(turning),
        "calls without one": len({entry["call"] for entry in entries}) - len(marked),
        "of these with one found": len({entry["call"] for entry in turning} - marked),
    }


def _turned(entry: dict[str, Any]) -> bool:
    expected, at = entry["call_turns"], entry["turns_at"]
    return bool(expected and at is not None and expected[0] == entry["party"] and abs(expected[1] - at) <= NEAR)


def write(single: Single, reads: list[ReadCall]) -> None:
    weights, bias = fit_turns(single, reads)
    rule = fit_rule(reads, judged_apart(single, reads, INNER))
    unit = float(np.abs(weights).max() / 127)
    whole = np.round(weights / unit).astype(np.int8)
    np.savez_compressed(FILE, table=whole, unit=np.float64(unit), bias=bias, rule=rule)
    print(f"{FILE}: {FILE.stat().st_size / 1024:.0f} KiB, {int(np.any(whole, axis=1).sum())} rows in use")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5, help="folds of the calls that are judged")
    parser.add_argument("--leave-one-out", action="store_true", help="a fold for each call (slow)")
    parser.add_argument("--corpus-only", action="store_true", help="fit turns on no call of analysis_cases/dev")
    parser.add_argument("--write", action="store_true", help="fit on everything and write the weights that ship")
    parser.add_argument("--no-judging", action="store_true", help="with --write: write alone")
    parser.add_argument("--detail", action="store_true", help="print every mistake")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    turns = [(turn, score_turn(turn), mark) for turn, mark in corpus.turns()]
    single = Single(table([(turn, score) for turn, score, _ in turns]), np.array([mark for *_, mark in turns]))
    reads = [prepared(call) for call in corpus.calls()]
    if arguments.write:
        write(single, reads)
    if arguments.no_judging:
        return
    folds = sum(not read.call.written for read in reads) if arguments.leave_one_out else arguments.folds
    entries = judged(single, reads, folds, arguments.corpus_only)
    results = report(entries)
    for name, of in results.items():
        print(f"{name:24}" + "  ".join(f"{key} {round(value, 3)}" for key, value in of.items()))
    if arguments.detail:
        for entry in entries:
            if entry["found"] != entry["known"]:
                doubt = " (doubtful)" * entry["doubtful"]
                print(f"{entry['call']} {entry['party']}: {entry['found']} for {entry['known']}{doubt}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
