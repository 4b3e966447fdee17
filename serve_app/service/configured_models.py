from typing import Any

from pipeline.checkpoints import CheckpointKind
from serve_app.settings import Settings


def configured_models(settings: Settings) -> list[tuple[str, CheckpointKind]]:
    """Return the name and the kind of checkpoint of each model that this machine needs by the settings.

    An engine whose model runs on a server is left out; so is an aligner that no engine uses.
    """
    from pipeline import asr, diarization, embedding
    from pipeline.asr import alignment

    recognizer = asr.engine_class(settings.asr)
    models: list[tuple[str, Any]] = [(settings.asr.model, recognizer)]
    if settings.alignment.on and aligns(recognizer):
        models.append((settings.alignment.model, alignment.aligner_class(settings.alignment)))
    models.append((settings.diarization.pipeline, diarization.engine_class(settings.diarization)))
    if settings.embedding.on:
        models.append((settings.embedding.model, embedding.engine_class(settings.embedding)))
    return [(model, engine.CHECKPOINTS) for model, engine in models if engine.CHECKPOINTS is not None]


def aligns(recognizer: Any) -> bool:
    """Return whether an engine of this class may need an aligner; some know only after loading their model."""
    return hasattr(recognizer, "aligner")
