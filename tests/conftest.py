import os
from typing import Any

import hypothesis
import pytest

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
