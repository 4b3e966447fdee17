"""On how many of the rules' titles of tasks can a reader act, and do two readers agree?

    python bench/analysis_cases/titles.py [--names "*_[cd]?"] [--json FILE]

Reads title_ratings.json: two readers of each title, who did not know the calls. By language and of all:
the share of titles on which a reader could act, the mean of both, with its 95 % interval over calls drawn anew; and
Cohen's kappa.
"""

import argparse
import fnmatch
import json
import random
from collections.abc import Sequence
from pathlib import Path

RATINGS = Path(__file__).with_name("title_ratings.json")
RESAMPLES, SEED = 1000, 23
Ratings = list[tuple[int, int]]  # of a call's titles, by both readers, 0 or 1


def share(calls: Sequence[Ratings]) -> float:
    ratings = [rating for call in calls for pair in call for rating in pair]
    return sum(ratings) / len(ratings)


def interval(calls: Sequence[Ratings]) -> tuple[float, float]:
    """The ends of the 95 % interval of `share`."""
    draw = random.Random(SEED)
    drawn = sorted(share(draw.choices(calls, k=len(calls))) for _ in range(RESAMPLES))
    return drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]


def kappa(calls: Sequence[Ratings]) -> float:
    """Cohen's kappa: agreement beyond what two readers who rate as often 1 would have by chance; 1.0 where both always
    gave the same rating."""
    pairs = [pair for call in calls for pair in call]
    agreed = sum(one == other for one, other in pairs) / len(pairs)
    first, second = (sum(pair[reader] for pair in pairs) / len(pairs) for reader in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="*", help="calls, as a pattern of file names")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rated: dict[str, Ratings] = {
        name: [(first, second) for _, first, second in titles]
        for name, titles in json.loads(RATINGS.read_text()).items()
        if titles and fnmatch.fnmatch(name, given.names)
    }
    if not rated:
        raise SystemExit(f"No call is called {given.names}.")
    figures = {}
    for language in (*sorted({name[:2] for name in rated}), "all"):
        calls = [titles for name, titles in rated.items() if language in ("all", name[:2])]
        low, high = interval(calls)
        figures[language] = {"titles": sum(map(len, calls)), "share": share(calls), "low": low, "high": high}
        figures[language]["kappa"] = kappa(calls)
        print(
            f"{language:<4}{figures[language]['titles']:>5} titles  {share(calls):.2f} ({low:.2f} to {high:.2f})  "
            f"kappa {kappa(calls):.2f}"
        )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
