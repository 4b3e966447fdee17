"""Prints the part of requirements.lock that a program needs, with its hashes: images install no test tools.

    python service_lock.py requirements.lock pyproject.toml            the service
    python service_lock.py requirements.lock torch torchaudio          two packages and what they need
    ... --without torch 'nvidia-*'                                     the same, but for packages of these names

Standard library only: it runs before anything is installed. What needs what is in the lock's own remarks ("# via").
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
    """Return the package that a requirement or the head of an entry names."""
    found = NAME.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} names no package.")
    return normalized(found.group())


def entries(lock: str) -> dict[str, str]:
    """Return the text of each package's entry: its version, hashes and remarks."""
    found: dict[str, list[str]] = {}
    for line in lock.splitlines():
        if line and line[0] not in " #":
            current = found.setdefault(name_of(line), [])
        elif not found:
            continue  # the head of the file
        current.append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def needed(roots: Iterable[str], found: dict[str, str]) -> set[str]:
    """Return the roots and everything that they need, directly or not. Raises ValueError for one that is not locked."""
    parents = {name: set(re.findall(r"^ +# (?: +|via )(\S+)", text, re.MULTILINE)) for name, text in found.items()}
    reached = set(roots)
    if missing := reached - found.keys():
        raise ValueError(f"Not in the lock: {', '.join(sorted(missing))}. `make lock` renews it.")
    while more := {name for name, by in parents.items() if name not in reached and by & reached}:
        reached |= more
    return reached


def direct(pyproject: Path) -> set[str]:
    """Return the packages that a project needs itself, without its extras, and what builds it."""
    data = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    wanted = [*data["project"]["dependencies"], *data["build-system"]["requires"]]
    return {name_of(one) for one in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument("wanted", nargs="+", help="packages, or a pyproject.toml")
    parser.add_argument("--without", nargs="+", default=[], help="names of packages that are not printed")
    options = parser.parse_args()
    found = entries(options.lock.read_text(encoding="utf-8"))
    roots: set[str] = set()
    for one in options.wanted:
        roots |= direct(Path(one)) if one.endswith(".toml") else {normalized(one)}
    chosen = sorted(
        name for name in needed(roots, found) if not any(fnmatchcase(name, pattern) for pattern in options.without)
    )
    print("".join(found[name] for name in chosen), end="")  # noqa: T201


if __name__ == "__main__":
    main()
