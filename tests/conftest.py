import os
from typing import Any

import hypothesis
import pytest

# One set of kernels wherever they exist: borderline sound may be decoded differently by others. Seen on AVX2 alone.
os.environ |= {"CT2_USE_MKL": "0", "CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes whose threads wait for each other by spinning take many times as long on two busy cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from serve_app.service import ray_access, run_folder

pytest_plugins = ["tests.postgres", "tests.engines", "tests.llm_server"]

# The same examples each time: what fails, fails for whoever made the change. HYPOTHESIS_PROFILE=explore tries others.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

WITH_THE_SERVICE = ("tests/acceptance/", "tests/chaos/")


def pytest_configure() -> None:
    """Clusters of this process are for this machine and its token alone: Ray reads that when it is imported."""
    os.environ.update(ray_access.own_ray(run_folder.own().path))


def pytest_unconfigure() -> None:
    run_folder.discard_own()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed, and why, at once: a run of many minutes may be ended before its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\n{report.when} failed: {report.nodeid}", crash or report.longreprtext, sep="\n    ", flush=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How several processes share the tests (`make test`): a file stays in one of them, for its fixtures; and so do all
    tests that start the whole service, for two of them at once would compete for the same cores."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "the whole service" if file.startswith(WITH_THE_SERVICE) else file

    return ByPlace(config, log)
