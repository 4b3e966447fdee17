"""Starting a Ray on this machine, or joining one, from the process that drives it."""

from collections.abc import Callable
from typing import Any

TRIES = 3


def start(address: str, on_step: Callable[[str], None], end: Callable[[], None], **options: Any) -> str | None:
    """Join the Ray at `address`, or start one ("local"); host:port of its dashboard, if it has one.

    The environment of `ray_access` is set before.

    `end` stops what a start that failed left behind. Raises what `ray.init` raises.
    """
    import ray

    for last in (*(False,) * (TRIES - 1), True):
        try:
            begun = ray.init(address, namespace="switchboard", log_to_driver=False, logging_level="WARNING", **options)
            return begun.dashboard_url or None
        except Exception as error:  # Ray gives its node 30 s to come up, which is no setting, and raises this itself
            if last or "timed out during startup" not in str(error):
                raise
            on_step("Ray did not come up within 30 s, is the machine busy? Starting it again")
            ray.shutdown()
            end()
    raise AssertionError
