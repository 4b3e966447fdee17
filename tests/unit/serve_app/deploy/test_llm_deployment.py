"""The optional language model: off it changes nothing, on it is what llm.yaml defines.

Nothing here imports vLLM, which needs another PyTorch than the locked one.
"""

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from pipeline.analysis.engine import AnalysisOptions
from serve_app.deploy.llm_scaling import QUEUED_CALLS, QueuedCalls
from serve_app.operations import metric_names
from serve_app.settings import unknown_variables
from tests.unit.serve_app.deploy.test_deploy_files import DEPLOY, ROOT, check_cluster, serve_faults

LLM = DEPLOY / "llm.yaml"
STORAGE = {"settings": {"STORAGE": "s3://bucket/recordings"}}
ON: dict[str, Any] = {
    **STORAGE,
    "llm": {
        "enabled": True,
        "config": {"model_loading_config": {"model_id": "ours", "model_source": "/models/ours"}},
        "claim": "models",
        "secrets": ["hub"],
    },
}


def model(text: str) -> dict[str, Any]:
    """Return the only language model of a file."""
    ((config,),) = [application["args"]["llm_configs"] for application in yaml.safe_load(text)["applications"]]
    return dict(config)


def test_serve_deploy_accepts_llm_yaml() -> None:
    assert serve_faults(LLM.read_text()) == []
    assert serve_faults(LLM.read_text().replace("request_timeout_s:", "request_timeout:")) != []


@pytest.fixture
def replicas_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """Return how many replicas the policy requests, by requests and by the value of Prometheus."""
    from ray.serve._private.autoscaling_state import _resolve_policy_callable
    from ray.serve.config import AutoscalingConfig, AutoscalingContext

    monkeypatch.syspath_prepend(DEPLOY)
    scaling = AutoscalingConfig(**model(LLM.read_text())["deployment_config"]["autoscaling_config"])
    policy: Any = _resolve_policy_callable(scaling.policy)

    def replicas_for(requests: int, calls: float | None) -> float:
        metrics = None if calls is None else {QUEUED_CALLS: calls}
        monkeypatch.setattr(type(policy), "prometheus_metrics", property(lambda _: metrics))
        nothing: dict[str, Any] = dict.fromkeys(inspect.signature(AutoscalingContext).parameters)
        context_ = {"total_num_requests": requests, "config": scaling}
        return float(policy(AutoscalingContext(**nothing | context_))[0])

    return replicas_for


def test_calls_that_wait_add_replicas_and_so_do_requests(replicas_for: Callable[..., float]) -> None:
    assert [replicas_for(0, calls) for calls in (0, 1, 100, 250)] == [0, 0.01, 1, 2.5]  # which Ray rounds up
    assert [replicas_for(requests, 0) for requests in (8, 16)] == [1, 2]
    assert replicas_for(16, 100) == replicas_for(8, 200) == 2


def test_without_the_queue_requests_alone_count(replicas_for: Callable[..., float]) -> None:
    assert [replicas_for(requests, None) for requests in (0, 8, 16)] == [0, 1, 2]


def test_ray_accepts_the_bounds_of_the_model(replicas_for: Callable[..., float]) -> None:
    from ray.serve._private.config import DeploymentConfig

    config = DeploymentConfig(**model(LLM.read_text())["deployment_config"])
    scaling = config.autoscaling_config
    assert scaling is not None
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 2)
    target = scaling.get_target_ongoing_requests()
    assert target <= config.max_ongoing_requests <= 2 * target


def test_the_policy_asks_for_a_metric_that_switchboard_has() -> None:
    (used,) = re.findall(r"ray_\w+", QUEUED_CALLS)
    (states,) = re.findall(r'state=~"([a-z|]+)"', QUEUED_CALLS)
    assert used == metric_names.JOBS.exposed
    assert {f"`{state}`" for state in states.split("|")} <= set(re.findall(r"`\w+`", metric_names.JOBS.labels["state"]))


