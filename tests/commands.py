"""Commands of `switchboard`, run in this process."""

from concurrent.futures import ThreadPoolExecutor

from typer.testing import CliRunner

from serve_app.cli import app


def run(*arguments: str, code: int = 0) -> str:
    """Run a command and return its output in one line; fail unless it exits with `code`."""
    with ThreadPoolExecutor(1) as thread:  # the command runs its own event loop
        done = thread.submit(CliRunner().invoke, app, arguments, env={"COLUMNS": "80"}).result()
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())
