import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.operations.capacity import Load, Ratios, RatiosUnfit, plan
from tests.paths import ROOT

OUTPUTS = ROOT / "bench" / "real" / "outputs"
ROUND = Ratios.model_validate(
    {
        "separated": {"recognition": 6.0, "diarization": 0.6, "other": 1.2, "source": "here"},
        "mixed": {"recognition": 4.0, "diarization": 4.0, "other": 0.6, "source": "here"},
        "submission": {"core_seconds": 0.002, "most_per_second": 1000, "source": "here"},
        "database": {"bytes_per_call": 5000, "bytes_per_minute": 10000, "source": "here"},
        "recordings": {"bytes_per_minute": 480000, "source": "here"},
        "prices": {"core_hour": 0.05, "gpu_hour": 1.0, "database_gb_month": 0.1, "storage_gb_month": 0.02},
    }
)
LOADS = st.builds(
    Load,
    calls_per_day=st.integers(0, 10_000_000),
    minutes=st.floats(0, 240),
    mono_share=st.floats(0, 1),
    busy_hour=st.floats(1 / 24, 1),
    utilization=st.floats(0.05, 1),
    gpu_rtfx=st.none() | st.floats(0.1, 1000),
    months=st.integers(1, 120),
)
GROWING = ("cores", "gpus", "transcribers", "diarizers", "databases", "database_gb_per_month", "storage_gb_per_month")


def test_a_load_by_hand() -> None:
    """20,000 calls of 3 minutes: the busiest hour has 10 %, 2,000 calls, 6,000 minutes.

    Recognition 6,000 x 6 = 36,000 core-seconds; a core gives 3,600 x 0.5 = 1,800: 20 Transcribers. Diarizers: 3,600 /
    1,800 = 2. Other: 7,200, submissions 4,000 x 0.002 = 8: 7,208 / 1,800 = 4.004, so 5 cores. 27 in all.
    """
    result = plan(Load(20_000, 3, busy_hour=0.1, utilization=0.5, months=12), ROUND)
    assert (result.transcribers, result.diarizers, result.engine_cores, result.cores) == (20, 2, 22, 27)
    assert result.audio_hours_per_day == 1000 and result.busy_audio_hours == 100
    # 20,000 x 30.4375 = 608,750 calls a month, of 5,000 + 30,000 bytes; of 3 minutes, two channels, 480,000 bytes
    assert result.database_gb_per_month == pytest.approx(21.30625)
    assert result.storage_gb_per_month == pytest.approx(1753.2)
    assert result.cost["cores"] == pytest.approx(27 * 730.5 * 0.05)
    assert result.cost["database"] == pytest.approx(12 * 21.30625 * 0.1)
    assert result.cost["all"] == pytest.approx(986.175 + 25.5675 + 420.768)
    assert result.cost_per_audio_hour == pytest.approx(1432.5105 / 30437.5)
    assert result.databases == 1


def test_a_mixed_load_on_gpus_by_hand() -> None:
    """Half the calls mixed: 6,000 minutes x 60 s / 50 = 7,200 GPU-seconds, of which a GPU gives 1,800: 4 of them.

    Other: 6,000 x 0.9 + 8 = 5,408 / 1,800 = 3.004, so 4 cores, and one for each engine. Channels: 1.5 on average.
    A month has 1,000 h x 30.4375 of audio: / 50 / 0.5 = 1,217.5 GPU-hours, instead of 4 x 730.5.
    """
    result = plan(Load(20_000, 3, 0.5, busy_hour=0.1, utilization=0.5, gpu_rtfx=50), ROUND)
    assert (result.gpus, result.transcribers, result.diarizers, result.cores, result.engine_cores) == (4, 4, 4, 12, 8)
    assert result.storage_gb_per_month == pytest.approx(1753.2 * 0.75)
    assert result.cost["gpus"] == result.gpu_hours == pytest.approx(1217.5)


def test_submissions_beyond_one_database_take_another() -> None:
    """24,000,000 calls, 10 % in an hour, two submissions each: 1,333 a second; one takes 1,000."""
    assert plan(Load(24_000_000, 1, busy_hour=0.1), ROUND).databases == 2


