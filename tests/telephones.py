"""A telephone system on the loopback address: Asterisk with the recipe's dialplan, and one with two SIP telephones."""

import socket
import wave
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.asterisk import Asterisk

DESK, TRUNK = "127.0.0.1", "127.0.0.2"  # addresses by which the system tells its telephone 101 from the network
CUSTOMER, COMPANY = "493012345678", "4940987654"
RATE = 8000
ENDPOINT = """
[{name}]
type = endpoint
transport = transport{transport}
context = {context}
disallow = all
allow = ulaw
aors = {name}
{more}

[{name}]
type = aor
contact = {contact}
"""
TRANSPORT = """
[transport{name}]
type = transport
protocol = udp
bind = {address}:{port}
"""
SYSTEM_DIALPLAN = """
[trunk]
exten => {company},1,Set(EXTTOCALL=101)  ; a variable of FreePBX
 same => n,Gosub({recipe}(false,${{EXTEN}}))
 same => n,Dial(PJSIP/101,30)

[phones]
exten => _X.,1,Gosub({recipe}(true,${{EXTEN}}))
 same => n,Dial(PJSIP/${{EXTEN}}@trunk,30)
"""
PHONES_DIALPLAN = """
[rings]
exten => _X.,1,Answer()
 same => n,Goto(speak,${{IF($["${{EXTEN}}" = "101"]?agent:customer)}},1)

[speak]
exten => agent,1,Playback({folder}/agent)
 same => n,Wait(1)
 same => n,Hangup()
; A telephone that sends no sound at first, as with suppression of silence
exten => customer,1,Wait({silence})
 same => n,Playback({folder}/customer)
 same => n,Wait(1)
 same => n,Hangup()
"""


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((DESK, 0))
        return int(probe.getsockname()[1])


@dataclass
class Telephones:
    """`system`: with the recipe, and `phones`: 101 of the agent, and the customer's in the network."""

    system: Asterisk
    phones: Asterisk

    def customer_calls(self) -> None:
        """The customer calls the company, and the agent answers at 101."""
        self.phones.types(f"channel originate PJSIP/{COMPANY}@as-trunk extension customer@speak")

    def agent_calls(self) -> None:
        """The agent calls the customer from 101."""
        self.phones.types(f"channel originate PJSIP/{CUSTOMER}@as-101 extension agent@speak")

    def hang_up(self, seconds: float) -> None:
        """Wait until the call has been up and both parties have hung up."""
        self.system.wait_for_channels(idle=False, seconds=60.0)
        self.system.wait_for_channels(idle=True, seconds=seconds)


@contextmanager
def telephones(
    folder: Path,
    speech: Mapping[str, npt.NDArray[np.int16]],
    silence: float,
    environment: Mapping[str, str],
    dialplan: str,
    recipe: str = "switchboard,s,1",
) -> Iterator[Telephones]:
    """Start both. `speech`: what the agent and the customer play, 8 kHz; the customer after seconds of no stream.

    `recipe`: the place in `dialplan` that is called before a call is connected.
    """
    ports = free_udp_port(), free_udp_port()
    (folder / "phones").mkdir(parents=True)
    for party, samples in speech.items():
        with wave.open(str(folder / "phones" / f"{party}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(samples.astype(np.int16).tobytes())
    system = {
        "pjsip.conf": _system(*ports),
        "rtp.conf": _rtp(),
        "extensions.conf": dialplan + SYSTEM_DIALPLAN.format(company=COMPANY, recipe=recipe),
    }
    phones = {
        "pjsip.conf": _phones(*ports),
        "rtp.conf": _rtp(),
        "extensions.conf": PHONES_DIALPLAN.format(folder=folder / "phones", silence=silence),
    }
    with ExitStack() as stack:
        yield Telephones(
            stack.enter_context(Asterisk(folder / "system", system, dict(environment))),
            stack.enter_context(Asterisk(folder / "phones", phones)),
        )


def _rtp() -> str:
    first = free_udp_port() // 2 * 2
    return f"[general]\nrtpstart = {first}\nrtpend = {min(first + 40, 65534)}\nstrictrtp = no"


def _system(port: int, phones_port: int) -> str:
    """Return the SIP configuration of the system: callers are told apart by their address."""
    parts = [TRANSPORT.format(name="", address="127.0.0.1", port=port)]
    for name, context, host in (("101", "phones", DESK), ("trunk", "trunk", TRUNK)):
        contact = f"sip:{name if name == '101' else CUSTOMER}@{host}:{phones_port}"
        parts.append(
            ENDPOINT.format(name=name, transport="", context=context, contact=contact, more="direct_media = no")
        )
        parts.append(f"[{name}-address]\ntype = identify\nendpoint = {name}\nmatch = {host}/32\n")
    return "\n".join(parts)


def _phones(system_port: int, port: int) -> str:
    """Return the SIP configuration of the telephones: each has an address of its own and accepts calls of anyone."""
    parts = [TRANSPORT.format(name=host, address=host, port=port) for host in (DESK, TRUNK)]
    for name, host, number in (("as-101", DESK, "101"), ("as-trunk", TRUNK, CUSTOMER)):
        more = f"from_user = {number}\ncallerid = {number}\ndirect_media = no"
        contact = f"sip:127.0.0.1:{system_port}"
        parts.append(ENDPOINT.format(name=name, transport=host, context="rings", contact=contact, more=more))
    parts.append("[system-address]\ntype = identify\nendpoint = as-101\nmatch = 127.0.0.1/32\n")
    return "\n".join(parts)
