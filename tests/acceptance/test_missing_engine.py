"""A service without the hub: `auto` recognizes with a stored model, and calls that need a missing one wait for it."""

import shutil
from pathlib import Path

import pytest

from db.server import embedded, migrate
from pipeline.checkpoints.lock import default_store
from tests.acceptance.conftest import free_port
from tests.acceptance.running import Client, RunningService
from tests.acceptance.test_bad_recordings import body
from tests.file_server import FileServer
from tests.synthetic_calls import FOLDER

MODEL = "segmentation-3.0+campplus"
WARNING = "The voice of the rep was not compared: The service has no model for diarization."


@pytest.mark.slow
async def test_calls_that_do_not_need_a_missing_model_are_completed_and_the_others_when_it_is_there(
    tmp_path: Path, files: FileServer
) -> None:
    own_store = tmp_path / "checkpoints"
    own_store.mkdir()
    shutil.copytree(default_store() / "whisper-base", own_store / "whisper-base")
    environment = {
        "SWITCHBOARD_ASR__MODEL": "auto",
        "SWITCHBOARD_DIARIZATION__PIPELINE": MODEL,
        "SWITCHBOARD_CHECKPOINTS": str(own_store),
        "HF_HUB_OFFLINE": "1",
        "SWITCHBOARD_PROCESSING__RETRY_WINDOW_SECONDS": "600",
    }
    url = embedded.start(tmp_path / "state")
    migrate.migrate(url)
    service = RunningService(url, tmp_path, free_port(), environment)
    service.start()
    try:
        assert list(service.problems) == ["Diarizer"]
        assert MODEL in service.problems["Diarizer"]
        assert service.models.keys() == {"recognition"}
        assert service.models["recognition"]["engine"].startswith("faster-whisper base ")
        assert service.models["recognition"]["preferred"] == "small"
        client = await Client.of(service)
        stereo, mixed = [
            (await client.accepted(body(files.add(FOLDER / name / "call.flac"))))["callId"]
            for name in ("01_invoice_stereo", "03_repair_mono")
        ]
        (record,) = await client.ended([stereo])
        assert record.call.state == "completed", record.call.failure
        assert record.transcript is not None
        assert record.transcript.engine == service.models["recognition"]["engine"]
        assert any(warning.startswith(WARNING) for warning in record.warnings)
        assert (await client.record(mixed)).call.state == "transcribing"
        for name in MODEL.split("+"):
            shutil.copytree(default_store() / name, own_store / name)
        (record,) = await client.ended([mixed])
        assert record.call.state == "completed", record.call.failure
        await client.close()
    finally:
        assert service.stop() == 0, (tmp_path / "up.log").read_text()[-3000:]
        embedded.stop(tmp_path / "state")
