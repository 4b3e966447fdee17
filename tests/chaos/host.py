"""The machines of a storm: a Ray cluster of two nodes and the service on it, in one process that can be killed whole.

    python -m tests.chaos.host

Settings come from the environment. Events go out on stdout as lines of JSON; commands come in on stdin, one a line:
`lose_node` (SIGKILL for everything on the worker node), `add_node`, `stop`.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from serve_app.service import Service, prepare_environment
from serve_app.settings import Settings

NODE = {"object_store_memory": 100 * 2**20, "include_dashboard": False}


def main() -> None:
    settings = Settings()
    prepare_environment(settings, settings.require_database_url())  # what raylets hand on to their workers
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **NODE}))
    worker: Any = patiently(lambda: cluster.add_node(num_cpus=2, **NODE))
    service = Service(settings, cluster.address, proxy_location="HeadOnly")  # two proxies cannot share one port
    endpoints = service.start()
    _say("ready", submit_url=endpoints.submit_url, seconds=endpoints.seconds)
    service.wait_for_engines()
    _say("engines_ready")
    for line in sys.stdin:
        match line.strip():
            case "lose_node" if worker is not None:
                pids = _kill_all(worker)
                with contextlib.suppress(Exception):  # its processes are gone already
                    cluster.remove_node(worker, allow_graceful=False)
                worker = None
                _say("node_lost", killed=pids)
            case "add_node" if worker is None:
                worker = patiently(lambda: cluster.add_node(num_cpus=2, **NODE))
                _say("node_added")
            case "stop":
                break
    service.stop()
    cluster.shutdown()


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a raylet 30 s to come up; a machine that does other things as well may need another try."""
    before = _descendants()
    for _ in range(8):
        try:
            return start()
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            for process in _descendants() - before:  # half a node is in the way of a whole one
                with contextlib.suppress(psutil.Error):
                    process.kill()
    return start()


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _kill_all(node: Any) -> int:
    """As a power cut does it: raylet, agents and workers at once."""
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