def test_it_says_where_nobody_tells_it_of_the_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("RAY_PROMETHEUS_HOST", raising=False)
    QueuedCalls(100, prometheus_address="http://127.0.0.1:9090")
    assert not caplog.messages
    QueuedCalls(100)
    assert "RAY_PROMETHEUS_HOST" in caplog.text


def test_the_model_has_room_and_time_for_what_the_settings_ask_by_default() -> None:
    options = AnalysisOptions(engine="llm", base_url="http://127.0.0.1/v1", model="any")
    instructions = 2200  # as the setting's description says
    needed = options.max_transcript_tokens + instructions + options.max_tokens
    assert model(LLM.read_text())["engine_kwargs"]["max_model_len"] >= needed
    assert yaml.safe_load(LLM.read_text())["http_options"]["request_timeout_s"] == options.timeout_seconds


def test_ray_up_accepts_the_cluster_of_the_model_whose_nodes_hold_it() -> None:
    text = (ROOT / "serve_app/deploy/clusters/llm.yaml").read_text()
    check_cluster(text)
    cluster = yaml.safe_load(text)
    for here in cluster["file_mounts"].values():
        assert here == "ray_token" or (ROOT / here).is_file()
    types = cluster["available_node_types"]
    model_ = model(LLM.read_text())
    assert types["llm"]["resources"]["GPU"] == model_["placement_group_config"]["bundle_per_worker"]["GPU"]
    assert types["llm"]["max_workers"] == model_["deployment_config"]["autoscaling_config"]["max_replicas"]
    assert types["head"]["resources"] == {"CPU": 0}
    # Ray imports the policy from there.
    assert "\nPYTHONPATH=$HOME/llm\n" in (DEPLOY / "llm.env").read_text()
    assert cluster["file_mounts"]["~/llm/llm_scaling.py"] == "serve_app/deploy/llm_scaling.py"


