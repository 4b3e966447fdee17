"""Score kept outputs: what `python -m bench.real figures` prints and figures.json holds."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.real import announced, intervals, outputs
from bench.real.calls import Truth
from bench.real.intervals import difference, estimate
from bench.real.outputs import SystemOutput
from bench.real.score import SpeechScore, language_of_prompts, score

FIGURES = Path(__file__).parent / "figures.json"
TRUTHS = "truths.jsonl.gz"
OURS, BEFORE = "switchboard", "before"
RAW = ("plain", "vad", "batched")
LABELS = (OURS, BEFORE, *RAW)
ALL = "all English"
SHARES = {
    "words wrong": intervals.wrong,
    "words deleted": intervals.deleted,
    "lost without a mark": intervals.lost,
    "doubt precision": intervals.precision,
    "doubt recall": intervals.recall,
    "confidence < 0.5 precision": intervals.unsure_precision,
    "confidence < 0.5 recall": intervals.unsure_recall,
}
KINDS = {"substituted": intervals.substituted, "deleted": intervals.deleted, "inserted": intervals.inserted}
Scores = dict[tuple[str, str], list[SpeechScore]]  # by model and system


def read_scores(folder: Path) -> tuple[Scores, dict[str, list[dict[str, Any]]]]:
    """Return the scores of every output of a folder, and counts of detected languages: files LABEL.jsonl.gz."""
    truths = outputs.read_truths(folder / TRUTHS)
    scores: Scores = defaultdict(list)
    languages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.gz")):
        if path.name in (TRUTHS, announced.FILE.name):
            continue
        label = path.name.removesuffix(".jsonl.gz")
        for output in outputs.read(path):
            system = label if output.system == OURS else output.system
            truth = truths[output.call]
            scored = score(truth, output)
            scored.system = system
            scores[output.model, system].append(scored)
            if truth.group.startswith("prompts") and not output.model.endswith(".en"):
                languages[system].append(_language(truth, output, scored))
    return scores, languages


def _language(truth: Truth, output: SystemOutput, scored: SpeechScore) -> dict[str, Any]:
    right = language_of_prompts(truth, output)
    return {
        "language": truth.language,
        "call_right": scored.language_right,
        "prompts": len(right),
        "prompts_right": sum(right),
        "wrong": estimate([scored], intervals.wrong),
    }


def figures(folder: Path) -> dict[str, Any]:
    """Return every figure of the outputs in a folder as JSON data."""
    scores, languages = read_scores(folder)
    results: dict[str, Any] = {"languages": dict(sorted(languages.items()))}
    if (folder / announced.FILE.name).is_file():
        results["announcements"] = announced.figures(announced.read(folder / announced.FILE.name))
    for model in sorted({model for model, _ in scores}):
        by_system = {system: scores[model, system] for system in LABELS if (model, system) in scores}
        results[model] = {
            "by class": _by_class(by_system),
            "together": [_together(by_system, systems) for systems in _comparable(by_system)],
            "speakers": {system: _speakers(by_system[system]) for system in (OURS, BEFORE) if system in by_system},
        }
    return results


def _names(scores: Sequence[SpeechScore]) -> set[str]:
    return {call_score.call for call_score in scores}


def _comparable(by_system: dict[str, list[SpeechScore]]) -> list[list[str]]:
    """Yield the systems with every call of ours together, then each other one with ours and the batched way."""
    names = _names(by_system[OURS])
    complete = [system for system, scores in by_system.items() if names <= _names(scores)]
    rest = [system for system in by_system if system not in complete]
    return [complete, *([OURS, system, *(way for way in ("batched",) if way in complete)] for system in rest)]


def _spoken(scores: Sequence[SpeechScore]) -> list[SpeechScore]:
    """Return calls in English with speech."""
    foreign = tuple(f"prompts {language}" for language in ("es", "fr", "it", "ru"))
    return [call_score for call_score in scores if call_score.group != "no speech" and call_score.group not in foreign]


def _by_class(by_system: dict[str, list[SpeechScore]]) -> dict[str, dict[str, Any]]:
    """Return by class of call the words wrong of each complete system, the best raw way, and our difference to it, in
    all and by kind of error.
    """
    ours = by_system[OURS]
    classes = {
        group: [call_score for call_score in ours if call_score.group == group]
        for group in sorted({call_score.group for call_score in ours})
    }
    classes.pop("no speech", None)
    results: dict[str, dict[str, Any]] = {}
    for group, class_scores in [*classes.items(), (ALL, _spoken(ours))]:
        names = _names(class_scores)
        rivals = {
            system: [call_score for call_score in theirs if call_score.call in names]
            for system, theirs in by_system.items()
        }
        rivals = {system: theirs for system, theirs in rivals.items() if _names(theirs) == names}
        row: dict[str, Any] = {system: estimate(theirs, intervals.wrong) for system, theirs in rivals.items()}
        raw = [way for way in RAW if row.get(way)]
        if raw:
            best = min(raw, key=lambda way: row[way]["value"])
            row |= {"best raw way": best, "difference": difference(class_scores, rivals[best], intervals.wrong)}
            row["by kind"] = {kind: difference(class_scores, rivals[best], ratio) for kind, ratio in KINDS.items()}
        results[group] = row
    return results


def _together(by_system: dict[str, list[SpeechScore]], systems: Sequence[str]) -> dict[str, Any]:
    """Systems over the calls that all of them and ours have."""
    shared = set.intersection(*(_names(by_system[system]) for system in systems)) & _names(by_system[OURS])
    results: dict[str, Any] = {"calls": sorted(shared), "systems": {}}
    for system in systems:
        scores = [call_score for call_score in by_system[system] if call_score.call in shared]
        spoken = _spoken(scores)
        results["systems"][system] = {
            **{name: estimate(spoken, share) for name, share in SHARES.items() if _says(name, system)},
            "times": _times(spoken),
            "invented": _invented(scores),
            "seconds": _seconds(scores),
        }
    batched = results["systems"].get("batched", {}).get("seconds", {}).get("to the words")
    for entry in results["systems"].values():
        entry["seconds relative to batched"] = round(entry["seconds"]["to the words"] / batched, 2) if batched else None
    return results


def _says(name: str, system: str) -> bool:
    """Return whether a share is meaningful for a system: the raw ways mark nothing."""
    return system in (OURS, BEFORE) or not name.startswith("doubt")


def _seconds(scores: Sequence[SpeechScore]) -> dict[str, float]:
    """Processor seconds by part; "to the words" is recognition with what goes before it."""
    parts: dict[str, float] = defaultdict(float)
    for call_score in scores:
        for part, value in call_score.seconds.items():
            parts[part] += value
    parts["to the words"] = sum(parts.get(part, 0.0) for part in ("audio", "recognition"))
    return {part: round(value, 1) for part, value in sorted(parts.items())}


def _percent(above: float, below: float) -> float:
    return round(100 * above / below, 2)


def _times(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Absolute errors in milliseconds: median, 95th percentile, signed median."""
    results = {}
    for name in ("start_error", "end_error"):
        errors = [
            value for call_score in scores for event in call_score.events if (value := getattr(event, name)) is not None
        ]
        if errors:
            size = np.abs(errors) * 1000
            results[name.removesuffix("_error")] = {
                "median": round(float(np.median(size))),
                "p95": round(float(np.quantile(size, 0.95))),
                "signed median": round(float(np.median(errors)) * 1000),
                "of": len(errors),
            }
    return results


