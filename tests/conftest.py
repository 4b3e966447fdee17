pytest_plugins = ["tests.postgres", "tests.engines"]
