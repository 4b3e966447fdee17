from dataclasses import dataclass

import typer
from typer.exceptions import TyperException

from pipeline import errors as call_errors

FAILED, USAGE, UNREACHABLE = 1, 2, 3

DATABASE_ERRORS = {
    "psycopg.OperationalError",
    "psycopg_pool.PoolTimeout",
    "sqlalchemy.OperationalError",
    "sqlalchemy.InterfaceError",
    "sqlalchemy.TimeoutError",
}

PASS_ON = (typer.Exit, typer.Abort, TyperException)  # typer prints wrong usage itself, exit code 2


class CommandError(Exception):
    """A command failed; `advice` says what to do."""

    def __init__(self, message: str, advice: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message, advice, exit_code)
        self.explanation = Explanation(message, advice, exit_code)


@dataclass(frozen=True, slots=True)
class Explanation:
    sentence: str
    advice: str
    exit_code: int


def explain(error: Exception) -> Explanation:
    """Return the explanation of an error; for an unexpected error, its type and message."""
    if isinstance(error, CommandError):
        return error.explanation
    if isinstance(error, call_errors.StateUnavailable):
        return _database(error)
    if isinstance(error, call_errors.CallError):
        advice = "Retrying later may help." if error.retryable else ""
        code = "" if error.code == "service_error" else f" ({error.code})"  # codes are those of failed calls
        return Explanation(f"{error.message}{code}", advice, FAILED)
    return _of_library(error) or Explanation(
        f"{type(error).__name__}: {error}",
        "Unexpected error: `switchboard --debug ...` shows the traceback; `switchboard doctor` may show the cause.",
        FAILED,
    )


def _of_library(error: Exception) -> Explanation | None:
    """Explain errors of libraries by class name, so that no library is imported for the comparison."""
    names = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    if names & {"pydantic_core.ValidationError", "pydantic_settings.SettingsError"}:
        return _settings(error)
    if names & DATABASE_ERRORS:
        return _database(error)
    if names & {"db.EmbeddedPostgresError", "db.DatabaseUnfit"}:
        return Explanation(str(error), "`switchboard doctor` shows details.", UNREACHABLE)
    if "db.NotInDirectory" in names:
        return Explanation(str(error), "`switchboard workspaces list` and `teams list` show the existing ones.", FAILED)
    if isinstance(error, OSError) and error.filename:
        return Explanation(f"{error.filename}: {error.strerror}", "", FAILED)
    return None


def _database(error: Exception) -> Explanation:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return Explanation(
        f"The database is not reachable: {lines[0] if lines else type(error).__name__}",
        "Check SWITCHBOARD_DATABASE_URL and that PostgreSQL runs; `switchboard doctor` shows details.",
        UNREACHABLE,
    )


def _settings(error: Exception) -> Explanation:
    title = str(getattr(error, "title", "Settings"))
    if title == "Settings":
        from serve_app import settings

        lines = [f"{variable}: {fault}" for variable, fault in settings.faults(error).items()]  # type: ignore[arg-type]
    else:
        faults = error.errors(include_input=False, include_url=False)  # type: ignore[attr-defined]
        lines = [f"{'.'.join(str(part) for part in f['loc'])}: {f['msg']}" for f in faults]
    return Explanation(
        f"Invalid {title.lower() or 'input'}:\n  " + "\n  ".join(lines), "Fix or unset these settings.", USAGE
    )


def report(error: Exception) -> int:
    """Print the explanation on stderr; return the exit code."""
    from rich.text import Text

    from serve_app.cli.ui.output import err

    explanation = explain(error)
    console = err()
    console.print(Text.assemble(("Error: ", "bold red"), explanation.sentence))
    if explanation.advice:
        console.print(Text(explanation.advice, style="yellow"))
    return explanation.exit_code
