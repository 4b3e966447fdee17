from typing import Any

import pytest

pytest_plugins = ["tests.postgres", "tests.engines", "tests.llm_server"]

WITH_THE_SERVICE = ("tests/acceptance/", "tests/chaos/")


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
