"""How many of the wrong words are marked as doubtful, and how many of the marked ones are wrong?

    python -m bench.real doubt --half development --folder build/real --model tiny.en --write
    python -m bench.real doubt --half report --folder build/real --model tiny.en

On the development half the weights of `pipeline/asr/calibration/` are fitted; figures are those of folds, in which no
utterance is judged by weights that were fitted on it. --write stores weights and threshold. On the report half the
weights that ship are judged. What is known of each word is kept in FOLDER/HALF/doubt; only what is missing is made.
A word counts as marked where it is probably wrong or doubtful for any other reason.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.real import intervals, score
from bench.real.calls import Truth
from bench.real.catalog import CATALOG, compose
from bench.real.outputs import RecognizedWord
from bench.real.score import EventScore, SpeechScore
from bench.real.sources import Half, SourceMissing, Sources
from pipeline.asr import doubt

Floats = npt.NDArray[np.float64]
NOT_JUDGED = ("prompts-es", "prompts-fr", "prompts-it", "prompts-ru")
ON_BASE = ("mulaw", "amr-4.75", "music-10", "mixed", "menu", "single-words")  # of the report half: as `bench.real run`
FOLDS, PENALTY, SEED = 10, 10.0, 15
RECALLS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class JudgedWord:
    """A recognized word: the utterance it belongs to, whether it is wrong, marked for another reason, its features."""

    source: str
    wrong: bool
    marked: bool
    values: tuple[float, ...]


def calls_of(half: Half, model: str) -> list[str]:
    """Return the calls in English; for the report half those of `bench.real run`."""
    names = ON_BASE if model == "base" and half == "report" else CATALOG
    return [name for name in names if name not in NOT_JUDGED]


def gathered(args: argparse.Namespace) -> list[JudgedWord]:
    """Return the words of every call; recognize those missing in the folder."""
    sources, engine, judged_words = Sources(args.librispeech, args.asterisk), None, []
    for name in calls_of(args.half, args.model):
        file = args.folder / args.half / "doubt" / f"{name}.{args.model}.jsonl.gz"
        if not file.is_file():
            path = args.folder / args.half / "calls" / f"{name}.wav"
            if not path.is_file():
                compose(name, sources, args.half).write(path.parent)
            engine = engine or _engine(args)
            _write(file, judged(Truth.read(path.with_suffix(".json")), _recognized(path, engine)))
            print(f"{name} {args.model}", file=sys.stderr, flush=True)
        judged_words += _read(file)
    return judged_words


def judged(truth: Truth, texts: Sequence[Any]) -> Iterator[JudgedWord]:
    """Yield every recognized word of a call with its truth, aligned as in `bench.real.score`; `texts`: `ChunkText`s."""
    if truth.group == "no speech":
        return
    for channel in (0,) if truth.mixed else range(truth.channels):
        channel_texts = [text for text in texts if text.chunk.channel == channel]
        word_features = [pair for text in channel_texts for pair in zip(text.words, doubt.features(text), strict=True)]
        word_features.sort(key=lambda pair: (pair[0].start, pair[0].end))
        recognized = [
            RecognizedWord(word.start, word.end, f" {word.text}", word.confidence) for word, _ in word_features
        ]
        for index, (source, wrong) in _wrong(truth, channel, recognized).items():
            word, values = word_features[index]
            yield JudgedWord(source, wrong, word.doubtful, tuple(round(float(value), 4) for value in values))


def _wrong(truth: Truth, channel: int, words: Sequence[RecognizedWord]) -> dict[int, tuple[str, bool]]:
    """Return by word index its event and whether one of its tokens is substituted or inserted."""
    events = [index for index, event in enumerate(truth.events) if truth.mixed or event.channel == channel]
    reference = score.reference_tokens(truth, events)
    tokens = score.tokens_of(score.written(words), truth.language)
    wrong_by_word: dict[int, tuple[str, bool]] = {}
    at = reference[0].event if reference else None
    for pair in score.align(reference, tokens):
        at = at if pair.spoken is None else reference[pair.spoken].event
        if pair.recognized is not None and at is not None:
            index = tokens[pair.recognized].written
            source, wrong = wrong_by_word.get(index, (truth.events[at].source, False))
            wrong_by_word[index] = source, wrong or not pair.right
    return wrong_by_word


def _recognized(path: Path, engine: Any) -> Sequence[Any]:
    """Return the pipeline's texts of a recording, with the marks that need no calibration."""
    from pipeline.audio import analyze
    from pipeline.audio.decode.options import DecodeOptions
    from pipeline.audio.labels.detector import SpeechOptions
    from pipeline.domain.speech import Recording
    from pipeline.runtime.workers import LocalWorkers, RemoteRef
    from pipeline.steps.recognize import recognize

    content = path.read_bytes()
    recording = Recording(0, path.resolve().as_uri(), hashlib.sha256(content).hexdigest(), len(content))
    loaded = analyze.load([recording], DecodeOptions())
    analysis = analyze.analyze_audio(loaded, SpeechOptions(), engine.max_chunk_seconds, engine.packing)
    if not analysis.chunks:
        return ()
    ships = doubt.calibration_of(engine.name)
    never = ships and ships.model_copy(update={"threshold": 1.0})  # doubtful for other reasons
    texts = asyncio.run(
        recognize(LocalWorkers(engine, None), RemoteRef(loaded), analysis, engine.name, (), calibration=never)
    )
    return texts.texts


