"""What does the Grafana board show of a real run, and which of its panels stay empty?

    python -m bench.board [--rounds 3] [--picture board.png] [--json FILE]

Starts the service with its embedded PostgreSQL, Debian's Prometheus beside it and a receiver of events, and submits the
sample calls `--rounds` times, among them recordings that fail. Each panel's own queries are then put to Prometheus and
drawn where the board has them: this is no Grafana, which no package index of ours has.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from db.events import endpoints
from db.secrets.encryption import Sealer
from serve_app.service.ports import free_port
from tests.acceptance.running import SECRETS_KEY, Client, RunningService
from tests.file_server import FileServer
from tests.prometheus import prometheus
from tests.receiver import receiving
from tests.synthetic_calls import synthetic_calls

BOARD = Path(__file__).resolve().parents[1] / "serve_app/deploy/grafana/switchboard.json"
PRICES = {f"SWITCHBOARD_SCALING__{name}": '{"price_per_hour": 0.5}' for name in ("TRANSCRIBER", "DIARIZER")}
STEP = 2.0  # seconds between two points
UNITS = {"s": "s", "percentunit": "%", "reqps": "per second"}
Series = dict[str, list[tuple[float, float]]]  # by legend: seconds since the start, value


async def work(service: RunningService, rounds: int) -> None:
    """Calls of every kind, until the last has ended."""
    client = await Client.of(service)
    sealed = Sealer([SECRETS_KEY]).seal("whsec_" + SECRETS_KEY)
    async with receiving() as receiver:
        await endpoints.add(client.database, client.workspace_id, receiver.url, sealed)
        with FileServer() as files:
            for _ in range(rounds):
                sent = []
                for sample in synthetic_calls():
                    for body in sample.submissions(files.add):
                        sent.append(body | {"callId": str(uuid4())})
                sent.append(sent[-1] | {"callId": str(uuid4()), "recordingUrl": files.add(Path(__file__))})  # no sound
                for body in sent:
                    await client.accepted(body)
                await client.post({"callId": "no id"})
                await client.ended([body["callId"] for body in sent if "recordingUrl" in body], timeout=900)
        await asyncio.sleep(15)  # the Conductors tell what they know every ten seconds
    await client.close()


def ask(at: str, expression: str, since: float, until: float) -> list[dict[str, Any]]:
    """Prometheus' answer for the whole run."""
    query: dict[str, str | float] = {
        "query": expression.replace("$__rate_interval", "30s"),
        "start": since,
        "end": until,
        "step": STEP,
    }
    answer = httpx.get(f"{at}/api/v1/query_range", params=query, timeout=30)
    answer.raise_for_status()
    return list(answer.json()["data"]["result"])


def shown(panel: dict[str, Any], at: str, since: float, until: float) -> Series:
    found: Series = {}
    for target in panel.get("targets", ()):
        for one in ask(at, target["expr"], since, until):
            legend = str(target["legendFormat"])
            for name, value in one["metric"].items():
                legend = legend.replace("{{" + name + "}}", value)
            points = [(float(when) - since, float(value)) for when, value in one["values"] if value != "NaN"]
            if points:
                found[legend] = points
    return found


def draw(panels: list[tuple[dict[str, Any], Series]], picture: Path) -> None:
    """The board as a picture, 24 columns wide, as Grafana lays it out."""
    from matplotlib.figure import Figure

    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel, _ in panels)
    figure = Figure(figsize=(16, 0.42 * height), dpi=90)
    for panel, series in panels:
        place, unit = panel["gridPos"], panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
        left, bottom = place["x"] / 24 + 0.03, 1 - (place["y"] + place["h"]) / height + 0.012
        if panel["type"] == "row":
            figure.text(place["x"] / 24 + 0.01, bottom, panel["title"], weight="bold", size=11)
            continue
        axes = figure.add_axes((left, bottom, place["w"] / 24 - 0.045, place["h"] / height - 0.035))
        axes.set_title(f"{panel['title']} {UNITS.get(unit, '')}".strip(), size=8, loc="left")
        axes.tick_params(labelsize=6)
        scale = 100 if unit == "percentunit" else 1
        if panel["type"] == "stat" or not series:
            last = next(iter(series.values()))[-1][1] * scale if series else None
            axes.set_axis_off()
            axes.text(0.5, 0.4, "no data" if last is None else f"{last:.4g}", ha="center", va="center", size=16)
            continue
        for legend, points in series.items():
            axes.plot([when for when, _ in points], [value * scale for _, value in points], label=legend, lw=1)
        axes.legend(fontsize=5, loc="upper left", frameon=False)
    figure.savefig(picture)


def run(rounds: int, picture: Path | None) -> dict[str, dict[str, int]]:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="swb-board-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        (folder / "state").mkdir()
        settings = {"SWITCHBOARD_SECRETS_KEYS": json.dumps([SECRETS_KEY]), **PRICES}
        service = RunningService("", folder, free_port(), settings)
        service.start()
        try:
            from db.server import embedded

            service.database_url = embedded.start(folder)
            target = urlsplit(service.ready["metricsUrl"]).netloc
            with prometheus(folder / "state", port, target):
                since = time.time()
                asyncio.run(work(service, rounds))
                at = f"http://127.0.0.1:{port}"
                panels = [(panel, shown(panel, at, since, time.time())) for panel in board["panels"]]
        finally:
            service.stop()
    if picture:
        draw(panels, picture)
    return {
        panel["title"]: {legend: len(points) for legend, points in series.items()}
        for panel, series in panels
        if panel["type"] != "row"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often all sample calls are submitted")
    parser.add_argument("--picture", type=Path, help="PNG to write")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = run(given.rounds, given.picture)
    for title, series in found.items():
        print(f"{title:<34}{', '.join(series) or 'no data'}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
