"""A whole service under SWITCHBOARD_EGRESS=deny sends no packet to anything that is not named.

It runs in a network namespace of its own, whose default route leads to an interface without anything beyond it: the
kernel counts each packet that would have left the machine, of any process and protocol, also lookups of names and ARP.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.service.spared_imports import AT_START

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SWITCHBOARD = Path(sys.executable).with_name("switchboard")
AS_ROOT = ("--user", "--map-root-user") if os.geteuid() else ()  # root itself starts PostgreSQL as another user
NAMESPACE = ["unshare", "--net", *AS_ROOT, "bash", "-ec"]
LEFT = "$(awk '/ away:| away /{sub(/.*away:/, \"\"); print $10}' /proc/net/dev)"
UP = f"""
for setting in all default; do echo 1 > /proc/sys/net/ipv6/conf/$setting/disable_ipv6; done 2>/dev/null || true
ip link set lo up
ip link add name away type veth peer name beyond
ip address add 198.51.100.2/24 dev away
ip link set away up
ip link set beyond up
ip route add default via 198.51.100.1 dev away
sleep 1
before={LEFT}
"""
COUNT = f'echo "LEFT $(({LEFT} - before))"'


def packets(command: str, seconds: float, **environment: str) -> tuple[int, str]:
    """Return the packets that left the namespace while a command ran, and its output."""
    script = f"{UP}{command} 2>&1 || true\n{COUNT}"
    done = subprocess.run(
        [*NAMESPACE, script],
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds,
    )
    return int(re.findall(r"LEFT (\d+)", done.stdout)[-1]), done.stdout


@pytest.fixture(autouse=True)
def namespace() -> None:
    if subprocess.run([*NAMESPACE, UP], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")


def test_the_counter_counts() -> None:
    """Without the guard a connection attempt and a lookup leave; with it they do not."""
    ask = f"{sys.executable} -c \"import pipeline, socket; socket.create_connection(('192.0.2.1', 443), 0.5)\""
    assert packets(ask, 60, SWITCHBOARD_EGRESS="allow")[0] >= 1
    left, said = packets(ask, 60, SWITCHBOARD_EGRESS="deny")
    assert (left, "refused by SWITCHBOARD_EGRESS=deny" in said) == (0, True), said


def test_ray_sends_no_packet_though_it_looks_for_its_cloud() -> None:
    """Ray's own processes ask cloud metadata servers: without the guard this left 9 packets."""
    work = "len(__import__('sys').modules['pipeline.net.egress']._installed)"
    code = (
        f"import ray, time; ray.init(); print('GUARDS', ray.get(ray.remote(lambda: {work}).remote())); time.sleep(10)"
    )
    environment = {"SWITCHBOARD_EGRESS": "deny", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(AT_START)}
    left, said = packets(f'{sys.executable} -c "{code}"', 300, **environment)
    assert "GUARDS 1" in said and left == 0, f"{left} packets\n{said[-3000:]}"


@pytest.mark.timeout(1800)
def test_a_service_that_processes_a_call_sends_no_packet(tmp_path: Path) -> None:
    command = f"{SWITCHBOARD} demo 03 --no-keep --data-dir {tmp_path / 'data'}"
    left, said = packets(command, 1700, SWITCHBOARD_EGRESS="deny")
    assert "completed" in said and left == 0, f"{left} packets\n{said[-3000:]}"
