"""`make chaos`: a storm, and its audit.

    python -m tests.chaos [--seed N] [--submissions N] [--kills N] [--minutes M] [--json FILE] [--folder FOLDER]

`kills.SHARES` lists the kinds; `--kinds freeze_conductor,freeze_engine,freeze_task,partition,clock` are the faults
other than kills. `clock` needs a C compiler (`cc`); without one it is skipped, with a message.

Ends after the given numbers of accepted submissions and killed processes, or after the given minutes. Exit code 0: no
fault.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.chaos import skew
from tests.chaos.kills import SHARES, table
from tests.chaos.run import Options, Report, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20260302)
    parser.add_argument("--submissions", type=int, default=5000, help="accepted with a 202")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=36.0, help="no new submission or kill after so long")
    parser.add_argument("--kinds", default=",".join(SHARES), help="of kills, by commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--folder", type=Path, help="keeps the ledger, logs and the database; left out: a temporary one"
    )
    arguments = parser.parse_args()
    kinds = tuple(arguments.kinds.split(","))
    if unknown := set(kinds) - set(SHARES):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    if "clock" in kinds and (why := skew.missing()):
        print(f"LEFT OUT: the kind `clock`, because there is {why}.", file=sys.stderr)
        kinds = tuple(kind for kind in kinds if kind != "clock")
    options = Options(arguments.seed, arguments.submissions, arguments.kills, arguments.minutes, kinds)
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(run(arguments.folder, options))
    else:
        with tempfile.TemporaryDirectory(prefix="switchboard-chaos-") as folder:
            report = asyncio.run(run(Path(folder), options))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(report), indent=2, default=str))
    return show(report)


def show(report: Report) -> int:
    print(f"\n{table(report.kills)}\n")
    for name, value in report.figures.items():
        print(f"{name:<44}{value}")
    by_kind = {kind: sum(fault.kind == kind for fault in report.faults) for kind in ("lost", "doubled", "orphan")}
    others = len(report.faults) - sum(by_kind.values())
    print("\n" + ", ".join(f"{count} {kind}" for kind, count in by_kind.items()) + f", {others} other faults")
    for fault in report.faults[:40]:
        print(f"  {fault.kind}: {fault.what}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
