"""What is refused before anything is started."""

import socket

import pytest

from serve_app.service import Service, ServiceError
from serve_app.settings import Settings


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
