import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from serve_app.operations import metric_names
from tests.paths import ROOT

DEPLOY = ROOT / "serve_app/deploy"
ALERTS = DEPLOY / "alerts.yml"
RULE_TESTS = ROOT / "tests/fixtures/alerts.test.yml"
BOARD = DEPLOY / "grafana/switchboard.json"
OF_RAY_AND_PROMETHEUS = {"le", "job", "WorkerId", "NodeAddress"}
METRICS = {metric.exposed: metric for metric in metric_names.EVERY}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool comes with Debian's package prometheus"
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(BOARD.read_text())["panels"] if panel["type"] != "row"]


EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in rules()} | {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_the_metrics_and_labels_of_rules_and_boards_are_those_of_the_table(expression: str) -> None:
    used = {re.sub(r"(?<=[a-z])_(bucket|sum|count)$", "", name) for name in re.findall(r"ray_\w+", expression)}
    assert used or expression.startswith("up{")
    assert used <= METRICS.keys()
    labels = OF_RAY_AND_PROMETHEUS.union(*(METRICS[name].labels for name in used))
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = [
        name.strip() for group in re.findall(r"(?:by|ignoring) \(([^)]*)\)", expression) for name in group.split(",")
    ]
    assert {*matched, *grouped} <= labels


def test_every_metric_of_the_table_is_on_the_board() -> None:
    shown = " ".join(expression for name, expression in EXPRESSIONS.items() if not name.startswith("Switchboard"))
    assert not [name for name in METRICS if name not in shown]


def test_grafana_knows_every_field_of_the_board_and_panels_do_not_overlap() -> None:
    board = json.loads(BOARD.read_text())
    read = json.loads(json.dumps(Dashboard.from_json(board), default=lambda value: value.to_json()))
    missing = list(lost(board, read))
    assert missing == []
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_query_of_the_board_is_of_the_chosen_data_source_and_service() -> None:
    board = json.loads(BOARD.read_text())
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "job"]
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            selectors = re.findall(r"ray_switchboard_\w+(\{[^}]*\})?", target["expr"])
            assert selectors and all('job=~"$job"' in selector for selector in selectors), target["expr"]


def lost(source: Any, read: Any, path: str = "") -> Any:
    """Return what Grafana's model of a board does not keep."""
    if isinstance(source, dict):
        for key, value in source.items():
            if not isinstance(read, dict) or key not in read:
                yield f"{path}.{key}"
            else:
                yield from lost(value, read[key], f"{path}.{key}")
    elif isinstance(source, list):
        for at, (item, stored) in enumerate(zip(source, read, strict=True)):
            yield from lost(item, stored, f"{path}[{at}]")
    elif source != read:
        yield f"{path}: {source} became {read}"


@needs_promtool
def test_prometheus_takes_the_rules_and_the_queries_of_the_board(tmp_path: Path) -> None:
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True)
    queries = [
        {"record": f"panel:{at}", "expr": target["expr"].replace("$__rate_interval", "1m")}
        for at, target in enumerate(target for panel in panels() for target in panel["targets"])
    ]
    (tmp_path / "board.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": queries}]}))
    subprocess.run(["promtool", "check", "rules", tmp_path / "board.yml"], check=True)


def run_rules(folder: Path, alerts: str) -> subprocess.CompletedProcess[str]:
    (folder / "alerts.yml").write_text(alerts)
    shutil.copy(RULE_TESTS, folder)
    return subprocess.run(
        ["promtool", "test", "rules", "alerts.test.yml"], cwd=folder, capture_output=True, text=True, check=False
    )


@needs_promtool
def test_alerts_fire_where_they_should_and_not_on_a_quiet_service(tmp_path: Path) -> None:
    done = run_rules(tmp_path, ALERTS.read_text())
    assert done.returncode == 0, done.stdout + done.stderr