def test_no_calls_take_nothing() -> None:
    result = plan(Load(0, 3), ROUND)
    assert (result.cores, result.gpus, result.cost["all"], result.cost_per_audio_hour) == (0,) * 4


@given(LOADS, st.integers(0, 1_000_000), st.floats(0, 60))
def test_more_or_longer_calls_never_take_less(load: Load, more: int, longer: float) -> None:
    before = plan(load, ROUND)
    after = plan(replace(load, calls_per_day=load.calls_per_day + more, minutes=load.minutes + longer), ROUND)
    for what in GROWING:
        assert getattr(after, what) >= getattr(before, what), what
    assert after.cost["all"] >= before.cost["all"]


@given(LOADS)
def test_gpus_that_scale_work_no_longer_than_those_that_run_all_month(load: Load) -> None:
    result = plan(load, ROUND)
    assert 0 <= result.gpu_hours <= result.gpus * 730.5


@given(LOADS, st.floats(0.05, 1))
def test_cores_that_may_be_busier_are_never_more(load: Load, other: float) -> None:
    low, high = sorted((load.utilization, other))
    assert plan(replace(load, utilization=high), ROUND).cores <= plan(replace(load, utilization=low), ROUND).cores


@given(LOADS)
def test_the_planned_cores_do_the_work_of_the_busiest_hour(load: Load) -> None:
    result = plan(replace(load, gpu_rtfx=None), ROUND)
    minutes = load.calls_per_day * load.busy_hour * load.minutes
    work = minutes * ((1 - load.mono_share) * 7.8 + load.mono_share * 8.6)
    assert result.cores * 3600 * load.utilization >= work * (1 - 1e-9)


def test_the_ratios_are_those_of_the_kept_outputs_on_real_speech() -> None:
    """Recomputed from each call's seconds, so that a figure cannot be changed without a measurement."""
    names = ("truths.jsonl.gz", "switchboard.jsonl.gz")
    truths, outputs = (map(json.loads, gzip.decompress((OUTPUTS / name).read_bytes()).splitlines()) for name in names)
    calls = {truth["name"]: truth for truth in truths}
    spent = {"separated": Counter[str](), "mixed": Counter[str]()}
    for output in outputs:
        if output["model"] == "base" and output["call"] in calls:
            truth = calls[output["call"]]
            of = spent["mixed" if truth["mixed"] else "separated"]
            of.update({"minutes": truth["duration"] / 60, **output["seconds"]})
    for layout, of in spent.items():
        measured = getattr(Ratios.read(), layout)
        engines = {"recognition": of["recognition"], "diarization": of["diarization"] + of["voiceprint"]}
        other = sum(of.values()) - of["minutes"] - sum(engines.values())
        for part, seconds in {**engines, "other": other}.items():
            assert getattr(measured, part) == pytest.approx(seconds / of["minutes"], abs=0.01), (layout, part)


def test_the_table_fits_80_columns_and_json_has_the_sources() -> None:
    arguments = ["plan", "--calls-per-day", "2000000", "--minutes", "4.5", "--mono-share", "0.3", "--gpu-rtfx", "60"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    print(done.stdout)
    assert max(cell_len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    data = json.loads(CliRunner().invoke(app, [*arguments, "--price-gpu", "2", "--json"]).stdout)
    assert data["plan"]["gpus"] > 0 and data["ratios"]["prices"]["gpuHour"] == 2
    assert "bench/" in data["ratios"]["separated"]["source"]


def test_a_file_of_ratios_that_lacks_a_field_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "ratios.toml"
    file.write_text("[separated]\nrecognition = 1\n")
    with pytest.raises(RatiosUnfit, match=r"separated\.diarization"):
        Ratios.read(file)
    done = CliRunner().invoke(app, ["plan", "--calls-per-day", "1", "--minutes", "1", "--ratios", str(file)])
    assert done.exit_code == 2 and "ratios.toml" in done.stderr
