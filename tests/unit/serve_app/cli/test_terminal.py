import io
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from serve_app import cli
from serve_app.cli.ui.output import Terminal, wrapped

ID = "0c9d7a0e-5f0b-4d3c-9a43-7f1d8f0f2a11"


def printed(text: str | Text, width: int = 80, wraps: bool = True, **options: object) -> list[str]:
    stream = io.StringIO()
    Terminal(wraps=wraps, file=stream, width=width, highlight=False).print(text, **options)
    return stream.getvalue().splitlines()


def test_a_sentence_is_wrapped_between_words():
    assert printed("Created workspace 'acme', which is the first one there is.", 30) == [
        "Created workspace 'acme',",
        "which is the first one there",
        "is.",
    ]


@pytest.mark.parametrize("as_row", [False, True])
def test_texts_of_others_do_not_command_the_terminal(as_row):
    sent = Text("Ana\x1b[2J\x1b]0;title\x07 \u202e+49\x9b1m\tBerg\nlast")
    stream = io.StringIO()
    terminal = Terminal(
        wraps=False, file=stream, width=80, highlight=False, force_terminal=True, color_system="standard"
    )
    if as_row:
        table = Table.grid()
        table.add_row(sent)
        terminal.print(table)
    else:
        terminal.print(Text.assemble(sent, ("red", "red")))
    shown = stream.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).isascii()
    assert set(re.findall(r"\x1b[^a-z]*[a-zA-Z]?", shown)) <= {"\x1b[31m", "\x1b[0m"}
    assert "Ana[2J]0;title +491m" in shown and "Berg" in shown


@pytest.mark.parametrize(
    "whole",
    [
        f"`switchboard voiceprints assign {ID} USER_ID`",
        "https://recordings.telephony-gateway.internal.stadtwerke.example/2026/11/02/call.wav",
        "/srv/recordings-of-the-telephony-gateway/recordings-of-the-telephony-gateway/store",
    ],
)
def test_what_is_copied_stays_whole_on_a_narrow_terminal(whole):
    lines = printed(f"It is not assigned to a member. Look at {whole}, which is wide.", 40)
    assert any(whole in line for line in lines)
    assert all(len(line) <= 40 for line in lines if whole not in line)


def test_what_stands_in_parentheses_and_is_short_stays_together():
    assert printed('Send the form, due 2025-04-18 (by "Friday"), for the customer', 36) == [
        "Send the form, due 2025-04-18",
        '(by "Friday"), for the customer',
    ]
    assert printed("One (which nobody asked for, and which is long) two", 20)[0] == "One (which nobody"
    assert printed("One (as said) two", 6) == ["One", "(as", "said)", "two"]


def test_further_lines_stand_below_the_text_and_not_below_its_indentation():
    assert printed("  - callId: must be a UUID, as text", 20) == ["  - callId: must be", "    a UUID, as text"]
    assert printed("Two:\n  one line that is wide", 16) == ["Two:", "  one line that", "  is wide"]


def test_styles_stay_where_they_were():
    text = wrapped(Text.assemble(("Error: ", "bold red"), "no such ", ("file", "dim")), 10)
    assert text.plain == "Error: no\nsuch file"
    assert [(text.plain[span.start : span.end].strip(), span.style) for span in text.spans] == [
        ("Error:", "bold red"),
        ("file", "dim"),
    ]


def test_without_a_terminal_a_sentence_stays_on_its_line_and_lines_of_data_always_do():
    assert len(printed("word " * 50, wraps=False)) == 1
    assert len(printed("word " * 50, soft_wrap=True)) == 1


@given(st.text("ab `-\n漢é[]", max_size=60), st.integers(5, 30))
def test_nothing_is_lost_and_only_what_cannot_be_broken_is_wide(text, width):
    lines = wrapped(Text(text), width).plain
    assert lines.split() == text.split()
    for line in lines.split("\n"):
        inner = re.sub(r"^\s*(?:- )?", "", line).rstrip()
        assert cell_len(line.rstrip()) <= width or " " not in re.sub(r"`[^`]*`", "", inner)


def test_a_warning_that_is_logged_is_wrapped_as_everything_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "/srv/recordings-of-the-telephony-gateway/checkpoints"
    logger = logging.Logger("nobody handles it")

    def command(prog_name: str) -> None:
        logger.warning("Using the [synthetic] recognition model in %s. No use on real voices.", folder)

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(logging, "lastResort", None)
    monkeypatch.setattr(cli, "app", command)
    cli.main()
    assert capsys.readouterr().err.splitlines() == [
        "Using the [synthetic] recognition model",
        "in",
        f"{folder}.",
        "No use on real voices.",
    ]
