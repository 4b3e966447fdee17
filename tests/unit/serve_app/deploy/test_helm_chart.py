import copy
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.serve_app.deploy.test_deploy_files import DEPLOY, ROOT, SERVE, node_environment, serve_faults

if sys.platform != "linux":
    pytest.skip("the library that renders charts comes for Linux", allow_module_level=True)

import helm_python
import kubernetes_validate

CHART = DEPLOY / "helm"
SCHEMAS = ROOT / "tests/fixtures/kubernetes"
KUBERNETES = ("1.27.0", "1.30.0", "1.34.0")
OURS = {
    ("ray.io/v1", "RayService"): "rayservice.schema.json",
    ("postgresql.cnpg.io/v1", "Cluster"): "postgresql_cluster.schema.json",
    ("postgresql.cnpg.io/v1", "ScheduledBackup"): "postgresql_scheduled_backup.schema.json",
}
LEAST: dict[str, Any] = {"settings": {"STORAGE": "s3://bucket/recordings"}}
MOST: dict[str, Any] = {
    "image": {"repository": "images.internal/switchboard", "tag": "1", "pullSecrets": ["pull"]},
    "settings": {"STORAGE": "s3://bucket/recordings", "ASR__MODEL": "base"},
    "environment": {"AWS_REGION": "eu-central-1"},
    "secrets": ["switchboard"],
    "database": {
        "secret": "switchboard-db-app",
        "key": "uri",
        "cluster": {"enabled": True, "imageName": "postgresql-with-pgvector:17", "storageClass": "fast"},
    },
    "redis": {"address": "redis.internal:6379", "secret": "redis"},
    "rayToken": {"secret": "ray-token"},
    "scaling": {"transcriber": {"max_replicas": 8}},
    "models": {"claim": "models"},
    "network": {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]},
    "ingress": {"enabled": True, "className": "nginx", "host": "calls.example.com"},
    "backup": {"claim": "backups"},
    "serviceAccount": "switchboard-bucket",
    "podAnnotations": {"team": "voice"},
}


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm_python.Chart.load(str(CHART)) as loaded:
        yield loaded


