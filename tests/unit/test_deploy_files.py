"""`ray up` and `serve deploy` accept our files, and a misspelt key in them is found here, not in production."""

import shlex
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "serve_app/deploy/serve.yaml"
ENVIRONMENT = ROOT / "serve_app/deploy/deploy.env.example"


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def unknown_keys(data: dict[str, Any], model: type[BaseModel], path: str = "") -> list[str]:
    """Serve's own schema ignores keys that it does not know: walk it and report them."""
    from ray.serve.config import AutoscalingConfig, BackpressureConfig

    nested = {"autoscaling_config": AutoscalingConfig, "backpressure_config": BackpressureConfig}
    found = []
    for key, value in data.items():
        if key not in model.model_fields:
            found.append(path + key)
            continue
        inner = [nested[key]] if key in nested else models_in(model.model_fields[key].annotation)
        for item in value if isinstance(value, list) else [value]:
            if inner and isinstance(item, dict):
                found += unknown_keys(item, inner[0], f"{path}{key}.")
    return found


def serve_faults(text: str) -> list[str]:
    from ray.serve.schema import ServeDeploySchema

    data = yaml.safe_load(text)
    ServeDeploySchema.model_validate(data)
    return unknown_keys(data, ServeDeploySchema)


def check_cluster(text: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load(text)))


def test_serve_deploy_accepts_serve_yaml() -> None:
    assert serve_faults(SERVE.read_text()) == []


@pytest.mark.parametrize("right, wrong", [("max_replicas", "max_replica"), ("proxy_location", "proxy_loc")])
def test_a_misspelt_key_in_serve_yaml_is_found(right: str, wrong: str) -> None:
    assert serve_faults(SERVE.read_text().replace(f"{right}:", f"{wrong}:")) != []


def test_every_argument_in_serve_yaml_is_a_setting() -> None:
    from serve_app.settings import Settings

    for application in yaml.safe_load(SERVE.read_text())["applications"]:
        Settings(**application["args"])


def test_every_deployment_in_serve_yaml_exists() -> None:
    from pipeline import actors
    from serve_app import app
    from serve_app.intake import deployment as intake

    ours = {actors.Transcriber.name, actors.Diarizer.name, app.Conductor.name, intake.Intake.name}
    for application in yaml.safe_load(SERVE.read_text())["applications"]:
        assert {deployment["name"] for deployment in application["deployments"]} <= ours


def test_a_shell_reads_the_example_environment_into_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_app.settings import Settings, unknown_variables

    read = subprocess.run(
        ["bash", "-c", f"set -ae; . {shlex.quote(str(ENVIRONMENT))}; env -0"], env={}, capture_output=True, check=True
    )
    variables = dict(line.split("=", 1) for line in read.stdout.decode().split("\0") if line)
    assert unknown_variables(variables) == {}
    for name, value in variables.items():
        if name.startswith("SWITCHBOARD_"):
            monkeypatch.setenv(name, value)
    assert Settings().fetch.allowed_hosts == ("pbx.internal",)


def test_secrets_of_a_deployment_are_not_committed() -> None:
    assert {"deploy.env", "ray_token"} <= set((ROOT / ".gitignore").read_text().splitlines())


def test_a_cluster_lets_in_only_who_has_the_token_and_every_node_has_it() -> None:
    script = f"set -ae; . {shlex.quote(str(ENVIRONMENT))}; env"
    read = subprocess.run(["bash", "-c", script], env={"HOME": "/h"}, capture_output=True, check=True)
    variables = dict(line.split("=", 1) for line in read.stdout.decode().splitlines())
    assert (variables["RAY_AUTH_MODE"], variables["RAY_AUTH_TOKEN_PATH"]) == ("token", "/h/ray_token")
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert cluster["file_mounts"]["~/ray_token"] == "ray_token"
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        assert "chmod 600 ~/ray_token" in commands[-1]
        assert commands[-1].index(". ~/deploy.env") < commands[-1].index("ray start")


def test_ray_up_accepts_cluster_yaml() -> None:
    check_cluster((ROOT / "cluster.yaml").read_text())


@pytest.mark.parametrize(
    "right, wrong", [("max_workers: 8", "max_worker: 8"), ("head_node_type: head", "head_node_type: x")]
)
def test_a_fault_in_cluster_yaml_is_found(right: str, wrong: str) -> None:
    with pytest.raises(Exception, match=r"max_worker|head_node_type"):
        check_cluster((ROOT / "cluster.yaml").read_text().replace(right, wrong))


def test_the_cluster_runs_the_ray_version_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    version = next(
        line.split("==")[1].split()[0]
        for line in lock.splitlines()
        if line.startswith("ray[") or line.startswith("ray==")
    )
    assert f"rayproject/ray:{version}-" in (ROOT / "cluster.yaml").read_text()
