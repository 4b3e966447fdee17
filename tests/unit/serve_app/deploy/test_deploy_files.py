import json
import os
import re
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from serve_app.deploy import release
from tests.paths import ROOT

SERVE = ROOT / "serve_app/deploy/serve.yaml"
DEPLOY = ROOT / "serve_app/deploy"
EXAMPLE = DEPLOY / "deploy.env.example"
CLUSTERS = ("cluster.yaml", "serve_app/deploy/clusters/gcp.yaml", "serve_app/deploy/clusters/local.yaml")
GROUPS = {
    "intake": ("Intake",),
    "api": ("Api",),
    "console": ("Console",),
    "calls": ("Conductor", "Transcriber", "Diarizer"),
}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def unknown_keys(data: dict[str, Any], model: type[BaseModel], path: str = "") -> list[str]:
    """Serve's own schema ignores keys that it does not know: walk it and report them."""
    from ray.serve.config import AutoscalingConfig, BackpressureConfig

    nested = {"autoscaling_config": AutoscalingConfig, "backpressure_config": BackpressureConfig}
    unknown = []
    for key, value in data.items():
        if key not in model.model_fields:
            unknown.append(path + key)
            continue
        inner = [nested[key]] if key in nested else models_in(model.model_fields[key].annotation)
        for item in value if isinstance(value, list) else [value]:
            if inner and isinstance(item, dict):
                unknown += unknown_keys(item, inner[0], f"{path}{key}.")
    return unknown


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


@pytest.mark.parametrize("right, wrong", [("request_timeout_s", "request_timeout"), ("proxy_location", "proxy_loc")])
def test_a_misspelt_key_in_serve_yaml_is_found(right: str, wrong: str) -> None:
    assert serve_faults(SERVE.read_text().replace(f"{right}:", f"{wrong}:")) != []


def test_a_misspelt_bound_in_serve_yaml_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_replica\n"):
        deployed(SERVE.read_text().replace("max_replicas:", "max_replica:"))


def deployed(text: str) -> dict[str, dict[str, Any]]:
    """Return what Serve runs of each deployment after merging the code's options with those of serve.yaml."""
    from ray.serve._private.application_state import override_deployment_info
    from ray.serve._private.build_app import build_app
    from ray.serve._private.deploy_utils import deploy_args_to_deployment_info
    from ray.serve.schema import ServeDeploySchema

    from serve_app import app

    options = {}
    for application in ServeDeploySchema.model_validate(yaml.safe_load(text)).applications:
        bound = getattr(app, application.import_path.split(":")[1])(application.args)
        # A handle would start Ray; nothing here asks for one.
        built = build_app(bound, name=application.name, make_deployment_handle=lambda deployment, _: deployment.name)
        infos = {
            deployment.name: deploy_args_to_deployment_info(
                deployment.name,
                deployment._deployment_config.to_proto_bytes(),
                deployment._replica_config.to_proto_bytes(),
                deployer_job_id="1",
                app_name=application.name,
            )
            for deployment in built.deployments
        }
        for name, info in override_deployment_info(infos, application).items():
            config = info.deployment_config.model_dump(mode="json", exclude={"user_configured_option_names"})
            replica = info.replica_config
            options[name] = {**config, "ray_actor_options": replica.ray_actor_options, "arguments": replica.init_args}
    return options


def as_up_does(text: str) -> dict[str, dict[str, Any]]:
    """Return the same with only the bounds of serve.yaml, as `switchboard up` would run with them."""
    data = yaml.safe_load(text)
    for application in data["applications"]:
        application.pop("deployments", None)
    return deployed(yaml.safe_dump(data))


def test_serve_deploy_runs_every_deployment_with_the_options_of_switchboard_up() -> None:
    assert deployed(SERVE.read_text()) == as_up_does(SERVE.read_text())


def test_deploy_sh_gives_every_replica_the_release_of_the_code_beside_its_own_environment() -> None:
    from serve_app import app

    text = yaml.safe_dump(release.released(yaml.safe_load(SERVE.read_text()), "0123456789abcdef"))
    assert serve_faults(text) == []
    environment = {"Intake": app.ONE_LOOP, "Transcriber": app.HEAP}
    for name, options in deployed(text).items():
        variables = options["ray_actor_options"]["runtime_env"]["env_vars"]
        assert variables == {**environment.get(name, {}), app.RELEASE: "0123456789abcdef"}