QUIET = {
    'up{job="switchboard",instance="a"}': "1x120",
    'up{job="haproxy",instance="a"}': "1x120",
    'ray_switchboard_database_up{WorkerId="a"}': "1x120",
    "ray_switchboard_database_room": "1x120",
    'ray_switchboard_disk_free_bytes{place="recordings"}': "50000000000x120",
    "ray_switchboard_backup_age_seconds": "3600x120",
    'ray_switchboard_queue_age_seconds{deployment="Conductor"}': "0x120",
    'ray_switchboard_submissions_total{answer="new"}': "0+60x120",
    'ray_switchboard_submissions_total{answer="unavailable"}': "0x120",
    'ray_switchboard_jobs_ended_total{kind="process",state="done"}': "0+60x120",
    'ray_switchboard_jobs_ended_total{kind="process",state="failed"}': "0x120",
    'ray_switchboard_job_retries_total{code="engine_unavailable"}': "0x120",
    'ray_switchboard_replicas{deployment="Transcriber",state="wanted"}': "2x120",
    'ray_switchboard_replicas{deployment="Transcriber",state="running"}': "2x120",
    **{
        f'ray_switchboard_replicas{{deployment="{name}",state="{state}"}}': "1x120"
        for name in ("Intake", "Api", "Console")
        for state in ("running", "wanted")
    },
    "ray_switchboard_webhook_lag_seconds": "3x120",
    'ray_switchboard_postgres_waiting{deployment="Intake"}': "0x120",
    'ray_switchboard_call_turnaround_seconds_bucket{le="60"}': "0+60x120",
    'ray_switchboard_call_turnaround_seconds_bucket{le="7200"}': "0+60x120",
    'ray_switchboard_call_turnaround_seconds_bucket{le="+Inf"}': "0+60x120",
}
FAULTS: dict[str, tuple[dict[str, str | None], set[str]]] = {
    "none": ({}, set()),
    "PostgreSQL is down, and the Conductors say so": (
        {
            'ray_switchboard_database_up{WorkerId="a"}': "0x120",
            'ray_switchboard_submissions_total{answer="new"}': "0x120",
            'ray_switchboard_submissions_total{answer="unavailable"}': "0+60x120",
            "ray_switchboard_database_room": None,
        },
        {"DatabaseDown", "SubmissionsRefused"},
    ),
    "no Conductor": (
        {
            name: None
            for name in QUIET
            if re.search("database_|queue_age|disk|backup|replicas|webhook|jobs_|job_", name)
        },
        {"ConductorGone"},
    ),
    "no Intake": (
        {name: None for name in QUIET if re.search("postgres_waiting|submissions", name)}
        | {'ray_switchboard_replicas{deployment="Intake",state="running"}': "0x120"},
        {"IntakeGone", "ReplicasMissing"},
    ),
    "the service is down": (
        {name: None for name in QUIET if name.startswith("ray_")}
        | {name: "0x120" for name in QUIET if name.startswith("up")},
        {"TargetDown", "IntakeGone", "ConductorGone"},
    ),
    "PostgreSQL's disk is full": (
        {
            "ray_switchboard_database_room": "0x120",
            'ray_switchboard_submissions_total{answer="new"}': "0x120",
            'ray_switchboard_submissions_total{answer="unavailable"}': "0+60x120",
        },
        {"DatabaseFull", "SubmissionsRefused"},
    ),
    "the disk of recordings fills up": (
        {'ray_switchboard_disk_free_bytes{place="recordings"}': "1000000000x120"},
        {"DiskAlmostFull"},
    ),
    "backups stopped": ({"ray_switchboard_backup_age_seconds": "200000x120"}, {"BackupOld"}),
    "calls take long": (
        {'ray_switchboard_call_turnaround_seconds_bucket{le="60"}': "0+10x120"},
        {"CallsSlow"},
    ),
    "calls stand still": (
        {
            'ray_switchboard_queue_age_seconds{deployment="Conductor"}': "0+60x120",
            'ray_switchboard_jobs_ended_total{kind="process",state="done"}': "0x120",
        },
        {"CallsStandStill", "QueueOld"},
    ),
    "no Api starts": (
        {'ray_switchboard_replicas{deployment="Api",state="running"}': "0x120"},
        {"ReplicasMissing"},
    ),
    "a replica is missing": (
        {'ray_switchboard_replicas{deployment="Transcriber",state="running"}': "1x120"},
        {"ReplicasMissing"},
    ),
    "jobs fail": ({'ray_switchboard_jobs_ended_total{kind="process",state="failed"}': "0+10x120"}, {"JobsFail"}),
    "an engine has no model": (
        {'ray_switchboard_job_retries_total{code="engine_unavailable"}': "0+1x120"},
        {"EngineWithoutModel"},
    ),
    "a receiver of webhooks is down": ({"ray_switchboard_webhook_lag_seconds": "1000x120"}, {"WebhooksLate"}),
    "connections run out": (
        {'ray_switchboard_postgres_waiting{deployment="Intake"}': "4x120"},
        {"ConnectionsExhausted"},
    ),
}


@needs_promtool
def test_each_alert_fires_in_its_fault_and_is_silent_in_the_others(tmp_path: Path) -> None:
    tests = []
    for fault, (changes, alerts) in FAULTS.items():
        series = {name: values for name, values in (QUIET | changes).items() if values}
        expected = [{"labels": f'{{alertname="Switchboard{name}"}}', "value": 1} for name in sorted(alerts)]
        query = 'group by (alertname) (ALERTS{alertstate="firing"})'
        tests.append(
            {
                "name": fault,
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": query, "eval_time": "110m", "exp_samples": expected}],
            }
        )
    (tmp_path / "alerts.yml").write_text(ALERTS.read_text())
    (tmp_path / "faults.yml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    command = ["promtool", "test", "rules", "faults.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {f"Switchboard{name}" for _, alerts in FAULTS.values() for name in alerts} == {
        rule["alert"] for rule in rules()
    }


@needs_promtool
def test_an_alert_that_fires_on_a_quiet_service_is_found(tmp_path: Path) -> None:
    done = run_rules(tmp_path, ALERTS.read_text().replace("webhook_lag_seconds) > 900", "webhook_lag_seconds) > 2"))
    assert done.returncode != 0
