"""Debian's Prometheus, reading the metrics of one Ray."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml


@contextmanager
def prometheus(folder: Path, port: int, target: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Listens on 127.0.0.1; reads `target` (host:port) each second. Data are in `folder`."""
    job = {"job_name": "switchboard", "static_configs": [{"targets": [target]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = (f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")
    process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", *options])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
