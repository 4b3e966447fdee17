import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.service import ray_access, run_folder
from serve_app.service.environment import prepare_environment
from serve_app.settings import Settings


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide services of this machine, and restore the environment afterwards."""
    monkeypatch.setattr(run_folder, "_base", lambda: tmp_path)
    monkeypatch.setattr(run_folder, "_OWN", [])
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if not k.startswith("RAY_")})
    yield
    run_folder.discard_own_folder()


def test_the_token_is_random_for_its_user_alone_and_stays_while_the_service_runs(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = Path(ray_access.own_ray(tmp_path)["RAY_AUTH_TOKEN_PATH"])
    finally:
        os.umask(old)
    token = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(token)) == 32
    assert ray_access.make_token(tmp_path).read_text() == token
    other = tmp_path / "other"
    other.mkdir()
    assert ray_access.make_token(other).read_text() != token


def test_who_joins_a_service_of_this_machine_finds_its_token_by_the_address() -> None:
    folder = run_folder.own_folder()
    token = ray_access.make_token(folder.path)
    folder.publish(ray_address="127.0.0.1:4711")
    joined = ray_access.joined_ray("127.0.0.1:4711")
    assert joined == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), **ray_access.ONE_MACHINE}
    assert ray_access.joined_ray("10.0.0.1:6379") == {"RAY_AUTH_MODE": "token"}, "the operator names that one's"


def test_a_service_asks_for_a_token_unless_the_operator_decides_otherwise() -> None:
    settings = Settings(database_url="postgresql://localhost/calls")
    prepare_environment(settings, "postgresql://localhost/calls")
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent == run_folder.own_folder().path
    os.environ["RAY_AUTH_TOKEN_PATH"] = "/etc/switchboard/token"
    prepare_environment(settings, "postgresql://localhost/calls")
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == "/etc/switchboard/token"


def test_a_notebook_joins_the_only_service_of_this_user(tmp_path, monkeypatch):
    ray_access.make_token(tmp_path)
    services = [run_folder.Running(tmp_path, {"ray_address": "127.0.0.1:6000"}), run_folder.Running(tmp_path, {})]
    monkeypatch.setattr(ray_access, "running", lambda: services)
    assert ray_access.join() == "127.0.0.1:6000"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / ray_access.TOKEN)
    services.append(run_folder.Running(tmp_path, {"ray_address": "127.0.0.1:7000"}))
    with pytest.raises(LookupError, match=r"2 services .*set the address"):
        ray_access.join()
    services.clear()
    with pytest.raises(LookupError, match="no service"):
        ray_access.join()
    os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
    assert ray_access.join() == "10.0.0.1:6379"
