pytest_plugins = ["tests.postgres", "tests.engines", "tests.llm_server"]
