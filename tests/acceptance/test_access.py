"""Access to Ray: its ports listen on this machine only, and reject clients without the token."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

from serve_app.service import ray_access
from tests.acceptance.running import Client, RunningService
from tests.file_server import FileServer
from tests.listening import Door, doors
from tests.synthetic_calls import synthetic_calls

# Without a token, as any user of this machine: prints what it was allowed to do.
AS_A_DRIVER = "import ray; ray.init(ADDRESS, log_to_driver=False); print('GOT IN', ray.nodes())"
AS_A_CLIENT = "from ray._raylet import GcsClient; print('GOT IN', GcsClient(ADDRESS).internal_kv_keys(b'', b'', 5))"
METHODS = (  # one of each kind of server; each answers UNAUTHENTICATED to its own, UNIMPLEMENTED to the others'
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Push",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.serve.ASGIService/HandleRequest",
)
AGENT_PORT = 52365
# Servers of Ray's that no setting binds to loopback: what a replica offers to other replicas.
ON_EVERY_INTERFACE = "ray::ServeReplica:"


def outsider(script: str, **names: str) -> str:
    """Run `script` as a user without the token; return its output."""
    for name, value in names.items():
        script = script.replace(name, repr(value))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SWITCHBOARD_"))}
    environment |= {"HOME": "/nonexistent", "RAY_AUTH_MODE": "disabled", **ray_access.ONE_MACHINE}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=360
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def listening(service: RunningService) -> list[Door]:
    assert service.process is not None
    return doors(service.process.pid)


def test_every_port_of_a_service_on_one_machine_is_bound_to_loopback(listening: list[Door]) -> None:
    assert {door.who for door in listening} >= {"gcs_server", "raylet", "ray::DashboardAgent", "haproxy"}
    beyond = [door for door in listening if not door.is_loopback]
    assert [door for door in beyond if not door.who.startswith(ON_EVERY_INTERFACE)] == []
    for door in beyond:  # gRPC servers that want the token
        assert "UNAUTHENTICATED" in peer(door)


def test_the_token_is_for_its_user_alone_and_in_nobodys_environment(service: RunningService) -> None:
    assert service.process is not None
    (replica,) = service.pids("Intake")
    environment = psutil.Process(replica).environ()
    path = Path(environment["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text() not in json.dumps(environment)
    assert environment["RAY_AUTH_MODE"] == "token"


def test_rays_sockets_logs_and_spilled_sound_lie_where_only_their_user_may_enter(service: RunningService) -> None:
    (replica,) = service.pids("Intake")
    folder = Path(psutil.Process(replica).environ()["RAY_TMPDIR"])
    assert (folder / "ray" / "session_latest" / "logs").is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_bare_driver_is_not_let_in(service: RunningService) -> None:
    output = outsider(AS_A_DRIVER, ADDRESS=service.ready["rayAddress"])
    assert "GOT IN" not in output
    assert "UNAUTHENTICATED" in output.upper() or "AUTHENTICATION" in output.upper()


def test_a_bare_client_reads_nothing_from_the_gcs(service: RunningService) -> None:
    output = outsider(AS_A_CLIENT, ADDRESS=service.ready["rayAddress"])
    assert "GOT IN" not in output
    assert "AUTHENTICAT" in output.upper()


def test_no_job_is_taken_by_a_dashboard_or_its_agent(listening: list[Door]) -> None:
    """One POST to the agent ran a command as the service's user."""
    asked = []
    for door in listening:
        if "Dashboard" not in door.who and "dashboard" not in door.who:
            continue
        for path in ("/api/jobs/", "/api/job_agent/jobs/"):
            try:
                answer = httpx.post(f"http://127.0.0.1:{door.port}{path}", json={"entrypoint": "true"}, timeout=5)
            except httpx.HTTPError:
                continue  # that port is gRPC
            asked.append(answer.status_code)
    assert set(asked) <= {401, 404, 405}
    # The agent does without its job API where another Ray of this machine has the port: ray.init can name no other.
    assert 401 in asked or AGENT_PORT not in {door.port for door in listening}


def test_no_process_of_ray_answers_a_peer_without_the_token(listening: list[Door]) -> None:
    answers = {f"{door.who} {door.port}": peer(door) for door in listening if door.who != "haproxy"}
    print(answers)
    for who in ("gcs_server", "raylet", "ray::ServeController", "ray::ServeReplica:intake:Intake"):
        assert any(name.startswith(who) and "UNAUTHENTICATED" in answer for name, answer in answers.items()), who
    assert not any(answer.startswith("GOT IN") for tolds in answers.values() for answer in tolds)


def peer(door: Door) -> set[str]:
    """Return the responses of this port to a peer without the token that speaks as Ray's processes do."""
    responses = set()
    with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
        for method in METHODS:
            call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
            try:
                responses.add(f"GOT IN by {method}: {call(b'', timeout=10)!r}")
            except grpc.RpcError as error:
                responses.add(error.code().name)
    return responses


async def test_what_is_kept_of_a_call_is_for_the_services_user_alone(
    service: RunningService, client: Client, files: FileServer
) -> None:
    body = synthetic_calls()[0].submissions(files.add)[-1]
    await client.accepted(body)
    await client.ended([body["callId"]])
    stored = list((service.folder / "recordings").rglob("*"))
    assert stored
    open_to_others = [path for path in (service.folder / "recordings", *stored) if path.stat().st_mode & 0o077]
    assert open_to_others == []
