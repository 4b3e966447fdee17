"""Runs a command in this network namespace and reports each packet that leaves by an interface.

    python tests/support/packets.py INTERFACE COMMAND...

The last line of the output is `LEFT` and a JSON list with what each packet was. It imports nothing of the project,
whose guard would then be in this process too.
"""

import ipaddress
import json
import socket
import subprocess
import sys
import threading
import time

ALL_PROTOCOLS = 0x0003  # ETH_P_ALL
IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
NAMES = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}
IGMP, ICMPV6, HOP_BY_HOP = 2, 58, 0
MULTICAST_LISTENER = {130, 131, 132, 143}
DNS = 53
SETTLE_SECONDS = 0.5  # until the last packets are read


def describe(frame: bytes) -> str:
    """Return protocol, destination and, of a lookup, the name; empty for the kernel's reports of multicast groups.

    IGMP and MLD tell the link which groups an interface belongs to. The kernel sends them when an interface comes up.
    """
    kind, packet = int.from_bytes(frame[12:14], "big"), frame[14:]
    if kind == IPV4:
        protocol, header = packet[9], 4 * (packet[0] & 15)
        return "" if protocol == IGMP else _transport(protocol, packet[16:20], packet[header:])
    if kind == IPV6:
        protocol, header = packet[6], 40
        if protocol == HOP_BY_HOP:
            protocol, header = packet[40], 48 + 8 * packet[41]
        if protocol == ICMPV6 and packet[header] in MULTICAST_LISTENER:
            return ""
        return _transport(protocol, packet[24:40], packet[header:])
    return f"ARP for {ipaddress.ip_address(packet[24:28])}" if kind == ARP else f"ethertype {kind:#06x}"


def _transport(protocol: int, destination: bytes, rest: bytes) -> str:
    address = ipaddress.ip_address(destination)
    if protocol not in (6, 17):
        return f"{NAMES.get(protocol, protocol)} to {address}"
    port = int.from_bytes(rest[2:4], "big")
    name = f" for {_queried(rest[20:])}" if (protocol, port) == (17, DNS) else ""
    return f"{NAMES[protocol]} to {address} port {port}{name}"


def _queried(question: bytes) -> str:
    labels, at = [], 0
    while at < len(question) and question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace"))
        at += 1 + question[at]
    return ".".join(labels)


def main() -> None:
    interface, *command = sys.argv[1:]
    left: list[str] = []
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    listener.bind((interface, 0))

    def listen() -> None:
        while True:
            frame, (_, _, direction, *_) = listener.recvfrom(65536)
            if direction == socket.PACKET_OUTGOING and (packet := describe(frame)):
                left.append(packet)

    threading.Thread(target=listen, daemon=True).start()
    subprocess.run(command, stderr=subprocess.STDOUT, check=False)
    time.sleep(SETTLE_SECONDS)
    print(f"\nLEFT {json.dumps(left)}", flush=True)


if __name__ == "__main__":
    main()