def render(chart: Any, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects by kind; a PodDisruptionBudget by kind and name."""
    objects: dict[str, dict[str, Any]] = {}
    for path, text in chart.render(values, name="calls", namespace="voice").items():
        for item in yaml.safe_load_all(text) if path.endswith(".yaml") else ():
            if item:
                key = item["kind"] if item["kind"] != "PodDisruptionBudget" else item["metadata"]["name"]
                assert key not in objects
                objects[key] = item
    return objects


def pods(objects: dict[str, Any]) -> dict[str, Any]:
    """Return the pod template of each group."""
    cluster = objects["RayService"]["spec"]["rayClusterConfig"]
    groups = {group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]}
    return {"head": cluster["headGroupSpec"]["template"], **groups}


def faults(item: dict[str, Any], version: str) -> list[str]:
    """Return what an API server would refuse or drop."""
    schema = OURS.get((item["apiVersion"], item["kind"]))
    if schema is None:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            return [str(error)]
        return []
    check = jsonschema.Draft202012Validator(json.loads((SCHEMAS / schema).read_text()))
    return [error.message for error in check.iter_errors(item)]


def all_faults(objects: dict[str, Any], version: str = KUBERNETES[-1]) -> list[str]:
    templates = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}
        for name, template in pods(objects).items()
    ]
    return [fault for item in [*objects.values(), *templates] for fault in faults(item, version)]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [LEAST, MOST], ids=["least", "most"])
def test_kubernetes_knows_every_field_that_the_chart_writes(chart: Any, values: dict[str, Any], version: str) -> None:
    objects = render(chart, values)
    assert all_faults(objects, version) == []
    assert ("Cluster" in objects) is (values is MOST)


def test_a_field_that_does_not_exist_would_be_found(chart: Any) -> None:
    objects = render(chart, MOST)
    for path in (("spec", "rayClusterConfig"), ("spec", "rayClusterConfig", "authOptions"), ("spec",)):
        broken = copy.deepcopy(objects)
        place = broken["RayService"]
        for key in path:
            place = place[key]
        place["mistake"] = "x"
        assert all_faults(broken) != []
    broken = copy.deepcopy(objects)
    pods(broken)["gpu"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert all_faults(broken) != []


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart")  # with what its links lead to
    values = yaml.safe_load((CHART / "values.yaml").read_text()) | LEAST
    (tmp_path / "chart/values.yaml").write_text(yaml.safe_dump(values))
    assert helm_python.lint(str(tmp_path / "chart"))["errors"] == []


def test_the_chart_deploys_what_serve_yaml_says(chart: Any) -> None:
    text = render(chart, LEAST)["RayService"]["spec"]["serveConfigV2"]
    assert yaml.safe_load(text) == yaml.safe_load(SERVE.read_text())
    assert serve_faults(text) == []


def test_bounds_of_the_values_win_over_serve_yaml_and_nothing_else_changes(chart: Any) -> None:
    expected = yaml.safe_load(SERVE.read_text())
    expected["applications"][3]["args"]["scaling"]["transcriber"]["max_replicas"] = 8
    assert yaml.safe_load(render(chart, MOST)["RayService"]["spec"]["serveConfigV2"]) == expected


def test_bounds_of_a_deployment_that_does_not_exist_are_refused(chart: Any) -> None:
    with pytest.raises(helm_python.HelmError, match=r"serve.yaml has no transcribr"):
        render(chart, LEAST | {"scaling": {"transcribr": {"max_replicas": 8}}})


def test_containers_have_the_variables_of_ray_env_and_node_env(chart: Any, tmp_path: Path) -> None:
    """But for those of a machine: KubeRay brings the token, and Ray's files are the container's own."""
    node = node_environment(tmp_path)
    of_the_machine = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR"}
    expected = {
        name: value.replace(str(tmp_path), "/home/switchboard")
        for name, value in node.items()
        if re.match(r"RAY_|MALLOC_|HAPROXY_|PYANNOTE_|HF_HUB_|ORT_", name) and name not in of_the_machine
    }
    assert len(expected) > 20
    data = render(chart, LEAST)["ConfigMap"]["data"]
    assert data == expected | {"SWITCHBOARD_STORAGE": "s3://bucket/recordings"}


def test_the_settings_that_the_values_may_name_are_settings(chart: Any) -> None:
    from serve_app.settings import unknown_variables

    assert unknown_variables(render(chart, MOST)["ConfigMap"]["data"]) == {}


def test_every_container_runs_the_image_as_a_user_without_rights(chart: Any) -> None:
    for pod in pods(render(chart, MOST)).values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 1000
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*spec["initContainers"], *spec["containers"]]:
            assert container["image"] == "images.internal/switchboard:1"
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
    assert "USER 1000:1000" in (ROOT / "Dockerfile").read_text()


def test_secrets_come_by_reference_and_cannot_be_written_into_the_values(chart: Any) -> None:
    objects = render(chart, MOST)
    assert "Secret" not in objects
    for pod in pods(objects).values():
        (container,) = pod["spec"]["containers"]
        assert {"secretRef": {"name": "switchboard"}} in container["envFrom"]
        (url,) = container["env"]
        assert url["valueFrom"] == {"secretKeyRef": {"name": "switchboard-db-app", "key": "uri"}}
    for name in ("DATABASE_URL", "SECRETS_KEYS", "ANALYSIS__API_KEY"):
        with pytest.raises(helm_python.HelmError, match=name):
            render(chart, {"settings": {"STORAGE": "s3://b/r", name: "x"}})


def test_without_a_place_for_recordings_the_chart_says_what_is_missing(chart: Any) -> None:
    with pytest.raises(helm_python.HelmError, match=r"settings.STORAGE: where recordings are kept"):
        render(chart, {})


@pytest.mark.parametrize("values, secret", [(LEAST, None), (MOST, "ray-token")])
def test_ray_wants_a_token(chart: Any, values: dict[str, Any], secret: str | None) -> None:
    auth = render(chart, values)["RayService"]["spec"]["rayClusterConfig"]["authOptions"]
    assert auth == {"mode": "token"} | ({"secretName": secret} if secret else {})


def test_with_redis_the_head_may_die_and_without_it_nothing_evicts_it(chart: Any) -> None:
    with_redis, without = render(chart, MOST), render(chart, LEAST)
    cluster = with_redis["RayService"]["spec"]["rayClusterConfig"]
    assert cluster["gcsFaultToleranceOptions"] == {
        "redisAddress": "redis.internal:6379",
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
    }
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"  # no replica goes with it
    assert with_redis["RayService"]["spec"]["excludeHeadPodFromServeSvc"]
    assert "gcsFaultToleranceOptions" not in without["RayService"]["spec"]["rayClusterConfig"]
    assert (with_redis["calls-head"]["spec"]["maxUnavailable"], without["calls-head"]["spec"]["maxUnavailable"]) == (
        1,
        0,
    )


def test_budgets_and_the_network_policy_are_for_the_pods_of_the_chart(chart: Any) -> None:
    objects = render(chart, MOST)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(objects).items()}
    chosen = {
        name: sorted(
            pod
            for pod, has in labels.items()
            if objects[name]["spec"]["selector"]["matchLabels"].items() <= has.items()
        )
        for name in ("calls-head", "calls-worker")
    }
    assert chosen == {"calls-head": ["head"], "calls-worker": ["cpu", "gpu", "service"]}
    policy = objects["NetworkPolicy"]["spec"]
    assert all(policy["podSelector"]["matchLabels"].items() <= has.items() for has in labels.values())
    open_to_all = [rule for rule in policy["ingress"] if {"podSelector": {}} in rule["from"]]
    assert [rule["ports"] for rule in open_to_all] == [[{"port": 8000}]]
    (rule,) = open_to_all
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}} in rule["from"]


def test_ray_sees_the_node_types_of_cluster_yaml(chart: Any) -> None:
    """Read with the code of Ray's autoscaler for Kubernetes."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    spec = render(chart, LEAST)["RayService"]["spec"]["rayClusterConfig"]
    derived = _derive_autoscaling_config_from_ray_cr(
        {"metadata": {"name": "calls", "namespace": "voice"}, "spec": spec}
    )
    types = derived["available_node_types"]
    shipped = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    for name in ("gpu", "cpu"):
        resources = {key: types[name]["resources"].get(key, 0) for key in ("CPU", "GPU")}
        assert resources == {key: shipped[name]["resources"].get(key, 0) for key in ("CPU", "GPU")}
        assert types[name]["max_workers"] == shipped[name]["max_workers"]
    assert types["headgroup"]["resources"]["CPU"] == shipped["head"]["resources"]["CPU"]
    assert derived["idle_timeout_minutes"] == 5


def test_replicas_without_a_gpu_have_two_nodes_without_one_whether_the_head_runs_any_or_not(chart: Any) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    for values, head in ((LEAST, True), (MOST, False)):
        spec = render(chart, values)["RayService"]["spec"]["rayClusterConfig"]
        resource = {"metadata": {"name": "calls", "namespace": "voice"}, "spec": spec}
        types = _derive_autoscaling_config_from_ray_cr(resource)["available_node_types"]
        has = {name: "service_node" in node["resources"] for name, node in types.items()}
        assert has == {"headgroup": head, "service": True, "cpu": True, "gpu": False}
        assert types["service"]["min_workers"] == 2 and types["gpu"]["min_workers"] == 0


def test_every_pod_that_reaches_the_bucket_has_the_service_account(chart: Any) -> None:
    objects = render(chart, MOST)
    specs = {name: pod["spec"] for name, pod in pods(objects).items()}
    specs["backup"] = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert {spec["serviceAccountName"] for spec in specs.values()} == {"switchboard-bucket"}
    assert specs["head"].get("automountServiceAccountToken", True), "the autoscaler's"


def test_a_database_is_archived_and_restored_to_a_moment_under_another_name(chart: Any) -> None:
    def database(**cluster: Any) -> dict[str, Any]:
        return render(chart, MOST | {"database": {"cluster": {"enabled": True, **cluster}}})

    store = {"objectStore": "archive"}
    archived = database(archive=store)
    assert all_faults(archived) == []
    # Helm leaves it at an uninstall, a rollback and a restore: the operator would delete its volumes with it.
    assert archived["Cluster"]["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (plugin,) = archived["Cluster"]["spec"]["plugins"]
    assert plugin["isWALArchiver"] and plugin["parameters"] == {"barmanObjectName": "archive"}
    assert archived["ScheduledBackup"]["spec"]["cluster"]["name"] == archived["Cluster"]["metadata"]["name"]
    restored = database(
        name="db2", archive=store, restore={"from": "switchboard-db", "until": "2026-11-24 09:30:00+00"}
    )
    assert all_faults(restored) == []
    spec = restored["Cluster"]["spec"]
    assert spec["bootstrap"].keys() == {"recovery"}
    assert spec["bootstrap"]["recovery"]["recoveryTarget"] == {"targetTime": "2026-11-24 09:30:00+00"}
    (source,) = spec["externalClusters"]
    assert source["name"] == spec["bootstrap"]["recovery"]["source"] == source["plugin"]["parameters"]["serverName"]
    with pytest.raises(helm_python.HelmError, match=r"restored cluster needs another name"):
        database(archive=store, restore={"from": "switchboard-db"})
    with pytest.raises(helm_python.HelmError, match=r"archive.objectStore"):
        database(name="db2", restore={"from": "switchboard-db"})


def test_the_backup_job_runs_commands_that_exist(chart: Any) -> None:
    from typer.testing import CliRunner

    from serve_app.cli import app

    spec = render(chart, MOST)["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        program, group, command, *arguments = container["command"]
        assert (program, group) == ("switchboard", "backup")
        text = CliRunner().invoke(app, [group, command, "--help"], env={"COLUMNS": "200"}).output
        assert all(argument in text for argument in arguments if argument.startswith("--"))
    assert "CronJob" not in render(chart, LEAST) and "Ingress" not in render(chart, LEAST)


def test_a_pod_with_a_gpu_is_checked_for_it_before_ray_starts(chart: Any) -> None:
    pods_ = pods(render(chart, LEAST))
    checks = {name: pod["spec"]["initContainers"][0] for name, pod in pods_.items()}
    assert checks["gpu"]["command"] == ["switchboard", "doctor", "--node", "--gpus", "1"]
    assert checks["gpu"]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert checks["cpu"]["command"][-2:] == ["--gpus", "0"]
    assert checks["head"]["command"] == ["switchboard", "migrate"]


def test_another_setting_makes_new_pods(chart: Any) -> None:
    with_base = {"settings": LEAST["settings"] | {"ASR__MODEL": "base"}}
    sums = {
        pod["metadata"]["annotations"]["checksum/environment"]
        for values in (LEAST, with_base)
        for pod in pods(render(chart, values)).values()
    }
    assert len(sums) == 2


def test_the_chart_runs_the_ray_of_the_lock(chart: Any) -> None:
    version = render(chart, LEAST)["RayService"]["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"\nray=={version} " in (ROOT / "requirements.lock").read_text()


def test_a_name_that_kuberay_does_not_take_is_refused(chart: Any) -> None:
    assert chart.render(LEAST, name="c" * 43, namespace="voice")
    with pytest.raises(helm_python.HelmError, match=r"at most 43 characters"):
        chart.render(LEAST, name="c" * 44, namespace="voice")


def test_a_value_that_does_not_exist_is_refused(chart: Any) -> None:
    with pytest.raises(helm_python.HelmError, match=r"workrs"):
        render(chart, LEAST | {"workrs": {}})
