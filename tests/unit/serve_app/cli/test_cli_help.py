import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.asr.faster_whisper import FasterWhisper
from pipeline.checkpoints.resolve import local, resolve
from pipeline.errors import CheckpointMissing, StateUnavailable
from serve_app.cli import COMMANDS, app
from serve_app.cli.ui.errors import CommandError, explain
from serve_app.cli.ui.lazy import Entry, make_app

runner = CliRunner()


def every_command() -> Iterator[list[str]]:
    for entry in COMMANDS:
        command = entry.load()
        yield [entry.name]
        for name in getattr(command, "commands", {}):
            yield [entry.name, name]


def test_every_command_has_help() -> None:
    for path in every_command():
        result = runner.invoke(app, [*path, "--help"], env={"COLUMNS": "160", "TERM": "dumb"})
        assert result.exit_code == 0, (path, result.output)
        assert f"Usage: switchboard {' '.join(path)}" in result.output, path


def test_the_overview_names_every_command_and_imports_none_of_them() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['switchboard', '--help']\n"
            "from serve_app.cli import main\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            "heavy = ('torch', 'ray', 'sqlalchemy', 'psycopg', 'numpy', 'httpx', 'db', 'serve_app.cli.calls.calls')\n"
            "print([name for name in heavy if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert seen.strip().endswith("[]")
    assert all(entry.name in seen for entry in COMMANDS)


def test_the_version_is_shown() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("switchboard ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["calls", "list", "--limit", "none"],
        ["calls", "show", "not-a-uuid"],
        ["keys", "create", "--scope", "owner"],
        ["submit", "call.wav"],
        ["submit", "no-such-file.wav", "--key", "sb_x"],
        ["submit", "a.wav", "b.wav", "--second", "c.wav", "--key", "sb_x"],
        ["process", "no-such-file.wav"],
        ["workspaces", "create", "acme", "--time-zone", "Mars/Olympus"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_touches_nothing(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWITCHBOARD_API_KEY", raising=False)
    monkeypatch.setattr("serve_app.cli.ui.database.database_url", lambda *_: pytest.fail("the database was opened"))
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


def test_a_mistyped_command_is_named() -> None:
    assert "Did you mean 'calls'?" in runner.invoke(app, ["call", "list"]).output


def test_a_database_that_does_not_answer_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    result = runner.invoke(app, ["calls", "list"])
    assert result.exit_code == 3
    assert "The database is not reachable" in result.output
    assert "doctor" in result.output


def test_a_service_that_does_not_answer_ends_with_3() -> None:
    result = runner.invoke(app, ["submit", "https://pbx.example/1.wav", "--key", "sb_x", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 3
    assert "No answer from http://127.0.0.1:1/submit" in result.output


def test_a_setting_that_cannot_be_used_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_HTTP__PORT", "eighty")
    result = runner.invoke(app, ["calls", "list"])
    assert result.exit_code == 2
    assert "SWITCHBOARD_HTTP__PORT" in result.output


def explode() -> None:
    raise RuntimeError("boom")


def exploding() -> typer.Typer:
    return make_app([Entry("explode", f"{__name__}:explode", "fails", "Run"), COMMANDS[0]])


def test_an_unforeseen_error_is_a_sentence_and_a_traceback_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_DEBUG", "")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[explode.__module__])
    result = runner.invoke(exploding(), ["explode"])
    assert result.exit_code == 1
    assert "RuntimeError: boom" in result.output
    raised = runner.invoke(exploding(), ["--debug", "explode"])
    assert isinstance(raised.exception, RuntimeError)


@pytest.mark.parametrize(
    ("error", "exit_code", "sentence"),
    [
        (CommandError("No.", "Do this.", 2), 2, "No."),
        (StateUnavailable("gone away"), 3, "gone away"),
        (CheckpointMissing("no model"), 1, "checkpoint_missing"),
    ],
)
def test_errors_have_a_sentence_and_an_exit_code(error: Exception, exit_code: int, sentence: str) -> None:
    explanation = explain(error)
    assert explanation.exit_code == exit_code
    assert sentence in explanation.sentence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--country", "Germany"), "'Germany' is not a country code"),
        (("--time-zone", "Berlin"), "'Berlin' is not a time zone"),
        (("--from", ""), "--from and --to take 1 to 256 characters"),
        (("--model", "huge"), "'huge' names no"),
        (("--model", "./small"), "missing"),
        (("--pipeline", "nonsense"), "'nonsense' names no"),
    ],
)
def test_process_checks_its_options_before_it_loads_anything(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "call.wav").write_bytes(b"not read")
    monkeypatch.setattr("serve_app.cli.calls.process._workers", lambda _: pytest.fail("models are loaded"))
    result = runner.invoke(app, ["process", "call.wav", *options])
    assert result.exit_code == 2, result.output
    assert message in result.output


@pytest.mark.parametrize("name", ["small", "base", "large-v3-turbo", "owner/small"])
def test_a_folder_of_a_models_name_in_the_current_folder_is_not_that_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = FasterWhisper.CHECKPOINTS
    folder = tmp_path / name
    folder.mkdir(parents=True)
    for file in kind.required:
        (folder / file).write_bytes(b"of somebody else")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    checkpoint = local(name, kind, tmp_path / "store")
    assert checkpoint is None or tmp_path not in checkpoint.folder.parents
    assert resolve(f"./{name}", kind, "cpu").folder == folder
