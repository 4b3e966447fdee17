"""What a service on one machine does not keep in memory (docs/capacity.md has the figures)."""

from pathlib import Path

import psutil

from tests.acceptance.running import RunningService

IDLE = ("dashboard/dashboard.py", "log_monitor.py", "_private/monitor.py")  # processes of Ray with nothing to do here
WITHOUT_ENGINES = ("Intake", "Api", "Console", "Conductor")


def test_no_process_of_ray_runs_for_a_dashboard_or_for_other_nodes(service: RunningService) -> None:
    titles = [" ".join(process.cmdline()) for process in service.processes() if process.is_running()]
    assert any("gcs_server" in title for title in titles)
    assert [title for title in titles for part in IDLE if part in title] == []


def test_only_engines_have_their_libraries_in_memory(service: RunningService) -> None:
    for deployment in WITHOUT_ENGINES:
        (pid,) = service.pids(deployment)
        libraries = {Path(region.path).parts[-3:] for region in psutil.Process(pid).memory_maps()}
        loaded = {part for parts in libraries for part in parts}
        assert not loaded & {"pandas", "torch", "ctranslate2.libs", "onnxruntime"}, deployment
        assert "ray" in loaded, "memory_maps shows no library"
