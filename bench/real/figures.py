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
    """The scores of every output of a folder, and how often languages were found: files LABEL.jsonl.gz."""
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
    """Every figure of the outputs in a folder, as JSON holds it."""
    scores, languages = read_scores(folder)
    found: dict[str, Any] = {"languages": dict(sorted(languages.items()))}
    if (folder / announced.FILE.name).is_file():
        found["announcements"] = announced.figures(announced.read(folder / announced.FILE.name))
    for model in sorted({model for model, _ in scores}):
        by_system = {system: scores[model, system] for system in LABELS if (model, system) in scores}
        found[model] = {
            "by class": _by_class(by_system),
            "together": [_together(by_system, systems) for systems in _comparable(by_system)],
            "speakers": {system: _speakers(by_system[system]) for system in (OURS, BEFORE) if system in by_system},
        }
    return found


def _names(scores: Sequence[SpeechScore]) -> set[str]:
    return {one.call for one in scores}


def _comparable(by_system: dict[str, list[SpeechScore]]) -> list[list[str]]:
    """Systems that have every call of ours, together; then each other one beside ours and the batched way."""
    wanted = _names(by_system[OURS])
    complete = [system for system, own in by_system.items() if wanted <= _names(own)]
    rest = [system for system in by_system if system not in complete]
    return [complete, *([OURS, system, *(way for way in ("batched",) if way in complete)] for system in rest)]


def _spoken(scores: Sequence[SpeechScore]) -> list[SpeechScore]:
    """Calls in English in which somebody speaks."""
    foreign = tuple(f"prompts {language}" for language in ("es", "fr", "it", "ru"))
    return [one for one in scores if one.group != "nobody speaks" and one.group not in foreign]


def _by_class(by_system: dict[str, list[SpeechScore]]) -> dict[str, dict[str, Any]]:
    """By class of call: words wrong of each system that has all its calls, the best raw way, ours less that, in all and
    by kind of error."""
    ours = by_system[OURS]
    classes = {group: [one for one in ours if one.group == group] for group in sorted({one.group for one in ours})}
    classes.pop("nobody speaks", None)
    found: dict[str, dict[str, Any]] = {}
    for group, own in [*classes.items(), (ALL, _spoken(ours))]:
        wanted = _names(own)
        rivals = {system: [one for one in theirs if one.call in wanted] for system, theirs in by_system.items()}
        rivals = {system: theirs for system, theirs in rivals.items() if _names(theirs) == wanted}
        row: dict[str, Any] = {system: estimate(theirs, intervals.wrong) for system, theirs in rivals.items()}
        raw = [way for way in RAW if row.get(way)]
        if raw:
            best = min(raw, key=lambda way: row[way]["value"])
            row |= {"best raw way": best, "difference": difference(own, rivals[best], intervals.wrong)}
            row["by kind"] = {kind: difference(own, rivals[best], ratio) for kind, ratio in KINDS.items()}
        found[group] = row
    return found


def _together(by_system: dict[str, list[SpeechScore]], systems: Sequence[str]) -> dict[str, Any]:
    """Systems over the calls that all of them and ours have."""
    shared = set.intersection(*(_names(by_system[system]) for system in systems)) & _names(by_system[OURS])
    found: dict[str, Any] = {"calls": sorted(shared), "systems": {}}
    for system in systems:
        own = [one for one in by_system[system] if one.call in shared]
        spoken = _spoken(own)
        found["systems"][system] = {
            **{name: estimate(spoken, share) for name, share in SHARES.items() if _says(name, system)},
            "times": _times(spoken),
            "invented": _invented(own),
            "seconds": _seconds(own),
        }
    batched = found["systems"].get("batched", {}).get("seconds", {}).get("to the words")
    for told in found["systems"].values():
        told["seconds beside batched"] = round(told["seconds"]["to the words"] / batched, 2) if batched else None
    return found


def _says(name: str, system: str) -> bool:
    """Whether a share means something for a system: the raw ways mark nothing."""
    return system in (OURS, BEFORE) or not name.startswith("doubt")


def _seconds(scores: Sequence[SpeechScore]) -> dict[str, float]:
    """Processor seconds by part; "to the words" is recognition with what goes before it."""
    parts: dict[str, float] = defaultdict(float)
    for one in scores:
        for part, value in one.seconds.items():
            parts[part] += value
    parts["to the words"] = sum(parts.get(part, 0.0) for part in ("audio", "recognition"))
    return {part: round(value, 1) for part, value in sorted(parts.items())}


def _percent(above: float, below: float) -> float:
    return round(100 * above / below, 2)


def _times(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Absolute errors in milliseconds: median, 95th percentile, signed median."""
    found = {}
    for name in ("start_error", "end_error"):
        errors = [value for one in scores for event in one.events if (value := getattr(event, name)) is not None]
        if errors:
            size = np.abs(errors) * 1000
            found[name.removesuffix("_error")] = {
                "median": round(float(np.median(size))),
                "p95": round(float(np.quantile(size, 0.95))),
                "signed median": round(float(np.median(errors)) * 1000),
                "of": len(errors),
            }
    return found


def _invented(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Words where nobody speaks: in calls without speech, and between what is said in the others."""
    found = {}
    for name, own in (
        ("nobody speaks", [one for one in scores if one.group == "nobody speaks"]),
        ("pauses of calls", [one for one in scores if one.group != "nobody speaks"]),
    ):
        hours = sum(one.quiet_seconds for one in own) / 3600
        words = sum(one.invented for one in own)
        if hours:
            found[name] = {"words": words, "hours": round(hours, 2), "per hour": round(words / hours, 1)}
    return found


def _speakers(scores: Sequence[SpeechScore]) -> dict[str, Any]:
    """Mixed calls: words given to the wrong speaker, and cpWER, by call."""
    mixed = [one for one in scores if one.cp_errors is not None and one.cp_words]
    found: dict[str, Any] = {
        one.call: {
            "wrong speaker": estimate([one], intervals.misattributed),
            "cpWER": _percent(one.cp_errors or 0, one.cp_words),
            "words wrong": estimate([one], intervals.wrong),
        }
        for one in sorted(mixed, key=lambda one: one.call)
    }
    if mixed:
        errors, words = sum(one.cp_errors or 0 for one in mixed), sum(one.cp_words for one in mixed)
        found["all"] = {"wrong speaker": estimate(mixed, intervals.misattributed), "cpWER": _percent(errors, words)}
    return found


def gather(folder: Path, target: Path) -> None:
    """Collect what `run` kept of a half (FOLDER/HALF) into files of `target`: truths, and one file per label."""
    names = set()
    for label in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "calls"):
        found = [output for path in sorted(label.glob("*.jsonl.gz")) for output in outputs.read(path)]
        names |= {output.call for output in found}
        outputs.write(target / f"{label.name}.jsonl.gz", found)
    truths = [json.loads((folder / "calls" / f"{name}.json").read_text()) for name in sorted(names)]
    outputs.write_truths(target / TRUTHS, truths)
