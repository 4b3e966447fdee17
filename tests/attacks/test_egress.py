"""SWITCHBOARD_EGRESS=deny: whichever library asks, only named hosts are looked up and connected to."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
ELSEWHERE, ADDRESS = "elsewhere.example", "192.0.2.1"
WAYS = {
    "socket": "import socket; socket.create_connection(({host!r}, 443), 3)",
    "datagram": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ({address!r}, 53))",
    "urllib": "import urllib.request; urllib.request.urlopen('https://{host}/', timeout=3)",
    "httpx": "import httpx; httpx.get('https://{host}/', timeout=3, trust_env=False)",
    "requests": "import requests; requests.get('https://{host}/', timeout=3)",
    "asyncio": "import asyncio; asyncio.run(asyncio.open_connection({host!r}, 443))",
    "uvloop": "import asyncio, uvloop; uvloop.run(asyncio.open_connection({host!r}, 443))",
    "uvloop and httpx": """
        import httpx, uvloop
        async def ask():
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get('https://{host}/')
        uvloop.run(ask())""",
    "uvloop and aiohttp": """
        import aiohttp, uvloop
        async def ask():
            async with aiohttp.ClientSession() as session:
                await session.get('https://{host}/')
        uvloop.run(ask())""",
    "aiohttp": """
        import aiohttp, asyncio
        async def ask():
            async with aiohttp.ClientSession() as session:
                await session.get('https://{host}/')
        asyncio.run(ask())""",
    "hub": "from huggingface_hub import snapshot_download; snapshot_download('openai/whisper-tiny')",
    "language model": """
        from pipeline.net.post import list_models
        list_models('https://{host}/v1', None, 3)""",
}


def run(*codes: str, **settings: str) -> list[str]:
    """Run each code in one process; return the errors of each, with their causes, or that nothing was raised."""
    pieces = [textwrap.dedent(code) for code in codes]
    program = f"""
import pipeline
from pipeline.net import egress
for code in {pieces!r}:
    try:
        exec(code, {{}})
    except BaseException as error:
        chain = []
        while error is not None and error not in chain:
            chain.append(error)
            error = error.__cause__ or error.__context__
        said = " / ".join(f"{{type(e).__name__}}: {{e}}" for e in chain)
        print(bool(egress._installed), said.replace(chr(10), " "))
    else:
        print(bool(egress._installed), "NOTHING")
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment | settings, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    return done.stdout.splitlines()


def test_no_library_reaches_a_host_that_nothing_names() -> None:
    for host in (ELSEWHERE, ADDRESS):
        codes = [code.format(host=host, address=ADDRESS) for code in WAYS.values()]
        for way, said in zip(WAYS, run(*codes, SWITCHBOARD_EGRESS="deny"), strict=True):
            assert said.startswith("True"), said
            if way == "hub":
                assert "offline" in said.lower(), said
            else:
                assert "refused by SWITCHBOARD_EGRESS=deny" in said and (host in said or ADDRESS in said), (way, said)


def test_a_named_host_is_looked_up_and_this_machine_is_reached() -> None:
    named = {
        "SWITCHBOARD_DATABASE_URL": "postgresql://user:secret@elsewhere.example:5432/calls",
        "SWITCHBOARD_ANALYSIS": '{"base_url": "http://elsewhere.example:8000/v1"}',
        "RAY_ADDRESS": "elsewhere.example:6379",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere.example:4318",
    }
    for variable, value in named.items():
        (said,) = run(WAYS["socket"].format(host=ELSEWHERE), SWITCHBOARD_EGRESS="deny", **{variable: value})
        assert "EgressDenied" not in said and "gaierror" in said, (variable, said)
    own = """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(("localhost", server.getsockname()[1]), 3)"""
    assert "NOTHING" in run(own, SWITCHBOARD_EGRESS="deny")[0]
    bucket = WAYS["socket"].format(host="calls.s3.eu-west-1.amazonaws.com")
    assert "EgressDenied" in run(bucket, SWITCHBOARD_EGRESS="deny")[0]
    assert "EgressDenied" not in run(bucket, SWITCHBOARD_EGRESS="deny", SWITCHBOARD_STORAGE="s3://calls/recordings")[0]
    assert "False" in run("pass", SWITCHBOARD_EGRESS="allow")[0]


def test_reports_of_native_code_are_off_and_deny_does_not_let_them_on() -> None:
    """The guard does not see the sockets of ONNX Runtime."""
    code = "import os; assert os.environ['ORT_DISABLE_TELEMETRY'] == '1'"
    assert "NOTHING" in run(code, SWITCHBOARD_EGRESS="allow")[0]
    assert "NOTHING" in run(code, SWITCHBOARD_EGRESS="deny", ORT_DISABLE_TELEMETRY="0")[0]


def test_recordings_and_events_pass_after_their_own_guard() -> None:
    """The address of a recording is checked by another guard, which permits exactly this connection."""
    code = """
        import asyncio, uvloop
        from pipeline.fetch.address import AddressGuard
        from pipeline.fetch.transport import GuardedBackend
        async def resolver(host, port):
            return ["192.0.2.1"] if host == "public.example" else ["127.0.0.1"]
        async def ask():
            guard = AddressGuard(["public.example"], resolver=resolver)
            await GuardedBackend(guard).connect_tcp("public.example", 443, timeout=0.5)
        {runner}.run(ask())"""
    real = """
        import asyncio
        from pipeline.fetch.address import resolve
        asyncio.run(resolve("elsewhere.example", 443))"""
    codes = [code.format(runner=runner) for runner in ("asyncio", "uvloop")]
    *connecting, looking_up = run(*codes, real, SWITCHBOARD_EGRESS="deny")
    assert all("EgressDenied" not in said and "Connect" in said for said in connecting), connecting
    assert "EgressDenied" not in looking_up
