"""The commands that the documentation tells people to type, taken from its pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
COMMENT = re.compile(r"\s{2,}# .*$")


def below(page: str, heading: str) -> list[str]:
    """The commands of the first block of code below a heading, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = BLOCK.findall(text.split(f"\n{heading}\n", 1)[1])[:1]
    return [COMMENT.sub("", line) for line in block.splitlines() if line.strip()]


def typed(page: str) -> list[str]:
    """What stands behind the prompts of a page, each with its further lines; the answers are left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.splitlines()
            end = next(at for at in range(1, len(lines) + 1) if "\n".join(lines[:at]).count("'") % 2 == 0)
            found.append("\n".join(lines[:end]))
    return found


def named(page: str, beginning: str) -> str:
    """The only command in the running text of a page that begins so."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    (found,) = {one for one in re.findall(r"`([^`]+)`", text) if one.startswith(beginning)}
    return found
