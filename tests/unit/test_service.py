"""What is refused before anything is started, and what is set for what will be."""

import os
import socket
import subprocess
import sys

import pytest

from serve_app.service import Service, ServiceError, own_port, prepare_environment
from serve_app.settings import Settings

OURS = ("SWITCHBOARD_", "RAY_", "MALLOC_")


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings(http={"host": "127.0.0.1", "port": port})
        with pytest.raises(ServiceError, match=f"port {port} .*SWITCHBOARD_HTTP__PORT"):
            Service(settings, "local").start()


def test_a_cluster_needs_a_database_that_every_node_reaches() -> None:
    with pytest.raises(ServiceError, match="SWITCHBOARD_DATABASE_URL"):
        Service(Settings(), "127.0.0.1:6379").start()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """This process's, with nothing set for us or for Ray."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    monkeypatch.setattr(os, "environ", kept)
    return kept


def test_where_another_service_has_its_replicas_and_its_proxy_this_one_has_ports_of_its_own(
    environment: dict[str, str],
) -> None:
    def ports() -> tuple[int, int, int]:
        for name in [name for name in environment if name.startswith("RAY_SERVE_")]:
            del environment[name]
        prepare_environment(Settings(), "postgresql://localhost/calls")
        names = ("DIRECT_INGRESS_MIN_HTTP_PORT", "DIRECT_INGRESS_MAX_HTTP_PORT", "FALLBACK_PROXY_HTTP_PORT")
        first, last, fallback = (int(environment[f"RAY_SERVE_{name}"]) for name in names)
        return first, last, fallback

    first, last, fallback = ports()
    with socket.socket() as replica, socket.socket() as proxy:
        replica.bind(("0.0.0.0", first))
        replica.listen()
        proxy.bind(("127.0.0.1", fallback))
        proxy.listen()
        other, end, other_fallback = ports()
    assert other > last or end < first, "no port of theirs is one of ours"
    assert other_fallback != fallback


def test_a_port_that_a_starting_service_has_chosen_is_not_chosen_again_while_that_service_lives() -> None:
    choosing = "from serve_app.service import own_port; print(own_port(9301), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", choosing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starting:
        assert starting.stdout is not None
        chosen = int(starting.stdout.readline())  # nothing listens on it
        assert own_port(chosen) != chosen
        starting.kill()
    assert own_port(chosen) == chosen
    assert own_port(chosen) == chosen, "one's own choice stands"


def test_processes_keep_few_heaps_and_rays_workers_are_no_less_than_others(environment: dict[str, str]) -> None:
    prepare_environment(Settings(), "postgresql://localhost/calls")
    assert environment["MALLOC_ARENA_MAX"] == "2"
    assert environment["RAY_worker_niceness"] == "0"
    environment["MALLOC_ARENA_MAX"] = "8"
    prepare_environment(Settings(), "postgresql://localhost/calls")
    assert environment["MALLOC_ARENA_MAX"] == "8", "what the operator set is left alone"
