"""The log of a process that runs CPU tasks: a file beside those of the replicas, in their format."""

import logging
import os
from functools import cache

from pipeline.observability import logs


@cache
def prepare(as_json: bool) -> None:
    """At the first task of this process. Ray rotates the file as it does those of replicas."""
    # No other way leads to Serve's format and folder outside of a replica; ray is pinned.
    from ray.serve._private.logging_utils import configure_component_logger
    from ray.serve.schema import LoggingConfig

    configure_component_logger(
        component_name="task",
        component_id=str(os.getpid()),
        logging_config=LoggingConfig(encoding="JSON" if as_json else "TEXT", log_level=logging.INFO),
    )
    logs.install()
