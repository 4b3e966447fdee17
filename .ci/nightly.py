"""Run the suites that are too slow for every change, and print one table: `python .ci/nightly.py [SUITE ...]`.

Each suite is a target of the Makefile with a limit in minutes. build/nightly stores the log and JUnit XML of each suite
by commit. A later run at the same commit skips suites that have passed.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

SUITES = {  # Makefile target -> max. minutes
    "properties": 45,
    "browser": 30,
    "slow": 60,
    "services": 60,
    "alerts": 45,
    "cluster": 30,
    "llama": 30,
    "notebooks": 30,
    "journeys": 45,
    "rehearsal": 45,
    "attacks": 45,
    "fuzz": 45,
    "chaos": 60,
    "demo-once": 15,
}
FOLDER = Path("build/nightly")
STOP_SECONDS = 60.0  # between SIGINT and SIGKILL for a suite over its limit


@dataclass(frozen=True)
class Result:
    """Result of a suite. A suite without pytest counts as one test."""

    passed: int
    failed: int
    skipped: int
    minutes: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.passed > 0 and not self.failed and not self.timed_out


def run(suite: str, minutes: float, folder: Path) -> Result:
    """Run a suite in a separate process group and write its output to a log."""
    report = folder / f"{suite}.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {"PYTEST_ADDOPTS": f"--junitxml={report.absolute()}"}
    started = time.monotonic()
    with (folder / f"{suite}.log").open("wb") as log:
        process = subprocess.Popen(
            ["make", suite], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code: int | None = process.wait(minutes * 60)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            code = None
            _stop(process)
            if isinstance(error, KeyboardInterrupt):
                raise
    duration = (time.monotonic() - started) / 60
    passed, failed, skipped = _counts(report) if report.exists() else (int(code == 0), int(code != 0), 0)
    if code and not failed:
        failed = 1
    return Result(passed, failed, skipped, duration, timed_out=code is None)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _counts(report: Path) -> tuple[int, int, int]:
    """Return the numbers of passed, failed and skipped tests in a JUnit XML file."""
    total = failed = skipped = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return total - failed - skipped, failed, skipped


def commit() -> str:
    """Return the current commit, marked if files have changed."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=True,
    )
    return re.sub(r"\W", "-", described.stdout.strip())


def table(results: dict[str, Result]) -> str:
    rows = [f"{'suite':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}{'limit':>7}"]
    for suite, limit in SUITES.items():
        if (result := results.get(suite)) is None:
            rows.append(f"{suite:<12}{'-':>8}{'-':>8}{'-':>9}{'-':>9}{limit:>7}  not run")
            continue
        note = "  over its limit" if result.timed_out else ""
        counts = f"{result.passed:>8}{result.failed:>8}{result.skipped:>9}"
        rows.append(f"{suite:<12}{counts}{result.minutes:>9.1f}{limit:>7}{note}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"default: all ({', '.join(SUITES)})")
    parser.add_argument("--again", action="store_true", help="run suites again that have passed at this commit")
    parser.add_argument("--table", action="store_true", help="print the table of this commit and run nothing")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suites: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the suite, as Ctrl-C does
    folder = FOLDER / commit()
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "results.json"
    results = (
        {suite: Result(**values) for suite, values in json.loads(store.read_text()).items()} if store.exists() else {}
    )
    for suite in [] if options.table else options.suites or SUITES:
        if not options.again and suite in results and results[suite].ok:
            continue
        print(f"{time.strftime('%H:%M')} {suite}, max. {SUITES[suite]} min; output: {folder / suite}.log", flush=True)
        results[suite] = run(suite, SUITES[suite], folder)
        unfinished = store.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1))
        unfinished.replace(store)  # a killed run does not damage earlier results
    print(table(results))
    return 0 if all(suite in results and results[suite].ok for suite in options.suites or SUITES) else 1


if __name__ == "__main__":
    sys.exit(main())