def test_deploy_sh_adapts_serve_yaml_to_the_cluster() -> None:
    """On machines that do not come and go, engines stay; without any GPU they compute on the CPU."""
    shipped = yaml.safe_load(SERVE.read_text())

    def engines(resources: dict[str, float], autoscales: bool) -> list[tuple[bool, int, float]]:
        *_, calls = release.adapted(shipped, resources, autoscales)["applications"]
        bounds = calls["args"]["scaling"]
        return [
            (calls["args"]["service_nodes"], bounds[name]["min_replicas"], bounds[name]["num_gpus"])
            for name in release.ENGINES
        ]

    assert engines({"CPU": 4, release.SERVICE_NODE: 1}, True) == [(True, 0, 0.7), (True, 0, 0.3)]
    assert engines({"CPU": 4, "GPU": 1, release.SERVICE_NODE: 1}, False) == [(True, 1, 0.7), (True, 1, 0.3)]
    assert engines({"CPU": 4}, False) == [(False, 1, 0), (False, 1, 0)]


def test_replicas_without_a_gpu_run_on_nodes_without_one() -> None:
    from serve_app import app

    assert release.SERVICE_NODE == app.SERVICE_NODE
    placed = {name: options["ray_actor_options"] for name, options in deployed(SERVE.read_text()).items()}
    needs = {name: sorted(options.get("resources") or {}) for name, options in placed.items()}
    engines: dict[str, list[str]] = {"Transcriber": [], "Diarizer": []}
    services = ("Intake", "Api", "Console", "Conductor")
    assert needs == engines | {name: [app.SERVICE_NODE] for name in services}
    for name in CLUSTERS[:2]:
        types = yaml.safe_load((ROOT / name).read_text())["available_node_types"]
        has = {kind: app.SERVICE_NODE in node["resources"] for kind, node in types.items()}
        assert has == {"head": True, "gpu": False, "cpu": True}


def test_a_release_is_another_with_other_settings(tmp_path: Path) -> None:
    assert release.digest(ROOT, b"a=1") != release.digest(ROOT, b"a=2") != release.digest(ROOT)
    assert release.settings(tmp_path) is None
    for folder in (tmp_path, tmp_path / "switchboard"):  # the second one wins, as in node.env
        folder.mkdir(exist_ok=True)
        (folder / "deploy.env").write_text(f"# {folder.name}")
        assert release.settings(tmp_path) == f"# {folder.name}".encode()


def test_a_release_is_another_when_serve_would_have_seen_no_difference() -> None:
    from ray.serve._private.deploy_utils import get_app_code_version
    from ray.serve.schema import ServeDeploySchema

    def versions(mark: str) -> list[str]:
        data = release.released(yaml.safe_load(SERVE.read_text()), mark)
        return [
            get_app_code_version(application) for application in ServeDeploySchema.model_validate(data).applications
        ]

    assert versions("a") == versions("a")
    assert all(version != other for version, other in zip(versions("a"), versions("b"), strict=True))


