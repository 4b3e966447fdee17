"""From an empty folder to an assistant that reads a call: the service, a key, and the configuration of docs/api.md."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.integration.serve_app.api.test_ask import stating
from tests.journeys.pages import ROOT, below, named
from tests.journeys.person import Person
from tests.journeys.test_journeys import RECORDING, SAID
from tests.llm_server import MODEL, Endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
HEADING = "## How does an assistant use the calls?"
QUESTION = "What is promised to the customer?"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_an_assistant_searches_reads_and_asks_over_mcp(folder: Path, endpoint: Endpoint) -> None:
    def answers(body: dict[str, Any]) -> Any:
        asks = QUESTION in body["messages"][0]["content"]
        return stating("An invoice is promised.", (SAID, SAID))(body) if asks else "no analysis"

    endpoint.answers(answers)
    model = {"ENGINE": "llm", "BASE_URL": endpoint.base_url, "MODEL": MODEL}
    engineer = Person(folder, **{f"SWITCHBOARD_ANALYSIS__{name}": value for name, value in model.items()})
    try:
        engineer.starts(named("docs/contract.md", "switchboard up"))
        shutil.copy(RECORDING, folder / "call.flac")
        key = secret(engineer.types(named("docs/contract.md", "switchboard keys create")))
        shown = engineer.types("switchboard submit call.flac --wait", SWITCHBOARD_API_KEY=key)
        (call_id,) = re.findall(r"^Call ([0-9a-f-]{36})", shown, re.M)
        page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
        (create,) = re.findall(r"^switchboard keys create --workspace acme --scope read --name reader$", page, re.M)
        key = secret(engineer.types(create))
        server = json.loads("".join(below("docs/api.md", HEADING)))["mcpServers"]["calls"]
        url = server["env"]["SWITCHBOARD_URL"].replace(":8000", f":{engineer.port}")
        environment = {"SWITCHBOARD_URL": url, "SWITCHBOARD_API_KEY": key}
        command = str(Path(sys.executable).with_name(server["command"]))
        assistant = StdioServerParameters(command=command, args=server["args"], env=environment)
        asyncio.run(_assists(assistant, call_id))
        answer = engineer.types(f'switchboard ask "{QUESTION}" --call {call_id}', **environment)
        assert "An invoice is promised." in answer and SAID in " ".join(answer.split())
        assert "ask" in engineer.types(f"switchboard calls reads {call_id}")
        engineer.types("switchboard down")
    finally:
        engineer.leaves()


async def _assists(server: StdioServerParameters, call_id: str) -> None:
    async with Client(server, read_timeout_seconds=120) as client:
        found = await client.call_tool("search_calls", {"text": "invoice"})
        assert found.structured_content is not None, found
        assert [call["call_id"] for call in found.structured_content["calls"]] == [call_id]
        call = await client.call_tool("get_call", {"call_id": call_id})
        assert call.structured_content is not None, call
        (turn,) = [turn for turn in call.structured_content["turns"] if SAID in turn["text"]]
        answer = await client.call_tool("ask", {"question": QUESTION, "call_ids": [call_id]})
        assert answer.structured_content is not None, answer
        (quote,) = answer.structured_content["quotes"]
        assert (quote["turn"], quote["text"]) == (turn["turn"], SAID)
        assert turn["start"] <= quote["start"]
        tasks = await client.call_tool("list_tasks", {"done": False})
        assert not tasks.is_error, tasks


def secret(output: str) -> str:
    (key,) = re.findall(r"^ +(\S+)$", output, re.M)
    return str(key)