def _engine(args: argparse.Namespace) -> Any:
    from pipeline import asr

    return asr.load(asr.AsrOptions(model=args.model, device="cpu", cpu_threads=1, batch_size=4))


def fitted(values: Floats, wrong: Floats) -> tuple[float, Floats]:
    """Return intercept and weights of a logistic regression, penalized on features of variance 1."""
    mean, deviation = values.mean(axis=0), values.std(axis=0) + 1e-9
    rows = np.column_stack([np.ones(len(values)), (values - mean) / deviation])
    penalty = np.diag([1e-6] + [PENALTY] * values.shape[1])
    weights = np.zeros(rows.shape[1])
    for _ in range(25):
        share = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (share - wrong) + penalty @ weights
        weights -= np.linalg.solve((rows * (share * (1 - share))[:, None]).T @ rows + penalty, slope)
    scaled = weights[1:] / deviation
    return float(weights[0] - scaled @ mean), scaled


def in_folds(rows: Sequence[JudgedWord]) -> Floats:
    """Return the risk of each word by weights that were fitted without its utterance, shape (rows,)."""
    values, wrong = np.array([row.values for row in rows]), np.array([row.wrong for row in rows], float)
    sources = np.array([row.source for row in rows])
    every = np.unique(sources)
    np.random.default_rng(SEED).shuffle(every)
    risks = np.zeros(len(rows))
    for fold in range(FOLDS):
        out = np.isin(sources, every[fold::FOLDS])
        intercept, weights = fitted(values[~out], wrong[~out])
        risks[out] = 1 / (1 + np.exp(-(intercept + values[out] @ weights)))
    return risks


def chosen(rows: Sequence[JudgedWord], risks: Floats) -> float:
    """Return the threshold with the highest lesser of precision and recall, as the goal asks as much of both."""
    return float(max(np.unique(risks.round(3)), key=lambda at: min(_both(rows, risks, at))))


def _both(rows: Sequence[JudgedWord], risks: Floats, threshold: float) -> tuple[float, float]:
    wrong = np.array([row.wrong for row in rows])
    marked = np.array([row.marked for row in rows]) | (risks >= threshold)
    return float((wrong & marked).sum() / max(1, marked.sum())), float((wrong & marked).sum() / max(1, wrong.sum()))


def curve(rows: Sequence[JudgedWord], risks: Floats) -> list[dict[str, float]]:
    """Return the best precision at each of `RECALLS`, of words ranked by their risk alone."""
    order = np.argsort(-risks)
    hits = np.cumsum([rows[i].wrong for i in order])
    precision, recall = hits / np.arange(1, len(rows) + 1), hits / max(1, hits[-1])
    return [{"recall": at, "precision": round(float(precision[recall >= at].max()), 3)} for at in RECALLS]


