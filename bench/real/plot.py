"""A chart of the words wrong by class of call, with intervals."""

from pathlib import Path
from typing import Any

from bench.real.figures import LABELS


def words_wrong(found: dict[str, Any], model: str, path: Path) -> None:
    """Write a PNG of "words wrong" of one model; systems side by side, classes of call one under the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = found[model]["by class"]
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
