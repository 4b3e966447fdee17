import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from pipeline.errors import NotAudio
from pipeline.observability import tracing
from pipeline.observability.context import WorkContext, current_context, work_context
from pipeline.observability.tracing import observed
from tests.collector import Collector, collecting
from tests.support.intake_in_memory import FINISHED, service, three_keys

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Traces are on in this process while a test runs."""
    with collecting() as collector_:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector_.url)
        tracing.start("test")
        yield collector_
        tracing.stop(5)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (SENT, SENT),
        (f"cc-{TRACE}-{SPAN}-01-later", SENT),
        (f"00-{TRACE}-{SPAN}-01-later", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\r\nX: y", None),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 600}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_says(text: str | None, parsed: str | None) -> None:
    assert tracing.traceparent(text) == parsed


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys; from pipeline.observability import tracing; tracing.start('intake')\n"
        "import serve_app.intake.submit\n"
        "before = {name for name in sys.modules if name.startswith('opentelemetry.sdk')}\n"
        "with tracing.span('POST /submit'): pass\n"
        "assert not before and not tracing.on(), before\n"
        "assert not any('opentelemetry.sdk' in name or 'otlp' in name for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "/usr/bin"}, timeout=120)


def test_spans_are_below_what_the_sender_sent_and_an_error_is_told_by_its_code(collector: Collector) -> None:
    queued = datetime.now(UTC)
    with work_context(WorkContext({"call_id": "c"}, SENT)):
        with pytest.raises(NotAudio), observed("outer"):
            tracing.past("queue wait", queued - timedelta(seconds=3), queued)
            inner = current_context().trace
            raise NotAudio("words of a call")
        assert current_context().trace == SENT
    assert inner is not None and inner.startswith(f"00-{TRACE}-") and inner.endswith("-01")
    wait, outer = sorted(collector.until(lambda spans: len(spans) == 2), key=lambda span: span.begun)
    assert (outer.name, outer.trace, outer.parent, outer.failed) == ("outer", TRACE, SPAN, True)
    assert outer.service == "switchboard-test"
    assert outer.attributes == {"switchboard.call_id": "c", "error.type": "not_audio"}
    assert (wait.name, wait.parent) == ("queue wait", outer.span)
    assert wait.ended - wait.begun == 3_000_000_000


def test_what_the_sender_does_not_want_recorded_is_passed_on_and_not_recorded(collector: Collector) -> None:
    with work_context(WorkContext({}, SENT[:-1] + "0")), tracing.span("unsampled"):
        assert (current_context().trace or "").endswith("-00")
        assert TRACE in (current_context().trace or "")
    with tracing.span("sampled"):
        pass
    assert [span.name for span in collector.until(bool)] == ["sampled"]


async def test_submit_belongs_to_the_traceparent_of_its_request(collector: Collector) -> None:
    memory = three_keys()
    async with service(memory) as client:
        sent = {"traceparent": SENT, "X-Request-Id": "of-the-pbx"}
        answer = await client.post("/submit", json=FINISHED, headers=sent)
        assert answer.status_code == 202, answer.text
        assert (await client.post("/submit", json={}, headers={"traceparent": "nonsense"})).status_code == 400
    good, bad = sorted(collector.until(lambda spans: len(spans) == 2), key=lambda span: span.begun)
    assert (good.name, good.trace, good.parent, good.failed) == ("POST /submit", TRACE, SPAN, False)
    assert good.attributes["switchboard.request_id"] == "of-the-pbx"
    assert bad.trace != TRACE
    assert (bad.parent, bad.failed) == ("", True)


def test_a_collector_that_is_slow_or_away_holds_up_neither_work_nor_the_end(collector: Collector) -> None:
    collector.answers_after = 30.0
    begun = time.monotonic()
    for _ in range(5000):  # more than are kept
        with tracing.span("work"):
            pass
    assert time.monotonic() - begun < 25
    begun = time.monotonic()
    tracing.stop(1.0)
    assert time.monotonic() - begun < 15
    with patch.dict("os.environ", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"):
        tracing.start("test")
        begun = time.monotonic()
        for _ in range(1000):
            with tracing.span("work"):
                pass
        tracing.stop(1.0)
        assert time.monotonic() - begun < 15
