"""The machines of a storm: a Ray cluster of two nodes and the service on it, in one process that can be killed whole.

    python -m tests.chaos.host SECONDS FOLDER

Settings come from the environment. Events go out on stdout as lines of JSON; commands come in on stdin, one a line:
`lose_node` (SIGKILL for everything on the worker node), `add_node SECONDS`, `stop`. The clock of everything on the
worker node is SECONDS ahead; what that takes is built in FOLDER.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from serve_app.service.environment import prepare_environment
from serve_app.service.run_folder import discard_own_folder
from serve_app.service.service import Service
from serve_app.settings import Settings
from tests.chaos.skew import skewed

NODE = {"object_store_memory": 100 * 2**20, "include_dashboard": False}


def main() -> None:
    settings = Settings()
    prepare_environment(settings, settings.require_database_url())  # what raylets hand on to their workers
    from ray.cluster_utils import Cluster  # reads the environment when it is imported

    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **NODE}))
    worker: Any = _add_node(cluster, int(sys.argv[1]))
    service = Service(settings, cluster.address, proxy_location="HeadOnly")  # two proxies cannot share one port
    endpoints = service.start()
    _say("ready", submit_url=endpoints.submit_url, seconds=endpoints.seconds, raylet=_raylet(worker))
    service.wait_for_engines()
    _say("engines_ready")
    for line in sys.stdin:
        match line.split():
            case ["lose_node"] if worker is not None:
                pids = _kill_all(worker)
                with contextlib.suppress(Exception):  # its processes are gone already
                    cluster.remove_node(worker, allow_graceful=False)
                worker = None
                _say("node_lost", killed=pids)
            case ["add_node", seconds] if worker is None:
                worker = _add_node(cluster, int(seconds))
                _say("node_added", raylet=_raylet(worker))
            case ["stop"]:
                break
    service.stop()
    cluster.shutdown()
    discard_own_folder()


def _add_node(cluster: Any, seconds: int) -> Any:
    with skewed(seconds, Path(sys.argv[2])):
        return patiently(lambda: cluster.add_node(num_cpus=2, **NODE))


def _raylet(node: Any) -> int:
    """Return the parent process of all workers of a node."""
    return int(node.all_processes["raylet"][0].process.pid)


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a raylet 30 s to come up; a machine that does other things as well may need another try."""
    before = _descendants()
    for _ in range(8):
        try:
            return start()
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            for process in _descendants() - before:  # half a node blocks a new one
                with contextlib.suppress(psutil.Error):
                    process.kill()
    return start()


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _kill_all(node: Any) -> int:
    """Kill raylet, agents and workers at once, as a power cut does."""
    victims: list[psutil.Process] = []
    for group in node.all_processes.values():
        for info in group:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(info.process.pid)
                victims += [process, *process.children(recursive=True)]
    for process in victims:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return len(victims)


def _say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    main()
