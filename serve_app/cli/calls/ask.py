from typing import Annotated, Any

import typer

from serve_app.cli.calls.submit import Url, read_problem
from serve_app.cli.ui import this_machine
from serve_app.cli.ui.errors import FAILED, UNREACHABLE, USAGE, CommandError
from serve_app.cli.ui.output import Json, counted
from serve_app.cli.ui.resource import Result
from serve_app.cli.ui.table import table

SECONDS = 60.0  # for the answer, with the wait for a place

Key = Annotated[
    str | None, typer.Option(envvar="SWITCHBOARD_API_KEY", show_envvar=True, help="API key with scope `read`.")
]


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In any language; the answer has the same.")],
    call: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this call; repeatable.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="NAME=VALUE", help="As in the API: startedFrom=2026-11-01; repeatable."),
    ] = None,
    url: Url = None,
    key: Key = None,
    json_: Json = False,
) -> None:
    """Ask the language model a question about stored calls. The answer has only what turns support, and quotes them.

    Examples:

      switchboard ask "Why do customers cancel?" --filter startedFrom=2026-11-01 --filter tone=negative
    """
    import httpx

    pairs = {name: value for name, _, value in (text.partition("=") for text in filters or ())}
    to, headers = f"{_url(url)}/api/v1/ask", {"Authorization": f"Bearer {_require_key(key)}"}
    body = {"question": question, "filters": pairs, "callIds": call or []}
    try:
        response = httpx.post(to, json=body, headers=headers, timeout=SECONDS, trust_env=False)
    except (httpx.TransportError, httpx.InvalidURL, UnicodeError) as error:
        hint = "Is the service up (`switchboard up`) and --url right?"
        raise CommandError(f"No answer from {to}: {error or type(error).__name__}.", hint, UNREACHABLE) from error
    if response.status_code != 200:
        problem = read_problem(response.status_code, response.headers, response.content)
        raise CommandError(problem.detail, " ".join(detail for _, detail in problem.faults), FAILED)
    _result(response.json()).print(json_)


def _result(answer: dict[str, Any]) -> Result:
    quotes = table("!call", "!second", "!speaker", "words")
    for quote in answer["quotes"]:
        quotes.add_row(quote["callId"], f"{quote['start']:.1f}", quote["speaker"], quote["text"])
    spend = answer["spend"]
    tokens = spend["promptTokens"] + spend["completionTokens"]
    read = f"Read {answer['read']} of {counted(answer['matched'], 'matching call')} with {answer['model']}"
    lines = (answer["answer"], quotes) if answer["answer"] else (answer["reason"],)
    return Result(answer, lines, (f"{read}: {counted(spend['requests'], 'request')}, {tokens} tokens.",))


def mcp(url: Url = None, key: Key = None) -> None:
    """Serve tools for assistants over the Model Context Protocol, on standard input and output.

    They search and read calls, list tasks and ask questions, with the scope and team of the key; they change nothing.

    Example, the command in the configuration of an assistant:

      switchboard mcp --url https://switchboard.example.com
    """
    _require_key(key)
    try:
        from switchboard.mcp_server import create_server
    except ModuleNotFoundError as error:
        advice = 'Install it: pip install "switchboard-calls-client[mcp]".'
        raise CommandError(f"`switchboard mcp` needs the package {error.name}.", advice, FAILED) from None
    create_server(_url(url), key).run("stdio")


def _url(url: str | None) -> str:
    if url is not None:
        return url.rstrip("/")
    from serve_app.settings import Settings

    return this_machine.url_of(Settings())


def _require_key(key: str | None) -> str:
    if not key:
        advice = (
            "`switchboard keys create --workspace NAME --scope read` creates one; pass --key or SWITCHBOARD_API_KEY."
        )
        raise CommandError("No API key.", advice, USAGE)
    return key
