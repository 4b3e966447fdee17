"""Senders of `bench/submit.py`: plain HTTP/1.1 over kept connections, as light as Python allows."""

import asyncio
import json
import time
from uuid import uuid4

HTTP_ACCEPTED = b"HTTP/1.1 202"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(path: str, secret: str) -> bytes:
    """Return a submission of a new call with a recording."""
    call = uuid4()
    body = json.dumps(
        {
            "callId": str(call),
            "recordingUrl": f"https://pbx.example.com/recordings/{call}.wav?X-Amz-Signature=abc&X-Amz-Expires=3600",
            "from": "+493012345678",
            "to": "+4940987654",
            "startTime": "2026-11-20T09:30:00+01:00",
            "outgoing": True,
            "duration": 184,
        }
    )
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


async def exchange(port: int, path: str, secret: str, connection: Connection) -> Connection:
    """One request and its answer, which must be a 202; the connection to use next."""
    reader, writer = connection
    while True:
        writer.write(request(path, secret))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            break
        except asyncio.IncompleteReadError as closed:
            if closed.partial:
                raise
            # HAProxy was reloaded, as it is when replicas start and stop; a client connects again.
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    answer = await reader.readexactly(int(length.split(b":")[1]))
    if not head.startswith(HTTP_ACCEPTED):
        raise SystemExit(f"{path} was not accepted: {head.splitlines()[0].decode()} {answer.decode()}")
    return reader, writer


async def closed_loop(port: int, path: str, secret: str, connections: int, seconds: float) -> tuple[list[float], float]:
    """Send one request per connection at a time; return latencies in ms, and requests per second."""
    latencies: list[float] = []
    started = time.perf_counter()

    async def one() -> None:
        connection = await asyncio.open_connection("127.0.0.1", port)
        while (sent := time.perf_counter()) < started + seconds:
            connection = await exchange(port, path, secret, connection)
            latencies.append((time.perf_counter() - sent) * 1000)
        connection[1].close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return latencies, len(latencies) / (time.perf_counter() - started)


async def open_loop(port: int, path: str, secret: str, per_second: float, seconds: float) -> list[float]:
    """Requests at equal distances whether or not earlier ones are answered: latencies in ms from the moment at which
    each was due, so that a stall counts for all that it held up."""
    latencies: list[float] = []
    idle: list[Connection] = []

    async def one(due: float) -> None:
        connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        idle.append(await exchange(port, path, secret, connection))
        latencies.append((time.perf_counter() - due) * 1000)

    started = time.perf_counter()
    under_way = set()
    for number in range(int(per_second * seconds)):
        due = started + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        under_way.add(task := asyncio.create_task(one(due)))
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    for _, writer in idle:
        writer.close()
    return latencies
