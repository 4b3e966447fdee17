"""A node provider for Ray's autoscaler: its nodes are machines of tests.machines, started by start.sh.

It runs in the autoscaler's process, on the head. The cluster's configuration names it as an external provider.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import NODE_KIND_HEAD, STATUS_UP_TO_DATE, TAG_RAY_NODE_KIND, TAG_RAY_NODE_STATUS
from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE as TYPE

from serve_app.service import children
from tests.machines import PROMISED, Machine

START = "exec bash ~/switchboard/serve_app/deploy/start.sh worker > ~/start.log 2>&1"


def pretend_a_gpu(machine: Machine) -> dict[str, str]:
    """Return variables that let `switchboard doctor --node` in start.sh not look for the promised GPU."""
    file = machine.home / "blind.sh"
    file.write_text(f'switchboard() {{ env -u {PROMISED} switchboard "$@"; }}\n')
    return {"BASH_ENV": str(file)}


class NodePool(NodeProvider):  # type: ignore[misc]
    """Start Ray on an unused machine for each node; end its processes with the node."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        head, *workers = (
            Machine(described["space"], described["address"], Path(described["home"]), provider_config["head"])
            for described in provider_config["machines"]
        )
        self.unused = workers
        self.machines = {head.address: head}
        tags = {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TYPE: "head", TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}
        self.tags = {head.address: tags}

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        return [node for node, tags in list(self.tags.items()) if tag_filters.items() <= tags.items()]

    def is_running(self, node_id: str) -> bool:
        return node_id in self.tags

    def is_terminated(self, node_id: str) -> bool:
        return node_id not in self.tags

    def node_tags(self, node_id: str) -> dict[str, str]:
        return self.tags[node_id]

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        self.tags[node_id].update(tags)

    def external_ip(self, node_id: str) -> str:
        return node_id

    def internal_ip(self, node_id: str) -> str:
        return node_id

    def create_node_with_resources_and_labels(
        self, node_config: dict[str, Any], tags: dict[str, str], count: int, resources: dict[str, float], labels: Any
    ) -> None:
        for _ in range(count):
            machine = self.unused.pop(0)  # IndexError: the configuration allows more nodes than there are machines
            line, here = machine.command(
                "bash", "-c", START, **pretend_a_gpu(machine), **{PROMISED: json.dumps(resources)}
            )
            subprocess.Popen(line, env=here)
            self.machines[machine.address] = machine
            self.tags[machine.address] = {**tags, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}

    def terminate_node(self, node_id: str) -> None:
        del self.tags[node_id]
        machine = self.machines.pop(node_id)
        children.end(only=machine.processes)
        self.unused.append(machine)
