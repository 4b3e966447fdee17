"""Are parties assigned to channels, bleed removed and two files aligned correctly?

    python -m bench.channels [--quick] [--seed 1] [--set all|fitted|held-out] [--only CLASS] [--json FILE]

The calls are generated from the speech of the sample calls (`lib/channel_cases.py`): codecs, gains, delays, polarity,
bleed, dead channels, shared stretches, two files. `bench.real` measures what bleed does to the words.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from bench.lib import channel_cases
from bench.lib.channel_cases import CLEAN, FITTED, HELD_OUT, ChannelCase

BINS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.001)
NEAR = 0.1  # seconds by which it may be wrong where the layout says that it is right
OFFSET = 0.05  # seconds by which an offset may be wrong: what bleed itself is late, and codecs


@dataclass(frozen=True)
class CaseOutcome:
    """The result of a case."""

    name: str
    group: str
    right: bool
    confidence: float
    kind: str
    bleeds_wanted: int
    bleeds_found: int
    bleeds_invented: int
    aligned: bool
    offset_wanted: float | None
    offset_error: float | None
    begun_error: float | None
    shared_wanted: float
    shared_found: float
    seconds: float
    reason: str


def judge(case: ChannelCase) -> CaseOutcome:
    from pipeline.audio.channels.separation import separate

    started = time.perf_counter()
    _, layout = separate(case.files)
    taken = time.perf_counter() - started
    sources = {bleed.source for bleed in layout.bleed}
    expected = {source for source, _ in case.bleeds}
    # By what both files hold, or by the parties' turns; that they began together is what is assumed anyway.
    offset = layout.evidence.get("offset_seconds", 0.0)
    aligned = layout.evidence.get("aligned", 0.0) > 0 or offset != 0
    error = None
    if aligned:
        error = offset - (case.offset or 0.0)
    elif case.offset:
        error = -case.offset
    begun = case.offset if case.begun is None else case.begun
    off = None if error is None else error + (case.offset or 0.0) - (begun or 0.0)
    right = layout.kind == case.kind and layout.source_channels == sum(file.source_channels for file in case.files)
    return CaseOutcome(
        case.name, case.group, right, layout.confidence, str(layout.kind), len(expected), len(expected & sources),
        len(sources - expected), aligned, case.offset, error, off, case.shared,
        layout.evidence.get("shared_seconds", 0.0), taken, layout.reason,
    )  # fmt: skip


def run(names: tuple[str, ...], seed: int, only: str = "") -> list[CaseOutcome]:
    outcomes = []
    for case in channel_cases.matrix(names, seed, only):
        outcomes.append(judge(case))
        if len(outcomes) % 20 == 0:
            print(f"\r{len(outcomes)} cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return outcomes


def by_group(outcomes: list[CaseOutcome]) -> list[dict[str, float | int | str]]:
    groups: dict[str, list[CaseOutcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.group].append(outcome)
    return [row(group, members) for group, members in groups.items()] + [row("all", outcomes)]


def row(group: str, members: list[CaseOutcome]) -> dict[str, float | int | str]:
    alignable = [outcome for outcome in members if outcome.offset_wanted is not None]
    off = [abs(outcome.offset_error) for outcome in members if outcome.aligned and outcome.offset_error is not None]
    return {
        "class": group,
        "cases": len(members),
        "right": sum(outcome.right for outcome in members),
        "bleeds": sum(outcome.bleeds_wanted for outcome in members),
        "found": sum(outcome.bleeds_found for outcome in members),
        "invented": sum(outcome.bleeds_invented for outcome in members),
        "to_align": len(alignable),
        "aligned": sum(outcome.aligned for outcome in alignable),
        "wrongly": sum(error > OFFSET for error in off)
        + sum(outcome.aligned for outcome in members if outcome not in alignable),
        "offset_ms": round(statistics.median(off) * 1000, 1) if off else "",
    }


def by_confidence(outcomes: list[CaseOutcome]) -> list[dict[str, float | int]]:
    rows = []
    for low, high in pairwise(BINS):
        members = [outcome for outcome in outcomes if low <= outcome.confidence < high]
        if members:
            rows.append({"from": low, "cases": len(members), "right": sum(outcome.right for outcome in members)})
    return rows


def offsets_by_confidence(outcomes: list[CaseOutcome]) -> list[dict[str, float | int]]:
    """Return by confidence how often the offset of a second file is correct."""
    rows = []
    for low, high in pairwise(BINS):
        members = [
            outcome for outcome in outcomes if outcome.begun_error is not None and low <= outcome.confidence < high
        ]
        off = [abs(outcome.begun_error or 0.0) for outcome in members]
        if members:
            near = sum(error <= NEAR for error in off)
            confidences = [outcome.confidence for outcome in members]
            rows.append(
                {
                    "offset, from": low,
                    "cases": len(off),
                    "near": near,
                    "worst_s": round(max(off), 2),
                    "told": round(statistics.mean(confidences), 2),
                    "is": round(near / len(off), 2),
                }
            )
    return rows


def table(rows: Sequence[Mapping[str, float | int | str]]) -> None:
    if not rows:
        return
    widths = [max(len(str(key)), *(len(str(row[key])) for row in rows)) + 2 for key in rows[0]]
    for line in ([*rows[0]], *([str(value) for value in row.values()] for row in rows)):
        first, *rest = zip(line, widths, strict=True)
        print(first[0].ljust(first[1]) + "".join(text.rjust(width) for text, width in rest))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.channels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", default="all", choices=("all", "fitted", "held-out"), help="which sample calls")
    parser.add_argument("--only", default="", help="one class: a function of channel_cases.py without its underscore")
    parser.add_argument("--quick", action="store_true", help="one sample call")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    names = {"fitted": FITTED, "held-out": HELD_OUT, "all": (*FITTED, *HELD_OUT)}[options.set]
    names = names[:1] if options.quick else names
    figures: dict[str, object] = {"seed": options.seed, "calls": names}
    outcomes = run(names, options.seed, options.only)
    table(by_group(outcomes))
    clean = [outcome for outcome in outcomes if outcome.group in CLEAN]
    print(f"\nright: {sum(o.right for o in clean)} of {len(clean)} in the clean classes, "
          f"{sum(o.right for o in outcomes)} of {len(outcomes)} over all")  # fmt: skip
    table(by_confidence(outcomes))
    table(offsets_by_confidence(outcomes))
    for outcome in outcomes:
        if not outcome.right:
            print(f"wrong: {outcome.group}: {outcome.name}: {outcome.kind}. {outcome.reason}")
    figures |= {"rows": by_group(outcomes), "confidence": by_confidence(outcomes)}
    figures["cases"] = [asdict(outcome) for outcome in outcomes]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
