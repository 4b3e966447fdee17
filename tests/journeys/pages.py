"""The commands in the documentation, extracted from its pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
COMMENT = re.compile(r"\s{2,}# .*$")
INLINE_COMMAND = re.compile(r"`((?:apt-get|systemctl|switchboard) [^`]+)`")


def section(page: str, heading: str) -> str:
    """Return the text below a heading up to the next one of the second level; the whole page without a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n{heading}\n", 1)[1], flags=re.M)[0] if heading else text


def blocks(page: str, heading: str = "") -> list[str]:
    """Return the code blocks of a section."""
    return BLOCK.findall(section(page, heading))


def commands(block: str) -> list[str]:
    """Return the lines of a block, without comments."""
    lines = (COMMENT.sub("", line) for line in block.splitlines())
    return [line for line in lines if line.strip() and not line.startswith("#")]


def below(page: str, heading: str) -> list[str]:
    """Return the commands of the first code block below a heading, without comments."""
    return commands(blocks(page, heading)[0])


def inline(page: str, heading: str = "") -> list[str]:
    """Return the commands in the running text of a section."""
    return INLINE_COMMAND.findall(BLOCK.sub("", section(page, heading)))


def typed(page: str) -> list[str]:
    """Return the commands after the prompts of a page, each with its continuation lines, without output."""
    text = (ROOT / page).read_text(encoding="utf-8")
    commands = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.splitlines()
            end = next(at for at in range(1, len(lines) + 1) if "\n".join(lines[:at]).count("'") % 2 == 0)
            commands.append("\n".join(lines[:end]))
    return commands


def named(page: str, beginning: str) -> str:
    """Return the only command in the running text of a page that begins with this."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    (command,) = {code for code in re.findall(r"`([^`]+)`", text) if code.startswith(beginning)}
    return command
