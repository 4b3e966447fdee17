import pytest
from typer.testing import CliRunner

from pipeline.backfill.run import BackfillProgress
from pipeline.backfill.source import Source
from serve_app.cli import app
from serve_app.cli.calls import backfill
from serve_app.cli.ui.errors import USAGE, CommandError
from serve_app.settings import Settings


def test_a_source_that_is_not_there_is_told_before_ray_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr(backfill, "_ray", lambda *_: pytest.fail("Ray is started"))
    result = CliRunner().invoke(app, ["backfill", str(tmp_path / "none"), "--out", str(tmp_path), "--model", "base"])
    assert result.exit_code == USAGE
    assert "none is not a folder" in result.output


def test_more_workers_than_the_cluster_can_run_are_rejected():
    settings = Settings()
    with pytest.raises(CommandError, match="4 workers need 4 CPU; the cluster has 2"):
        backfill._hardware(settings, {"CPU": 2.0}, 4, 1.0, None, None)
    with pytest.raises(CommandError, match="need 1 backfill; the cluster has 0"):
        backfill._hardware(settings, {"CPU": 2.0}, 1, 1.0, None, "backfill")
    assert backfill._hardware(settings, {"CPU": 2.0, "GPU": 1.0}, 1, 1.0, None, None).gpus == 1.0
    cpu = settings.model_copy(update={"asr": settings.asr.model_copy(update={"device": "cpu"})})
    assert backfill._hardware(cpu, {"CPU": 2.0, "GPU": 1.0}, 1, 1.0, None, None).gpus == 0.0


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        (BackfillProgress(0, 0), ["No recordings in the source."]),
        (
            BackfillProgress(41, 16, 20, 1, 150.0, 60.0),
            [
                "41 recordings, 16 processed before.",
                "Processed now: 20 with 2 min 30 s of audio, in 1 min 00 s (1,200 per hour).",
                "1 failed: columns `code` and `error` say why; --failed retries them.",
                "5 left: run the same command again.",
                "Rows: s3://bucket/texts",
            ],
        ),
        (BackfillProgress(41, 41), ["41 recordings, 41 processed before.", "Rows: s3://bucket/texts"]),
    ],
)
def test_the_summary_counts_processed_and_remaining_recordings(progress, lines, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    backfill._print_summary(progress, "s3://bucket/texts")
    assert capsys.readouterr().out.splitlines() == lines


def test_a_folder_on_this_machine_may_have_any_name(tmp_path):
    folder = tmp_path / "new calls #1 50%"
    folder.mkdir()
    (folder / "a.wav").write_bytes(b"RIFF")
    assert [file.path for file in Source(backfill._address(str(folder))).recordings()] == ["a.wav"]
