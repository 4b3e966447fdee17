"""The memory of an export does not grow with the calls that it has."""

from datetime import timedelta
from pathlib import Path

import httpx
import psutil
import pytest

from tests.attacks.room import room
from tests.attacks.test_readers import long_calls
from tests.finished import START
from tests.postgres import World
from tests.reading_api import reading_key

pytestmark = pytest.mark.slow_attack

FEW, MANY = 200, 1_000  # calls of an hour each
MAX_GROWTH = 1.25  # of the peak memory of the API and its worker, from few to many calls


def peak(pid: int) -> int:
    """Return the largest resident memory in bytes that a process and its children have had, added up."""
    total = 0
    for process in (root := psutil.Process(pid), *root.children(recursive=True)):
        status = Path(f"/proc/{process.pid}/status").read_text()
        total += int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return total


async def exported(client: httpx.AsyncClient, **parameters: str) -> int:
    """Return the bytes of an export, of which none is kept."""
    size = 0
    async with client.stream("GET", "/export", params=parameters) as answer:
        assert answer.status_code == 200
        async for part in answer.aiter_raw():
            size += len(part)
    return size


async def test_an_export_of_many_long_calls_needs_the_memory_of_a_few(
    world: World, postgres_url: str, tmp_path: Path
) -> None:
    await long_calls(world, MANY, index=False)
    secret = await reading_key(world)
    end_of_few = (START + timedelta(minutes=FEW)).isoformat()
    for format_ in ("ndjson", "parquet", "csv"):
        parameters = {"format": format_} | ({} if format_ == "csv" else {"include": "transcript"})
        async with room("api", postgres_url, tmp_path) as api:
            headers = {"Authorization": f"Bearer {secret}"}
            async with httpx.AsyncClient(base_url=api.origin, headers=headers, timeout=600) as client:
                few = await exported(client, startedBefore=end_of_few, **parameters)
                peak_of_few = peak(api.pid)
                many = await exported(client, **parameters)
                peak_of_many = peak(api.pid)
        print(
            f"{format_}: {few / 1e6:.1f} MB with a peak of {peak_of_few / 1e6:.0f} MB,"
            f" {many / 1e6:.1f} MB with {peak_of_many / 1e6:.0f} MB"
        )
        assert many > 4 * few
        assert peak_of_many < MAX_GROWTH * peak_of_few
