"""A cluster of two machines as cluster.yaml starts it: what listens is in docs/operating.md, and wants the token.

The machines are network name spaces of this one, which only root makes. Takes minutes: `make attacks` runs it.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.listening import Door
from tests.machines import Machine, machines

ROOT = Path(__file__).parents[2]
HEAD, WORKER = "10.213.77.1", "10.213.77.2"
SERVE = """
import sys, ray, time
from ray import serve
ray.init(sys.argv[1], log_to_driver=False)
serve.start(proxy_location="EveryNode", http_options={"host": "0.0.0.0", "port": 8000})
@serve.deployment(num_replicas=2, max_replicas_per_node=1, ray_actor_options={"num_cpus": 0.1})
class Answer:
    def __call__(self, request):
        return "x"
serve.run(Answer.bind())
"""
# Run on the machine: what listens there is seen from there only.
LISTENING = """
import dataclasses, json, sys
from serve_app.service import children
from tests.listening import doors_of
print(json.dumps([dataclasses.astuple(door) for door in doors_of(children.with_variable("RAY_TMPDIR", sys.argv[1]))]))
"""
OUTSIDER = """
import http.client, json, sys, urllib.error, urllib.request
import grpc
told = {}
for address in sys.argv[2:]:
    answers = set()
    with grpc.insecure_channel(address) as channel:
        for method in sys.argv[1].split():
            call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
            try:
                answers.add(f"GOT IN by {method}: {call(b'', timeout=10)!r}")
            except grpc.RpcError as error:
                answers.add(error.code().name)
    for path in ("/api/job_agent/jobs/", "/api/jobs/"):
        try:
            urllib.request.urlopen(f"http://{address}{path}", b'{"entrypoint": "true"}', timeout=5)
            answers.add(f"GOT IN by {path}")
        except urllib.error.HTTPError as error:
            answers.add(str(error.code))
        except (OSError, http.client.HTTPException):
            pass  # that port is gRPC
    told[address] = sorted(answers)
print(json.dumps(told))
"""

pytestmark = [
    pytest.mark.slow_attack,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network name spaces"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Machine]]:
    with tempfile.TemporaryDirectory(prefix="swb-", ignore_cleanup_errors=True) as name:
        settings = {"SWITCHBOARD_STORAGE": Path(name, "recordings").as_uri()}
        with machines(Path(name), [HEAD, WORKER], settings) as both:
            for machine in both:
                machine.start_ray("--num-cpus=2")
            serve = both[0].home / "serve.py"
            serve.write_text(SERVE)
            done = both[0].shell(
                f"set -a; . ~/switchboard/serve_app/deploy/node.env; set +a; python {serve} {HEAD}:6379"
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            yield both


def listed() -> dict[range, str]:
    """Return the ports of the table in docs/operating.md, and their behavior without the token."""
    rows = re.findall(r"^\| ([\d, -]+) \| .* \| (.*) \|$", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
    listed_ports = {}
    for ports, without in rows:
        for part in ports.split(", "):
            first, _, last = part.partition("-")
            listed_ports[range(int(first), int(last or first) + 1)] = without
    return listed_ports


def open_doors(machine: Machine) -> list[Door]:
    done = machine.run(sys.executable, "-c", LISTENING, str(machine.home / ".switchboard"), PYTHONPATH=str(ROOT))
    return [door for door in (Door(*fields) for fields in json.loads(done.stdout)) if not door.is_loopback]


def test_the_table_lists_what_listens_and_nothing_else(cluster: list[Machine]) -> None:
    open_ports = {door.port: door.who for machine in cluster for door in open_doors(machine)}
    print(dict(sorted(open_ports.items())))
    ranges = listed()
    assert {port: who for port, who in open_ports.items() if not any(port in ports for ports in ranges)} == {}
    assert [ports for ports in ranges if not any(port in ports for port in open_ports)] == []


def test_nothing_that_is_said_to_refuse_does_anything_without_the_token(cluster: list[Machine]) -> None:
    from tests.acceptance.test_access import METHODS

    head, worker = cluster
    refusing = [ports for ports, without in listed().items() if without.startswith("refuse")]
    asked = [door.port for door in open_doors(head) if any(door.port in ports for ports in refusing)]
    done = worker.run(sys.executable, "-c", OUTSIDER, " ".join(METHODS), *(f"{HEAD}:{port}" for port in asked))
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    print(answers)
    assert {"UNAUTHENTICATED", "401"} <= {answer for answers in answers.values() for answer in answers}
    assert not any(answer.startswith("GOT IN") for answers in answers.values() for answer in answers)
