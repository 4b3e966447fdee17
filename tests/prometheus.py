"""Debian's Prometheus, reading the metrics of one service."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

READY_SECONDS = 60.0


@contextmanager
def prometheus(
    folder: Path, port: int, targets: Mapping[str, str], rules: str = "", seconds: int = 1
) -> Iterator["subprocess.Popen[bytes]"]:
    """Listens on 127.0.0.1; reads `targets` (job -> host:port) and runs `rules` every `seconds`; stores in `folder`."""
    jobs = [{"job_name": name, "static_configs": [{"targets": [target]}]} for name, target in targets.items()]
    every = {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"}
    (folder / "rules.yml").write_text(rules)
    config = {"global": every, "scrape_configs": jobs, "rule_files": ["rules.yml"]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = (f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")
    process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", *options])
    try:
        _wait(f"http://127.0.0.1:{port}/-/ready", process)
        yield process
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url).is_success:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus is not ready: {process.poll()=}")
