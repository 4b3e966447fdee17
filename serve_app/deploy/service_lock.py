"""Prints the part of requirements.lock that a program needs, with its hashes: images install no test tools.

    python service_lock.py requirements.lock pyproject.toml            the service
    python service_lock.py requirements.lock torch torchaudio          two packages and their dependencies
    ... --without torch 'nvidia-*'                                     the same, except packages of these names

Standard library only: it runs before anything is installed. Dependencies are read from the lock's comments ("# via").
"""

import argparse
import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9._-]+")


def normalized(name: str) -> str:
    """Return a package's name as the lock writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """Return the package of a requirement or of an entry's first line. Raises ValueError without one."""
    match = NAME.match(requirement)
    if match is None:
        raise ValueError(f"{requirement!r} is not a requirement.")
    return normalized(match.group())


def entries(lock: str) -> dict[str, str]:
    """Return the text of each package's entry: its version, hashes and comments."""
    lines_of: dict[str, list[str]] = {}
    for line in lock.splitlines():
        if line and line[0] not in " #":
            current = lines_of.setdefault(name_of(line), [])
        elif not lines_of:
            continue  # the head of the file
        current.append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in lines_of.items()}


def needed(roots: Iterable[str], locked: dict[str, str]) -> set[str]:
    """Return the roots and all their dependencies. Raises ValueError for a package that is not locked."""
    parents = {name: set(re.findall(r"^ +# (?: +|via )(\S+)", text, re.MULTILINE)) for name, text in locked.items()}
    reached = set(roots)
    if missing := reached - locked.keys():
        raise ValueError(f"Not in the lock: {', '.join(sorted(missing))}. Run `make lock`.")
    while more := {name for name, by in parents.items() if name not in reached and by & reached}:
        reached |= more
    return reached


def direct(pyproject: Path) -> set[str]:
    """Return a project's direct dependencies, without its extras, and its build dependencies."""
    data = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    requirements = [*data["project"]["dependencies"], *data["build-system"]["requires"]]
    return {name_of(requirement) for requirement in requirements}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument("wanted", nargs="+", help="packages, or a pyproject.toml")
    parser.add_argument("--without", nargs="+", default=[], help="names of packages that are not printed")
    options = parser.parse_args()
    locked = entries(options.lock.read_text(encoding="utf-8"))
    roots: set[str] = set()
    for root in options.wanted:
        roots |= direct(Path(root)) if root.endswith(".toml") else {normalized(root)}
    chosen = sorted(
        name for name in needed(roots, locked) if not any(fnmatchcase(name, pattern) for pattern in options.without)
    )
    print("".join(locked[name] for name in chosen), end="")  # noqa: T201


if __name__ == "__main__":
    main()
