"""pg_dump and pg_restore: the embedded PostgreSQL's, or the system's where a server needs another version or TLS."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from psycopg import conninfo

from db.core.database import WORKSPACE_SETTING
from db.server import embedded

SYSTEM = ("/usr/lib/postgresql", "/usr/pgsql-*", "/opt/postgresql")  # of Debian, of Red Hat
OLDEST_WITH_NEW_SETTINGS = 17  # pg_restore from then on sets what servers before do not know


class ProgramMissing(Exception):
    """No pg_dump or pg_restore fits the server; the message says which to install."""


class ProgramFailed(Exception):
    """pg_dump or pg_restore failed, or took longer than it may; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with pg_dump and pg_restore of one major version."""

    folder: Path
    major: int

    def run(
        self,
        program: str,
        arguments: Sequence[str | Path],
        url: str | None,
        seconds: float,
        on_line: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Run a program and return what it wrote to stdout. `on_line` is called with each line of its stderr.

        It sees all workspaces of the database at `url`. A password goes through its environment: others see arguments.
        What it writes is for its user alone. Raises `ProgramFailed`, also after `seconds`.
        """
        environment = dict(os.environ)
        if url is not None:
            target, password = connection_string(url)
            arguments = ["--dbname", target, "--no-password", *arguments]
            environment |= {"PGPASSWORD": password} if password else {}
        began, said, written = time.monotonic(), list[str](), list[str]()
        with subprocess.Popen(
            [str(self.folder / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            umask=0o077,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            deadline = threading.Timer(seconds, process.kill)
            reader = threading.Thread(target=written.extend, args=(process.stdout,), daemon=True)
            deadline.start()
            reader.start()
            try:
                for line in process.stderr:
                    said = [*said[-9:], line.rstrip()]
                    on_line(line.rstrip())
                code = process.wait()
            finally:
                deadline.cancel()
                process.kill()
                reader.join()
        if code != 0:
            over = (
                f"it did not end within {seconds:.0f} s" if time.monotonic() - began >= seconds else f"exit code {code}"
            )
            told = "\n".join(line for line in said if "error" in line.lower() or "detail" in line.lower())
            raise ProgramFailed(f"{program} failed ({over}): {told or (said[-1] if said else 'it said nothing')}")
        return "".join(written)


def connection_string(url: str) -> tuple[str, str | None]:
    """The URL as libpq takes it, in the scope of every workspace and without its password; and the password."""
    parts = conninfo.conninfo_to_dict(url)
    password = parts.pop("password", None)
    options = f"{parts.pop('options', None) or ''} -c {WORKSPACE_SETTING}=*".strip()
    given = {name: str(value) for name, value in parts.items() if value is not None}
    target = conninfo.make_conninfo(**given | {"options": options, "application_name": "switchboard backup"})
    return target, None if password is None else str(password)


def find(server: int, tls: bool, archive: int | None = None) -> Programs:
    """The programs for a server of major version `server`, reached by TLS or not.

    `archive`: the major version of the pg_dump whose archive is to be restored; None: to dump. Raises `ProgramMissing`.
    """
    fit = [one for one in _installed(tls) if is_fit(one.major, server, archive)]
    if fit:
        return min(fit, key=lambda one: one.major)
    what, wanted = ("pg_dump", server) if archive is None else ("pg_restore", max(server, archive))
    there = ", ".join(sorted({str(one.major) for one in _installed(tls)})) or "none"
    old = server < OLDEST_WITH_NEW_SETTINGS
    limit = f", below {OLDEST_WITH_NEW_SETTINGS}," if old and archive is not None else ""
    raise ProgramMissing(
        f"It takes {what} {wanted} or later{limit} for this server (PostgreSQL {server}); installed: {there}. "
        f"Install postgresql-client-{wanted}."
    )


def is_fit(major: int, server: int, archive: int | None) -> bool:
    """Whether a program of version `major` serves `server`, and reads pg_dump `archive`'s archive (None: it dumps)."""
    if archive is None:
        return major >= server
    knows_too_much = server < OLDEST_WITH_NEW_SETTINGS <= major
    return major >= max(server, archive) and not knows_too_much


def _installed(tls: bool) -> Iterator[Programs]:
    """Those of the embedded PostgreSQL know no TLS."""
    folders = [] if tls else [embedded.programs()]
    on_path = shutil.which("pg_dump")
    folders += [Path(on_path).resolve().parent] if on_path else []
    for folder in dict.fromkeys([*folders, *_system_folders(SYSTEM)]):
        if (major := _major(folder)) is not None:
            yield Programs(folder, major)


def _system_folders(patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(Path("/").glob(f"{pattern.lstrip('/')}/bin"))
        yield from sorted(Path("/").glob(f"{pattern.lstrip('/')}/*/bin"))


def _major(folder: Path) -> int | None:
    """The version of both programs in a folder; None where they are not there, or differ."""
    found = set()
    for program in ("pg_dump", "pg_restore"):
        try:
            told = subprocess.run(
                [str(folder / program), "--version"], capture_output=True, text=True, timeout=10, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return None
        version = re.search(r"(\d+)", told)
        found.add(int(version[1]) if version else None)
    return found.pop() if len(found) == 1 else None
