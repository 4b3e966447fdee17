from pathlib import Path

import pytest

pytest_plugins = ["tests.postgres", "tests.engines", "tests.llm_server"]

HERE = Path(__file__).parent
WITH_THE_SERVICE = ("acceptance", "chaos")  # folders


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests (`make test`), a file stays in one of them, for its fixtures; and so do
    all tests that start the whole service, for two of them at once would compete for the same cores."""
    for item in items:
        place = item.path.relative_to(HERE)
        group = "service" if place.parts[0] in WITH_THE_SERVICE else str(place)
        item.add_marker(pytest.mark.xdist_group(group))