def test_the_release_changes_with_the_code_its_data_and_its_requirements_and_with_nothing_else(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "requirements.lock", "db/a.sql", "pipeline/b.toml", "serve_app/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    first = release.digest(tmp_path)
    (tmp_path / "serve_app/__pycache__").mkdir()
    (tmp_path / "serve_app/__pycache__/c.pyc").write_bytes(b"1")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_c.py").touch()
    assert release.digest(tmp_path) == first
    seen = {first}
    for name in ("requirements.lock", "db/a.sql", "pipeline/b.toml", "serve_app/c.py", "serve_app/d.py"):
        (tmp_path / name).write_text("other")
        seen.add(release.digest(tmp_path))
    (tmp_path / "serve_app/d.py").rename(tmp_path / "serve_app/e.py")
    assert len(seen | {release.digest(tmp_path)}) == 7


@pytest.mark.parametrize("application, names", GROUPS.items())
def test_the_policy_the_environment_and_the_bounds_reach_serve(application: str, names: tuple[str, ...]) -> None:
    from serve_app import app

    deployments = deployed(SERVE.read_text())
    data = {application["name"]: application for application in yaml.safe_load(SERVE.read_text())["applications"]}
    environment = {"Intake": app.ONE_LOOP, "Transcriber": app.HEAP}
    for name in names:
        bounds = dict(data[application]["args"]["scaling"][name.lower()])
        scaling, actor = deployments[name]["autoscaling_config"], deployments[name]["ray_actor_options"]
        assert actor.get("runtime_env", {}).get("env_vars", {}) == environment.get(name, {})
        assert {key: scaling[key] for key in ("min_replicas", "max_replicas")} == {
            key: bounds.pop(key) for key in ("min_replicas", "max_replicas")
        }
        assert {key: actor.get(key, 0) for key in bounds} == bounds
        policy = scaling["policy"]
        if name in ("Intake", "Api", "Console"):
            assert "QueuedAudio" not in str(policy)
        else:
            assert policy["policy_function"].endswith("QueuedAudio")
            assert policy["policy_kwargs"]["name"] == name


def test_the_conductor_is_told_the_bounds_that_it_reports_to_operators() -> None:
    scaling = deployed(SERVE.read_text())["Conductor"]["arguments"][2]
    assert (scaling["transcriber"]["max_replicas"], scaling["diarizer"]["max_replicas"]) == (4, 4)


def test_a_block_that_replaces_our_options_would_be_found() -> None:
    data = yaml.safe_load(SERVE.read_text())
    data["applications"][3]["deployments"] = [
        {"name": "Transcriber", "autoscaling_config": {"min_replicas": 1, "max_replicas": 4}}
    ]
    text = yaml.safe_dump(data)
    assert deployed(text)["Transcriber"] != as_up_does(text)["Transcriber"]


def test_an_argument_that_replicas_would_not_see_is_refused() -> None:
    from serve_app import app

    with pytest.raises(ValueError, match=r"processing.*environment of every node"):
        app.calls({"scaling": {}, "processing": {"concurrency": 3}})


def node_environment(home: Path) -> dict[str, str]:
    """Return what cluster.yaml's commands read on a node, with the example as its deploy.env."""
    (home / "switchboard").symlink_to(ROOT)
    (home / "deploy.env").write_text(EXAMPLE.read_text())
    read = subprocess.run(
        ["bash", "-c", "set -ae; . ~/switchboard/serve_app/deploy/node.env; env -0"],
        env={"HOME": str(home)},
        capture_output=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in read.stdout.decode().split("\0") if line)


def test_a_shell_reads_the_example_environment_into_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_app.settings import Settings, unknown_variables

    variables = node_environment(tmp_path)
    assert unknown_variables(variables) == {}
    for name, value in variables.items():
        if name.startswith("SWITCHBOARD_"):
            monkeypatch.setenv(name, value)
    assert Settings().fetch.allowed_hosts == ("pbx.internal",)


def test_a_cluster_lets_in_only_who_has_the_token_and_every_node_has_it(tmp_path: Path) -> None:
    variables = node_environment(tmp_path)
    assert (variables["RAY_AUTH_MODE"], variables["RAY_AUTH_TOKEN_PATH"]) == ("token", f"{tmp_path}/ray_token")
    start = (DEPLOY / "start.sh").read_text()
    assert "for file in ~/ray_token" in start
    assert start.index(". ~/switchboard/serve_app/deploy/node.env") < start.index("exec ray start")
    for name in CLUSTERS:
        cluster = yaml.safe_load((ROOT / name).read_text())
        assert cluster["file_mounts"]["~/ray_token"] == "ray_token"
        for kind in ("head", "worker"):
            last = cluster[f"{kind}_start_ray_commands"][-1]
            variables_ = (
                "RAY_enable_autoscaler_v2=0 "
                if (name, kind) == ("serve_app/deploy/clusters/local.yaml", "head")
                else ""
            )
            assert last.startswith(f"{variables_}bash ~/switchboard/serve_app/deploy/start.sh {kind}")


def test_one_machine_and_the_nodes_of_a_cluster_run_ray_with_the_same_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There were 2,000 past tasks on one machine and 10,000 on a cluster."""
    from serve_app.service.environment import prepare_environment
    from serve_app.settings import Settings

    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    prepare_environment(Settings(), "postgresql://localhost/calls")
    node, here = node_environment(tmp_path), os.environ
    both = {name for name in node.keys() & here.keys() if name.startswith(("RAY_", "MALLOC_", "HAPROXY_"))}
    of_the_machine = {name for name in both if "/" in node[name]}  # paths
    assert len(both - of_the_machine) > 12
    assert {name: node[name] for name in both - of_the_machine} == {name: here[name] for name in both - of_the_machine}


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_up_accepts_the_cluster_of_each_provider(name: str) -> None:
    check_cluster((ROOT / name).read_text())


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_differ_by_their_machines_alone(name: str) -> None:
    first, other = (yaml.safe_load((ROOT / path).read_text()) for path in (CLUSTERS[0], name))
    cluster_keys = {"provider", "auth", "docker", "available_node_types", "head_node_type", "setup_commands"}
    if name == "serve_app/deploy/clusters/local.yaml":
        cluster_keys |= {"max_workers", "upscaling_speed", "idle_timeout_minutes", "head_start_ray_commands"}
    assert {key: first[key] for key in first.keys() - cluster_keys} == {
        key: other[key] for key in other.keys() - cluster_keys
    }
    (setup,) = other["setup_commands"]
    assert setup.startswith("bash ~/switchboard/serve_app/deploy/setup.sh")
    for extra in setup.split()[2:]:
        assert (DEPLOY / f"{extra}.lock").is_file()


def test_the_same_types_of_nodes_are_on_aws_and_on_google_cloud() -> None:
    shapes = []
    for name in CLUSTERS[:2]:
        types = yaml.safe_load((ROOT / name).read_text())["available_node_types"]
        shapes.append(
            {kind: {k: v for k, v in node_type.items() if k != "node_config"} for kind, node_type in types.items()}
        )
    assert shapes[0] == shapes[1]


def test_a_node_is_checked_before_ray_starts_on_it() -> None:
    start = (DEPLOY / "start.sh").read_text()
    assert start.index("switchboard doctor --node") < start.index("exec ray start")
    assert "set -euo pipefail" in start


def test_images_of_nodes_with_a_gpu_name_a_driver_that_is_new_enough() -> None:
    """CUDA 13 of the locked PyTorch needs 580; Ray's own choice on AWS has none that runs it."""
    google = yaml.safe_load((ROOT / "serve_app/deploy/clusters/gcp.yaml").read_text())["available_node_types"]
    for node in google.values():
        image = node["node_config"]["disks"][0]["initializeParams"]["sourceImage"]
        assert int(image.rpartition("nvidia-")[2]) >= 580
    assert "base-oss-nvidia-driver-gpu-ubuntu-24.04" in (ROOT / "cluster.yaml").read_text()


def test_the_extras_of_clouds_bring_what_ray_and_fsspec_ask_for() -> None:
    import tomllib

    from fsspec.registry import known_implementations
    from packaging.requirements import Requirement

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    module = known_implementations["s3"]["class"].split(".")[0]
    assert {Requirement(requirement).name for requirement in extras["aws"]} == {"boto3", module}
    module = known_implementations["gs"]["class"].split(".")[0]
    assert {Requirement(requirement).name for requirement in extras["gcp"]} == {
        module,
        "google-api-python-client",
        "google-auth",
    }


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
    for name in CLUSTERS[:2]:
        assert f"rayproject/ray:{version}-" in (ROOT / name).read_text()


def test_the_policy_of_the_head_on_aws_allows_what_its_autoscaler_calls() -> None:
    from ray.autoscaler import _private

    provider = (Path(_private.__file__).parent / "aws/node_provider.py").read_text()
    calls = set(re.findall(r"meta\.client\.(\w+)|ec2_fail_fast\.(\w+)\(|ec2\.(instances)\.filter", provider))
    names = {"".join(call) for call in calls}
    operations = {"instances": "DescribeInstances", "create_instances": "RunInstances"}
    actions = {operations.get(name, name.title().replace("_", "")) for name in names}
    unused = {"StartInstances", "StopInstances", "DescribeImages"}  # cache_stopped_nodes, CloudWatch's agent
    policy = json.loads((DEPLOY / "clusters/aws-head.json").read_text())
    allowed = [statement["Action"] for statement in policy["Statement"]]
    listed = {action for each in allowed for action in ([each] if isinstance(each, str) else each)}
    assert {action for action in listed if action.startswith("ec2:")} == {f"ec2:{name}" for name in actions - unused}
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    tagged = [statement.get("Condition", {}).get("StringEquals", {}) for statement in policy["Statement"]]
    assert {"aws:ResourceTag/ray-cluster-name": cluster["cluster_name"]} in tagged
    assert "iam:PassRole" in listed
    worker = {kind["node_config"]["IamInstanceProfile"]["Name"] for kind in cluster["available_node_types"].values()}
    assert worker == {"switchboard-head", "switchboard-worker"}


def test_submissions_reach_a_cluster_on_aws_from_its_network_only() -> None:
    (rule,) = yaml.safe_load((ROOT / "cluster.yaml").read_text())["provider"]["security_group"]["IpPermissions"]
    http = yaml.safe_load(SERVE.read_text())["http_options"]
    assert (rule["FromPort"], rule["ToPort"]) == (http["port"], http["port"])
    assert [network["CidrIp"] for network in rule["IpRanges"]] == ["172.31.0.0/16"]