if sys.platform == "linux":
    import helm_python

    from tests.unit.serve_app.deploy.test_helm_chart import faults, pods
    from tests.unit.serve_app.deploy.test_helm_chart import render as render_alone

    @pytest.fixture(scope="module")
    def chart() -> Any:
        with helm_python.Chart.load(str(DEPLOY / "helm")) as loaded:
            yield loaded

    def render(chart: Any, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        texts = chart.render(values, name="calls", namespace="voice")
        objects = [item for path, text in texts.items() if path.endswith(".yaml") for item in yaml.safe_load_all(text)]
        return {(item["kind"], item["metadata"]["name"]): item for item in objects if item}

    NEW = {(kind, "calls-llm") for kind in ("RayService", "NetworkPolicy", "ConfigMap")}

    def test_without_it_the_chart_has_nothing_of_it(chart: Any) -> None:
        text = yaml.safe_dump_all(render_alone(chart, STORAGE).values())
        assert "llm" not in text

    def test_with_it_there_is_a_second_cluster_and_switchboard_is_told_where(chart: Any) -> None:
        without, objects = render(chart, STORAGE), render(chart, ON)
        assert objects.keys() - without.keys() == NEW
        variables = objects["ConfigMap", "calls-environment"]["data"].items()
        variables -= without["ConfigMap", "calls-environment"]["data"].items()
        assert dict(variables) == {
            "SWITCHBOARD_ANALYSIS__ENGINE": "llm",
            "SWITCHBOARD_ANALYSIS__BASE_URL": "http://calls-llm-serve-svc:8000/v1",
            "SWITCHBOARD_ANALYSIS__MODEL": "ours",
        }
        assert unknown_variables(dict(variables)) == {}
        for key in without.keys() - {("ConfigMap", "calls-environment"), ("RayService", "calls")}:
            assert objects[key] == without[key]

    def test_settings_of_the_operator_win(chart: Any) -> None:
        values = ON | {"settings": STORAGE["settings"] | {"ANALYSIS__ENGINE": "rules"}}
        data = render(chart, values)["ConfigMap", "calls-environment"]["data"]
        assert data["SWITCHBOARD_ANALYSIS__ENGINE"] == "rules"

    def test_it_serves_llm_yaml_but_for_what_the_values_say_of_the_model(chart: Any) -> None:
        text = render(chart, ON)["RayService", "calls-llm"]["spec"]["serveConfigV2"]
        assert serve_faults(text) == []
        expected = yaml.safe_load(LLM.read_text())
        expected["applications"][0]["args"]["llm_configs"][0]["model_loading_config"] = ON["llm"]["config"][
            "model_loading_config"
        ]
        assert yaml.safe_load(text) == expected

    @pytest.mark.parametrize("version", ["1.27.0", "1.30.0", "1.34.0"])
    def test_kubernetes_knows_every_field_of_it(chart: Any, version: str) -> None:
        objects = render(chart, ON)
        of_it = pods({"RayService": objects["RayService", "calls-llm"]})
        templates = [
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": item}
            for name, item in of_it.items()
        ]
        assert [fault for item in [*(objects[key] for key in NEW), *templates] for fault in faults(item, version)] == []

    def test_its_pods_run_without_rights_and_report_to_nobody(chart: Any) -> None:
        of_it = pods({"RayService": render(chart, ON)["RayService", "calls-llm"]})
        variables = dict(
            line.split("=", 1) for line in (DEPLOY / "llm.env").read_text().splitlines() if "=" in line[:40]
        )
        of_nodes = ("#", "RAY_AUTH_", "PYTHONPATH")
        variables = {name: value for name, value in variables.items() if not name.startswith(of_nodes)}
        assert len(variables) == 3
        variables |= {"HF_HOME": "/models", "PYTHONPATH": "/etc/switchboard-llm"}
        for pod in of_it.values():
            spec = pod["spec"]
            (container,) = spec["containers"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {variable["name"]: variable["value"] for variable in container["env"]} == variables
            assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
        assert of_it["llm"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert "nvidia.com/gpu" not in of_it["head"]["spec"]["containers"][0]["resources"]["limits"]

    def test_its_pods_find_the_policy_and_the_prometheus_that_the_values_name(chart: Any) -> None:
        objects = render(chart, ON | {"llm": ON["llm"] | {"prometheus": "http://prometheus.monitoring:9090"}})
        assert objects["ConfigMap", "calls-llm"]["data"] == {"llm_scaling.py": (DEPLOY / "llm_scaling.py").read_text()}
        for pod in pods({"RayService": objects["RayService", "calls-llm"]}).values():
            (container,) = pod["spec"]["containers"]
            environment = {variable["name"]: variable["value"] for variable in container["env"]}
            assert environment["RAY_PROMETHEUS_HOST"] == "http://prometheus.monitoring:9090"
            (mount,) = (
                mount_ for mount_ in container["volumeMounts"] if mount_["mountPath"] == environment["PYTHONPATH"]
            )
            (volume,) = (volume_ for volume_ in pod["spec"]["volumes"] if volume_["name"] == mount["name"])
            assert volume["configMap"] == {"name": "calls-llm"}

    def test_only_pods_of_switchboard_reach_it_and_theirs_are_not_reached_by_it(chart: Any) -> None:
        objects = render(chart, ON)
        ours = pods({"RayService": objects["RayService", "calls"]})["gpu"]["metadata"]["labels"]
        its = pods({"RayService": objects["RayService", "calls-llm"]})["llm"]["metadata"]["labels"]

        def names(policy: str, labels: dict[str, str]) -> list[Any]:
            """Return the ports that a pod with these labels may use, of pods that the policy selects."""
            rules = objects["NetworkPolicy", policy]["spec"]["ingress"]
            return [
                rule.get("ports", "all")
                for rule in rules
                for peer in rule["from"]
                if "podSelector" in peer and (peer["podSelector"].get("matchLabels") or {}).items() <= labels.items()
            ]

        assert objects["NetworkPolicy", "calls-llm"]["spec"]["podSelector"]["matchLabels"].items() <= its.items()
        assert names("calls-llm", ours) == [[{"port": 8000}]]
        assert names("calls-llm", its) == ["all"]
        assert names("calls-llm", {"app": "another"}) == []
        assert names("calls", its) == [[{"port": 8000}]]  # as every pod of the namespace
