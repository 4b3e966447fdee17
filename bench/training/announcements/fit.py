"""Fits the weights by which words are told to be a machine's, and says how well they do on words not fitted on.

    python -m bench.training.announcements.fit [--write] [--librispeech FOLDER] [--asterisk FOLDER] [--details]

A machine's: the development half of Debian's prompts (`bench/real/sources.py`), and the lines of `corpus/` that begin
with "=". People's: `bench/analysis_cases/dev`, the texts that commitments and sentiment are fitted on, the development
half of LibriSpeech (English), and the lines of `corpus/` that begin with "-", which speak of telephones and machines.
Folds are by prompt, call and line; the report half is not looked at. `--write` fits on everything and writes the
weights that ship.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.real.sources import Sources
from pipeline.speakers.announcement_score import SCALE, WORDS_FOLDER, evidence, features, log_odds
from pipeline.speakers.plain import plain

ROOT = Path(__file__).resolve().parents[3]
LANGUAGES = ("en", "es", "fr")
CORPUS = Path(__file__).parent / "corpus"
CALLS = ROOT / "bench" / "analysis_cases" / "dev"
COMMITMENTS, TURNS = ROOT / "training" / "commitments" / "corpus", ROOT / "training" / "sentiment" / "turns"
RECORDED_GREETINGS = ("anrufbeantworter", "voicemail")  # in the names of calls that hold a machine's words
STRENGTH = 3.0  # C of the regression: the inverse of how strongly weights are held near 0
RARE = 2  # examples in which a feature must occur
SMALLEST = 0.1  # a weight below it is left out
FOLDS = 5
TELLS = 1.0  # log odds from which words count as a machine's in the table


@dataclass(frozen=True)
class LabeledSentence:
    """A sentence. `group` is what it must share a fold with, `source` what it is counted under."""

    text: str  # as `plain` makes it
    machine: bool
    source: str
    group: str


def examples(sources: Sources, language: str) -> list[LabeledSentence]:
    """Every sentence of a language; the same sentence counts once."""
    found = [(clip.text, True, "prompts", clip.id) for clip in sources.prompts("development", language)]
    for sign, text in lines(CORPUS / f"{language}.txt"):
        found.append((text, sign == "=", "corpus, " + ("machine" if sign == "=" else "people"), text))
    found += [(text, False, "calls", call) for call, text in said_in_calls(language)]
    for path in (COMMITMENTS / f"{language}.txt", TURNS / f"{language}.txt"):
        found += [(text, False, "talk", text) for _, line in lines(path) for text in line.split(" / ")]
    if language == "en":
        found += [
            (clip.text, False, "LibriSpeech", clip.id)
            for own in sources.utterances("development").values()
            for clip in own
        ]
    rows = {
        (plain(sentence), machine): LabeledSentence(plain(sentence), machine, source, group)
        for text, machine, source, group in found
        if not text.startswith("<")  # a sound, described
        for sentence in re.split(r"(?<=[.!?])\s+", text)
    }
    return [row for row in rows.values() if len(row.text.split()) >= 2]


def lines(path: Path) -> list[tuple[str, str]]:
    """The mark and the text of each line; a comment is none."""
    rows = (
        re.match(r"([-=0+>*~]?)[r]? ?((?:[rc]: )?.+)", line)
        for line in path.read_text("utf-8").splitlines()
        if line[0:1] not in ("", "#")
    )
    return [(row[1], re.sub(r"\b[rc]: |(?<!\S)[+>*~]", "", row[2])) for row in rows if row]


def said_in_calls(language: str) -> list[tuple[str, str]]:
    """Call and text of each turn of the calls for the analysis."""
    return [
        (path.stem, turn["text"])
        for path in sorted(CALLS.glob(f"{language}_*.json"))
        if not any(name in path.stem for name in RECORDED_GREETINGS)
        for turn in json.loads(path.read_text(encoding="utf-8"))["input"]["turns"]
    ]


def fitted(given: Sequence[LabeledSentence]) -> dict[str, int]:
    """The weights of one logistic regression in hundredths, the prior of the examples taken out of that of ""."""
    import numpy as np
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = Counter(feature for one in given for feature in features(one.text))
    names = DictVectorizer()
    table = names.fit_transform([{f: 1.0 for f in features(one.text) if counts[f] >= RARE} for one in given])
    answers = np.array([one.machine for one in given])
    model = LogisticRegression(C=STRENGTH, max_iter=1000).fit(table, answers)
    prior = np.log(answers.mean() / (1 - answers.mean()))
    weights = {"": round(float(model.intercept_[0] - prior) * SCALE)}
    for feature, weight in zip(names.get_feature_names_out(), model.coef_[0], strict=True):
        if abs(weight) >= SMALLEST:
            weights[str(feature)] = round(float(weight) * SCALE)
    return weights


def crossed(given: Sequence[LabeledSentence]) -> list[float]:
    """For each example the log odds by weights that were fitted without its fold."""
    import numpy as np
    from sklearn.model_selection import StratifiedGroupKFold

    odds = np.zeros(len(given))
    groups, machine = [one.group for one in given], [one.machine for one in given]
    for kept, left in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=1).split(given, machine, groups):
        weights = fitted([given[at] for at in kept])
        odds[left] = [log_odds(given[at].text, weights) for at in left]
    return list(odds)


def show(language: str, given: Sequence[LabeledSentence], odds: Sequence[float], details: bool) -> None:
    """By source: how many sentences the patterns, the weights (folds), and either of them take for a machine's."""
    for source in sorted({one.source for one in given}):
        own = [(one, value) for one, value in zip(given, odds, strict=True) if one.source == source]
        patterns = [evidence(one.text, language, learned=False).score > 0 for one, _ in own]
        weights = [value >= TELLS for _, value in own]
        either = [a or b for a, b in zip(patterns, weights, strict=True)]
        shares = "".join(f"{100 * sum(one) / len(own):9.1f}" for one in (patterns, weights, either))
        print(f"{language} {source:18}{len(own):6}{shares}")
        for (one, value), pattern in zip(own, patterns, strict=True):
            if details and (value >= TELLS or pattern) != one.machine:
                print(f"      {value:5.1f} {pattern} {one.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--librispeech", type=Path, help="see bench/real/sources.py")
    parser.add_argument("--asterisk", type=Path, help="see bench/real/sources.py")
    parser.add_argument("--write", action="store_true", help="fit on everything and write the weights that ship")
    parser.add_argument("--details", action="store_true", help="print the sentences that are judged wrong")
    options = parser.parse_args()
    sources = Sources(options.librispeech, options.asterisk)
    print("% taken for a machine's   sentences patterns  weights   either")
    for language in LANGUAGES:
        given = examples(sources, language)
        show(language, given, crossed(given), options.details)
        if options.write:
            weights = fitted(given)
            path = WORDS_FOLDER / f"{language}.tsv"
            text = "".join(f"{feature}\t{weight}\n" for feature, weight in sorted(weights.items()))
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {len(weights)} weights, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
