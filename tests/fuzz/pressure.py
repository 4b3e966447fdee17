"""Slow clients and a flood of large bodies for `make fuzz`, with the memory of what has to bear them."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from tests.fuzz.cases import LIMIT, Case
from tests.fuzz.wire import Connection


async def slow_clients(
    port: int, secret: str, count: int, seconds: float, memory: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """Run `count` clients that send one byte of a large body per second; return the peak memory, MiB."""
    head = (
        f"POST /submit HTTP/1.1\r\nHost: slow\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {LIMIT}\r\n\r\n"
    ).encode()
    most: dict[str, float] = {}
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(count)]
    for writer in writers:
        writer.write(head + b" " * (LIMIT // 2))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for writer in writers:
            if not writer.is_closing():
                writer.write(b" ")
        await asyncio.sleep(1)
        most = {name: max(most.get(name, 0.0), size) for name, size in memory().items()}
    for writer in writers:
        writer.close()
    return most


def told(answer: tuple[int, dict[str, str], bytes] | None) -> str:
    """Return a short form of a response, with the reason unless it plainly rejects the body."""
    if answer is None or answer[0] == 0:
        return "none"
    return str(answer[0]) if answer[0] < 500 else f"{answer[0]} {answer[2][:300].decode(errors='replace')}"


async def flood(
    port: int, secret: str, connections: int, seconds: float, memory: Callable[[], dict[str, float]]
) -> tuple[dict[str, float], Counter[str]]:
    """Send bodies of 64 KiB as fast as they are accepted; return the peak memory, MiB, and the responses."""
    body = b'{"x":"' + b"y" * (LIMIT - 8) + b'"}'
    raw = (
        f"POST /submit HTTP/1.1\r\nHost: flood\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    case, answers, ends = Case("flood", raw, frozenset({400})), Counter[str](), time.monotonic() + seconds
    most: dict[str, float] = {}

    async def one() -> None:
        connection = Connection(port)
        while time.monotonic() < ends:
            answer = await connection.exchange(case)
            answers[told(answer)] += 1
        connection.close()

    async def watch() -> None:
        while time.monotonic() < ends:
            most.update({name: max(most.get(name, 0.0), size) for name, size in memory().items()})
            await asyncio.sleep(0.5)

    await asyncio.gather(watch(), *(one() for _ in range(connections)))
    return most, answers


def memory_meter(without_ray: bool) -> Callable[[], dict[str, float]]:
    """Resident memory of the Intake replica and of HAProxy's processes, MiB."""
    import psutil

    children = psutil.Process().children(recursive=True)
    if without_ray:
        replica = next(child for child in children if "uvicorn" in " ".join(child.cmdline()))
    else:
        from ray import serve

        replica = psutil.Process(serve.get_app_handle("intake").pid.remote().result())
    proxies = [process for process in children if "haproxy" in process.name()]

    def read() -> dict[str, float]:
        sizes = {"intake": replica.memory_info().rss / 2**20, "haproxy": 0.0}
        for proxy in proxies:
            try:
                sizes["haproxy"] += proxy.memory_info().rss / 2**20
            except psutil.NoSuchProcess:
                continue
        return sizes

    return read
