"""From calls per day to cores, GPUs, replicas, growth and cost. Pure arithmetic.

Capacity is sized for the busiest hour, at a utilization below 1: work beyond it waits in the queue.
"""

import math
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

DAYS_A_MONTH = 365.25 / 12
HOURS_A_MONTH = 24 * DAYS_A_MONTH
GIGABYTE = 1e9
SUBMISSIONS_A_CALL = 2  # when it begins and when it ends


class RatiosUnfit(ValueError):
    """A file of ratios is invalid; the message names the field."""


class _Ratios(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SecondsPerMinute(_Ratios):
    """Core-seconds per minute of a call."""

    recognition: float = Field(ge=0)
    diarization: float = Field(ge=0)
    other: float = Field(ge=0)
    source: str


class Submissions(_Ratios):
    core_seconds: float = Field(ge=0)
    most_per_second: float = Field(gt=0)
    source: str


class DatabaseGrowth(_Ratios):
    bytes_per_call: float = Field(ge=0)
    bytes_per_minute: float = Field(ge=0)
    source: str


class RecordingGrowth(_Ratios):
    bytes_per_minute: float = Field(ge=0)  # of a channel
    source: str


class Prices(_Ratios):
    core_hour: float = Field(ge=0)
    gpu_hour: float = Field(ge=0)
    database_gb_month: float = Field(ge=0)
    storage_gb_month: float = Field(ge=0)


class Ratios(_Ratios):
    """Measured ratios, each group with its source."""

    separated: SecondsPerMinute
    mixed: SecondsPerMinute
    submission: Submissions
    database: DatabaseGrowth
    recordings: RecordingGrowth
    prices: Prices

    @classmethod
    def read(cls, path: Path | None = None) -> Self:
        """Read the ratios of a file; default: those of the package. Raises `RatiosUnfit` and `OSError`."""
        default = files("serve_app.operations") / "ratios.toml"
        try:
            return cls.model_validate(tomllib.loads((path or default).read_text(encoding="utf-8")))
        except tomllib.TOMLDecodeError as error:
            raise RatiosUnfit(f"{path} is not TOML: {error}") from error
        except ValidationError as error:
            fault = error.errors()[0]
            raise RatiosUnfit(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error


@dataclass(frozen=True, slots=True)
class Load:
    """The expected load. `busy_hour`: the share of a day's calls in its busiest hour."""

    calls_per_day: int
    minutes: float  # of a call
    mono_share: float = 0.0  # of calls with both parties in one channel
    busy_hour: float = 0.15
    utilization: float = 0.7  # max. of a core
    gpu_rtfx: float | None = None  # seconds of a call that one GPU recognizes and diarizes per second; None: no GPU
    months: int = 12  # retention of recordings and results


@dataclass(frozen=True, slots=True)
class Plan:
    """The required capacity. Cores and GPUs are rounded up."""

    audio_hours_per_day: float
    busy_calls_per_second: float
    busy_audio_hours: float
    cores: int
    engine_cores: int  # of these, one for each Transcriber and Diarizer
    gpus: int
    gpu_hours: float  # a month, of GPUs that scale up and down with the load
    transcribers: int  # replicas
    diarizers: int
    databases: int  # for the busiest hour's submissions
    database_gb_per_month: float
    storage_gb_per_month: float
    cost: dict[Literal["cores", "gpus", "database", "storage", "all"], float]  # a month, after `months`
    cost_per_audio_hour: float


def plan(load: Load, ratios: Ratios) -> Plan:
    audio = load.calls_per_day * load.minutes / 60  # hours a day
    busy_calls, busy_minutes = (load.calls_per_day * load.busy_hour * part for part in (1, load.minutes))
    recognition, diarization, other = (
        _blend(load.mono_share, getattr(ratios.separated, part), getattr(ratios.mixed, part)) * busy_minutes
        for part in ("recognition", "diarization", "other")
    )
    submitting = busy_calls * SUBMISSIONS_A_CALL * ratios.submission.core_seconds
    available = 3600 * load.utilization  # core-seconds that a core gives in an hour
    if load.gpu_rtfx is None:
        gpus, transcribers, diarizers = 0, math.ceil(recognition / available), math.ceil(diarization / available)
    else:
        gpus = math.ceil(busy_minutes * 60 / load.gpu_rtfx / available)
        transcribers = diarizers = gpus  # two share one GPU
    engine_cores = transcribers + diarizers
    cores = math.ceil((other + submitting) / available) + engine_cores
    month = load.calls_per_day * DAYS_A_MONTH
    work = audio * DAYS_A_MONTH / load.gpu_rtfx / load.utilization if load.gpu_rtfx else 0.0
    gpu_hours = min(work, gpus * HOURS_A_MONTH)
    database = month * (ratios.database.bytes_per_call + load.minutes * ratios.database.bytes_per_minute) / GIGABYTE
    channels = _blend(load.mono_share, 2.0, 1.0)
    storage = month * load.minutes * channels * ratios.recordings.bytes_per_minute / GIGABYTE
    cost = _cost(cores, gpu_hours, database * load.months, storage * load.months, ratios.prices)
    return Plan(
        audio_hours_per_day=audio,
        busy_calls_per_second=busy_calls / 3600,
        busy_audio_hours=busy_minutes / 60,
        cores=cores,
        engine_cores=engine_cores,
        gpus=gpus,
        gpu_hours=gpu_hours,
        transcribers=transcribers,
        diarizers=diarizers,
        databases=math.ceil(busy_calls * SUBMISSIONS_A_CALL / 3600 / ratios.submission.most_per_second),
        database_gb_per_month=database,
        storage_gb_per_month=storage,
        cost=cost,
        cost_per_audio_hour=cost["all"] / (audio * DAYS_A_MONTH) if audio else 0.0,
    )


def _blend(mono_share: float, separated: float, mixed: float) -> float:
    return (1 - mono_share) * separated + mono_share * mixed


def _cost(
    cores: int, gpu_hours: float, database: float, storage: float, prices: Prices
) -> dict[Literal["cores", "gpus", "database", "storage", "all"], float]:
    """Return the monthly cost once everything within the retention is stored."""
    parts = {
        "cores": cores * HOURS_A_MONTH * prices.core_hour,
        "gpus": gpu_hours * prices.gpu_hour,
        "database": database * prices.database_gb_month,
        "storage": storage * prices.storage_gb_month,
    }
    return {**parts, "all": sum(parts.values())}  # type: ignore[dict-item]
