"""Links, commands, targets, modules, paths and settings on a Markdown page exist."""

import re
import shlex
import subprocess
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from serve_app.cli import COMMANDS
from serve_app.settings import COMMAND_LINE, documented
from tests.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SETTINGS = {setting.variable for setting in documented()} | COMMAND_LINE
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
BEFORE = r"(?:^|[;&|('\"]\s*|\$ |-- |bin/|[A-Z_]+=\S+ |switchboard )"  # a command
COMMAND = re.compile(BEFORE + r"""switchboard +((?:"[^"\n]*"|'[^'\n]*'|[^;&|)#`'"\n])+)""", re.MULTILINE)
TARGET = re.compile(r"(?:^|[;&] *)make ([a-z][a-z-]*)", re.MULTILINE)
PACKAGES = "bench|db|pipeline|serve_app|switchboard|tests"
SUFFIXES = "html|ipynb|json|lock|md|npz|py|sh|sql|toml|tsv|xml|yaml|yml"


@cache
def files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).exists()]


@cache
def source() -> str:
    """Return the source of all programs: it contains the paths that they write and the settings of sessions."""
    names = (name for name in files() if name.endswith((".py", ".sql")) and name != "tests/unit/docs/test_docs.py")
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def code(text: str) -> str:
    """Return the fences and spans of a page; each span is a line."""
    fences = re.sub(r"\\\n *", "", "\n".join(FENCE.findall(text)))
    return "\n".join([fences, *(span.replace("\n", " ") for span in SPAN.findall(FENCE.sub("", text)))])


def is_link(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path if path else page).resolve()
    return target.exists() and (not anchor or anchor in anchors(target))


@cache
def command(name: str) -> Any:
    return next((entry.load() for entry in COMMANDS if entry.name == name), None)


def is_command(line: str) -> bool:
    """Return whether `switchboard` has this command with these options."""
    words = shlex.split(line)
    if words[0].startswith("-") or words[0].isupper():
        return words[0] in ("--debug", "--help", "--version", "COMMAND")
    called = command(words.pop(0))
    while words and hasattr(called, "commands") and not words[0].startswith("-"):
        called = called.commands.get(words.pop(0))
    if called is None:
        return False
    options = {option for parameter in called.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= options | {"--help", "--debug"}


def is_program(name: str) -> bool:
    """Return whether `python -m name` runs a module of the repository or of an installed package."""
    path, package = ROOT / name.replace(".", "/"), name.partition(".")[0]
    is_local = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    return is_local or (not (ROOT / package).exists() and find_spec(package) is not None)


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module, a name in a module, a file, or a setting of database sessions."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = (ROOT / "client/src" if parts[0] == "switchboard" else ROOT).joinpath(*parts[:count])
        module = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
        if count == len(parts) and (module or path.is_dir()):
            return True
        if module and re.search(rf"\b{parts[count]}\b", module.read_text(encoding="utf-8")):
            return True
    return any(f"{quote}{name}{quote}" in source() for quote in "\"'") or any(
        file.endswith(f"/{name}") for file in files()
    )


def is_path(page: Path, path: str) -> bool:
    """Return whether the repository has this file or folder, or a program writes a file of this name.

    A README refers to files below its folder by the end of their paths, a page of `docs` to any file.
    """
    path = path.rstrip("./")
    folder = page.parent.relative_to(ROOT).as_posix()
    scope = "" if folder in (".", "docs", "docs/decisions") else f"{folder}/"
    patterns = (path, f"{path}/*", f"{scope}{path}", f"{scope}*/{path}", f"{scope}*/{path}/*")
    written = f'"{path}"' in source() or f"={path} " in MAKEFILE
    return written or any(fnmatch(file, pattern) for file in files() for pattern in patterns)


def is_setting(name: str) -> bool:
    return name in SETTINGS or any(setting.startswith(f"{name}__") for setting in SETTINGS)


def missing(page: Path, text: str) -> list[str]:
    """Return the names on a page that do not exist."""
    snippets = code(text)
    folders = "|".join(sorted({re.escape(name.partition("/")[0]) for name in files() if "/" in name}))
    links = [link for link in LINK.findall(SPAN.sub("", FENCE.sub("", text))) if ":" not in link]
    paths = set(re.findall(rf"(?<![\w./:@-])(?:~/switchboard/)?((?:{folders})/[\w./*-]+)", snippets))
    paths |= set(re.findall(rf"^((?:[\w-]+/)*[\w*-]+\.(?:{SUFFIXES}))(?=$|:)", snippets, re.MULTILINE))
    modules = re.findall(rf"(?<![\w./@-])(?<!-m )((?:{PACKAGES})(?:\.[a-z_]\w*)+)(?![\w./-])", snippets)
    programs = re.findall(r"python3? -m ([\w.]+)", snippets)
    settings = re.findall(r"SWITCHBOARD_[A-Z]\w*[A-Z](?![\w*])", text)
    return [
        *(f"link {link}" for link in links if not is_link(page, link)),
        *(f"switchboard {line}" for line in COMMAND.findall(snippets) if not is_command(line)),
        *(f"make {name}" for name in TARGET.findall(snippets) if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)),
        *(f"python -m {name}" for name in programs if not is_program(name)),
        *(f"module {name}" for name in modules if not is_module(name)),
        *(f"path {path}" for path in sorted(paths) if not is_path(page, path)),
        *(f"setting {name}" for name in settings if not is_setting(name)),
    ]


@pytest.mark.parametrize("page", [name for name in files() if name.endswith(".md")])
def test_names_on_a_page_exist(page: str) -> None:
    names = missing(ROOT / page, (ROOT / page).read_text(encoding="utf-8"))
    assert not names, "\n".join(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[no page](docs/nothing.md)", "link docs/nothing.md"),
        ("[no heading](docs/api.md#nothing)", "link docs/api.md#nothing"),
        ("`switchboard cals list`", "switchboard cals list"),
        ("```\nexport A=1; switchboard calls lst --json  # all\n```", "switchboard calls lst --json  "),
        ("```\nswitchboard keys create \\\n    --scopes read\n```", "switchboard keys create --scopes read"),
        ("`make tests`", "make tests"),
        ("`python -m bench.nothing`", "python -m bench.nothing"),
        ("`python -m nothing`", "python -m nothing"),
        ("`pipeline.runtime.nothing`", "module pipeline.runtime.nothing"),
        ("`serve_app/nothing.py`", "path serve_app/nothing.py"),
        ("```\nbash ~/switchboard/serve_app/deploy/nothing.sh\n```", "path serve_app/deploy/nothing.sh"),
        ("`no_such_file.py`", "path no_such_file.py"),
        ("Set SWITCHBOARD_LIMITS__BACKLOGS.", "setting SWITCHBOARD_LIMITS__BACKLOGS"),
    ],
)
def test_a_missing_target_is_reported(text: str, expected: str) -> None:
    assert missing(ROOT / "README.md", text) == [expected]
