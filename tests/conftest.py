import os
from collections import Counter
from typing import Any

import hypothesis
import pytest

# One set of kernels wherever they exist: borderline sound may be decoded differently by others. Seen on AVX2 alone.
os.environ |= {"CT2_USE_MKL": "0", "CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
os.environ.pop("COLUMNS", None)  # output is as wide as without a terminal, whatever the terminal of who runs the tests
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes whose threads wait for each other by spinning take many times as long on two busy cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from serve_app.service import ray_access, run_folder

pytest_plugins = [
    "tests.cluster",
    "tests.postgres",
    "tests.engines",
    "tests.llm_server",
    "tests.llama_server",
    "tests.transcription_server",
    "tests.progress",
]

# CI: few examples, the same ones each time. `make properties` tries more and others: HYPOTHESIS_PROFILE=nightly.
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=100, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

WITH_THE_SERVICE = ("tests/acceptance/", "tests/chaos/test_storm.py")
CONSOLE_ALONE = [
    f"tests/acceptance/browser/test_{name}.py" for name in ("administration", "calibrations", "corrections", "quality")
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `cases(n)` leaves out: all but every nth case of each parametrized test."""
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("cases")
        if mark and hasattr(item, "callspec"):
            test = item.nodeid.split("[", 1)[0]
            if seen[test] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1


def pytest_configure() -> None:
    """Clusters of this process are for this machine and its token alone: Ray reads that when it is imported."""
    os.environ.update(ray_access.own_ray(run_folder.own_folder().path))


def pytest_unconfigure() -> None:
    run_folder.discard_own_folder()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return how several processes share the tests (`make test`).

    The tests of a file stay in one process, for their fixtures. So do all tests of the whole service, which is started
    once: they take longest and come first.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            if file.startswith(WITH_THE_SERVICE) and file not in CONSOLE_ALONE:
                return "service"
            return file

        def remove_node(self, node: Any) -> str | None:
            """Do not run the test again whose process died: it would end the next process too."""
            units = self.assigned_work[node].values()
            died = next(((unit, test) for unit in units for test, done in unit.items() if not done), None)
            if died is not None:
                unit, test = died
                unit[test] = True
            super().remove_node(node)
            return died and died[1]

    return ByPlace(config, log)
