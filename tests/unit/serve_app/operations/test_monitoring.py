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
OF_RAY_AND_PROMETHEUS = {"le", "WorkerId", "NodeAddress"}
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
    assert used
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


@needs_promtool
def test_an_alert_that_fires_on_a_quiet_service_is_found(tmp_path: Path) -> None:
    done = run_rules(tmp_path, ALERTS.read_text().replace("webhook_lag_seconds) > 900", "webhook_lag_seconds) > 2"))
    assert done.returncode != 0


def test_a_rule_test_expects_each_alert_to_fire() -> None:
    groups = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    cases = [case for group in groups for case in group.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {rule["alert"] for rule in rules()}
