"""Fits the weights that detect a machine's words, and scores them on words that were not used for fitting.

    python -m bench.training.announcements.fit [--write] [--librispeech FOLDER] [--asterisk FOLDER] [--details]

Machines: the development half of Debian's prompts (`bench/real/sources.py`), and the lines of `corpus/` that begin with
"=". People: `bench/analysis_cases/dev`, the texts for commitments and sentiment, the development half of LibriSpeech
(English), and the lines of `corpus/` that begin with "-", which are about telephones and machines. Folds are by prompt,
call and line; the report half is not used. `--write` fits on everything and writes the weights that ship.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.real.sources import Sources
from pipeline.speakers.announcement_score import SCALE, WORDS_FOLDER, evidence, features, log_odds, plain

ROOT = Path(__file__).resolve().parents[3]
LANGUAGES = ("en", "es", "fr")
CORPUS = Path(__file__).parent / "corpus"
CALLS = ROOT / "bench" / "analysis_cases" / "dev"
COMMITMENTS, TURNS = ROOT / "training" / "commitments" / "corpus", ROOT / "training" / "sentiment" / "turns"
RECORDED_GREETINGS = ("anrufbeantworter", "voicemail")  # in the names of calls that hold a machine's words
STRENGTH = 3.0  # C of the regression: the inverse of how strongly weights are held near 0
RARE = 2  # examples in which a feature must occur
MIN_WEIGHT = 0.1  # a weight below it is left out
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
    """Return every sentence of a language, without duplicates."""
    sentences = [(clip.text, True, "prompts", clip.id) for clip in sources.prompts("development", language)]
    for sign, text in lines(CORPUS / f"{language}.txt"):
        sentences.append((text, sign == "=", "corpus, " + ("machine" if sign == "=" else "people"), text))
    sentences += [(text, False, "calls", call) for call, text in said_in_calls(language)]
    for path in (COMMITMENTS / f"{language}.txt", TURNS / f"{language}.txt"):
        sentences += [(text, False, "talk", text) for _, line in lines(path) for text in line.split(" / ")]
    if language == "en":
        sentences += [
            (clip.text, False, "LibriSpeech", clip.id)
            for clips in sources.utterances("development").values()
            for clip in clips
        ]
    rows = {
        (plain(sentence), machine): LabeledSentence(plain(sentence), machine, source, group)
        for text, machine, source, group in sentences
        if not text.startswith("<")  # a sound, described
        for sentence in re.split(r"(?<=[.!?])\s+", text)
    }
    return [row for row in rows.values() if len(row.text.split()) >= 2]


def lines(path: Path) -> list[tuple[str, str]]:
    """Return the mark and the text of each line, without comments."""
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


def fitted(sentences: Sequence[LabeledSentence]) -> dict[str, int]:
    """Return the weights of one logistic regression in hundredths, with the prior of the examples removed from that of
    "".
    """
    import numpy as np
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = Counter(feature for sentence in sentences for feature in features(sentence.text))
    names = DictVectorizer()
    table = names.fit_transform(
        [{f: 1.0 for f in features(sentence.text) if counts[f] >= RARE} for sentence in sentences]
    )
    answers = np.array([sentence.machine for sentence in sentences])
    model = LogisticRegression(C=STRENGTH, max_iter=1000).fit(table, answers)
    prior = np.log(answers.mean() / (1 - answers.mean()))
    weights = {"": round(float(model.intercept_[0] - prior) * SCALE)}
    for feature, weight in zip(names.get_feature_names_out(), model.coef_[0], strict=True):
        if abs(weight) >= MIN_WEIGHT:
            weights[str(feature)] = round(float(weight) * SCALE)
    return weights


def crossed(sentences: Sequence[LabeledSentence]) -> list[float]:
    """For each example the log odds by weights that were fitted without its fold."""
    import numpy as np
    from sklearn.model_selection import StratifiedGroupKFold

    odds = np.zeros(len(sentences))
    groups, machine = [sentence.group for sentence in sentences], [sentence.machine for sentence in sentences]
    for train, test in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=1).split(sentences, machine, groups):
        weights = fitted([sentences[at] for at in train])
        odds[test] = [log_odds(sentences[at].text, weights) for at in test]
    return list(odds)


def show(language: str, sentences: Sequence[LabeledSentence], odds: Sequence[float], details: bool) -> None:
    """Print by source how many sentences the patterns, the weights (folds), and either classify as a machine's."""
    for source in sorted({sentence.source for sentence in sentences}):
        scored = [
            (sentence, value) for sentence, value in zip(sentences, odds, strict=True) if sentence.source == source
        ]
        patterns = [evidence(sentence.text, language, learned=False).score > 0 for sentence, _ in scored]
        weights = [value >= TELLS for _, value in scored]
        either = [a or b for a, b in zip(patterns, weights, strict=True)]
        shares = "".join(f"{100 * sum(flags) / len(scored):9.1f}" for flags in (patterns, weights, either))
        print(f"{language} {source:18}{len(scored):6}{shares}")
        for (sentence, value), pattern in zip(scored, patterns, strict=True):
            if details and (value >= TELLS or pattern) != sentence.machine:
                print(f"      {value:5.1f} {pattern} {sentence.text}")


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
        sentences = examples(sources, language)
        show(language, sentences, crossed(sentences), options.details)
        if options.write:
            weights = fitted(sentences)
            path = WORDS_FOLDER / f"{language}.tsv"
            text = "".join(f"{feature}\t{weight}\n" for feature, weight in sorted(weights.items()))
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {len(weights)} weights, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
