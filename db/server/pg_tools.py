"""pg_dump and pg_restore: the embedded PostgreSQL's, or the system's if a server needs another version or TLS."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from psycopg import conninfo

from db.core.database import WORKSPACE_SETTING
from db.server import embedded

SYSTEM = ("/usr/lib/postgresql", "/usr/pgsql-*", "/opt/postgresql")  # of Debian, of Red Hat
OLDEST_WITH_NEW_SETTINGS = 17  # from this version on, pg_restore uses settings that earlier servers lack


class ProgramMissing(Exception):
    """No pg_dump or pg_restore fits the server; the message says which to install."""


class ProgramFailed(Exception):
    """pg_dump or pg_restore failed or timed out; the message ends with its error output."""


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
        """Run a program and return its stdout. `on_line` is called with each line of its stderr.

        It sees all workspaces of the database at `url`. The password is passed in its environment: other users can read
        arguments. Files it writes are private to its user. Raises `ProgramFailed`, also after `seconds`.
        """
        environment = dict(os.environ)
        if url is not None:
            target, password = connection_string(url)
            arguments = ["--dbname", target, "--no-password", *arguments]
            environment |= {"PGPASSWORD": password} if password else {}
        began, error_lines = time.monotonic(), list[str]()

        def on_error_line(line: str) -> None:
            error_lines[:] = [*error_lines[-9:], line]
            on_line(line)

        command = [str(self.folder / program), *map(str, arguments)]
        code, output = _run(command, environment, seconds, on_error_line)
        if code != 0:
            reason = f"timed out after {seconds:.0f} s" if time.monotonic() - began >= seconds else f"exit code {code}"
            errors = "\n".join(line for line in error_lines if "error" in line.lower() or "detail" in line.lower())
            raise ProgramFailed(
                f"{program} failed ({reason}): {errors or (error_lines[-1] if error_lines else 'no output')}"
            )
        return output


def _run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, on_error_line: Callable[[str], None]
) -> tuple[int, str]:
    """Return the exit code and stdout; the program is killed after `seconds`."""
    output = list[str]()
    with subprocess.Popen(
        command,
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
        reader = threading.Thread(target=output.extend, args=(process.stdout,), daemon=True)
        deadline.start()
        reader.start()
        try:
            for line in process.stderr:
                on_error_line(line.rstrip())
            code = process.wait()
        finally:
            deadline.cancel()
            process.kill()
            reader.join()
    return code, "".join(output)


def connection_string(url: str) -> tuple[str, str | None]:
    """Return the URL in libpq's form, in the scope of every workspace and without its password; and the password."""
    parts = conninfo.conninfo_to_dict(url)
    password = parts.pop("password", None)
    options = f"{parts.pop('options', None) or ''} -c {WORKSPACE_SETTING}=*".strip()
    parameters = {name: str(value) for name, value in parts.items() if value is not None}
    target = conninfo.make_conninfo(**parameters | {"options": options, "application_name": "switchboard backup"})
    return target, None if password is None else str(password)


def find(server: int, tls: bool, archive: int | None = None) -> Programs:
    """Return the programs for a server of major version `server`, reached by TLS or not.

    `archive`: the major version of the pg_dump whose archive is to be restored; None: to dump. Raises `ProgramMissing`.
    """
    usable = [programs for programs in _installed(tls) if is_fit(programs.major, server, archive)]
    if usable:
        return min(usable, key=lambda programs: programs.major)
    program, required_version = ("pg_dump", server) if archive is None else ("pg_restore", max(server, archive))
    installed_versions = ", ".join(sorted({str(programs.major) for programs in _installed(tls)})) or "none"
    has_old_settings = server < OLDEST_WITH_NEW_SETTINGS
    limit = f", below {OLDEST_WITH_NEW_SETTINGS}," if has_old_settings and archive is not None else ""
    raise ProgramMissing(
        f"PostgreSQL {server} needs {program} {required_version} or later{limit}; installed: {installed_versions}. "
        f"Install postgresql-client-{required_version}."
    )


def is_fit(major: int, server: int, archive: int | None) -> bool:
    """Return whether programs of version `major` work with `server`, and with an archive of pg_dump `archive`."""
    if archive is None:
        return major >= server
    is_too_new = server < OLDEST_WITH_NEW_SETTINGS <= major
    return major >= max(server, archive) and not is_too_new


def _installed(tls: bool) -> Iterator[Programs]:
    """Yield the installed programs; those of the embedded PostgreSQL support no TLS."""
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
    """Return the version of both programs in a folder; None if they are missing or differ."""
    versions = set()
    for program in ("pg_dump", "pg_restore"):
        try:
            output = subprocess.run(
                [str(folder / program), "--version"], capture_output=True, text=True, timeout=10, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return None
        version = re.search(r"(\d+)", output)
        versions.add(int(version[1]) if version else None)
    return versions.pop() if len(versions) == 1 else None
