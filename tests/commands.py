"""Commands of `switchboard`, run in this process."""

from concurrent.futures import ThreadPoolExecutor

from typer.testing import CliRunner

from serve_app.cli import app


def run(*arguments: str, code: int = 0) -> str:
    """What a command prints, in one line; fails unless it ends with `code`."""
    with ThreadPoolExecutor(1) as thread:  # the command has an event loop of its own
        done = thread.submit(CliRunner().invoke, app, arguments, env={"COLUMNS": "80"}).result()
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())
