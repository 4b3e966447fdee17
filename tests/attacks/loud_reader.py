"""A reader that takes all it can get, as a process: `python -m tests.attacks.loud_reader`, a JSON object on stdin."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

NAME = "abcdefghijklmnopqrstuvwxyz" * 7 + "abcdefghijklmnopqr"  # 200 letters


class LoudReader:
    """One key of tenant A, with the ids of its calls."""

    def __init__(self, origin: str, key: str, calls: list[str]) -> None:
        self.origin, self.key, self.calls = origin, key, calls
        self.api = f"{origin}/api/v1"
        limits = httpx.Limits(max_connections=400, max_keepalive_connections=400)
        self.client = httpx.AsyncClient(timeout=120, headers={"Authorization": f"Bearer {key}"}, limits=limits)

    async def endless_bodies(self) -> None:
        await asyncio.gather(*(self._dribble("/console/sign-in", False) for _ in range(80)))

    async def slow_edits(self) -> None:
        await asyncio.gather(*(self._dribble(f"/api/v1/calls/{self.calls[0]}/edits", True) for _ in range(32)))

    async def all_streams(self) -> None:
        await asyncio.gather(*(self._read("/events/stream") for _ in range(140)))

    async def exports(self) -> None:
        await asyncio.gather(*(self._read("/export?include=transcript") for _ in range(6)))

    async def searches(self) -> None:
        paths = [f"/calls?name={NAME}", "/calls?text=-zzz", "/calls?text=parcel%20address&limit=200"]
        await asyncio.gather(*(self._read(paths[number % 3]) for number in range(32)))

    async def sounds(self) -> None:
        await asyncio.gather(*(self._read(f"/calls/{call}/audio?channel=mixed") for call in self.calls[:60]))

    async def trackers(self) -> None:
        """Analyze the last call again and again, with the trackers of the workspace."""
        await asyncio.gather(*(self._analyze() for _ in range(8)))

    async def _analyze(self) -> None:
        order = {"callIds": [self.calls[-1]]}
        while True:
            with contextlib.suppress(httpx.HTTPError):
                answer = await self.client.post(f"{self.api}/runs", json={**order, "name": f"r{uuid4().hex}"})
                if not answer.is_success:
                    await asyncio.sleep(1.0)
                    continue
                path = f"{self.api}/runs/{answer.json()['run']['runId']}"
                while (await self.client.get(path)).json().get("status") == "running":
                    await asyncio.sleep(1.0)

    async def _read(self, path: str) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                async with self.client.stream("GET", self.api + path) as answer:
                    async for _ in answer.aiter_raw():
                        pass
                    if answer.status_code in (429, 503):
                        await asyncio.sleep(1.0)  # much less than Retry-After says

    async def _dribble(self, path: str, with_key: bool) -> None:
        url = urlsplit(self.origin)
        kind = "application/json" if with_key else "application/x-www-form-urlencoded"
        head = f"POST {path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: {kind}\r\nContent-Length: 2000\r\n"
        head += f"Authorization: Bearer {self.key}\r\n" if with_key else ""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(url.hostname, url.port)
                try:
                    writer.write(f"{head}X-Request-Id: {uuid4().hex}\r\n\r\n".encode())
                    for _ in range(100):
                        writer.write(b" ")
                        await writer.drain()
                        if reader.at_eof():
                            break
                        await asyncio.sleep(0.5)
                finally:
                    writer.close()


async def main(order: dict[str, Any]) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # its own work is on another machine, in production
    loud = LoudReader(order["origin"], order["key"], order["calls"])
    attack: Callable[[], Awaitable[None]] = getattr(loud, order["attack"])
    await attack()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
