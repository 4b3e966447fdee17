from uuid import uuid4

import pytest

from serve_app.http import limits
from serve_app.http.limits import Pace

MIB = 1 << 20


async def test_a_workspace_has_one_rate_however_many_responses_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = 1000.0, []

    async def sleep(seconds: float) -> None:
        waited.append(round(max(0.0, seconds), 3))

    monkeypatch.setattr(limits.time, "monotonic", lambda: now)
    monkeypatch.setattr(limits.asyncio, "sleep", sleep)
    pace, loud, quiet = Pace(), uuid4(), uuid4()
    for workspace in (loud, loud, loud, quiet):
        await pace.wait(workspace, MIB)
    assert waited == [0.0, 0.0, 0.25, 0.0]  # the head start, then 4 MiB/s; another workspace does not wait
    now = 1002.0
    await pace.wait(loud, MIB)
    assert waited[-1] == 0.0
