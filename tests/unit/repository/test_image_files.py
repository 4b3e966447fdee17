"""Static checks of the Dockerfile and Compose files; no Docker daemon is needed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.deploy import service_lock
from tests.paths import ROOT

DOCKERFILE = ROOT / "Dockerfile"
DEPLOY = ROOT / "serve_app/deploy"
HADOLINT = Path(sys.executable).with_name("hadolint")
COMPOSE, WITH_GPU = "compose.yaml", "compose.gpu.yaml"


def compose(name: str = COMPOSE) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text()))


def lint(path: Path) -> str:
    return subprocess.run([HADOLINT, "--no-color", path], check=False, capture_output=True, text=True).stdout


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is available for Linux only")
def test_hadolint_accepts_the_dockerfile_and_rejects_a_faulty_one(tmp_path: Path) -> None:
    assert lint(DOCKERFILE) == ""
    text = DOCKERFILE.read_text().replace("--no-install-recommends ", "")
    (tmp_path / "Dockerfile").write_text(text.replace("USER 1000:1000", "USER root"))
    assert {"DL3015", "DL3002"} <= set(re.findall(r"DL\d+", lint(tmp_path / "Dockerfile")))


def test_copied_files_exist_and_are_part_of_the_build_context() -> None:
    included = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in included)
    (copied,) = re.findall(r"^COPY (?!--from|\. \.)(.+) \./$", DOCKERFILE.read_text(), re.MULTILINE)
    names = [path.relative_to(ROOT).as_posix() for pattern in copied.split() for path in ROOT.glob(pattern)]
    assert {Path(name).name for name in re.findall(r"/locks/(\S+\.lock)", DOCKERFILE.read_text())} <= {
        *(Path(name).name for name in names),
        "torch.lock",
        "service.lock",
        "service-cpu.lock",
    }
    for name in names:
        assert any(name == path or name.startswith(f"{path}/") for path in included)


THE_CODE = re.compile(r"--no-deps --no-build-isolation(?: --python \S+)?( (?:-e|--editable) \S+)+$")


@pytest.mark.parametrize("name", ["Dockerfile", "Makefile", "serve_app/deploy/setup.sh"])
def test_whatever_is_installed_from_an_index_is_checked_against_a_hash(name: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / name).read_text())
    text = text.replace('install() { ~/venv/bin/uv pip install --quiet --python ~/venv/bin/python "$@"; }', "")
    commands = [
        command.strip()
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
        for command in re.split("&&|;", line)
        if re.search(r"\b(pip3? (install|sync|download)|install --|uv (tool|run|add)|uvx|pipx|easy_install)\b", command)
    ]
    assert len(commands) >= 3
    for command in commands:
        if "install --directory" in command or "apt-get" in command:
            continue
        assert "--require-hashes" in command or THE_CODE.search(command), command


@pytest.mark.parametrize(
    "line",
    ["RUN pip install uv", "RUN uv tool run x", "RUN true && uv pip install --no-deps --requirement x.lock"],
)
def test_an_install_without_hashes_would_be_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Dockerfile").write_text(f"{DOCKERFILE.read_text()}\n{line}\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    with pytest.raises(AssertionError):
        test_whatever_is_installed_from_an_index_is_checked_against_a_hash("Dockerfile")


@pytest.mark.parametrize("name", ["installer", "sbom"])
def test_the_tools_of_a_build_are_locked_with_hashes(name: str) -> None:
    entries = service_lock.entries((DEPLOY / f"{name}.lock").read_text())
    assert {"installer": "uv", "sbom": "cyclonedx-bom"}[name] in entries
    assert all(re.match(r"[^ ]+==[^ ]+ ", entry) and "--hash=sha256:" in entry for entry in entries.values())


def test_pytorch_without_cuda_is_of_the_locked_version_and_has_hashes() -> None:
    """With a new version, `make lock` leaves no hashes, and the image is not built before `make lock-cpu`."""
    locked = service_lock.entries((ROOT / "requirements.lock").read_text())
    cpu = service_lock.entries((DEPLOY / "torch-cpu.lock").read_text())
    assert cpu.keys() == {"torch"}
    assert cpu["torch"].split("+cpu ")[0] == locked["torch"].split(" ")[0]
    assert cpu["torch"].count("--hash=sha256:") >= 2, "x86-64 and ARM"


def test_the_base_image_and_those_of_compose_have_digests() -> None:
    for file in (DOCKERFILE, ROOT / "compose.yaml"):
        images = re.findall(r"^(?:ARG PYTHON=| *image: )(\S+)", file.read_text(), re.MULTILINE)
        others = [image for image in images if not image.startswith("switchboard:")]
        assert others
        assert all(re.search(r":\S+@sha256:[0-9a-f]{64}$", image) for image in others), others


WITHOUT_OPERATORS = """
import pytest, torchaudio
assert not torchaudio._extension._IS_TORCHAUDIO_EXT_AVAILABLE
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/unit/pipeline/diarization/test_diarization.py"]))
"""


@pytest.mark.slow
def test_the_engines_run_without_the_compiled_operators_of_torchaudio(tmp_path: Path) -> None:
    """The CPU image removes them: those of the package index need CUDA's libraries."""
    spec = importlib.util.find_spec("torchaudio")
    assert spec is not None and spec.origin is not None
    shutil.copytree(
        Path(spec.origin).parent, tmp_path / "torchaudio", ignore=shutil.ignore_patterns("lib", "__pycache__")
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-c", WITHOUT_OPERATORS], cwd=ROOT, env=environment, check=True)


def test_make_digests_pins_every_image_of_others_and_renews_its_digest(tmp_path: Path) -> None:
    """A registry answers in place of Docker's: no test reaches the real one."""
    makefile = (ROOT / "Makefile").read_text()
    (names,) = re.findall(r"^IMAGES = (.*)$", makefile, re.MULTILINE)
    files = [path.relative_to(ROOT) for pattern in names.split() for path in ROOT.glob(pattern)]
    for file in (*files, Path("Makefile")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    for digit in "ab":
        docker.write_text(f"#!/bin/sh\necho sha256:{digit * 64}\n")
        docker.chmod(0o755)
        environment = {**os.environ, "PATH": f"{docker.parent}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run(["make", "digests"], cwd=tmp_path, env=environment, check=True, capture_output=True)
        for file in files:
            text = (tmp_path / file).read_text()
            images = re.findall(r"^(?:ARG PYTHON=| *image: )([a-z0-9./-]+:\S+)", text, re.MULTILINE)
            others = [image for image in images if not image.startswith("switchboard:")]
            assert all(image.endswith(f"@sha256:{digit * 64}") and image.count("@") == 1 for image in others), file
            assert re.sub(r"@sha256:\w+", "", text) == re.sub(r"@sha256:\w+", "", (ROOT / file).read_text())
    if HADOLINT.exists():
        assert lint(tmp_path / "Dockerfile") == ""


def test_the_build_context_has_no_secrets_and_no_tests() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if not line.startswith("#")) == "*"
    assert not any(line.startswith(("!tests", "!deploy.env", "!ray_token", "!.env", "!client")) for line in lines)
    assert {"deploy.env", "ray_token", ".env"} <= set((ROOT / ".gitignore").read_text().splitlines())


def test_compose_has_all_services_with_pinned_images() -> None:
    services = compose()["services"]
    others = {"bucket", "backup", "postgres", "minio", "prometheus", "alertmanager", "grafana"}
    assert set(services) == {"switchboard", *others}
    assert all(re.search(r":[^:]*\d", service["image"]) for service in services.values() if "build" not in service)


@pytest.mark.parametrize(
    "now", ["2026-11-24T02:29:59", "2026-11-24T02:30:00", "2026-11-24T02:30:01", "2026-11-24T23:00:00"]
)
def test_compose_backs_up_at_half_past_two(tmp_path: Path, now: str) -> None:
    """The service's own commands, with a clock that stands still and no time to wait."""
    log = tmp_path / "log"
    moment = f"TZ=UTC /bin/date -d '{now}'"
    for name, script in {
        "date": f'[ "$1" = +%s ] && exec env {moment} +%s; exec env TZ=UTC /bin/date -d "{now[:10]} $2" "$3"',
        "sleep": f'[ -e {log} ] && exit 1; echo "$1" > {log}',
        "switchboard": f'echo "$*" >> {log}',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = [part.replace("$$", "$") for part in compose()["services"]["backup"]["entrypoint"]]
    subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False, timeout=60)
    seconds, create, prune = log.read_text().splitlines()
    woken = datetime.fromisoformat(now) + timedelta(seconds=int(seconds))
    assert (woken.hour, woken.minute, woken.second) == (2, 30, 0) and woken > datetime.fromisoformat(now)
    assert (create, prune) == ("backup create /backups", "backup prune /backups --older-than 30d --keep 7")


def test_compose_opens_ports_only_on_the_loopback_address_and_requires_every_password() -> None:
    services = compose()["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith(("127.0.0.1:", "${ADDRESS:-127.0.0.1}:")) for port in ports)
    secret = re.findall(r"\$\{(\w*(?:PASSWORD|KEYS))([^}]*)\}", (ROOT / COMPOSE).read_text())
    assert {name for name, _ in secret} == {
        "POSTGRES_PASSWORD",
        "MINIO_PASSWORD",
        "GRAFANA_PASSWORD",
        "SWITCHBOARD_SECRETS_KEYS",
    }
    assert all(default.startswith(":?") for _, default in secret)


def test_the_service_reads_the_settings_of_compose(monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    from serve_app.settings import Settings, unknown_variables

    variables = compose()["services"]["switchboard"]["environment"]
    environment = {name: str(value) for name, value in variables.items() if name.startswith("SWITCHBOARD_")}
    assert unknown_variables(environment) == {}
    key = base64.b64encode(bytes(32)).decode()
    for name, value in environment.items():
        monkeypatch.setenv(name, key if name.endswith("SECRETS_KEYS") else re.sub(r"\$\{[^}]*\}", "x", value))
    settings = Settings()
    assert (settings.storage_url, settings.http.host) == ("s3://recordings", "0.0.0.0")
    assert settings.require_database_url() == "postgresql://switchboard:x@postgres:5432/switchboard"


def test_the_files_that_compose_mounts_exist_and_refer_to_each_other() -> None:
    services = compose()["services"]
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith("./") else source in compose()["volumes"]
    prometheus = yaml.safe_load((ROOT / "serve_app/deploy/prometheus.yml").read_text())
    assert services["prometheus"]["network_mode"] == "service:switchboard"  # its targets are on the loopback address
    (source,) = yaml.safe_load((ROOT / "serve_app/deploy/grafana/datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://switchboard:9090"
    targets = [target for job in prometheus["scrape_configs"] for target in job["static_configs"][0]["targets"]]
    assert all(target.startswith("127.0.0.1:") for target in targets)


def test_the_gpu_variant_changes_the_image_and_requests_a_gpu() -> None:
    services = compose(WITH_GPU)["services"]
    for name in ("switchboard", "bucket", "backup"):
        assert services[name]["image"] == "switchboard:cuda"
        assert services[name]["build"]["args"] == {"VARIANT": "cuda"}
    (device,) = services["switchboard"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_promtool_accepts_the_configuration() -> None:
    subprocess.run(["promtool", "check", "config", ROOT / "serve_app/deploy/prometheus.yml"], check=True)