def _invented(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Return invented words in calls without speech, and in the pauses of the others."""
    results = {}
    for name, group in (
        ("no speech", [call_score for call_score in scores if call_score.group == "no speech"]),
        ("pauses of calls", [call_score for call_score in scores if call_score.group != "no speech"]),
    ):
        hours = sum(call_score.quiet_seconds for call_score in group) / 3600
        words = sum(call_score.invented for call_score in group)
        if hours:
            results[name] = {"words": words, "hours": round(hours, 2), "per hour": round(words / hours, 1)}
    return results


def _speakers(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Mixed calls: words given to the wrong speaker, and cpWER, by call."""
    mixed = [call_score for call_score in scores if call_score.cp_errors is not None and call_score.cp_words]
    results: dict[str, Any] = {
        call_score.call: {
            "wrong speaker": estimate([call_score], intervals.misattributed),
            "cpWER": _percent(call_score.cp_errors or 0, call_score.cp_words),
            "words wrong": estimate([call_score], intervals.wrong),
        }
        for call_score in sorted(mixed, key=lambda call_score: call_score.call)
    }
    if mixed:
        errors, words = (
            sum(call_score.cp_errors or 0 for call_score in mixed),
            sum(call_score.cp_words for call_score in mixed),
        )
        results["all"] = {"wrong speaker": estimate(mixed, intervals.misattributed), "cpWER": _percent(errors, words)}
    return results


def gather(folder: Path, target: Path) -> None:
    """Collect what `run` kept of a half (FOLDER/HALF) into files of `target`: truths, and one file per label."""
    names = set()
    for label in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "calls"):
        system_outputs = [output for path in sorted(label.glob("*.jsonl.gz")) for output in outputs.read(path)]
        names |= {output.call for output in system_outputs}
        outputs.write(target / f"{label.name}.jsonl.gz", system_outputs)
    truths = [json.loads((folder / "calls" / f"{name}.json").read_text()) for name in sorted(names)]
    outputs.write_truths(target / TRUTHS, truths)
