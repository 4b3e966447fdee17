import re
from collections import Counter as Tally

import pytest
from prometheus_client import generate_latest

from pipeline.errors import StateUnavailable
from pipeline.observability.metrics import Counter
from serve_app.operations import metric_names
from tests.support.intake_in_memory import BODY, FINISHED, service, three_keys

UNITS = (
    *("_total", "_seconds", "_bytes", "_ratio", "_hour", "_up", "_room", "_jobs", "_replicas", "_unsent"),
    *("_connections", "_waiting"),
)


def test_every_metric_is_named_with_its_unit_and_has_no_label_of_many_values() -> None:
    for metric in metric_names.EVERY:
        assert re.fullmatch(r"switchboard(_[a-z]+)+", metric.name)
        assert metric.name.endswith(UNITS)
        assert metric.name.endswith("_total") == isinstance(metric, Counter)
        assert not {"call", "call_id", "workspace", "team", "number", "url"} & set(metric.labels)


def test_every_metric_of_the_code_is_in_the_table_once() -> None:
    assert len({metric.name for metric in metric_names.EVERY}) == len(metric_names.EVERY)


def test_the_names_are_those_under_which_rays_agent_serves_them() -> None:
    from ray._private.telemetry.open_telemetry_metric_recorder import OpenTelemetryMetricRecorder

    agent = OpenTelemetryMetricRecorder(60)
    for metric in metric_names.EVERY:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.KIND == "histogram":
            agent.register_histogram_metric(metric.name, metric.text, list(metric.buckets))
            counts = [1] + [0] * len(metric.buckets)
            agent.record_histogram_aggregated_batch(metric.name, [{"tags": labels, "bucket_counts": counts}])
        else:
            register = {"counter": agent.register_counter_metric, "gauge": agent.register_gauge_metric}[metric.KIND]
            register(metric.name, metric.text)
            agent.set_metric_value(metric.name, labels, 1.0)
    served = generate_latest().decode()
    for metric in metric_names.EVERY:
        sample = f"{metric.exposed}_bucket" if metric.KIND == "histogram" else metric.exposed
        assert f"# TYPE {metric.exposed} {metric.KIND}" in served
        assert re.search(rf"^{sample}{{", served, re.MULTILINE), metric.name


def test_other_labels_than_those_of_the_table_are_refused() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        metric_names.SUBMISSIONS.inc(answer="new", call_id="7f1c6a52")


async def test_each_request_to_submit_is_counted_once_by_what_became_of_it() -> None:
    memory, counted = three_keys(), Tally[str]()
    async with service(memory, count=lambda answer: counted.update([answer])) as client:
        await client.post("/submit", json=FINISHED)
        await client.post("/submit", json=BODY | {"from": 1})
        await client.post("/submit", content=b"{", headers={"Content-Type": "application/json"})
        await client.post("/submit", json=BODY, headers={"Authorization": "Bearer sb_nobody"})
        await client.post("/submit", content=b"x", headers={"Content-Type": "text/plain"})
        memory.fault = StateUnavailable()
        await client.post("/submit", json=BODY)
        memory.fault = RuntimeError()
        await client.post("/submit", json=BODY)
        await client.get("/elsewhere")
    assert counted == {
        "new": 1,
        "invalid-body": 2,
        "not-authenticated": 1,
        "media-type-refused": 1,
        "unavailable": 1,
        "internal": 1,
    }
