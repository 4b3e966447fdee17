"""The figures as Markdown tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.real.figures import KINDS, LABELS, SHARES


def show(results: dict[str, Any]) -> str:
    """Format every table, one under the other."""
    lines: list[str] = []
    for model in (model for model in results if model not in ("languages", "announcements")):
        model_results = results[model]
        systems = [system for system in LABELS if any(row.get(system) for row in model_results["by class"].values())]
        lines += [f"## {model}", "", "Words wrong, % (95 % interval); last: ours less the best raw way, points", ""]
        lines += _table(
            ["calls", "words", *systems, "less the best raw way"], _by_class(model_results["by class"], systems)
        )
        lines += ["", "Where the best raw way is better: by kind of error, ours less that, points", ""]
        lines += _table(["calls", "words", "best raw way", "wrong", *KINDS], _worse(model_results["by class"]))
        for part in model_results["together"]:
            lines += ["", f"{len(part['calls'])} calls together", ""]
            lines += _table(["", *part["systems"]], _together(part["systems"]))
        for system, rows in model_results["speakers"].items():
            lines += ["", f"Mixed calls, {system}", ""]
            table = [[call, _cell(row["wrong speaker"]), str(row["cpWER"])] for call, row in rows.items()]
            lines += _table(["call", "words of the wrong speaker, %", "cpWER, %"], table)
        lines.append("")
    lines += ["## Languages (base)", ""]
    rows = [
        [
            system,
            row["language"],
            str(row["call_right"]),
            f"{row['prompts_right']} of {row['prompts']}",
            _cell(row["wrong"]),
        ]
        for system, counts in results["languages"].items()
        for row in counts
    ]
    lines += _table(["system", "language", "call right", "prompts right", "words wrong, %"], rows)
    lines += ["", "## Announcements", "", "Labeled a machine's, % (95 % interval)", ""]
    announcement_rows = [
        [language, name, str(row["of"]), _cell(row)]
        for language, counts in results.get("announcements", {}).items()
        for name, row in counts.items()
    ]
    lines += _table(["", "", "of", "labeled"], announcement_rows)
    return "\n".join(lines)


def _by_class(classes: dict[str, Any], systems: Sequence[str]) -> list[list[str]]:
    rows = []
    for group, row in classes.items():
        of = next((str(row[system]["of"]) for system in systems if row.get(system)), "")
        last = f"{row['best raw way']} {_cell(row['difference'])}" if row.get("difference") else ""
        rows.append([group, of, *(_cell(row.get(system)) for system in systems), last])
    return rows


def _worse(classes: dict[str, Any]) -> list[list[str]]:
    return [
        [
            group,
            str(row[row["best raw way"]]["of"]),
            row["best raw way"],
            _cell(row["difference"]),
            *(_cell(row["by kind"][kind]) for kind in KINDS),
        ]
        for group, row in classes.items()
        if row.get("difference") and row["difference"]["value"] > 0
    ]


def _together(systems: dict[str, Any]) -> list[list[str]]:
    entries = list(systems.values())
    rows = [[f"{name}, %", *(_cell(entry.get(name)) for entry in entries)] for name in SHARES]
    for edge in ("start", "end"):
        cells = [entry["times"].get(edge) for entry in entries]
        shown = [f"{cell['median']} / {cell['p95']} ({cell['signed median']:+})" if cell else "" for cell in cells]
        rows.append([f"{edge}s, ms: median / p95 (signed)", *shown])
    for name in ("no speech", "pauses of calls"):
        cells = [entry["invented"].get(name) for entry in entries]
        shown = [f"{cell['per hour']} ({cell['words']} in {cell['hours']} h)" if cell else "" for cell in cells]
        rows.append([f"invented an hour, {name}", *shown])
    rows.append(["processor seconds to the words", *(str(entry["seconds"]["to the words"]) for entry in entries)])
    rows.append(["relative to batched", *(str(entry["seconds relative to batched"] or "") for entry in entries)])
    rows.append(["all processor seconds", *(_parts(entry["seconds"]) for entry in entries)])
    return rows


def _parts(seconds: dict[str, float]) -> str:
    return ", ".join(f"{part} {value}" for part, value in seconds.items() if part != "to the words" and value)


def _cell(estimated: dict[str, float] | None) -> str:
    if not estimated:
        return ""
    return f"{estimated['value']:.1f} ({estimated['low']:.1f} to {estimated['high']:.1f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def words_wrong(results: dict[str, Any], model: str, path: Path) -> None:
    """Write a PNG of "words wrong" of one model; systems side by side, classes of call one under the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = results[model]["by class"]
    systems = [system for system in LABELS if any(row.get(system) for row in groups.values())]
    names = list(groups)[::-1]
    height = 0.8 / len(systems)
    figure, axes = pyplot.subplots(figsize=(8, 0.55 * len(names) + 1), layout="constrained")
    for place, system in enumerate(systems):
        cells = [(row, groups[name][system]) for row, name in enumerate(names) if groups[name].get(system)]
        values = [cell["value"] for _, cell in cells]
        spread = [
            [value - cell["low"] for value, (_, cell) in zip(values, cells, strict=True)],
            [cell["high"] - value for value, (_, cell) in zip(values, cells, strict=True)],
        ]
        at = [row + 0.4 - height * (place + 0.5) for row, _ in cells]
        axes.barh(at, values, height, xerr=spread, label=system, error_kw={"elinewidth": 0.8})
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(f"words wrong, % ({model}; bars: 95 % interval)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