def figures(rows: Sequence[JudgedWord], risks: Floats, threshold: float) -> dict[str, Any]:
    """Return precision and recall of the marks with 95 % intervals (utterances resampled), and the curve."""
    events: dict[str, EventScore] = defaultdict(lambda: EventScore(""))
    for row, risk in zip(rows, risks, strict=True):
        source_events = events[row.source]
        source_events.source = row.source
        marked = row.marked or risk >= threshold
        source_events.marked_wrong += row.wrong and marked
        source_events.marked_right += marked and not row.wrong
        source_events.unmarked_wrong += row.wrong and not marked
    scored = [SpeechScore("", "", "", "", list(events.values()))]
    return {
        "words": len(rows),
        "wrong": sum(row.wrong for row in rows),
        "utterances": len(events),
        "threshold": threshold,
        "precision": intervals.estimate(scored, intervals.precision),
        "recall": intervals.estimate(scored, intervals.recall),
        "curve": curve(rows, risks),
    }


def _calibration(rows: Sequence[JudgedWord], threshold: float, results: dict[str, Any], model: str) -> str:
    """Return the calibration file as TOML."""
    intercept, weights = fitted(np.array([row.values for row in rows]), np.array([row.wrong for row in rows], float))
    lines = [f"{name} = {weight:.4f}" for name, weight in zip(doubt.FEATURES, weights, strict=True)]
    shares = (f"{name} {_shown(results[name])}" for name in ("precision", "recall"))
    basis = (
        f"Whisper {model} on real English speech over telephone lines (`bench/real`, development half):\n"
        f"{results['words']} words of {results['utterances']} utterances, {results['wrong']} wrong. Marks, in folds:\n"
        f"{', '.join(shares)}."
    )
    head = f'intercept = {intercept:.4f}\nthreshold = {threshold:.3f}\nbasis = """\n{basis}\n"""\n'
    return f"{head}\n[weights]\n" + "\n".join(lines) + "\n"


def _shown(estimated: dict[str, float]) -> str:
    return f"{estimated['value']:.0f} % ({estimated['low']:.0f} to {estimated['high']:.0f})"


def _write(path: Path, rows: Iterator[JudgedWord]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(asdict(row)) + "\n" for row in rows).encode(), mtime=0))


def _read(path: Path) -> list[JudgedWord]:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    return [JudgedWord(**{**row, "values": tuple(row["values"])}) for row in rows]


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.real doubt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("development", "report"), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where calls and what is known of words are kept")
    parser.add_argument("--model", default="tiny.en", help="as SWITCHBOARD_ASR__MODEL")
    parser.add_argument("--librispeech", type=Path, help="folder with test-other and train-clean-100 (LIBRISPEECH)")
    parser.add_argument("--asterisk", type=Path, help="folder with Debian's packages unpacked (ASTERISK_SOUNDS)")
    parser.add_argument(
        "--write", action="store_true", help="store the weights of this model's family; development only"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Print precision, recall and the curve; on the development half fit first."""
    args = _arguments(arguments)
    try:
        rows = gathered(args)
    except SourceMissing as error:
        sys.exit(str(error))
    if args.half == "development":
        risks = in_folds(rows)
        threshold = chosen(rows, risks)
    else:
        ships = doubt.read(doubt.file_of(f"faster-whisper {args.model}"))
        values = np.array([row.values for row in rows])
        risks, threshold = doubt.risks_of(values, ships), ships.threshold
    results = figures(rows, risks, threshold)
    print(
        f"{results['words']} words of {results['utterances']} utterances, {results['wrong']} wrong; "
        f"threshold {threshold:.3f}"
    )
    for name in ("precision", "recall"):
        print(name, _shown(results[name]))
    print("recall: precision  " + ", ".join(f"{at['recall']}: {at['precision']:.2f}" for at in results["curve"]))
    if args.write and args.half == "development":
        target = doubt.file_of(f"faster-whisper {args.model}")
        target.write_text(_calibration(rows, threshold, results, args.model))
        print(target)
    if args.json:
        args.json.write_text(json.dumps({"half": args.half, "model": args.model, **results}, indent=1) + "\n")
