"""A whole service under SWITCHBOARD_EGRESS=deny sends no packet to anything that is not named.

It runs in a network namespace of its own, whose default routes lead to an interface without anything beyond it. There
each packet is read that would have left the machine, of any process and protocol, also lookups of names. The next hop
has a fixed address: without one, all packets would wait for it, and only the kernel's questions for it would be seen.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "serve_app" / "demo" / "samples" / "03_voicemail" / "call.flac"
SWITCHBOARD = Path(sys.executable).with_name("switchboard")
AS_ROOT = ("--user", "--map-root-user") if os.geteuid() else ()  # root itself starts PostgreSQL as another user
NAMESPACE = ["unshare", "--net", *AS_ROOT, "bash", "-ec"]
NEXT_HOP = "lladdr 02:00:00:00:00:01 dev away nud permanent"
UP = f"""
for setting in accept_ra autoconf dad_transmits router_solicitations; do
    echo 0 > /proc/sys/net/ipv6/conf/default/$setting  # the kernel sends nothing on its own
done
echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode  # no address of the link, which it would announce
ip link set lo up
ip link add name away type veth peer name beyond
ip link set away up
ip link set beyond up
ip address add 198.51.100.2/24 dev away
ip -6 address add 2001:db8::2/64 dev away nodad
ip neighbor add 198.51.100.1 {NEXT_HOP}
ip -6 neighbor add 2001:db8::1 {NEXT_HOP}
ip route add default via 198.51.100.1
ip -6 route add default via 2001:db8::1
"""
COUNT = [sys.executable, "tests/support/packets.py", "away"]


def packets(command: list[str], seconds: float, **environment: str) -> tuple[list[str], str]:
    """Return the packets that left the namespace while a command ran, and its output."""
    done = subprocess.run(
        [*NAMESPACE, f'{UP}exec "$@"', "bash", *COUNT, *command],
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds,
    )
    return json.loads(re.findall(r"^LEFT (.*)$", done.stdout, re.MULTILINE)[-1]), done.stdout


@pytest.fixture(autouse=True)
def namespace() -> None:
    if subprocess.run([*NAMESPACE, UP], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")


def test_every_packet_of_every_process_is_counted() -> None:
    """Without the guard a connection attempt and a lookup leave, with it they do not; one of a native program does."""
    code = "import pipeline, socket; socket.create_connection(('{}', 443), 0.5)"
    for host, expected in (
        ("192.0.2.1", "TCP to 192.0.2.1 port 443"),
        ("2001:db8:1::1", "TCP to 2001:db8:1::1 port 443"),
        ("elsewhere.example", "for elsewhere.example"),
    ):
        ask = [sys.executable, "-c", code.format(host)]
        left, _ = packets(ask, 60, SWITCHBOARD_EGRESS="allow")
        assert left and all(packet.endswith(expected) for packet in left), left
        left, output = packets(ask, 60, SWITCHBOARD_EGRESS="deny")
        assert (left, "refused by SWITCHBOARD_EGRESS=deny" in output) == ([], True), output
    native = ["bash", "-c", "echo x > /dev/udp/192.0.2.1/9"]
    assert packets(native, 60, SWITCHBOARD_EGRESS="deny")[0] == ["UDP to 192.0.2.1 port 9"]


def test_a_file_is_processed_without_a_packet_even_if_connections_are_allowed() -> None:
    """No engine reports anything. ONNX Runtime did, in native code, which the guard of sockets does not see."""
    models = ["--model", "base", "--pipeline", "segmentation-3.0+campplus"]  # stored: the hub is not asked
    command = [str(SWITCHBOARD), "process", str(SAMPLE), "--json", *models]
    left, output = packets(command, 300, SWITCHBOARD_EGRESS="allow")
    assert '"turns"' in output and left == [], f"{left}\n{output[-3000:]}"


@pytest.mark.timeout(1800)
def test_a_service_that_processes_a_call_sends_no_packet(tmp_path: Path) -> None:
    """Not even one of Ray's processes, which look for the cloud that they run on: that was nine packets."""
    command = [str(SWITCHBOARD), "demo", "03", "--no-keep", "--data-dir", str(tmp_path / "data")]
    left, output = packets(command, 1700, SWITCHBOARD_EGRESS="deny")
    assert "completed" in output and left == [], f"{left}\n{output[-3000:]}"
