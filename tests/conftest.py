import os
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
    "tests.postgres",
    "tests.engines",
    "tests.llm_server",
    "tests.llama_server",
    "tests.transcription_server",
    "tests.progress",
]

# The same examples each time: what fails, fails for whoever made the change. HYPOTHESIS_PROFILE=explore tries others.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

WITH_THE_SERVICE = ("tests/acceptance/", "tests/chaos/test_storm.py")
CONSOLE_ALONE = [
    f"tests/acceptance/browser/test_{name}.py" for name in ("administration", "calibrations", "corrections", "quality")
]


def pytest_configure() -> None:
    """Clusters of this process are for this machine and its token alone: Ray reads that when it is imported."""
    os.environ.update(ray_access.own_ray(run_folder.own().path))


def pytest_unconfigure() -> None:
    run_folder.discard_own()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How several processes share the tests (`make test`): a file stays in one of them, for its fixtures; and so do all
    tests that start the whole service, for two of them at once would compete for the same cores. These are the longest
    part, and begin first; pages in front of a console alone are no part of it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            whole = file.startswith(WITH_THE_SERVICE) and file not in CONSOLE_ALONE
            return "the whole service" if whole else file

        def remove_node(self, node: Any) -> str | None:
            """The test whose process died is not run again: it would take the next process along."""
            units = self.assigned_work[node].values()
            died = next(((unit, test) for unit in units for test, done in unit.items() if not done), None)
            if died is not None:
                unit, test = died
                unit[test] = True
            super().remove_node(node)
            return died and died[1]

    return ByPlace(config, log)
