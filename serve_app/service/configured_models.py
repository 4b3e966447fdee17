from typing import Any

from pipeline.checkpoints import CheckpointKind
from serve_app.settings import Settings


def configured_models(settings: Settings) -> list[tuple[str, CheckpointKind]]:
    """Return the name and the kind of checkpoint of each model that this machine needs by the settings.

    An engine whose model runs on a server is left out; so is an aligner that no engine uses.
    """
    recognizer = settings.asr.engine_class
    models: list[tuple[str, Any]] = [(settings.asr.model, recognizer)]
    if settings.alignment.on and aligns(recognizer):
        models.append((settings.alignment.model, settings.alignment.engine_class))
    models.append((settings.diarization.pipeline, settings.diarization.engine_class))
    if settings.embedding.on:
        models.append((settings.embedding.model, settings.embedding.engine_class))
    return [(model, engine.CHECKPOINTS) for model, engine in models if engine.CHECKPOINTS is not None]


def aligns(recognizer: Any) -> bool:
    """Return whether an engine of this class may need an aligner; some know only after loading their model."""
    return hasattr(recognizer, "aligner")
