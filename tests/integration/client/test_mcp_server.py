"""The MCP server as an assistant uses it: the client of the SDK over standard input and output, with a real API."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from db.core.database import Reader
from db.workspace import access_log
from serve_app.answers.asking import AnsweringModel
from serve_app.cli import app
from switchboard.mcp_server import MAX_TRANSCRIPT
from tests.finished import findings, finished, task
from tests.integration.serve_app.api.test_ask import PATIENT, QUESTION, TOO_HIGH, stating
from tests.llm_server import Endpoint
from tests.postgres import World
from tests.reading_api import reading_key
from tests.support.llm_by_hand import options
from tests.whole_service import served

LONG = tuple(("rep" if at % 2 else "customer", f"Number {at}: " + "we talk and talk. " * 20) for at in range(120))


@pytest.fixture
def base(postgres_url: str, endpoint: Endpoint) -> Iterator[str]:
    with served(postgres_url, PATIENT, answering=AnsweringModel(options(endpoint))) as url:
        yield url


@asynccontextmanager
async def assistant(base: str, key: str) -> AsyncIterator[Client]:
    command = ["-m", "serve_app.cli", "mcp", "--url", base]
    server = StdioServerParameters(command=sys.executable, args=command, env={"SWITCHBOARD_API_KEY": key})
    async with Client(server, read_timeout_seconds=120) as client:
        yield client


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error and isinstance(result.structured_content, dict), result
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_an_assistant_searches_reads_and_asks(base: str, world: World, endpoint: Endpoint) -> None:
    tasks = (task("Send the invoice", date(2026, 11, 4)), task("Call back"))
    call_id = await finished(world, sender=world.scoped, found=findings("negative", tasks))
    long_call = await finished(world, *LONG, sender=world.scoped, minutes=60)
    theirs = await finished(world, ("customer", "The invoice of Zebulon."), sender=world.other_scoped, minutes=120)
    endpoint.answers(stating("The amount is too high.", (TOO_HIGH, TOO_HIGH)))
    async with assistant(base, await reading_key(world, world.team_id)) as client:
        await _tools_only_read(client)
        await _searches(client, call_id, long_call)
        await _reads(client, call_id, long_call)
        await _lists_tasks(client, call_id)
        await _asks(client, call_id)
        for tool, arguments, words in (
            ("get_call", {"call_id": str(theirs)}, "Call not found, or not visible to this key."),
            ("get_call", {"call_id": str(call_id), "cursor": "x"}, "cursor is not a cursor of this call."),
            ("search_calls", {"cursor": "x"}, "cursor is not a cursor"),
            ("search_calls", {"meaning": "anger"}, "Search by meaning is switched off"),
            ("search_calls", {"filters": {"started_from": "soon"}}, "startedFrom: must be a time with an offset"),
            ("search_calls", {"limit": 1000}, "less than or equal to 20"),
            ("search_calls", {"filters": {"since": "2026-11-01"}}, "Extra inputs are not permitted"),
            ("ask", {"question": QUESTION, "call_ids": [str(theirs)]}, f"{theirs} not found, or not visible"),
        ):
            assert words in await refused(client, tool, **arguments), (tool, arguments)
    reader = Reader(world.workspace_id)
    read = {(line.what, line.detail) for line in await access_log.list_reads(world.database, reader, call_id)}
    assert read >= {("search", ""), ("record", ""), ("transcript", "ask")}
    assert await access_log.list_reads(world.database, reader, theirs) == []


async def _tools_only_read(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == {"search_calls", "get_call", "list_tasks", "ask"}
    for tool in tools.values():
        assert tool.annotations is not None and tool.annotations.read_only_hint is True
        assert tool.description and tool.output_schema


async def _searches(client: Client, call_id: UUID, long_call: UUID) -> None:
    page = await called(client, "search_calls", text="invoice")
    (call,) = page["calls"]
    assert (call["call_id"], call["tone"], call["open_tasks"], page["next"]) == (str(call_id), "negative", 2, None)
    assert call["matches"][0]["turn"] == 1 and "invoice" in call["matches"][0]["text"]
    first = await called(client, "search_calls", limit=1)
    second = await called(client, "search_calls", limit=1, cursor=first["next"])
    assert [page["calls"][0]["call_id"] for page in (first, second)] == [str(long_call), str(call_id)]
    assert second["next"] is None
    late = await called(client, "search_calls", filters={"started_from": "2026-11-02T09:30:00Z", "status": "completed"})
    assert [call["call_id"] for call in late["calls"]] == [str(long_call)]


async def _reads(client: Client, call_id: UUID, long_call: UUID) -> None:
    call = await called(client, "get_call", call_id=str(call_id))
    assert call["turns"][1] == {
        **{"turn": 1, "speaker": "customer", "role": "customer", "start": 3.5},
        "text": "Hello Ana, my invoice is wrong, the amount is too high.",
    }
    assert [task["title"] for task in call["tasks"]] == ["Send the invoice", "Call back"]
    assert (call["call"]["summary"], call["next"]) == ("They talked.", None)
    texts: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await called(client, "get_call", call_id=str(long_call), **({"cursor": cursor} if cursor else {}))
        assert sum(len(turn["text"]) for turn in page["turns"]) <= MAX_TRANSCRIPT
        texts += [turn["text"] for turn in page["turns"]]
        cursor, pages = page["next"], pages + 1
    assert pages > 2
    assert " ".join(texts) == " ".join(text.strip() for _, text in LONG), "every word once, whatever the pages"


async def _lists_tasks(client: Client, call_id: UUID) -> None:
    first = await called(client, "list_tasks", done=False, limit=1)
    (item,) = first["tasks"]
    assert (item["title"], item["due"], item["call_id"]) == ("Send the invoice", "2026-11-04", str(call_id))
    second = await called(client, "list_tasks", done=False, limit=1, cursor=first["next"])
    assert [item["title"] for item in second["tasks"]] == ["Call back"]
    assert (await called(client, "list_tasks", due_before="2026-11-01"))["tasks"] == []


async def _asks(client: Client, call_id: UUID) -> None:
    answer = await called(client, "ask", question=QUESTION, call_ids=[str(call_id)])
    assert (answer["answer"], answer["read"]) == ("The amount is too high.", 1)
    (quote,) = answer["quotes"]
    assert (quote["call_id"], quote["turn"], quote["text"]) == (str(call_id), 1, TOO_HIGH)


@pytest.mark.slow
async def test_a_wrong_key_and_a_missing_service_are_said_in_words(base: str) -> None:
    async with assistant(base, "sb_" + "x" * 40) as client:
        assert "key" in await refused(client, "search_calls")
    async with assistant("http://127.0.0.1:9", "sb_x") as client:
        assert "no response from 127.0.0.1:9" in await refused(client, "get_call", call_id=str(uuid4()))


async def test_the_command_ask_prints_the_answer_and_its_quotes(base: str, world: World, endpoint: Endpoint) -> None:
    call_id = await finished(world)
    endpoint.answers(stating("The amount is too high.", (TOO_HIGH, TOO_HIGH)))
    arguments = ["ask", QUESTION, "--url", base, "--key", await reading_key(world)]
    shown = CliRunner().invoke(app, [*arguments, "--call", str(call_id), "--filter", "startedFrom=2026-11-01"])
    assert shown.exit_code == 0, shown.output
    assert "The amount is too high." in shown.stdout and TOO_HIGH in " ".join(shown.stdout.split())
    assert "Read 1 of 1 matching call" in " ".join(shown.stderr.split())
    failed = CliRunner().invoke(app, [*arguments, "--filter", "startedFrm=2026-11-01"])
    assert failed.exit_code == 1 and "Did you mean startedFrom?" in " ".join(failed.stderr.split())
